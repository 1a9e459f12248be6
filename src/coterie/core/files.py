"""Atomic writes: a file has its old content or its new one, never a part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replace the file's text atomically: a concurrent reader sees the old text or the new one."""
    # File names in the text may not be valid UTF-8.
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8", errors="replace"))


def write_bytes_whole(path: Path, content: bytes) -> None:
    """The same for bytes."""
    _replace(path, lambda temporary: temporary.write_bytes(content))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
