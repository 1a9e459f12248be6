"""Follow a growing file of JSON lines, reading only what was added since the last look."""

from __future__ import annotations

import os
from pathlib import Path

from coterie.core.json_values import Json, parsed

STEP = 4_000_000  # bytes per look, so that its user can show something while a large file is still being read
LONGEST_LINE = 64_000_000  # bytes


class Tail:
    """Follows one file. An incomplete line at the end waits for its rest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0  # bytes read so far, always up to the end of a line
        self.size = 0
        self.behind = False  # whether the last look did not reach the end of the file
        self.trouble = ""  # the first problem, as a sentence
        self._file = 0  # inode: a resumed run replaces the file
        self._lines = 0

    def rewind(self) -> None:
        """Start again at the beginning of the file."""
        self.position, self._lines, self.trouble = 0, 0, ""

    def look(self) -> tuple[bool, list[Json]]:
        """Whether the file was replaced, and its new records (after a replacement all records, step by step)."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                replaced = about.st_ino != self._file or about.st_size < self.position
                if replaced:
                    replaced = self._file != 0
                    self.rewind()
                    self._file = about.st_ino
                self.size = about.st_size
                file.seek(self.position)
                chunk = file.read(STEP)
                self.behind = len(chunk) == STEP
                complete = _complete_lines(chunk)
                if not complete and self.behind:  # a single line longer than a step
                    file.seek(self.position)
                    complete = _complete_lines(file.read(LONGEST_LINE))
                    self.behind = bool(complete)
        except OSError as error:
            self.behind = False
            if self._file or not isinstance(error, FileNotFoundError):
                self.trouble = f"{self.path.name} cannot be read: {error.strerror}."
            return False, []
        if not complete and self.size - self.position >= LONGEST_LINE:
            self.trouble = f"{self.path.name}: line {self._lines + 1} is too long; nothing after it can be read."
        self.position += len(complete)
        lines = complete.decode("utf-8", "replace").split("\n")[:-1]
        return replaced, [record for line in lines if (record := self._parsed(line)) is not None]

    def _parsed(self, line: str) -> Json | None:
        self._lines += 1
        try:
            record = parsed(line)
            if isinstance(record, dict):
                return record
        except (ValueError, RecursionError):
            pass
        self.trouble = self.trouble or f"{self.path.name}: line {self._lines} is damaged and was skipped."
        return None


def _complete_lines(text: bytes) -> bytes:
    return text[: text.rfind(b"\n") + 1]
