"""What the simulation keeps of each participant, of fetches it has not finished, and of letters on their way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coterie.core.artifact import Artifact
from coterie.core.events import PeerRound
from coterie.core.requests import Fetch, News, Receive, Request
from coterie.engines.shelves import Shelved
from coterie.simulation.protocol import Working


@dataclass(eq=False)
class OpenFetch:
    """A fetch that has been served in part."""

    request: Fetch
    by: int
    time: float
    missing: set[int] = field(default_factory=set)  # who is waited for
    arrived: dict[int, Shelved] = field(default_factory=dict)


@dataclass(eq=False)
class Message:
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

    def label(self) -> dict[str, Any]:
        """What a checkpoint has of it, beside the artifact."""
        return {"number": list(self.number), "sent_in": self.sent_in, "to": self.to, "arrival": self.arrival}


@dataclass(eq=False)
class Participant:
    id: int
    round: int = 0  # the one it is in, or is about to begin
    time: float = 0.0
    computed: bool = True  # what it asked to have computed
    waits_for: Request[Any] | None = None
    fetching: OpenFetch | None = None  # the last of its fetches
    was_away: bool = False
    gone: bool = False
    done: bool = False
    letters_sent: int = 0
    shelved: int = 0  # how many things, so far
    heard: int = 0  # how many things of others there were when it was last told of news
    silences: int = 0  # of how many it was told
    waited: float = 0.0  # for others, in this round
    inbox: Counter[str] = field(default_factory=Counter)  # how many letters have come for it, by name
    bytes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))  # of this round, by artifact
    messages: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def end_round(self, time: float, notes: dict[str, Any]) -> PeerRound:
        """What is to be recorded of it; accounts begin anew."""
        if self.waited:
            notes["waited"] = round(self.waited, 6)
        received = {name: size for name, size in self.bytes.items() if size}
        messages = {name: many for name, many in self.messages.items() if many}
        self.bytes.clear()
        self.messages.clear()
        self.waited = 0.0
        return PeerRound(self.id, self.round, time, bytes=received, messages=messages, notes=notes)


def plea(p: Participant, waiting: dict[int, dict[OpenFetch, None]]) -> str:
    """What a participant that cannot go on waits for, for the report of a deadlock."""
    request = p.waits_for
    if isinstance(request, Fetch):
        authors = sorted(a for a, fetches in waiting.items() if any(f.by == p.id for f in fetches))
        what = f"'{request.name}' of round {request.round} from {', '.join(map(str, authors))}"
    elif isinstance(request, Receive):
        what = f"a message '{request.name}' from anybody"
    elif isinstance(request, News):
        what = "news from anybody"
    else:
        what = type(request).__name__
    return f"peer {p.id} in round {p.round} waits for {what}"


NAMED = 5  # of those that a participant waits for


def doings(participants: Sequence[Participant]) -> list[dict[str, Any]]:
    """What each is doing at this moment, for whoever watches the run (also from another thread: it only looks)."""
    return [{"peer": p.id, "round": p.round, **_doing(p)} for p in participants]


def _doing(p: Participant) -> dict[str, Any]:
    request = p.waits_for
    if p.gone or p.done or p.was_away:
        return {"state": "gone" if p.gone else "done" if p.done else "away"}
    if isinstance(request, Working):
        return {"state": "training" if request.training else "computing"}
    if isinstance(request, Fetch):
        missing = sorted(p.fetching.missing) if p.fetching and p.fetching.request is request else []
        more = {"waits_for": missing[:NAMED], "waits_for_more": max(0, len(missing) - NAMED)} if missing else {}
        return {"state": "waiting" if missing else "fetching", "artifact": request.name, **more}
    if isinstance(request, Receive):
        return {"state": "waiting", "artifact": request.name}
    return {"state": "waiting for news" if isinstance(request, News) else "between rounds"}
