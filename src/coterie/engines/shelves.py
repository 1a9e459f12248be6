"""Shelves: the versions of the artifacts that peers publish (of all peers in a simulation, of one on a network)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from coterie.core.artifact import Artifact

MOST_VERSIONS = 8  # a peer may lag so many rounds and still get exactly its round's version


@dataclass(frozen=True)
class Shelved:
    time: float
    artifact: Artifact


class Shelves:
    """Finds the version for a fetch: that of its round or, in an asynchronous run, the latest at its time."""

    def __init__(self, asynchronous: bool, most: int = MOST_VERSIONS) -> None:
        self.asynchronous, self.most = asynchronous, most
        self.retain = False  # while a checkpoint is collected: keep the versions that a resumed run needs
        self._shelves: dict[tuple[int, str], list[Shelved]] = defaultdict(list)
        self._names: set[str] = set()

    def put(self, artifact: Artifact, time: float, oldest_round: int) -> None:
        """Add a version; drop those that no peer will fetch any more."""
        versions = self._shelves[artifact.author, artifact.name]
        if versions and versions[-1].artifact.round == artifact.round and not self.asynchronous:
            versions.pop()  # shelved twice in a round: the later one replaces the earlier
        versions.append(Shelved(time, artifact))
        self._names.add(artifact.name)
        if self.asynchronous:
            if not self.retain:
                _drop_superseded(versions, time)
            return
        while len(versions) > 1 and (versions[0].artifact.round < oldest_round or len(versions) > self.most):
            versions.pop(0)

    def drop_before(self, oldest_round: int) -> None:
        """Drop all versions of earlier rounds: every peer has reached this one."""
        if self.asynchronous:
            return
        for key, versions in list(self._shelves.items()):
            versions[:] = [v for v in versions if v.artifact.round >= oldest_round]
            if not versions:
                del self._shelves[key]

    def knows(self, name: str) -> bool:
        """Whether any peer has ever shelved something under this name."""
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
        """The versions that a run resumed after this round needs: none in a synchronous run."""
        if not self.asynchronous:
            return []
        return [v for v in self.everything() if v.artifact.round <= round]

    def everything(self) -> list[Shelved]:
        return [v for _, vs in sorted(self._shelves.items()) for v in vs]

    def restore(self, versions: list[Shelved]) -> None:
        for v in versions:
            self._shelves[v.artifact.author, v.artifact.name].append(v)

    def release(self, time: float) -> None:
        """Drop the versions that only the checkpoint needed: it is written."""
        self.retain = False
        if self.asynchronous:
            for versions in self._shelves.values():
                _drop_superseded(versions, time)


def _drop_superseded(versions: list[Shelved], time: float) -> None:
    """Drop versions before the latest at this time. (After a resume, some versions lie in the future.)"""
    while len(versions) > 1 and versions[1].time <= time:
        versions.pop(0)
