"""Fetches: answered with what is on the shelves; what is not there yet is waited for, as long as it can still come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from coterie.core.artifact import Artifact
from coterie.core.errors import CoterieError
from coterie.core.requests import Fetch
from coterie.engines.shelves import Shelved, Shelves
from coterie.simulation.clock import Clock
from coterie.simulation.event_queue import EXPIRE, RESUME, SERVE, Agenda
from coterie.simulation.participants import OpenFetch, Participant


class Fetching:
    """Who waits for whose artifacts. Who has got all that it will get goes on, by the agenda."""

    def __init__(self, agenda: Agenda, clock: Clock, board: Shelves, participants: Sequence[Participant]) -> None:
        self.agenda, self.clock, self.board, self.all = agenda, clock, board, participants
        self.waiting: dict[int, dict[OpenFetch, None]] = defaultdict(dict)  # by the peer waited for
        self.sat_out: set[tuple[int, int]] = set()  # who was not there in which round
        self.asked_in_vain: set[str] = set()  # names of artifacts that nobody has shelved so far

    def open(self, p: Participant, request: Fetch) -> None:
        """It is served after everybody has gone on at this time."""
        p.fetching = OpenFetch(request, p.id, self.agenda.now)
        self.agenda.put(self.agenda.now, SERVE, p.id, p.fetching)

    def serve(self, f: OpenFetch) -> None:
        """Answer with what is there; wait for the rest, if it can still come."""
        wanted = f.request
        if wanted.peers and not self.board.knows(wanted.name):
            self.asked_in_vain.add(wanted.name)
        all_there = not self.clock.windows and not self.sat_out
        for author in wanted.peers:
            if not 0 <= author < len(self.all):
                raise CoterieError(f"peer {author} was asked for something, but there are {len(self.all)} participants")
            if not (all_there or self._reachable(author, wanted.round)):
                continue
            found = self.board.find(author, wanted.name, wanted.round, self.agenda.now)
            if found is not None:
                f.arrived[author] = found
            elif self._may_shelve(author, wanted.round):
                self.waiting[author][f] = None
                f.missing.add(author)
        if f.missing and self.clock.settings.deadline:
            self.agenda.put(self.agenda.now + self.clock.settings.deadline, EXPIRE, f.by, f)
        self._finish_if_whole(f)

    def _may_shelve(self, author: int, round: int) -> bool:
        """Whether something of this round may still come: who has gone on to another shelves no more of it."""
        return not self.board.asynchronous and self.all[author].round <= round

    def _reachable(self, author: int, round: int) -> bool:
        if self.clock.away_until(author, self.agenda.now) is not None:
            return False
        # Without common rounds, sitting one out takes no time, and what is on the shelf stays there.
        return (author, round) not in self.sat_out or self.board.asynchronous

    # -- what those who wait hear of -------------------------------------------------------------

    def shelved(self, artifact: Artifact) -> None:
        self.asked_in_vain.discard(artifact.name)
        for f in list(self.waiting.get(artifact.author, ())):
            if f.request.name == artifact.name and artifact.round >= f.request.round:
                self._arrive(f, artifact.author, Shelved(self.agenda.now, artifact))

    def went_on(self, p: Participant) -> None:
        """To another round: who waits for something of the one before waits in vain."""
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
        """Its deadline has passed."""
        for author in list(f.missing):
            self._arrive(f, author, None)

    def settle(self, oldest: int) -> None:
        """Nobody is in a round before this one any more."""
        self.board.settle(oldest)
        self.sat_out = {s for s in self.sat_out if s[1] >= oldest}

    def _arrive(self, f: OpenFetch, author: int, found: Shelved | None) -> None:
        self.waiting[author].pop(f, None)
        f.missing.discard(author)
        if found is not None:
            f.arrived[author] = found
        self._finish_if_whole(f)

    def _finish_if_whole(self, f: OpenFetch) -> None:
        if f.missing:
            return
        p, now = self.all[f.by], self.agenda.now
        p.waited += now - f.time
        arrived = {author: f.arrived[author].artifact for author in sorted(f.arrived)}
        sizes = [artifact.nbytes for author, artifact in arrived.items() if author != f.by]
        total = sum(sizes)
        p.bytes[f.request.name] += total
        p.messages[f.request.name] += len(sizes)
        takes = self.clock.transfer(f.by, total) if sizes else 0.0
        self.agenda.put(now + takes, RESUME, f.by, arrived)
