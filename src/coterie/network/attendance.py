"""Which peers take part: gathering before the first round, rejoining after a crash, leaving at the end."""

from __future__ import annotations

import asyncio
import random
import statistics
import time

from coterie.core.errors import CoterieError
from coterie.network.membership import DONE, GATHERING, LISTENING, READY, RUNNING, PeerEntry
from coterie.network.node import Node
from coterie.network.peer_run import PeerRun
from coterie.network.store import Store

POLL_INTERVAL = 0.02  # seconds
FAREWELLS = 16  # peers to notify at the end, so that they do not take this peer for lost


class Attendance:
    """Announces this peer to the others, and knows which of them are there."""

    def __init__(self, run: PeerRun, store: Store, node: Node) -> None:
        self.run, self.store, self.node = run, store, node
        self.joined = time.monotonic()  # when the circle was complete, or this peer was back
        self.before_crash: set[int] = set()  # the peers that were present at the last checkpoint
        self.newcomer = False  # whether it joined when the circle was already running

    async def join(self) -> int:
        """Wait for the other peers and for the server; returns the round to begin with."""
        round = await (self._rejoin() if self.store.round > 0 else self._gather())
        await self._find_server()
        self.joined = time.monotonic()
        return round

    async def _gather(self) -> int:
        """Wait until all expected peers know of each other; returns the round to begin with.

        No peer begins before every peer has announced that it is ready. So a peer that learns of a running circle
        before it announced itself ready is a newcomer, and joins in the circle's current round.
        """
        began, reported, expected, say = time.monotonic(), 0, self.run.expected, self.node.say
        while True:
            self.check_node()
            others = [e.announcement for e in self.node.book.companions()]
            running = [a.round for a in others if a.state in (RUNNING, LISTENING, DONE)]
            if running and self.node.book.mine.state == GATHERING:
                at = min(max(1, int(statistics.median_high(running))), self.run.rounds)
                say(f"the circle is in round {at}: joining there")
                self.newcomer = True
                return at
            count = len(others) + 1
            self.node.book.announce(knows=count, state=READY if count >= expected else GATHERING)
            if count >= expected and all(a.knows >= expected or a.round > 0 for a in others):
                return 1
            if count != reported:
                reported = count
                say(f"{count} of {expected} peers are here")
            if time.monotonic() - began > self.run.settings.gather:
                say(f"starting without the missing peers: {count} of {expected} are here")
                return 1
            await asyncio.sleep(POLL_INTERVAL)

    async def _rejoin(self) -> int:
        """After a crash: wait for the peers that were present before, then resume.

        Any present peer knows of all the others. If none is present, all may have crashed and be restarting.
        """
        self.node.say(f"resuming in round {self.store.round}")
        self.announce(RUNNING)
        until = time.monotonic() + self.run.settings.patience
        while time.monotonic() < until and not self.before_crash <= self.node.book.by_number.keys():
            self.check_node()
            await asyncio.sleep(POLL_INTERVAL)
        await asyncio.sleep(self.run.settings.interval / 2 if self.node.book.there() else 0)
        return self.store.round

    async def _find_server(self) -> None:
        """Wait for the server, which may be restarting, and read its number from its certificate."""
        me, server, entries = self.run.me, self.run.server, self.node.book.entries
        if server == self.node.identity.name:
            me.server = me.id
        elif server:
            until = time.monotonic() + self.run.settings.gather
            while server not in entries:
                self.check_node()
                if time.monotonic() > until:
                    raise CoterieError(
                        f"the server '{server}' (peer.server) did not appear: start it, then restart this peer"
                    )
                await asyncio.sleep(POLL_INTERVAL)
            me.server = entries[server].credential.number

    async def leave(self) -> None:
        """Announce the end, and keep serving the shelf until the other peers have finished."""
        self.announce(DONE)
        until = time.monotonic() + self.run.settings.linger
        while time.monotonic() < until and self._is_needed():
            self.check_node()
            await asyncio.sleep(POLL_INTERVAL)
        there = self.node.book.there()
        notified = random.sample(there, min(FAREWELLS, len(there)))
        await asyncio.gather(*(self.node.meet(e.announcement.name, e.announcement.endpoint) for e in notified))

    def _is_needed(self) -> bool:
        """Whether another peer is still running."""
        others = [e for e in self.node.book.companions() if e.announcement.state != DONE]
        return any(map(self.may_return, others))

    def may_return(self, entry: PeerEntry) -> bool:
        """Whether a peer answers, or fell silent so recently that it may be restarting."""
        return entry.failed is None or time.monotonic() - entry.failed < self.run.settings.patience

    def announce(self, state: str) -> None:
        round = min(self.store.round, self.run.rounds)
        self.node.book.announce(state=state, round=round, knows=len(self.peers()) + 1, shelved=self.store.shelved)

    def peers(self) -> list[int]:
        """The numbers of the peers that are present, without the server."""
        return [e.credential.number for e in self.node.book.there() if e.credential.number != self.run.me.server]

    def check_node(self) -> None:
        error = self.node.broken or self.node.refused
        if error is not None:
            raise error
