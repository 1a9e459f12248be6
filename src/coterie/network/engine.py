"""The network engine: runs one participant's coroutine in its own process and exchanges with others over the wire.

It answers the same verbs as the simulation, in real time: `network.exchange` and `network.listening` those that wait
for other peers, and the trainer, in a thread, those that compute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NotRequired, TypeVar, cast

from coterie.core import checkpoint
from coterie.core.artifact import Artifact
from coterie.core.checkpoint import SavedArtifact, SavedPeer, Tree, packed, unpacked
from coterie.core.errors import CoterieError
from coterie.core.events import EventLog, PeerRound
from coterie.core.requests import Compute, Evaluate, Fetch, News, Predict, Receive, Request, Send, Train
from coterie.core.run_folder import RunFolder
from coterie.engines.driving import Part, close, equip, start, step
from coterie.engines.measuring import is_due, measure_of, score_all
from coterie.engines.predictions import Predictions, SavedPrediction
from coterie.engines.shelves import Shelved
from coterie.network.attendance import Attendance
from coterie.network.exchange import Exchange
from coterie.network.listening import Listening
from coterie.network.mailbox import SavedMailbox
from coterie.network.membership import RUNNING
from coterie.network.node import Node
from coterie.network.peer_run import Activity, PeerRun
from coterie.network.pooling import ARTIFACTS, Pooling, SavedScaling
from coterie.network.store import Store
from coterie.training import Trainer

T = TypeVar("T")


class SavedRealPeer(SavedPeer):
    """A checkpoint of a real peer."""

    epoch: str
    letters: SavedMailbox
    seconds: float
    recent: list[float]
    pace: list[float]
    there: list[int]
    shelved: NotRequired[int]  # older versions wrote none
    shelves: list[SavedArtifact]
    predictions: NotRequired[list[SavedPrediction]]  # older versions wrote none
    scaling: NotRequired[SavedScaling | None]  # of the circle, with data.scale = "pooled"; older versions wrote none


class NetworkEngine:
    """Runs a method at one peer. `node` connects it to the others, and serves them from `store`."""

    def __init__(
        self,
        run: PeerRun,
        store: Store,
        node: Node,
        trainer: Trainer,
        log: EventLog,
        on_round: Callable[[PeerRound], None] = lambda _: None,
    ) -> None:
        self.peer_run, self.me, self.rounds = run, run.me, run.rounds
        self.store, self.node, self.trainer, self.log, self.on_round = store, node, trainer, log, on_round
        self.activity = Activity()
        self.predictions = Predictions(run.evaluation.selection, run.settings.checkpoint)
        self.attendance = Attendance(run, store, node)
        self.exchange = Exchange(self.attendance, self.activity)
        self.listening = Listening(self.attendance, self.activity)
        self.pooling = Pooling(self.attendance, self._drive)
        self.seconds_before = 0.0  # before the last restart
        self._started = time.monotonic()
        self._worker = ThreadPoolExecutor(1, "compute")  # so that training does not block the network
        self.me.desk = self

    @property
    def round(self) -> int:
        """The current one, or the next before it begins."""
        return self.store.round

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self._started

    # -- a run ---------------------------------------------------------------------------------

    async def run(self) -> None:
        resumed = self.round > 0
        joined = await self.attendance.join()
        self.activity.used()
        self.me.meet(self.attendance.peers())
        if not resumed:
            self.me.begin(0)
            await self._scale()
            await self._act()
            self.store.round = joined
            await self._save(joined - 1)  # a peer killed in its first round resumes there
        while self.round <= self.rounds:
            await self._one_round(self.round)
        await self.attendance.leave()

    def close(self) -> None:
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _one_round(self, t: int) -> None:
        me, activity = self.me, self.activity
        me.meet(self.attendance.peers())
        me.begin(t)
        self.attendance.announce(RUNNING)
        activity.begin_round()
        self.exchange.numbers.begin_round(t)
        began = time.monotonic()
        await self._act()
        self.store.pace.learn(time.monotonic() - began - activity.waited)
        self.exchange.report_declined()
        record = await self._record(t)
        activity.end_round()
        self.log.write(record)
        self.log.flush()
        self.store.end_round()
        if t % self.peer_run.settings.checkpoint == 0 or t == self.rounds:
            await self._save(t)
        self.on_round(record)

    async def _record(self, t: int) -> PeerRound:
        me, activity = self.me, self.activity
        stale = {"stale": activity.stale} if activity.stale else {}
        record = PeerRound(
            me.id, t, self.seconds(), bytes=dict(+activity.bytes), messages=dict(+activity.messages),
            notes={**me.notes, "waited": round(activity.waited, 3), **stale},
        )  # fmt: skip
        if is_due(t, self.peer_run.evaluate_every, self.rounds):
            measure = partial(score_all, trainer=self.trainer, evaluation=self.peer_run.evaluation)
            [measured] = await self._compute(measure, [measure_of(me)])
            if measured:
                record = measured.onto(record)
                if measured.predicted:
                    self.predictions.see(record, measured.predicted)
        return record

    # -- answering the method ------------------------------------------------------------------

    async def _act(self) -> None:
        """Run the method's coroutine for this round, or its setup before the first."""
        await self._drive(start(self.peer_run.method, self.me))

    async def _scale(self) -> None:
        """Scale this peer's samples as all peers do, if the settings say so."""
        if self.peer_run.unscaled is not None:
            equip(self.peer_run.method, self.me)
            await self.pooling.pool(self.peer_run.unscaled)
            self.exchange.deadline.recent.clear()  # nobody trained: rounds take longer

    async def _drive(self, coroutine: Part) -> None:
        answer = None
        try:
            while (request := step(self.me, coroutine, answer)) is not None:
                self.attendance.check_node()
                self.activity.doing = type(request).__name__.lower()
                answer = await self._answer(request)
        finally:
            self.activity.doing = ""
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
            return await self.listening.news()
        if isinstance(request, Fetch):
            return await self.exchange.fetch(request)
        if isinstance(request, Send):
            return await self.exchange.send(request)
        if isinstance(request, Receive):
            return await self.exchange.receive(request.name)
        raise CoterieError(f"{request!r} was awaited: only the verbs of `me` can be awaited in a method")

    async def _compute(self, function: Callable[[Any], T], jobs: Any) -> T:
        answer = await asyncio.get_running_loop().run_in_executor(self._worker, function, jobs)
        self.activity.used()
        return answer

    # -- for the method: `me.desk` -------------------------------------------------------------

    def shelve(self, artifact: Artifact) -> None:
        self.store.shelve(artifact)
        if self.peer_run.asynchronous:
            self.attendance.announce(RUNNING)

    def inbox(self, peer: int, name: str) -> list[Artifact]:  # noqa: ARG002 (there is only one here)
        return self.store.mailbox.take(name)

    # -- checkpoints ---------------------------------------------------------------------------

    async def _save(self, t: int) -> None:
        store, exchange = self.store, self.exchange
        shelved = [version.artifact for version in store.shelves.everything()]
        tree: SavedRealPeer = {
            **checkpoint.of_peer(self.me), "epoch": exchange.numbers.epoch,
            "letters": store.mailbox.state(), "seconds": self.seconds(), "recent": list(exchange.deadline.recent),
            "pace": list(store.pace.recent), "there": self.attendance.peers(), "shelved": store.shelved,
            "shelves": [packed(a) for a in shelved if self._is_kept(a, t)],
            "predictions": self.predictions.state(t), "scaling": self.pooling.saved(),
        }  # fmt: skip
        await self._compute(partial(self._write, t), tree)
        self.predictions.saved(t)
        store.mailbox.drop_used()
        self.node.audit.sync()

    def _is_kept(self, shelved: Artifact, t: int) -> bool:
        """Whether others may still ask for it after a restart. Sums are not released anew: noise would differ."""
        return shelved.round >= t or self.peer_run.asynchronous or shelved.name in ARTIFACTS

    def _write(self, t: int, tree: SavedRealPeer) -> None:
        self.log.sync()  # first: a checkpoint without the record of its round would leave a gap in the log
        checkpoint.save(RunFolder(self.peer_run.folder).checkpoint, t, tree)

    def restore(self, round: int, saved: Tree) -> None:
        """Restore the state at the end of this round."""
        tree = cast("SavedRealPeer", saved)  # its checksum proves that `_write` wrote it
        store, exchange = self.store, self.exchange
        self.pooling.restore(tree.get("scaling"))
        checkpoint.to_peer(self.me, tree)
        self.predictions.restore(tree.get("predictions", ()), round)
        self.peer_run.method.revive(self.me)
        store.round = round + 1
        store.shelved = tree.get("shelved", 0)
        store.mailbox.open(tree["letters"])
        store.pace.recent.extend(tree["pace"])
        store.shelves.restore([Shelved(0.0, unpacked(one)) for one in tree["shelves"]])
        exchange.numbers.epoch = tree["epoch"]
        exchange.deadline.recent.extend(tree["recent"])
        self.seconds_before = tree["seconds"]
        self.attendance.before_crash = set(tree["there"])
