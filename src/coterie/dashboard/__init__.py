"""A live web page of run folders. It reads only files, never the objects of a running process."""
