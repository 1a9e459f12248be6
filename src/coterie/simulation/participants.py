"""The director's records of each participant, of open fetches, and of messages in transit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

from coterie.core.artifact import Artifact
from coterie.core.checkpoint import SavedArtifact
from coterie.core.events import PeerRound
from coterie.core.requests import Fetch, News, Receive, Request
from coterie.engines.shelves import Shelved
from coterie.simulation.protocol import Working


@dataclass(eq=False)
class OpenFetch:
    """A fetch that has not been answered completely."""

    request: Fetch
    by: int
    time: float
    missing: set[int] = field(default_factory=set)  # the peers it waits for
    arrived: dict[int, Shelved] = field(default_factory=dict)


class MessageLabel(TypedDict):
    """A message in transit, as a checkpoint has it, besides its artifact."""

    number: list[int]
    sent_in: int
    to: int
    arrival: float


class SavedMessage(MessageLabel, SavedArtifact):
    pass


@dataclass(eq=False)
class MessageInTransit:
    """A sent artifact, with the rounds of its sender and, on delivery, of its recipient."""

    number: tuple[int, int]  # sender, and its count of messages: identifies a message that is sent again after a resume
    sent_in: int
    to: int
    arrival: float
    artifact: Artifact
    delivered_in: int | None = None

    def had_by(self, round: int) -> bool:
        """Whether its recipient had it when it finished this round."""
        return self.delivered_in is not None and self.delivered_in <= round

    def label(self) -> MessageLabel:
        """The part of a checkpoint entry besides the artifact."""
        return {"number": list(self.number), "sent_in": self.sent_in, "to": self.to, "arrival": self.arrival}


@dataclass(eq=False)
class Participant:
    id: int
    round: int = 0  # the current one, or the next to start
    time: float = 0.0
    computed: bool = True  # whether its requested computation is done
    waits_for: Request[Any] | None = None
    fetching: OpenFetch | None = None  # its last fetch
    was_away: bool = False
    gone: bool = False
    done: bool = False
    messages_sent: int = 0
    shelved: int = 0  # artifacts so far
    news_seen: int = 0  # how many artifacts others had shelved when it was last told of news
    silences: int = 0  # how many it was told of
    waited: float = 0.0  # seconds waited for others in this round
    inbox: Counter[str] = field(default_factory=Counter)  # number of delivered messages, by name
    bytes: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))  # of this round, by artifact
    messages: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def end_round(self, time: float, notes: dict[str, Any]) -> PeerRound:
        """The record of its round; resets its counters."""
        if self.waited:
            notes["waited"] = round(self.waited, 6)
        received = {name: size for name, size in self.bytes.items() if size}
        messages = {name: many for name, many in self.messages.items() if many}
        self.bytes.clear()
        self.messages.clear()
        self.waited = 0.0
        return PeerRound(self.id, self.round, time, bytes=received, messages=messages, notes=notes)


def describe_wait(p: Participant, waiting: dict[int, dict[OpenFetch, None]]) -> str:
    """What a blocked participant waits for, for the message of a deadlock."""
    request = p.waits_for
    if isinstance(request, Fetch):
        authors = sorted(a for a, fetches in waiting.items() if any(f.by == p.id for f in fetches))
        what = f"'{request.name}' of round {request.round} from {', '.join(map(str, authors))}"
    elif isinstance(request, Receive):
        what = f"a message '{request.name}' from any peer"
    elif isinstance(request, News):
        what = "news from any peer"
    else:
        what = type(request).__name__
    return f"peer {p.id} in round {p.round} waits for {what}"


NAMED = 5  # of the peers that a participant waits for


class Activity(TypedDict):
    """What a participant is doing, as state.json has it."""

    peer: int
    round: int
    state: str
    artifact: NotRequired[str]
    waits_for: NotRequired[list[int]]  # the first peers that it waits for
    waits_for_more: NotRequired[int]


def activities(participants: Sequence[Participant]) -> list[Activity]:
    """What each participant is doing now, for live status. Read-only, so it may be called from another thread."""
    return [_activity(p) for p in participants]


def _activity(p: Participant) -> Activity:
    request = p.waits_for
    activity: Activity = {"peer": p.id, "round": p.round, "state": "between rounds"}
    if p.gone or p.done or p.was_away:
        activity["state"] = "gone" if p.gone else "done" if p.done else "away"
    elif isinstance(request, Working):
        activity["state"] = "training" if request.training else "computing"
    elif isinstance(request, Fetch):
        missing = sorted(p.fetching.missing) if p.fetching and p.fetching.request is request else []
        activity["state"] = "waiting" if missing else "fetching"
        activity["artifact"] = request.name
        if missing:
            activity["waits_for"], activity["waits_for_more"] = missing[:NAMED], max(0, len(missing) - NAMED)
    elif isinstance(request, Receive):
        activity["state"], activity["artifact"] = "waiting", request.name
    elif isinstance(request, News):
        activity["state"] = "waiting for news"
    return activity
