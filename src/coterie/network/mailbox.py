"""A peer's mailbox on disk: received messages survive a crash, and duplicates are dropped.

A message is acknowledged once its file is written. The file is deleted once every remaining checkpoint is newer than
the use of the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, RunError
from coterie.core.files import leftovers, write_whole

MOST_UNREAD = 64  # messages of one sender


@dataclass(frozen=True)
class StoredMessage:
    path: Path
    artifact: Artifact


class SavedMailbox(TypedDict):
    last: dict[str, int]  # number of the last message, by sender and epoch
    unread: list[str]  # names of files


EMPTY: SavedMailbox = {"last": {}, "unread": []}  # the state before the first checkpoint


class Mailbox:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last: dict[str, int] = {}  # number of the last message, by sender and epoch
        self._unread: list[StoredMessage] = []
        self._used: list[Path] = []  # since the last checkpoint
        self._used_before: list[Path] = []  # before the last checkpoint; needed if only the previous one is readable

    def state(self) -> SavedMailbox:
        """For a checkpoint: the numbers of the last messages, and the unread ones."""
        return {"last": dict(self.last), "unread": [message.path.name for message in self._unread]}

    def open(self, state: SavedMailbox) -> None:
        """Load the messages from before a crash, given the state in a checkpoint."""
        known, unread = state["last"], set(state["unread"])
        self.last = dict(known)
        for incomplete in leftovers(self.folder):
            incomplete.unlink()
        for path in sorted(self.folder.glob("*.letter"), key=lambda p: p.stat().st_mtime_ns):
            try:
                artifact = Artifact.from_bytes(path.read_bytes())
            except (OSError, ArtifactError):
                path.unlink(missing_ok=True)  # was never acknowledged
                continue
            sender, _, count = path.stem.rpartition(".")
            if int(count) <= known.get(sender, -1) and path.name not in unread:
                self._used_before.append(path)
                continue
            self.last[sender] = max(self.last.get(sender, -1), int(count))
            self._unread.append(StoredMessage(path, artifact))

    def put(self, artifact: Artifact, data: bytes, sender: str, number: str) -> bool:
        """Store a message; False if it is a duplicate. `number` is the sender's epoch and count: "EPOCH.COUNT"."""
        epoch, _, count = number.rpartition(".")
        if not (epoch.isalnum() and len(epoch) <= 32 and count.isascii() and count.isdigit() and len(count) <= 12):
            raise ArtifactError(f"a message of '{sender}' has the invalid number {number[:50]!r}")
        origin = f"{sender}.{epoch}"
        if int(count) <= self.last.get(origin, -1):
            return False
        path = self.folder / f"{origin}.{int(count):012d}.letter"
        self._write(path, data)
        self.last[origin] = int(count)
        self._unread.append(StoredMessage(path, artifact))
        return True

    def _write(self, path: Path, data: bytes) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except OSError as error:
            raise RunError(f"{path} could not be written ({error.strerror}): is the disk full?") from error

    def is_full(self, sender: str) -> bool:
        """Whether one sender has so many unread messages that more would only fill the disk."""
        return sum(message.path.name.startswith(f"{sender}.") for message in self._unread) >= MOST_UNREAD

    def has(self, name: str) -> bool:
        return any(message.artifact.name == name for message in self._unread)

    def take(self, name: str) -> list[Artifact]:
        """All unread messages of this name, oldest first."""
        taken = [message for message in self._unread if message.artifact.name == name]
        self._unread = [message for message in self._unread if message.artifact.name != name]
        self._used += [message.path for message in taken]
        return [message.artifact for message in taken]

    def drop_used(self) -> None:
        """After a checkpoint: delete the messages that were used before the previous one."""
        for path in self._used_before:
            path.unlink(missing_ok=True)
        self._used_before, self._used = self._used, []
