"""The network engine: one participant's coroutine in one process; what it asks of others goes over the wire.

The same verbs as in the simulation, answered by real waiting. Nothing waits without an end: a fetch by the deadline
that recent rounds taught, a letter or a server by the run's patience.
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
VERSIONS = 4  # of an artifact that stay on the shelf for those who are behind
LOOK = 0.02  # seconds between two looks at something that others change
SERVER_PAUSE = 0.25  # seconds between two tries to reach a server that is away
MOST_LETTERS = 10_000  # of one peer to another in a round
FAREWELLS = 16  # peers who are told that one has finished: so they need not wonder where it is


class NetworkEngine:
    """Runs a method at one peer. `node` is its way to the others."""

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
        self.board = Shelves(self.asynchronous, VERSIONS)
        self.letters = Mailbox(folder / "letters")
        self.deadline, self.pace = Deadline(settings.deadline, settings.patience), Pace()
        self.round = 0  # the one it is in, or is about to begin
        self.epoch = format(time.time_ns(), "x")  # of this run of the peer, through all its restarts
        self.letters_sent: Counter[int] = Counter()  # in this round, by recipient
        self.waited = 0.0  # for others, in this round
        self.doing = ""  # the verb that the method waits for: train, fetch and so on
        self.waits_for = ""
        self.awaited: set[int] = set()  # who has not answered the fetch under way
        self.bytes: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.seconds_before = 0.0  # of earlier parts of the run
        self._began = time.monotonic()
        self.shelved = 0  # how many things, so far
        # Of each other, and each of its starts, how many it had when one was last told of news.
        self._heard: dict[tuple[str, int], int] = {}
        # When the circle was there; and when one last did something, or got something from another.
        self._gathered = self._last_use = time.monotonic()
        self._stale: dict[int, int] = {}
        self._were_there: set[int] = set()  # before a crash
        self._bytes: dict[tuple[str, int], bytes] = {}  # of what is on the shelf, once somebody asked
        self._changed = asyncio.Event()  # something was shelved, a round ended, a letter came
        self._worker = ThreadPoolExecutor(1, "compute")  # so that training never keeps the network waiting
        me.desk = self

    # -- a run ---------------------------------------------------------------------------------

    async def run(self) -> None:
        resumed = self.round > 0
        joined = await (self._come_back() if resumed else self._gather())
        await self._find_server()
        self._gathered = self._last_use = time.monotonic()
        self.me.meet(self._peers())
        if not resumed:
            self.me.begin(0)
            await self._act()
            self.round = joined
            await self._save(joined - 1)  # who is killed in its first round comes back to that one
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
        self.waited, self._stale, self.letters_sent = 0.0, {}, Counter()
        began = time.monotonic()
        await self._act()
        self.pace.learn(time.monotonic() - began - self.waited)
        self._report_declined()
        notes = {**me.notes, "waited": round(self.waited, 3), **({"stale": self._stale} if self._stale else {})}
        record = PeerRound(
            me.id, t, self.seconds(), bytes=dict(+self.bytes), messages=dict(+self.messages), notes=notes
        )
        if is_due(t, self.evaluate_every, self.rounds):
            [found] = await self._compute(partial(score_all, trainer=self.trainer), [measure_of(me)])
            record = found.onto(record) if found else record
        self.bytes, self.messages = Counter(), Counter()
        self.log.write(record)
        self.log.flush()
        self.round = t + 1
        self._wake()
        if t % self.settings.checkpoint == 0 or t == self.rounds:
            await self._save(t)
        self.on_round(record)

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self._began

    # -- coming and going ----------------------------------------------------------------------

    async def _gather(self) -> int:
        """Wait until all who are expected know of each other; returns the round to begin with.

        Who hears of a circle that has begun before it could say that it is ready is a newcomer, and starts where
        they are: nobody begins before everybody has said so.
        """
        began, said = time.monotonic(), 0
        while True:
            self._check_node()
            others = [e.announcement for e in self.node.book.companions()]
            running = [a.round for a in others if a.state in (RUNNING, LISTENING, DONE)]
            if running and self.node.book.mine.state == GATHERING:
                at = min(max(1, int(statistics.median_high(running))), self.rounds)
                self.say(f"the circle is in round {at}: joining it there")
                return at
            count = len(others) + 1
            self.node.book.announce(knows=count, state=READY if count >= self.expected else GATHERING)
            if count >= self.expected and all(a.knows >= self.expected or a.round > 0 for a in others):
                return 1
            if count != said:
                said = count
                self.say(f"{count} of {self.expected} are here")
            if time.monotonic() - began > self.settings.gather:
                self.say(f"going on without those who did not come: {count} of {self.expected} are here")
                return 1
            await asyncio.sleep(LOOK)

    async def _come_back(self) -> int:
        """After a crash: hear of those who were there before, and go on where one was.

        Whoever is there knows of all the others. Where nobody is, all may have crashed, and be starting one by one.
        """
        self.say(f"back in round {self.round}")
        self._announce(RUNNING)
        until = time.monotonic() + self.settings.patience
        while time.monotonic() < until and not self._were_there <= self.node.book.by_number.keys():
            self._check_node()
            await asyncio.sleep(LOOK)
        await asyncio.sleep(self.settings.interval / 2 if self.node.book.there() else 0)
        return self.round

    async def _linger(self) -> None:
        """Others may still want what is on the shelf: stay until they have finished, too."""
        until = time.monotonic() + self.settings.linger
        while time.monotonic() < until and self._is_needed():
            self._check_node()
            await asyncio.sleep(LOOK)
        there = self.node.book.there()
        told = random.sample(there, min(FAREWELLS, len(there)))
        await asyncio.gather(*(self.node.meet(e.announcement.name, e.announcement.endpoint) for e in told))

    def _is_needed(self) -> bool:
        """Whether somebody is on its way to the end. Who fell silent a moment ago may be starting again."""
        others = [e for e in self.node.book.companions() if e.announcement.state != DONE]
        return any(e.failed is None or time.monotonic() - e.failed < self.settings.patience for e in others)

    async def _find_server(self) -> None:
        """Its number is in its certificate. (After a crash it may be starting again, too.)"""
        if self.server == self.node.identity.name:
            self.me.server = self.me.id
        elif self.server:
            until = time.monotonic() + self.settings.gather
            while self.server not in self.node.book.entries:
                self._check_node()
                if time.monotonic() > until:
                    raise CoterieError(f"peer.server = '{self.server}' did not come: start it, then this peer again")
                await asyncio.sleep(LOOK)
            self.me.server = self.node.book.entries[self.server].credential.number

    def _announce(self, state: str) -> None:
        round = min(self.round, self.rounds)
        self.node.book.announce(state=state, round=round, knows=len(self._peers()) + 1, shelved=self.shelved)

    def _peers(self) -> list[int]:
        """Who is there, by number: the server is none of them."""
        return [e.credential.number for e in self.node.book.there() if e.credential.number != self.me.server]

    def _check_node(self) -> None:
        trouble = self.node.broken or self.node.refused
        if trouble is not None:
            raise trouble

    # -- answering the method ------------------------------------------------------------------

    async def _act(self) -> None:
        """What the method does in this peer's round, or before its first."""
        part, answer = start(self.method, self.me), None
        try:
            while (request := step(self.me, part, answer)) is not None:
                self._check_node()
                self.doing = type(request).__name__.lower()
                answer = await self._answer(request)
        finally:
            self.doing = ""
            close(part)

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

    async def _compute(self, what: Callable[[Any], T], jobs: Any) -> T:
        answer = await asyncio.get_running_loop().run_in_executor(self._worker, what, jobs)
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
        return {j: found for j, (found, _) in zip(request.peers, answers, strict=True) if found is not None}

    async def _answer_of(self, j: int, request: Fetch, wait: float) -> tuple[Artifact | None, float | None]:
        try:
            return await self._fetch_one(j, request, wait)
        finally:
            self.awaited.discard(j)

    async def _fetch_one(self, j: int, request: Fetch, wait: float) -> tuple[Artifact | None, float | None]:
        """What one peer has, and how long it took if it came from somebody else."""
        if j == self.me.id:
            own = self.board.find(j, request.name, request.round, time.monotonic())
            return (own.artifact if own else None), None
        began = time.monotonic()
        delivery = await self.node.fetch(j, request.name, request.round, wait)
        while j == self.me.server and not self._served(delivery, request) and self._has_patience(began):
            # Without its server a peer can do nothing: it may be starting again.
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
    def _served(delivery: Delivery | None, request: Fetch) -> bool:
        return delivery is not None and delivery.artifact.round >= request.round

    def _has_patience(self, began: float) -> bool:
        return time.monotonic() - began < self.settings.patience

    def _server_is_past(self, round: int) -> bool:
        """It answers, and has finished this round: what was not there will not come."""
        assert self.me.server is not None
        entry = self.node.entry(self.me.server)
        return entry is not None and not entry.silent and entry.announcement.round > round

    def _plausible(self, artifact: Artifact, request: Fetch) -> bool:
        if 0 <= artifact.round <= self.rounds:
            return True
        name = self.node.book.by_number.get(artifact.author, "?")
        what = f"'{request.name}' of round {artifact.round} came in round {request.round} of {self.rounds}"
        self.node.conduct.offended(name, what)
        return False

    def _report_declined(self) -> None:
        """What the method could not use was somebody's fault."""
        for j, why in self.me.notes.get("declined", {}).items():
            self.node.conduct.offended(self.node.book.by_number.get(int(j), "?"), why)

    # -- sending -------------------------------------------------------------------------------

    async def _send(self, request: Send) -> bool:
        number = self._next_number(request.to)
        if request.to == self.me.id:
            self.letters.put(request.artifact, request.artifact.to_bytes(), self.node.identity.name, number)
            return True
        began = time.monotonic()
        size = await self.node.send(request.to, request.artifact, number, self.deadline.seconds)
        self.waited += time.monotonic() - began
        if size:
            self.bytes[request.artifact.name] += size
            self.messages[request.artifact.name] += 1
        return size > 0

    def _next_number(self, to: int) -> str:
        """Of a letter: the same when a round is begun again after a crash, and above all of the rounds before, to
        whomever those went. So its recipient knows a twin, and takes nothing else for one."""
        count = self.letters_sent[to]
        if count >= MOST_LETTERS:
            raise CoterieError(f"more than {MOST_LETTERS} messages to peer {to} in one round: send fewer")
        self.letters_sent[to] += 1
        return f"{self.epoch}.{self.me.round * MOST_LETTERS + count}"

    async def _receive(self, name: str) -> list[Artifact]:
        self.waits_for = f"a message '{name}'"
        began = time.monotonic()
        while not self.letters.has(name) and time.monotonic() - began < self.settings.patience:
            self._check_node()
            await self._until_changed(1.0)
        self.waited += time.monotonic() - began
        self.waits_for = ""
        return self.letters.take(name)

    async def _news(self) -> bool:
        """Wait until somebody has shelved something new, or nobody will."""
        self.waits_for = "news"
        self._announce(LISTENING)
        while not (told := self._has_heard()) and self._may_hear_more():
            await asyncio.sleep(LOOK)
            self._check_node()
        self.me.meet(self._peers())  # somebody may have come since the round began
        self.waits_for = ""
        self._announce(RUNNING)
        return told

    def _has_heard(self) -> bool:
        """Whether somebody says that it has shelved more than when one was last told."""
        announced = [entry.announcement for entry in self.node.book.companions()]
        counts = {(a.name, a.incarnation): a.shelved for a in announced}
        news = any(count > self._heard.get(who, 0) for who, count in counts.items())
        news = news and time.monotonic() < self._last_use + self.settings.linger  # or somebody only says so
        self._heard = counts if news else self._heard
        return news

    def _may_hear_more(self) -> bool:
        """Somebody is at work, or has not come yet; and the last thing of use is not too long ago."""
        now, others = time.monotonic(), self.node.book.companions()
        missing = len(others) + 1 < self.expected and now < self._gathered + self.settings.patience
        return now < self._last_use + self.settings.linger and (missing or any(map(self._may_have_news, others)))

    def _may_have_news(self, entry: PeerEntry) -> bool:
        """Whether it is still at work. Who fell silent a moment ago may be starting again."""
        if entry.announcement.state in (LISTENING, DONE):
            return False
        return entry.failed is None or time.monotonic() - entry.failed < self.settings.patience

    # -- for the method: `me.desk` -------------------------------------------------------------

    def shelve(self, artifact: Artifact) -> None:
        self.board.put(artifact, time.monotonic(), 0)
        self.shelved += 1
        if self.asynchronous:
            self._announce(RUNNING)
        self._bytes.pop((artifact.name, artifact.round), None)
        self._wake()

    def inbox(self, peer: int, name: str) -> list[Artifact]:  # noqa: ARG002 (there is only one here)
        return self.letters.take(name)

    # -- for the node: when others come --------------------------------------------------------

    def may_exchange_with(self, number: int) -> bool:
        return self.me.may_exchange_with(number)

    async def find(self, name: str, round: int, wait: float) -> Artifact | None:
        """What is on the shelf, waiting for it if it may still come.

        Who is too far behind to have it in time says so at once, with the latest that there is: else it would hold up
        everybody in every round until it has caught up.
        """
        until = time.monotonic() + wait
        while True:
            found = self.board.find(self.me.id, name, round, time.monotonic())
            if found is not None:
                return found.artifact
            left = until - time.monotonic()
            if self.asynchronous or left <= 0 or 0 < round < self.round:
                return None
            if self.pace.of_rounds(round - self.round) > left:
                latest = self.board.latest(self.me.id, name)
                return latest.artifact if latest else None
            await self._until_changed(left)

    def bytes_of(self, artifact: Artifact) -> bytes:
        key = artifact.name, artifact.round
        if key not in self._bytes:
            on_shelf = {(v.artifact.name, v.artifact.round) for v in self.board.everything()}
            self._bytes = {k: data for k, data in self._bytes.items() if k in on_shelf}
            data = artifact.to_bytes()
            if key not in on_shelf:  # a letter
                return data
            self._bytes[key] = data
        return self._bytes[key]

    def take(self, letter: Artifact, data: bytes, sender: str, number: str) -> None:
        if not 0 <= letter.round <= self.rounds:
            raise WireError(f"a letter of round {letter.round}, and there are {self.rounds}")
        if self.letters.is_full(sender):
            raise WireError(f"too many letters of '{sender}' wait here unread")
        try:
            self.letters.put(letter, data, sender, number)
        except ArtifactError as error:
            raise WireError(str(error)) from error
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until_changed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- surviving -----------------------------------------------------------------------------

    async def _save(self, t: int) -> None:
        shelved = [version.artifact for version in self.board.everything()]
        tree = {
            **checkpoint.of_peer(self.me), "epoch": self.epoch,
            "letters": self.letters.state(), "seconds": self.seconds(), "recent": list(self.deadline.recent),
            "pace": list(self.pace.recent), "there": self._peers(), "shelved": self.shelved,
            "shelves": [packed(a) for a in shelved if a.round >= t or self.asynchronous],
        }  # fmt: skip
        await self._compute(partial(self._write, t), tree)
        self.letters.settled()
        self.node.audit.sync()

    def _write(self, t: int, tree: dict[str, Any]) -> None:
        self.log.sync()  # first: a checkpoint without the record of its round would leave a gap in the log
        checkpoint.save(self.folder / "checkpoint", t, tree)

    def restore(self, round: int, tree: dict[str, Any]) -> None:
        """Go on after this round, as it was when it ended."""
        checkpoint.to_peer(self.me, tree)
        self.method.revive(self.me)
        self.round = round + 1
        self.epoch = tree["epoch"]
        self.shelved = tree.get("shelved", 0)
        self.letters.open(tree["letters"])
        self.seconds_before = tree["seconds"]
        self.deadline.recent.extend(tree["recent"])
        self.pace.recent.extend(tree["pace"])
        self._were_there = set(tree["there"])
        self.board.restore([Shelved(0.0, unpacked(saved)) for saved in tree["shelves"]])
