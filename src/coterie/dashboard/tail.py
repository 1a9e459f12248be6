"""What was added to a file of JSON lines since the last look: a large file is never read twice."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

STEP = 4_000_000  # bytes that one look reads at most: a page shows something while a large file is still being read
LONGEST_LINE = 64_000_000  # bytes


class Tail:
    """Follows one file; half a line at its end waits for its other half."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0  # how much was read: always the end of a line
        self.size = 0
        self.behind = False  # whether more than one look can read is left
        self.trouble = ""  # what could not be read, as a sentence
        self._file = 0  # which file that was: a resumed run makes another
        self._lines = 0

    def rewind(self) -> None:
        """Read everything again from the beginning."""
        self.position, self._lines, self.trouble = 0, 0, ""

    def look(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether the file is another than before, and its new records (all of them in that case, step by step)."""
        try:
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                anew = about.st_ino != self._file or about.st_size < self.position
                if anew:
                    anew = self._file != 0
                    self.rewind()
                    self._file = about.st_ino
                self.size = about.st_size
                file.seek(self.position)
                found = file.read(STEP)
                self.behind = len(found) == STEP
                whole = _whole_lines(found)
                if not whole and self.behind:  # one line is longer than a step
                    file.seek(self.position)
                    whole = _whole_lines(file.read(LONGEST_LINE))
                    self.behind = bool(whole)
        except OSError as error:
            if self._file or not isinstance(error, FileNotFoundError):
                self.trouble = f"{self.path.name} cannot be read: {error.strerror}."
            return False, []
        if not whole and self.size - self.position >= LONGEST_LINE:
            self.trouble = f"{self.path.name}: line {self._lines + 1} has no end; nothing after it can be read."
        self.position += len(whole)
        lines = whole.decode("utf-8", "replace").split("\n")[:-1]
        return anew, [record for line in lines if (record := self._parsed(line)) is not None]

    def _parsed(self, line: str) -> dict[str, Any] | None:
        self._lines += 1
        try:
            record = json.loads(line)
            if isinstance(record, dict):
                return record
        except (ValueError, RecursionError):
            pass
        self.trouble = self.trouble or f"{self.path.name}: line {self._lines} is damaged and was left out."
        return None


def _whole_lines(text: bytes) -> bytes:
    return text[: text.rfind(b"\n") + 1]
