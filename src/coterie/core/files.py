"""Atomic writes (a file has its old content or its new one, never a part), and locks between processes."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from coterie.core.errors import RunError

DEFAULT_MODE = 0o666  # less the umask


def write_whole(path: Path, content: str | bytes, *, mode: int = DEFAULT_MODE, sync: bool = True) -> None:
    """Replace a file's content; the arguments are those of `replacing`."""
    # File names in a text may not be valid UTF-8.
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    with replacing(path, mode=mode, sync=sync) as temporary:
        temporary.write_bytes(data)


@contextmanager
def replacing(path: Path, *, mode: int = DEFAULT_MODE, sync: bool = True) -> Iterator[Path]:
    """A temporary file for the block to fill. It replaces `path` if the block succeeds, and is deleted if not.

    A concurrent reader sees the old content or the new one, and so does a reader after a power cut. At no time can
    more users read the file than `mode` allows.

    Args:
        path: the file to replace or make.
        mode: the permissions of the file, less the umask.
        sync: whether the content is on the disk on return. False is for a live status: it is outdated within a second
            and useless after a power cut, and a busy disk would stall its writer.
    """
    # A random name: two processes may write the same file at once.
    temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}.part")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield temporary
        if sync:
            _sync(temporary, os.O_RDWR)
        temporary.replace(path)
        if sync and os.name == "posix":  # other systems cannot open a folder
            _sync(path.parent, os.O_RDONLY)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:  # it names the temporary file, or none
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def leftovers(folder: Path, name: str = "*") -> list[Path]:
    """The temporary files that processes which were killed while writing `name` left in a folder."""
    return list(folder.glob(f".{name}-*.part"))


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A temporary folder for the block to fill. It replaces the folder `path` if the block succeeds.

    For one process at a time. What an earlier, killed process left is deleted.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        if path.exists():
            shutil.rmtree(path)
        temporary.replace(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def locked(path: Path, remedy: str = "", *, what: str = "", wait: bool = False) -> Iterator[None]:
    """Lock an existing file or folder during the block; the other arguments are those of `lock`."""
    what = what or str(path)
    try:
        file = _opened(path)
    except OSError as error:
        raise RunError(f"{what} cannot be locked ({error.strerror})") from error
    try:
        lock(file, what, remedy, wait=wait)
        yield
    finally:
        os.close(file)


def lock(file: int, what: str, remedy: str = "", *, wait: bool = False) -> None:
    """Lock an open file against other processes until it is closed. The end of a process releases its locks.

    Args:
        file: its descriptor.
        what: the name of the file, or of what it protects, for errors.
        remedy: what the user can do if another process holds the lock.
        wait: whether to wait for that process, instead of an error.
    """
    import fcntl  # here, because only POSIX systems have it

    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        raise RunError(f"{what} is in use by another process: {remedy}") from error
    except OSError as error:  # some network file systems have no locks
        raise RunError(f"{what} cannot be locked ({error.strerror})") from error


def _opened(path: Path) -> int:
    """For writing where possible: NFS locks nothing else. A folder, or a file of another user, only for reading."""
    try:
        return os.open(path, os.O_RDWR)
    except (IsADirectoryError, PermissionError):
        return os.open(path, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    file = os.open(path, flags)
    try:
        os.fsync(file)
    finally:
        os.close(file)
