"""Files that are whole, or as they were before."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Whoever reads the file at any time finds the old text or the new one, and never a part."""
    # Names may hold what no text can.
    _whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8", errors="replace"))


def write_bytes_whole(path: Path, content: bytes) -> None:
    """The same for what is not text."""
    _whole(path, lambda temporary: temporary.write_bytes(content))


def _whole(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
