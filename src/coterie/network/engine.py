"""The network engine: runs one participant's coroutine in its own process and exchanges with others over the wire.

It answers the same verbs as the simulation, in real time. Every wait has a timeout: for a fetch, the deadline learned
from recent rounds; for a message or the server, `network.patience`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from coterie.config.sections import NetworkSettings
from coterie.core import checkpoint
from coterie.core.artifact import Artifact
from coterie.core.checkpoint import packed, unpacked
from coterie.core.errors import ArtifactError, CoterieError
from coterie.core.events import EventLog, PeerRound
from coterie.core.peer import Peer
from coterie.core.requests import Compute, Evaluate, Fetch, News, Predict, Receive, Request, Send, Train
from coterie.core.run_folder import RunFolder
from coterie.engines.driving import close, start, step
from coterie.engines.measuring import is_due, measure_of, score_all
from coterie.engines.shelves import Shelved, Shelves
from coterie.methods.base import Method
from coterie.network.deadlines import Deadline, Pace
from coterie.network.mailbox import Mailbox
from coterie.network.membership import DONE, GATHERING, LISTENING, READY, RUNNING, PeerEntry
from coterie.network.node import Delivery, Node
from coterie.network.wire import WireError
from coterie.training import Trainer

T = TypeVar("T")
VERSIONS = 4  # of an artifact kept on the shelf for slower peers
POLL_INTERVAL = 0.02  # seconds
SERVER_PAUSE = 0.25  # seconds between two attempts to reach an absent server
MOST_MESSAGES = 10_000  # from one peer to another in a round
FAREWELLS = 16  # peers to notify at the end, so that they do not take this peer for lost


class NetworkEngine:
    """Runs a method at one peer. `node` connects it to the others."""

    node: Node

    def __init__(
        self,
        method: Method,
        me: Peer,
        rounds: int,
        expected: int,
        trainer: Trainer,
        settings: NetworkSettings,
        folder: Path,
        log: EventLog,
        *,
        server: str = "",
        asynchronous: bool = False,
        evaluate_every: int = 1,
        on_round: Callable[[PeerRound], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.method, self.me, self.rounds, self.expected, self.trainer = method, me, rounds, expected, trainer
        self.settings, self.folder, self.log, self.evaluate_every = settings, folder, log, evaluate_every
        self.on_round, self.say, self.server = on_round, say, server
        self.asynchronous = asynchronous or method.asynchronous
        self.shelves = Shelves(self.asynchronous, VERSIONS)
        self.mailbox = Mailbox(RunFolder(folder).letters)
        self.deadline, self.pace = Deadline(settings.deadline, settings.patience), Pace()
        self.round = 0  # the current one, or the next before it begins
        self.epoch = format(time.time_ns(), "x")  # identifies this run of the peer, across restarts
        self.messages_sent: Counter[int] = Counter()  # in this round, by recipient
        self.waited = 0.0  # seconds spent waiting for others, in this round
        self.doing = ""  # the verb being awaited: train, fetch and so on
        self.waits_for = ""
        self.awaited: set[int] = set()  # peers that have not answered the current fetch
        self.bytes: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.seconds_before = 0.0  # before the last restart
        self._started = time.monotonic()
        self.shelved = 0  # number of artifacts, so far
        # By peer and incarnation, how many artifacts it had shelved at the last news.
        self._known_counts: dict[tuple[str, int], int] = {}
        # When the circle was complete; and when this peer last computed or received something.
        self._gathered = self._last_use = time.monotonic()
        self._stale: dict[int, int] = {}
        self._peers_before_crash: set[int] = set()
        self._bytes: dict[tuple[str, int], bytes] = {}  # encoded artifacts of the shelf, cached on the first request
        self._changed = asyncio.Event()  # set when something is shelved, a round ends, or a message arrives
        self._worker = ThreadPoolExecutor(1, "compute")  # so that training does not block the network
        me.desk = self

    # -- a run ---------------------------------------------------------------------------------

    async def run(self) -> None:
        resumed = self.round > 0
        joined = await (self._rejoin() if resumed else self._gather())
        await self._find_server()
        self._gathered = self._last_use = time.monotonic()
        self.me.meet(self._peers())
        if not resumed:
            self.me.begin(0)
            await self._act()
            self.round = joined
            await self._save(joined - 1)  # a peer killed in its first round resumes there
        while self.round <= self.rounds:
            await self._one_round(self.round)
        self._announce(DONE)
        await self._linger()

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _one_round(self, t: int) -> None:
        me = self.me
        me.meet(self._peers())
        me.begin(t)
        self._announce(RUNNING)
        self.waited, self._stale, self.messages_sent = 0.0, {}, Counter()
        began = time.monotonic()
        await self._act()
        self.pace.learn(time.monotonic() - began - self.waited)
        self._report_declined()
        notes = {**me.notes, "waited": round(self.waited, 3), **({"stale": self._stale} if self._stale else {})}
        record = PeerRound(
            me.id, t, self.seconds(), bytes=dict(+self.bytes), messages=dict(+self.messages), notes=notes
        )
        if is_due(t, self.evaluate_every, self.rounds):
            [measured] = await self._compute(partial(score_all, trainer=self.trainer), [measure_of(me)])
            record = measured.onto(record) if measured else record
        self.bytes, self.messages = Counter(), Counter()
        self.log.write(record)
        self.log.flush()
        self.round = t + 1
        self._notify()
        if t % self.settings.checkpoint == 0 or t == self.rounds:
            await self._save(t)
        self.on_round(record)

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self._started

    # -- joining and leaving -------------------------------------------------------------------

    async def _gather(self) -> int:
        """Wait until all expected peers know of each other; returns the round to begin with.

        No peer begins before every peer has announced that it is ready. So a peer that learns of a running circle
        before it announced itself ready is a newcomer, and joins in the circle's current round.
        """
        began, reported = time.monotonic(), 0
        while True:
            self._check_node()
            others = [e.announcement for e in self.node.book.companions()]
            running = [a.round for a in others if a.state in (RUNNING, LISTENING, DONE)]
            if running and self.node.book.mine.state == GATHERING:
                at = min(max(1, int(statistics.median_high(running))), self.rounds)
                self.say(f"the circle is in round {at}: joining there")
                return at
            count = len(others) + 1
            self.node.book.announce(knows=count, state=READY if count >= self.expected else GATHERING)
            if count >= self.expected and all(a.knows >= self.expected or a.round > 0 for a in others):
                return 1
            if count != reported:
                reported = count
                self.say(f"{count} of {self.expected} peers are here")
            if time.monotonic() - began > self.settings.gather:
                self.say(f"starting without the missing peers: {count} of {self.expected} are here")
                return 1
            await asyncio.sleep(POLL_INTERVAL)

    async def _rejoin(self) -> int:
        """After a crash: wait for the peers that were present before, then resume.

        Any present peer knows of all the others. If none is present, all may have crashed and be restarting.
        """
        self.say(f"resuming in round {self.round}")
        self._announce(RUNNING)
        until = time.monotonic() + self.settings.patience
        while time.monotonic() < until and not self._peers_before_crash <= self.node.book.by_number.keys():
            self._check_node()
            await asyncio.sleep(POLL_INTERVAL)
        await asyncio.sleep(self.settings.interval / 2 if self.node.book.there() else 0)
        return self.round

    async def _linger(self) -> None:
        """Keep serving the shelf until the other peers have finished."""
        until = time.monotonic() + self.settings.linger
        while time.monotonic() < until and self._is_needed():
            self._check_node()
            await asyncio.sleep(POLL_INTERVAL)
        there = self.node.book.there()
        notified = random.sample(there, min(FAREWELLS, len(there)))
        await asyncio.gather(*(self.node.meet(e.announcement.name, e.announcement.endpoint) for e in notified))

    def _is_needed(self) -> bool:
        """Whether another peer is still running. A peer that fell silent recently may be restarting."""
        others = [e for e in self.node.book.companions() if e.announcement.state != DONE]
        return any(e.failed is None or time.monotonic() - e.failed < self.settings.patience for e in others)

    async def _find_server(self) -> None:
        """Wait for the server, which may be restarting, and read its number from its certificate."""
        if self.server == self.node.identity.name:
            self.me.server = self.me.id
        elif self.server:
            until = time.monotonic() + self.settings.gather
            while self.server not in self.node.book.entries:
                self._check_node()
                if time.monotonic() > until:
                    raise CoterieError(
                        f"the server '{self.server}' (peer.server) did not appear: start it, then restart this peer"
                    )
                await asyncio.sleep(POLL_INTERVAL)
            self.me.server = self.node.book.entries[self.server].credential.number

    def _announce(self, state: str) -> None:
        round = min(self.round, self.rounds)
        self.node.book.announce(state=state, round=round, knows=len(self._peers()) + 1, shelved=self.shelved)

    def _peers(self) -> list[int]:
        """The numbers of the peers that are present, without the server."""
        return [e.credential.number for e in self.node.book.there() if e.credential.number != self.me.server]

    def _check_node(self) -> None:
        error = self.node.broken or self.node.refused
        if error is not None:
            raise error

    # -- answering the method ------------------------------------------------------------------

    async def _act(self) -> None:
        """Run the method's coroutine for this round, or its setup before the first."""
        coroutine, answer = start(self.method, self.me), None
        try:
            while (request := step(self.me, coroutine, answer)) is not None:
                self._check_node()
                self.doing = type(request).__name__.lower()
                answer = await self._answer(request)
        finally:
            self.doing = ""
            close(coroutine)

    async def _answer(self, request: Request[Any]) -> Any:
        if isinstance(request, Train):
            [loss] = await self._compute(self.trainer.fit, [request.job])
            return loss
        if isinstance(request, Evaluate):
            return await self._compute(self.trainer.evaluate, request.jobs)
        if isinstance(request, Predict):
            return await self._compute(self.trainer.predict, request.jobs)
        if isinstance(request, Compute):
            return await self._compute(lambda function: function(), request.function)
        if isinstance(request, News):
            return await self._news()
        if isinstance(request, Fetch):
            return await self._fetch(request)
        if isinstance(request, Send):
            return await self._send(request)
        if isinstance(request, Receive):
            return await self._receive(request.name)
        raise CoterieError(f"{request!r} was awaited: only the verbs of `me` can be awaited in a method")

    async def _compute(self, function: Callable[[Any], T], jobs: Any) -> T:
        answer = await asyncio.get_running_loop().run_in_executor(self._worker, function, jobs)
        self._last_use = time.monotonic()
        return answer

    # -- fetching ------------------------------------------------------------------------------

    async def _fetch(self, request: Fetch) -> dict[int, Artifact]:
        self.waits_for = f"'{request.name}' of round {request.round}"
        began = time.monotonic()
        wait = 0.0 if self.asynchronous else self.deadline.seconds
        self.awaited = set(request.peers)
        answers = await asyncio.gather(*(self._answer_of(j, request, wait) for j in request.peers))
        self.waited += time.monotonic() - began
        self.waits_for = ""
        took = [seconds for _, seconds in answers if seconds is not None]
        if took and not self.asynchronous:
            self.deadline.learn(max(took))
        return {j: artifact for j, (artifact, _) in zip(request.peers, answers, strict=True) if artifact is not None}

    async def _answer_of(self, j: int, request: Fetch, wait: float) -> tuple[Artifact | None, float | None]:
        try:
            return await self._fetch_one(j, request, wait)
        finally:
            self.awaited.discard(j)

    async def _fetch_one(self, j: int, request: Fetch, wait: float) -> tuple[Artifact | None, float | None]:
        """One peer's artifact, and how long the fetch took unless the peer is this one."""
        if j == self.me.id:
            own = self.shelves.find(j, request.name, request.round, time.monotonic())
            return (own.artifact if own else None), None
        began = time.monotonic()
        delivery = await self.node.fetch(j, request.name, request.round, wait)
        while j == self.me.server and not self._is_served(delivery, request) and self._within_patience(began):
            # A peer cannot continue without its server, which may be restarting.
            await asyncio.sleep(SERVER_PAUSE)
            self._check_node()
            if delivery is None and self._server_is_past(request.round):
                break
            delivery = await self.node.fetch(j, request.name, request.round, wait)
        if delivery is None or not self._plausible(delivery.artifact, request):
            return None, None
        self._last_use = time.monotonic()
        self.bytes[request.name] += delivery.bytes
        self.messages[request.name] += 1
        if delivery.artifact.round != request.round and not self.asynchronous:
            self._stale[j] = request.round - delivery.artifact.round
        return delivery.artifact, time.monotonic() - began

    @staticmethod
    def _is_served(delivery: Delivery | None, request: Fetch) -> bool:
        return delivery is not None and delivery.artifact.round >= request.round

    def _within_patience(self, began: float) -> bool:
        return time.monotonic() - began < self.settings.patience

    def _server_is_past(self, round: int) -> bool:
        """The server answers and has finished this round: a missing artifact will not come any more."""
        assert self.me.server is not None
        entry = self.node.entry(self.me.server)
        return entry is not None and not entry.silent and entry.announcement.round > round

    def _plausible(self, artifact: Artifact, request: Fetch) -> bool:
        if 0 <= artifact.round <= self.rounds:
            return True
        name = self.node.book.by_number.get(artifact.author, "?")
        what = f"received '{request.name}' of round {artifact.round} in round {request.round} of {self.rounds}"
        self.node.penalties.record(name, what)
        return False

    def _report_declined(self) -> None:
        """Artifacts that the method declined count as offences of their senders."""
        for j, reason in self.me.notes.get("declined", {}).items():
            self.node.penalties.record(self.node.book.by_number.get(int(j), "?"), reason)

    # -- sending -------------------------------------------------------------------------------

    async def _send(self, request: Send) -> bool:
        number = self._next_number(request.to)
        if request.to == self.me.id:
            self.mailbox.put(request.artifact, request.artifact.to_bytes(), self.node.identity.name, number)
            return True
        began = time.monotonic()
        size = await self.node.send(request.to, request.artifact, number, self.deadline.seconds)
        self.waited += time.monotonic() - began
        if size:
            self.bytes[request.artifact.name] += size
            self.messages[request.artifact.name] += 1
        return size > 0

    def _next_number(self, to: int) -> str:
        """The number of a message: repeated when a round is redone after a crash, and above those of earlier rounds.
        So the recipient recognises duplicates, and nothing else."""
        count = self.messages_sent[to]
        if count >= MOST_MESSAGES:
            raise CoterieError(f"more than {MOST_MESSAGES} messages to peer {to} in one round: send fewer")
        self.messages_sent[to] += 1
        return f"{self.epoch}.{self.me.round * MOST_MESSAGES + count}"

    async def _receive(self, name: str) -> list[Artifact]:
        self.waits_for = f"a message '{name}'"
        began = time.monotonic()
        while not self.mailbox.has(name) and time.monotonic() - began < self.settings.patience:
            self._check_node()
            await self._until_changed(1.0)
        self.waited += time.monotonic() - began
        self.waits_for = ""
        return self.mailbox.take(name)

    async def _news(self) -> bool:
        """Wait until another peer has shelved something new, or no peer will any more."""
        self.waits_for = "news"
        self._announce(LISTENING)
        while not (news := self._has_news()) and self._may_get_news():
            await asyncio.sleep(POLL_INTERVAL)
            self._check_node()
        self.me.meet(self._peers())  # a peer may have joined since the round began
        self.waits_for = ""
        self._announce(RUNNING)
        return news

    def _has_news(self) -> bool:
        """Whether another peer announces more shelved artifacts than at the last news."""
        announced = [entry.announcement for entry in self.node.book.companions()]
        counts = {(a.name, a.incarnation): a.shelved for a in announced}
        news = any(count > self._known_counts.get(peer, 0) for peer, count in counts.items())
        # A peer may announce artifacts that it does not have: not for longer than `linger`.
        news = news and time.monotonic() < self._last_use + self.settings.linger
        self._known_counts = counts if news else self._known_counts
        return news

    def _may_get_news(self) -> bool:
        """A peer is still working or has yet to join, and the last useful event is recent enough."""
        now, others = time.monotonic(), self.node.book.companions()
        missing = len(others) + 1 < self.expected and now < self._gathered + self.settings.patience
        return now < self._last_use + self.settings.linger and (missing or any(map(self._is_working, others)))

    def _is_working(self, entry: PeerEntry) -> bool:
        """Whether a peer is still working. A peer that fell silent recently may be restarting."""
        if entry.announcement.state in (LISTENING, DONE):
            return False
        return entry.failed is None or time.monotonic() - entry.failed < self.settings.patience

    # -- for the method: `me.desk` -------------------------------------------------------------

    def shelve(self, artifact: Artifact) -> None:
        self.shelves.put(artifact, time.monotonic(), 0)
        self.shelved += 1
        if self.asynchronous:
            self._announce(RUNNING)
        self._bytes.pop((artifact.name, artifact.round), None)
        self._notify()

    def inbox(self, peer: int, name: str) -> list[Artifact]:  # noqa: ARG002 (there is only one here)
        return self.mailbox.take(name)

    # -- for the node: requests of other peers -------------------------------------------------

    def may_exchange_with(self, number: int) -> bool:
        return self.me.may_exchange_with(number)

    async def find(self, name: str, round: int, wait: float) -> Artifact | None:
        """An artifact on the shelf; waits for it if it may still come.

        A peer that is too far behind to have it in time returns its latest version at once. Otherwise it would delay
        all peers in every round until it has caught up.
        """
        until = time.monotonic() + wait
        while True:
            version = self.shelves.find(self.me.id, name, round, time.monotonic())
            if version is not None:
                return version.artifact
            left = until - time.monotonic()
            if self.asynchronous or left <= 0 or 0 < round < self.round:
                return None
            if self.pace.of_rounds(round - self.round) > left:
                latest = self.shelves.latest(self.me.id, name)
                return latest.artifact if latest else None
            await self._until_changed(left)

    def bytes_of(self, artifact: Artifact) -> bytes:
        key = artifact.name, artifact.round
        if key not in self._bytes:
            on_shelf = {(v.artifact.name, v.artifact.round) for v in self.shelves.everything()}
            self._bytes = {k: data for k, data in self._bytes.items() if k in on_shelf}
            data = artifact.to_bytes()
            if key not in on_shelf:  # a message
                return data
            self._bytes[key] = data
        return self._bytes[key]

    def take(self, message: Artifact, data: bytes, sender: str, number: str) -> None:
        if not 0 <= message.round <= self.rounds:
            raise WireError(f"a message of round {message.round}, but there are only {self.rounds} rounds")
        if self.mailbox.is_full(sender):
            raise WireError(f"too many unread messages of '{sender}'")
        try:
            self.mailbox.put(message, data, sender, number)
        except ArtifactError as error:
            raise WireError(str(error)) from error
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until_changed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- checkpoints ---------------------------------------------------------------------------

    async def _save(self, t: int) -> None:
        shelved = [version.artifact for version in self.shelves.everything()]
        tree = {
            **checkpoint.of_peer(self.me), "epoch": self.epoch,
            "letters": self.mailbox.state(), "seconds": self.seconds(), "recent": list(self.deadline.recent),
            "pace": list(self.pace.recent), "there": self._peers(), "shelved": self.shelved,
            "shelves": [packed(a) for a in shelved if a.round >= t or self.asynchronous],
        }  # fmt: skip
        await self._compute(partial(self._write, t), tree)
        self.mailbox.drop_used()
        self.node.audit.sync()

    def _write(self, t: int, tree: dict[str, Any]) -> None:
        self.log.sync()  # first: a checkpoint without the record of its round would leave a gap in the log
        checkpoint.save(RunFolder(self.folder).checkpoint, t, tree)

    def restore(self, round: int, tree: dict[str, Any]) -> None:
        """Restore the state at the end of this round."""
        checkpoint.to_peer(self.me, tree)
        self.method.revive(self.me)
        self.round = round + 1
        self.epoch = tree["epoch"]
        self.shelved = tree.get("shelved", 0)
        self.mailbox.open(tree["letters"])
        self.seconds_before = tree["seconds"]
        self.deadline.recent.extend(tree["recent"])
        self.pace.recent.extend(tree["pace"])
        self._peers_before_crash = set(tree["there"])
        self.shelves.restore([Shelved(0.0, unpacked(saved)) for saved in tree["shelves"]])
