"""Fetches, sends and receives for the method at one peer. Every wait has a timeout: for a fetch or a send, the
deadline learned from recent rounds; for a message or the server, `network.patience`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from coterie.core.artifact import Artifact
from coterie.core.errors import CoterieError
from coterie.core.requests import Fetch, Send
from coterie.network.attendance import Attendance
from coterie.network.deadlines import Deadline
from coterie.network.node import Delivery
from coterie.network.peer_run import Activity

SERVER_PAUSE = 0.25  # seconds between two attempts to reach an absent server
MOST_MESSAGES = 10_000  # from one peer to another in a round


class MessageNumbers:
    """Numbers the messages to each recipient: repeated when a round is redone after a crash, and above those of
    earlier rounds. So the recipient recognises duplicates, and nothing else."""

    def __init__(self, epoch: str) -> None:
        """`epoch` identifies this run of the peer, across restarts."""
        self.epoch = epoch
        self._round = 0
        self._sent: Counter[int] = Counter()  # in this round, by recipient

    def begin_round(self, round: int) -> None:
        self._round, self._sent = round, Counter()

    def next(self, to: int) -> str:
        count = self._sent[to]
        if count >= MOST_MESSAGES:
            raise CoterieError(f"more than {MOST_MESSAGES} messages to peer {to} in one round: send fewer")
        self._sent[to] += 1
        return f"{self.epoch}.{self._round * MOST_MESSAGES + count}"


class Exchange:
    """Exchanges artifacts with other peers, in real time."""

    def __init__(self, attendance: Attendance, activity: Activity) -> None:
        self.attendance, self.activity = attendance, activity
        self.run, self.store, self.node = attendance.run, attendance.store, attendance.node
        self.deadline = Deadline(self.run.settings.deadline, self.run.settings.patience)
        self.numbers = MessageNumbers(format(time.time_ns(), "x"))

    # -- fetching ------------------------------------------------------------------------------

    async def fetch(self, request: Fetch) -> dict[int, Artifact]:
        activity, asynchronous = self.activity, self.run.asynchronous
        activity.waits_for = f"'{request.name}' of round {request.round}"
        began = time.monotonic()
        wait = 0.0 if asynchronous else self.deadline.seconds
        activity.awaited = set(request.peers)
        answers = await asyncio.gather(*(self._answer_of(j, request, wait) for j in request.peers))
        activity.waited += time.monotonic() - began
        activity.waits_for = ""
        took = [seconds for _, seconds in answers if seconds is not None]
        if took and not asynchronous:
            self.deadline.learn(max(took))
        return {j: artifact for j, (artifact, _) in zip(request.peers, answers, strict=True) if artifact is not None}

    async def _answer_of(self, j: int, request: Fetch, wait: float) -> tuple[Artifact | None, float | None]:
        try:
            return await self._fetch_one(j, request, wait)
        finally:
            self.activity.awaited.discard(j)

    async def _fetch_one(self, j: int, request: Fetch, wait: float) -> tuple[Artifact | None, float | None]:
        """One peer's artifact, and how long the fetch took unless the peer is this one."""
        if j == self.run.me.id:
            own = self.store.shelves.find(j, request.name, request.round, time.monotonic())
            return (own.artifact if own else None), None
        began = time.monotonic()
        delivery = await self.node.fetch(j, request.name, request.round, wait)
        while j == self.run.me.server and not _is_served(delivery, request) and self._within_patience(began):
            # A peer cannot continue without its server, which may be restarting.
            await asyncio.sleep(SERVER_PAUSE)
            self.attendance.check_node()
            if delivery is None and self._is_past(j, request.round):
                break
            delivery = await self.node.fetch(j, request.name, request.round, wait)
        if delivery is None or not self._plausible(delivery.artifact, request):
            return None, None
        self.activity.received(request.name, delivery.bytes)
        if delivery.artifact.round != request.round and not self.run.asynchronous:
            self.activity.stale[j] = request.round - delivery.artifact.round
        return delivery.artifact, time.monotonic() - began

    def _within_patience(self, began: float) -> bool:
        return time.monotonic() - began < self.run.settings.patience

    def _is_past(self, server: int, round: int) -> bool:
        """The server answers and has finished this round: a missing artifact will not come any more."""
        entry = self.node.entry(server)
        return entry is not None and not entry.silent and entry.announcement.round > round

    def _plausible(self, artifact: Artifact, request: Fetch) -> bool:
        rounds = self.run.rounds
        if 0 <= artifact.round <= rounds:
            return True
        name = self.node.book.by_number.get(artifact.author, "?")
        what = f"received '{request.name}' of round {artifact.round} in round {request.round} of {rounds}"
        self.node.penalties.record(name, what)
        return False

    def report_declined(self) -> None:
        """Artifacts that the method declined count as offences of their senders."""
        for j, reason in self.run.me.notes.get("declined", {}).items():
            self.node.penalties.record(self.node.book.by_number.get(int(j), "?"), reason)

    # -- messages ------------------------------------------------------------------------------

    async def send(self, request: Send) -> bool:
        number, artifact = self.numbers.next(request.to), request.artifact
        if request.to == self.run.me.id:
            self.store.mailbox.put(artifact, artifact.to_bytes(), self.node.identity.name, number)
            return True
        began = time.monotonic()
        size = await self.node.send(request.to, artifact, number, self.deadline.seconds)
        self.activity.waited += time.monotonic() - began
        if size:
            self.activity.exchanged(artifact.name, size)
        return size > 0

    async def receive(self, name: str) -> list[Artifact]:
        self.activity.waits_for = f"a message '{name}'"
        began = time.monotonic()
        while not self.store.mailbox.has(name) and self._within_patience(began):
            self.attendance.check_node()
            await self.store.until_changed(1.0)
        self.activity.waited += time.monotonic() - began
        self.activity.waits_for = ""
        return self.store.mailbox.take(name)


def _is_served(delivery: Delivery | None, request: Fetch) -> bool:
    return delivery is not None and delivery.artifact.round >= request.round
