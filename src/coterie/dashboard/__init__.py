"""A live page over run folders: it reads files, never a live run's objects."""
