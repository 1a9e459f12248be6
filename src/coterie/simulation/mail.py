"""Letters: what is sent to one participant, on its way, at its door, and in its inbox."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coterie.core.checkpoint import packed, unpacked
from coterie.core.errors import CoterieError
from coterie.core.requests import Receive, Send
from coterie.simulation.clock import Clock
from coterie.simulation.event_queue import DELIVER, RESUME, Agenda
from coterie.simulation.participants import Message, Participant
from coterie.simulation.protocol import Messages
from coterie.simulation.stage import Stage


class Post:
    """Brings letters when they are due. For checkpoints (`keeps`) it remembers who had which, and when."""

    def __init__(
        self, agenda: Agenda, clock: Clock, stage: Stage, participants: Sequence[Participant], keeps: bool
    ) -> None:
        self.agenda, self.clock, self.stage, self.all, self.keeps = agenda, clock, stage, participants, keeps
        self._letters: list[Message] = []
        # After a resume: letters that their recipient had before its sender, who is behind, sends them again.
        self._already: set[tuple[int, int]] = set()
        self._resumed_after = 0

    def send(self, p: Participant, request: Send) -> None:
        if not 0 <= request.to < len(self.all):
            raise CoterieError(f"peer {request.to} was sent something, but there are {len(self.all)} participants")
        size, now = request.artifact.nbytes, self.agenda.now
        arrival = now + self.clock.transfer(p.id, size)
        letter = Message((p.id, p.letters_sent), p.round, request.to, arrival, request.artifact)
        p.letters_sent += 1
        delivered = self.clock.away_until(request.to, arrival) != math.inf
        if delivered:
            p.bytes[request.artifact.name] += size
            p.messages[request.artifact.name] += 1
        if self.keeps:
            self._letters.append(letter)
        if letter.number in self._already:
            letter.delivered_in = self._resumed_after
        else:
            self._put_down(arrival, letter)
        self.agenda.put(now, RESUME, p.id, delivered)

    def _put_down(self, time: float, letter: Message) -> None:
        """Letters of one instant come in the order of their arrival, then of their senders: also after a resume."""
        self.agenda.put(time, DELIVER, letter.to, letter, order=(letter.arrival, *letter.number))

    def deliver(self, letter: Message) -> None:
        p = self.all[letter.to]
        back = self.clock.away_until(letter.to, self.agenda.now)
        if back is not None:  # waits at the door
            if back < math.inf:
                self._put_down(back, letter)
            elif letter in self._letters:
                self._letters.remove(letter)  # nobody will ever open it
            return
        letter.delivered_in = p.round
        self.stage.deliver(p.id, letter.artifact)
        p.inbox[letter.artifact.name] += 1
        self.hand_over(p)

    def hand_over(self, p: Participant) -> None:
        """If a participant waits for messages and there are some, it goes on."""
        if isinstance(p.waits_for, Receive) and p.inbox[p.waits_for.name]:
            p.waited += self.agenda.now - p.time
            name = p.waits_for.name
            self.agenda.put(self.agenda.now, RESUME, p.id, Messages(name, p.inbox.pop(name)))
            p.waits_for = None

    def settle(self, round: int) -> None:
        """Nobody is in this round any more, nor in one before: forget what was sent and opened by its end."""
        self._letters = [x for x in self._letters if not (x.sent_in <= round and x.had_by(round))]

    # -- checkpoints ---------------------------------------------------------------------------

    def of_cut(self, round: int) -> dict[str, Any]:
        """What a run that goes on after this round needs."""
        in_flight = [x for x in self._letters if x.sent_in <= round and not x.had_by(round)]
        artifacts = self.stage.whole([x.artifact for x in in_flight])
        return {
            "in_flight": [{**x.label(), **packed(a)} for x, a in zip(in_flight, artifacts, strict=True)],
            "already": [list(x.number) for x in self._letters if x.sent_in > round and x.had_by(round)],
        }

    def restore(self, round: int, saved: dict[str, Any]) -> None:
        self._resumed_after = round
        self._already = {(sender, count) for sender, count in saved["already"]}
        for x in saved["in_flight"]:
            artifact = self.stage.known(unpacked(x))
            letter = Message(tuple(x["number"]), x["sent_in"], x["to"], x["arrival"], artifact)
            self._letters.append(letter)
            self._put_down(letter.arrival, letter)
