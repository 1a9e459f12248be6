"""What the simulation keeps of each participant, of fetches it has not finished, and of letters on their way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from coterie.engines.board import Shelved
from coterie.events import PeerAway, PeerRound
from coterie.peer import Fetch, News, Peer, Receive, Request
from coterie.shelf import Artifact
from coterie.weights import Weights


@dataclass(frozen=True, eq=False)
class EndOfRound(Request[None]):
    record: PeerRound | PeerAway


@dataclass(eq=False)
class Answer:
    """A result that may still have to be computed."""

    value: Any = None
    ready: bool = True


@dataclass(eq=False)
class OpenFetch:
    """A fetch that has been served in part."""

    request: Fetch
    by: int
    time: float
    missing: set[int]
    arrived: dict[int, Shelved] = field(default_factory=dict)


@dataclass(eq=False)
class Letter:
    """Something sent: which round its sender, and on arrival its recipient, was in."""

    number: tuple[int, int]  # sender, and its count of letters: tells a letter from its twin after a resume
    sent_in: int
    to: int
    arrival: float
    artifact: Artifact
    delivered_in: int | None = None

    def had_by(self, round: int) -> bool:
        """Whether its recipient had it when it finished this round."""
        return self.delivered_in is not None and self.delivered_in <= round

    def packed(self) -> dict[str, Any]:
        where = {"number": list(self.number), "sent_in": self.sent_in, "to": self.to, "arrival": self.arrival}
        return {**where, **packed(self.artifact)}


@dataclass(eq=False)
class Participant:
    peer: Peer
    round: int = 0  # the one it is in, or is about to begin
    time: float = 0.0
    coroutine: Coroutine[Request[Any], Any, None] | None = None
    waits_for: Request[Any] | None = None
    was_away: bool = False
    gone: bool = False
    done: bool = False
    letters_sent: int = 0
    shelved: int = 0  # how many things, so far
    heard: int = 0  # how many things of others there were when it was last told of news
    silences: int = 0  # of how many it was told
    waited: float = 0.0  # for others, in this round
    inbox: dict[str, list[Artifact]] = field(default_factory=dict)
    bytes: Counter[str] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)


def plea(p: Participant, waiting: dict[int, dict[OpenFetch, None]]) -> str:
    """What a participant that cannot go on waits for, for the report of a deadlock."""
    request = p.waits_for
    if isinstance(request, Fetch):
        authors = sorted(a for a, fetches in waiting.items() if any(f.by == p.peer.id for f in fetches))
        what = f"'{request.name}' of round {request.round} from {', '.join(map(str, authors))}"
    elif isinstance(request, Receive):
        what = f"a message '{request.name}' from anybody"
    elif isinstance(request, News):
        what = "news from anybody"
    else:
        what = type(request).__name__
    return f"peer {p.peer.id} in round {p.round} waits for {what}"


def packed(artifact: Artifact) -> dict[str, Any]:
    content = artifact.content if isinstance(artifact.content, Weights) else dict(artifact.content)
    return {
        "name": artifact.name, "author": artifact.author, "round": artifact.round,
        "content": content, "facts": dict(artifact.facts),
    }  # fmt: skip


def unpacked(saved: dict[str, Any]) -> Artifact:
    return Artifact(saved["name"], saved["author"], saved["round"], saved["content"], saved["facts"])
