"""Shelves (everybody's in a simulation, one's own on a network): versions, and who may still ask for which."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from coterie.core.artifact import Artifact

MOST_VERSIONS = 8  # how far behind a peer may be and still get exactly its round's version


@dataclass(frozen=True)
class Shelved:
    time: float
    artifact: Artifact


class Shelves:
    """Finds what a fetch should get: this round's version or, in an asynchronous run, the latest at that time."""

    def __init__(self, asynchronous: bool, most: int = MOST_VERSIONS) -> None:
        self.asynchronous, self.most = asynchronous, most
        self.retain = False  # while a checkpoint is gathered: keep what would be needed to go on from it
        self._shelves: dict[tuple[int, str], list[Shelved]] = defaultdict(list)
        self._names: set[str] = set()

    def put(self, artifact: Artifact, time: float, oldest_round: int) -> None:
        """Shelve; forget versions that nobody will ask for any more."""
        versions = self._shelves[artifact.author, artifact.name]
        if versions and versions[-1].artifact.round == artifact.round and not self.asynchronous:
            versions.pop()  # shelved twice in a round: the later one counts
        versions.append(Shelved(time, artifact))
        self._names.add(artifact.name)
        if self.asynchronous:
            if not self.retain:
                _forget_superseded(versions, time)
            return
        while len(versions) > 1 and (versions[0].artifact.round < oldest_round or len(versions) > self.most):
            versions.pop(0)

    def settle(self, oldest_round: int) -> None:
        """Nobody is in a round before this one any more, and so nobody will ask for what was shelved in it."""
        if self.asynchronous:
            return
        for key, versions in list(self._shelves.items()):
            versions[:] = [v for v in versions if v.artifact.round >= oldest_round]
            if not versions:
                del self._shelves[key]

    def knows(self, name: str) -> bool:
        """Whether anybody has ever shelved something under this name."""
        return name in self._names

    def find(self, author: int, name: str, round: int, time: float) -> Shelved | None:
        versions = self._shelves.get((author, name), ())
        if self.asynchronous:
            return next((v for v in reversed(versions) if v.time <= time), None)
        for version in versions:
            if version.artifact.round >= round:
                return version
        return None

    def latest(self, author: int, name: str) -> Shelved | None:
        versions = self._shelves.get((author, name))
        return versions[-1] if versions else None

    def until(self, round: int) -> list[Shelved]:
        """What a run that goes on after this round needs: in a synchronous run, nothing."""
        if not self.asynchronous:
            return []
        return [v for v in self.everything() if v.artifact.round <= round]

    def everything(self) -> list[Shelved]:
        return [v for _, vs in sorted(self._shelves.items()) for v in vs]

    def restore(self, versions: list[Shelved]) -> None:
        for v in versions:
            self._shelves[v.artifact.author, v.artifact.name].append(v)

    def release(self, time: float) -> None:
        """The checkpoint is written: what only it needed can go."""
        self.retain = False
        if self.asynchronous:
            for versions in self._shelves.values():
                _forget_superseded(versions, time)


def _forget_superseded(versions: list[Shelved], time: float) -> None:
    """Drop what is no longer the latest at this time. (After a resume, some versions lie in the future.)"""
    while len(versions) > 1 and versions[1].time <= time:
        versions.pop(0)
