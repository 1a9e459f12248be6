"""Answers fetches from the shelves, and waits for artifacts that may still be shelved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from coterie.core.artifact import Artifact
from coterie.core.errors import CoterieError
from coterie.core.requests import Fetch
from coterie.engines.shelves import Shelved, Shelves
from coterie.simulation.clock import Clock
from coterie.simulation.event_queue import EXPIRE, RESUME, SERVE, EventQueue
from coterie.simulation.participants import OpenFetch, Participant


class Fetching:
    """Tracks which participants wait for whose artifacts. A complete fetch puts a RESUME event into the queue."""

    def __init__(self, queue: EventQueue, clock: Clock, shelves: Shelves, participants: Sequence[Participant]) -> None:
        self.queue, self.clock, self.shelves, self.participants = queue, clock, shelves, participants
        self.waiting: dict[int, dict[OpenFetch, None]] = defaultdict(dict)  # by the peer waited for
        self.sat_out: set[tuple[int, int]] = set()  # pairs of a peer and a round that it missed
        self.never_shelved: set[str] = set()  # requested names that no peer has shelved so far

    def open(self, p: Participant, request: Fetch) -> None:
        """Register a fetch; it is served after all participants have acted at this time."""
        p.fetching = OpenFetch(request, p.id, self.queue.now)
        self.queue.put(self.queue.now, SERVE, p.id, p.fetching)

    def serve(self, f: OpenFetch) -> None:
        """Answer with the artifacts that are shelved; wait for the rest, if they may still come."""
        wanted = f.request
        if wanted.peers and not self.shelves.knows(wanted.name):
            self.never_shelved.add(wanted.name)
        all_present = not self.clock.windows and not self.sat_out
        for author in wanted.peers:
            if not 0 <= author < len(self.participants):
                raise CoterieError(
                    f"peer {f.by} fetches '{wanted.name}' from peer {author}, but there are only "
                    f"{len(self.participants)} participants: fetch from peers in me.peers"
                )
            if not (all_present or self._reachable(author, wanted.round)):
                continue
            version = self.shelves.find(author, wanted.name, wanted.round, self.queue.now)
            if version is not None:
                f.arrived[author] = version
            elif self._may_shelve(author, wanted.round):
                self.waiting[author][f] = None
                f.missing.add(author)
        if f.missing and self.clock.settings.deadline:
            self.queue.put(self.queue.now + self.clock.settings.deadline, EXPIRE, f.by, f)
        self._finish_if_complete(f)

    def _may_shelve(self, author: int, round: int) -> bool:
        """Whether a peer may still shelve something for this round: not if it is in a later one."""
        return not self.shelves.asynchronous and self.participants[author].round <= round

    def _reachable(self, author: int, round: int) -> bool:
        if self.clock.away_until(author, self.queue.now) is not None:
            return False
        # In an asynchronous run a missed round takes no time, and the shelved artifacts stay available.
        return (author, round) not in self.sat_out or self.shelves.asynchronous

    # -- events that may complete a fetch --------------------------------------------------------

    def shelved(self, artifact: Artifact) -> None:
        self.never_shelved.discard(artifact.name)
        for f in list(self.waiting.get(artifact.author, ())):
            if f.request.name == artifact.name and artifact.round >= f.request.round:
                self._arrive(f, artifact.author, Shelved(self.queue.now, artifact))

    def entered_round(self, p: Participant) -> None:
        """Stop waiting for artifacts of the participant's earlier rounds."""
        for f in list(self.waiting.get(p.id, ())):
            if not self._may_shelve(p.id, f.request.round):
                self._arrive(f, p.id, None)

    def sits_out(self, peer: int, round: int) -> None:
        self.sat_out.add((peer, round))
        for f in list(self.waiting.get(peer, ())):
            if f.request.round == round:
                self._arrive(f, peer, None)

    def goes_away(self, peer: int) -> None:
        for f in list(self.waiting.get(peer, ())):
            self._arrive(f, peer, None)

    def expire(self, f: OpenFetch) -> None:
        """Stop waiting: the fetch has passed its deadline."""
        for author in list(f.missing):
            self._arrive(f, author, None)

    def forget_before(self, oldest: int) -> None:
        """Drop what is only needed for earlier rounds: every participant has reached this one."""
        self.shelves.drop_before(oldest)
        self.sat_out = {s for s in self.sat_out if s[1] >= oldest}

    def _arrive(self, f: OpenFetch, author: int, version: Shelved | None) -> None:
        self.waiting[author].pop(f, None)
        f.missing.discard(author)
        if version is not None:
            f.arrived[author] = version
        self._finish_if_complete(f)

    def _finish_if_complete(self, f: OpenFetch) -> None:
        if f.missing:
            return
        p, now = self.participants[f.by], self.queue.now
        p.waited += now - f.time
        arrived = {author: f.arrived[author].artifact for author in sorted(f.arrived)}
        sizes = [artifact.nbytes for author, artifact in arrived.items() if author != f.by]
        total = sum(sizes)
        p.bytes[f.request.name] += total
        p.messages[f.request.name] += len(sizes)
        takes = self.clock.transfer(f.by, total) if sizes else 0.0
        self.queue.put(now + takes, RESUME, f.by, arrived)
