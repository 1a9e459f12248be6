"""A peer's letter box on disk: what was taken in survives a crash, and no letter counts twice.

A letter is acknowledged once its file is there. The file goes when no checkpoint is left that was made before the
letter was used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, RunError
from coterie.network.keys import write_whole

MOST_UNREAD = 64  # letters of one sender


@dataclass(frozen=True)
class StoredMessage:
    path: Path
    artifact: Artifact


EMPTY: Mapping[str, Any] = {"last": {}, "unread": []}  # what is known of letters before there is a checkpoint


class Mailbox:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: dict[str, int] = {}  # by sender and its epoch, the number of its last letter
        self._unread: list[StoredMessage] = []
        self._used: list[Path] = []  # since the last checkpoint
        self._settled: list[Path] = []  # between the last and the one before, which may still have to serve

    def state(self) -> dict[str, Any]:
        """For a checkpoint: which letters had come, and which of them had not been used."""
        return {"last": dict(self.last), "unread": [letter.path.name for letter in self._unread]}

    def open(self, state: Mapping[str, Any]) -> None:
        """What lies there from before a crash, given what a checkpoint knew."""
        known, unread = state["last"], set(state["unread"])
        self.last = dict(known)
        for half in self.folder.glob(".*.part"):
            half.unlink()
        for path in sorted(self.folder.glob("*.letter"), key=lambda p: p.stat().st_mtime_ns):
            try:
                artifact = Artifact.from_bytes(path.read_bytes())
            except (OSError, ArtifactError):
                path.unlink(missing_ok=True)  # was never acknowledged
                continue
            sender, _, count = path.stem.rpartition(".")
            if int(count) <= known.get(sender, -1) and path.name not in unread:
                self._settled.append(path)
                continue
            self.last[sender] = max(self.last.get(sender, -1), int(count))
            self._unread.append(StoredMessage(path, artifact))

    def put(self, artifact: Artifact, data: bytes, sender: str, number: str) -> bool:
        """Keep a letter; False if it came before. `number` is the sender's epoch and count: "EPOCH.COUNT"."""
        epoch, _, count = number.rpartition(".")
        if not (epoch.isalnum() and len(epoch) <= 32 and count.isascii() and count.isdigit() and len(count) <= 12):
            raise ArtifactError(f"a letter of '{sender}' has the number {number[:50]!r}")
        whose = f"{sender}.{epoch}"
        if int(count) <= self.last.get(whose, -1):
            return False
        path = self.folder / f"{whose}.{int(count):012d}.letter"
        self._write(path, data)
        self.last[whose] = int(count)
        self._unread.append(StoredMessage(path, artifact))
        return True

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except OSError as error:
            raise RunError(f"{path} could not be written ({error.strerror}): is the disk full?") from error

    def is_full(self, sender: str) -> bool:
        """Whether so many letters of one sender wait here that more would only fill the disk."""
        return sum(letter.path.name.startswith(f"{sender}.") for letter in self._unread) >= MOST_UNREAD

    def has(self, name: str) -> bool:
        return any(letter.artifact.name == name for letter in self._unread)

    def take(self, name: str) -> list[Artifact]:
        """All of this name, oldest first."""
        taken = [letter for letter in self._unread if letter.artifact.name == name]
        self._unread = [letter for letter in self._unread if letter.artifact.name != name]
        self._used += [letter.path for letter in taken]
        return [letter.artifact for letter in taken]

    def settled(self) -> None:
        """A checkpoint was written: what was used before the last one will not be needed again."""
        for path in self._settled:
            path.unlink(missing_ok=True)
        self._settled, self._used = self._used, []
