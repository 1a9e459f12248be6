"""What the director knows of a stage, which runs the participants: its interface, and the messages between them.

A stage knows nothing of time, absences, or which participant waits for which. The director tells it which participants
act, and gets the next request of each. So a stage may run in this process (`simulation.local_stage`), or be spread over
several (`simulation.shards`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie.core.artifact import Artifact
from coterie.core.checkpoint import SavedArtifact, SavedPeer
from coterie.core.peer import Peer
from coterie.core.requests import Request
from coterie.engines.measuring import Measured
from coterie.methods.base import Method


class Computed:
    """The answer to a request for computation: the stage has the result."""


class Messages(NamedTuple):
    """The answer to a participant that waits for messages: how many of them to take from its inbox."""

    name: str
    many: int


class Turn(NamedTuple):
    """Lets a participant continue: with a new round, or with the answer to its request."""

    peer: int
    round: int | None = None
    answer: Any = None


@dataclass(frozen=True, eq=False)
class Working(Request[Any]):
    """A participant's request for computation, as the director sees it: the stage keeps the request itself."""

    samples: float  # simulated cost, in samples of training
    training: bool


@dataclass(eq=False)
class Reply:
    """What a participant did in its turn, and its next request; None: it has finished its setup or round."""

    peer: int
    request: Request[Any] | None = None
    shelved: list[Artifact] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)  # the names of messages that it took from its inbox
    notes: dict[str, Any] = field(default_factory=dict)  # of a finished round


class SavedActor(SavedPeer):
    """The stage's part of a participant's snapshot for a checkpoint."""

    inbox: dict[str, list[SavedArtifact]]


class Stage(ABC):
    """Executes participants: their coroutines, the computations they request, and their measurements."""

    def __init__(self, method: Method, participants: Sequence[Peer], rounds: int) -> None:
        self.method, self.rounds = method, rounds
        self.peers = {peer.id: peer for peer in participants}

    @property
    def asynchronous(self) -> bool:
        """Whether the method is asynchronous by itself, whatever the settings."""
        return self.method.asynchronous

    @abstractmethod
    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        """Run these participants, each to its next request."""

    @abstractmethod
    def compute(self, round: int) -> None:
        """Do all computations requested in this round, at once."""

    @abstractmethod
    def measured(self, round: int) -> dict[int, Measured]:
        """The scores of peers that have finished this round, by peer; each is returned once."""

    @abstractmethod
    def deliver(self, peer: int, artifact: Artifact) -> None:
        """Put a message into this peer's inbox."""

    @abstractmethod
    def whole(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        """These artifacts with their content, which may be in another process."""

    @abstractmethod
    def adopt(self, artifact: Artifact) -> Artifact:
        """Take over an artifact from a checkpoint; returns it in the form that the director uses."""

    @abstractmethod
    def keep(self, peer: int, round: int) -> None:
        """Take a snapshot of this peer for the checkpoint of this round."""

    @abstractmethod
    def kept(self, round: int) -> dict[int, SavedActor]:
        """The snapshots for this checkpoint, by peer."""

    @abstractmethod
    def restore(self, saved: Mapping[int, SavedActor]) -> None:
        """Restore the participants from the snapshots of a checkpoint, by peer."""

    @abstractmethod
    def end(self) -> None:
        """Abandon all unfinished rounds."""

    @abstractmethod
    def collect_states(self) -> None:
        """Update `peers` to their final states."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""
