"""Messages between participants: in transit, held for an absent recipient, and delivered to an inbox."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

from coterie.core.checkpoint import packed, unpacked
from coterie.core.errors import CoterieError
from coterie.core.requests import Receive, Send
from coterie.simulation.clock import Clock
from coterie.simulation.event_queue import DELIVER, RESUME, EventQueue
from coterie.simulation.participants import MessageInTransit, Participant, SavedMessage
from coterie.simulation.protocol import Messages, Stage


class SavedMail(TypedDict):
    in_flight: list[SavedMessage]
    already: list[list[int]]  # the numbers of messages that are sent again after a resume


class Mail:
    """Delivers messages when they are due. With `keeps` it records for checkpoints when each was delivered."""

    def __init__(
        self, queue: EventQueue, clock: Clock, stage: Stage, participants: Sequence[Participant], keeps: bool
    ) -> None:
        self.queue, self.clock, self.stage, self.participants, self.keeps = queue, clock, stage, participants, keeps
        self._messages: list[MessageInTransit] = []
        # After a resume: messages that the recipient has already, but that a sender that lags behind sends again.
        self._already: set[tuple[int, int]] = set()
        self._resumed_after = 0

    def send(self, p: Participant, request: Send) -> None:
        if not 0 <= request.to < len(self.participants):
            raise CoterieError(
                f"peer {p.id} sends '{request.artifact.name}' to peer {request.to}, but there are only "
                f"{len(self.participants)} participants: send to peers in me.peers"
            )
        size, now = request.artifact.nbytes, self.queue.now
        arrival = now + self.clock.transfer(p.id, size)
        message = MessageInTransit((p.id, p.messages_sent), p.round, request.to, arrival, request.artifact)
        p.messages_sent += 1
        delivered = self.clock.away_until(request.to, arrival) != math.inf
        if delivered:
            p.bytes[request.artifact.name] += size
            p.messages[request.artifact.name] += 1
        if self.keeps:
            self._messages.append(message)
        if message.number in self._already:
            message.delivered_in = self._resumed_after
        else:
            self._schedule(arrival, message)
        self.queue.put(now, RESUME, p.id, delivered)

    def _schedule(self, time: float, message: MessageInTransit) -> None:
        """Messages of one instant are ordered by arrival, then by sender: a resume must not change their order."""
        self.queue.put(time, DELIVER, message.to, message, order=(message.arrival, *message.number))

    def deliver(self, message: MessageInTransit) -> None:
        p = self.participants[message.to]
        back = self.clock.away_until(message.to, self.queue.now)
        if back is not None:  # the recipient is away
            if back < math.inf:
                self._schedule(back, message)
            elif message in self._messages:
                self._messages.remove(message)  # it will never be read
            return
        message.delivered_in = p.round
        self.stage.deliver(p.id, message.artifact)
        p.inbox[message.artifact.name] += 1
        self.hand_over(p)

    def hand_over(self, p: Participant) -> None:
        """Resume a participant that waits for messages, if there are any."""
        if isinstance(p.waits_for, Receive) and p.inbox[p.waits_for.name]:
            p.waited += self.queue.now - p.time
            name = p.waits_for.name
            self.queue.put(self.queue.now, RESUME, p.id, Messages(name, p.inbox.pop(name)))
            p.waits_for = None

    def forget_delivered(self, round: int) -> None:
        """Drop messages sent and delivered by the end of this round: every participant has finished it."""
        self._messages = [m for m in self._messages if not (m.sent_in <= round and m.had_by(round))]

    # -- checkpoints ---------------------------------------------------------------------------

    def of_cut(self, round: int) -> SavedMail:
        """The messages that a run resumed after this round needs."""
        in_flight = [m for m in self._messages if m.sent_in <= round and not m.had_by(round)]
        artifacts = self.stage.whole([m.artifact for m in in_flight])
        return {
            "in_flight": [{**m.label(), **packed(a)} for m, a in zip(in_flight, artifacts, strict=True)],
            "already": [list(m.number) for m in self._messages if m.sent_in > round and m.had_by(round)],
        }

    def restore(self, round: int, saved: SavedMail) -> None:
        self._resumed_after = round
        self._already = {(sender, count) for sender, count in saved["already"]}
        for entry in saved["in_flight"]:
            artifact = self.stage.adopt(unpacked(entry))
            sender, count = entry["number"]
            message = MessageInTransit((sender, count), entry["sent_in"], entry["to"], entry["arrival"], artifact)
            self._messages.append(message)
            self._schedule(message.arrival, message)
