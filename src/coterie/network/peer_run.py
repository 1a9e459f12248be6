"""What one real peer runs, and what it is doing."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from coterie.config.sections import NetworkSettings
from coterie.core.peer import Peer
from coterie.data.pool import Unscaled
from coterie.methods.base import Method
from coterie.metrics import ACCURACY_ONLY, Evaluation


@dataclass(frozen=True)
class PeerRun:
    """The method and settings of a run, at one peer."""

    method: Method
    me: Peer
    rounds: int
    expected: int  # participants, with this one and the server
    settings: NetworkSettings
    folder: Path
    asynchronous: bool
    server: str = ""  # its name; empty without a server
    evaluate_every: int = 1
    evaluation: Evaluation = ACCURACY_ONLY
    unscaled: Unscaled | None = None  # with data.scale = "pooled": the rows, which the circle scales; none at a server


@dataclass
class Activity:
    """What the peer is doing and waiting for, and what it exchanged in the current round."""

    doing: str = ""  # the verb being awaited: train, fetch and so on
    waits_for: str = ""
    awaited: set[int] = field(default_factory=set)  # peers that have not answered the current fetch
    waited: float = 0.0  # seconds spent waiting for others, in this round
    stale: dict[int, int] = field(default_factory=dict)  # by peer: by how many rounds its artifact was too old
    bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    last_use: float = field(default_factory=time.monotonic)  # when it last computed or received something

    def begin_round(self) -> None:
        self.waited, self.stale = 0.0, {}

    def end_round(self) -> None:
        """Forget the traffic, after it was recorded. (That of the setup counts for the first round.)"""
        self.bytes, self.messages = Counter(), Counter()

    def received(self, name: str, size: int) -> None:
        self.used()
        self.exchanged(name, size)

    def exchanged(self, name: str, size: int) -> None:
        self.bytes[name] += size
        self.messages[name] += 1

    def used(self) -> None:
        self.last_use = time.monotonic()
