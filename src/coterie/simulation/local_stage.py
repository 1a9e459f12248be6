"""A stage in this process: the whole of a run, or one of its shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.core import checkpoint
from coterie.core.artifact import Artifact
from coterie.core.checkpoint import packed, unpacked
from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.core.requests import Compute, Evaluate, Predict, Request, Train
from coterie.engines.driving import SETUP, Part, close, start, step
from coterie.engines.measuring import Measure, Measured, is_due, measure_of, score_all
from coterie.methods.base import Method
from coterie.metrics import ACCURACY_ONLY, Evaluation
from coterie.simulation.clock import EVALUATION_COST
from coterie.simulation.protocol import Computed, Messages, Reply, SavedActor, Stage, Turn, Working
from coterie.simulation.spill import Spill
from coterie.training import Trainer

WORK = (Train, Evaluate, Predict, Compute)  # requests for computation


@dataclass(eq=False)
class _Work:
    """A requested computation, and its result once it is done."""

    request: Train | Evaluate | Predict | Compute[Any]
    value: Any = None


class LocalStage(Stage):
    """Participants in this process, and the trainer that computes for them. It is their `me.desk`."""

    def __init__(
        self,
        method: Method,
        participants: Sequence[Peer],
        rounds: int,
        trainer: Trainer,
        evaluate_every: int = 1,
        spill: str = "",
        evaluation: Evaluation = ACCURACY_ONLY,
    ) -> None:
        super().__init__(method, participants, rounds)
        self.trainer, self.evaluate_every, self.evaluation = trainer, evaluate_every, evaluation
        self.now = 0.0  # simulated time of the current turn
        self._parts: dict[int, Part] = {}  # by peer: its suspended setup or round
        self._inboxes: dict[int, dict[str, list[Artifact]]] = defaultdict(dict)
        # By round, then by peer: which computations are batched, and their order, must not depend on where a run was
        # resumed.
        self._work: dict[int, dict[int, _Work]] = defaultdict(dict)
        self._working: dict[int, _Work] = {}  # by peer: the computation it waits for
        self._measures: dict[int, list[Measure]] = defaultdict(list)  # by round
        self._to_keep: dict[int, Measure] = {}  # by peer: those of peers that have not started another round since
        self._kept: dict[int, dict[int, SavedActor]] = defaultdict(dict)  # for checkpoints, by round and peer
        self._acting = Reply(-1)
        self._spill = Spill(spill) if spill else None
        self._copied = self._spill.copied if self._spill else Model.copy
        for peer in participants:
            peer.desk = self
        if self._spill is None:  # else models stay in its files
            trainer.colocate([peer.model for peer in participants])

    # -- acting --------------------------------------------------------------------------------

    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        self.now = now
        return [self._act(turn) for turn in turns]

    def _act(self, turn: Turn) -> Reply:
        me = self.peers[turn.peer]
        self._acting = reply = Reply(me.id)
        if turn.round is not None:
            if me.id in self._to_keep:
                self._to_keep.pop(me.id).keep(self._copied)
            me.begin(turn.round)
            self._parts[me.id] = start(self.method, me)
        request = step(me, self._parts[me.id], self._value(turn))
        if request is None:
            del self._parts[me.id]
            self._end(me, reply)
        else:
            reply.request = self._accepted(me, request)
        return reply

    def _value(self, turn: Turn) -> Any:
        if isinstance(turn.answer, Computed):
            return self._working.pop(turn.peer).value
        if isinstance(turn.answer, Messages):
            messages = self._inboxes[turn.peer][turn.answer.name]
            taken = messages[: turn.answer.many]
            del messages[: turn.answer.many]
            return taken
        return turn.answer

    def _accepted(self, me: Peer, request: Request[Any]) -> Request[Any]:
        if not isinstance(request, WORK):
            return request
        self._working[me.id] = self._work[me.round][me.id] = _Work(request)
        return Working(_cost(request), isinstance(request, Train))

    def _end(self, me: Peer, reply: Reply) -> None:
        """Register the peer's measurement; its model is copied if it starts another round before being measured."""
        reply.notes = me.notes
        if me.round != SETUP and is_due(me.round, self.evaluate_every, self.rounds):
            self._to_keep[me.id] = measure_of(me)
            self._measures[me.round].append(self._to_keep[me.id])

    def end(self) -> None:
        for part in self._parts.values():
            close(part)

    def collect_states(self) -> None:
        """They are current already."""

    def close(self) -> None:
        self.trainer.close()

    # -- for participants: `me.desk` -------------------------------------------------------------

    def shelve(self, artifact: Artifact) -> None:
        self._acting.shelved.append(self._spill.moved(artifact) if self._spill else artifact)

    def inbox(self, peer: int, name: str) -> list[Artifact]:
        self._acting.emptied.append(name)
        return self._inboxes[peer].pop(name, [])

    # -- computing -----------------------------------------------------------------------------

    def compute(self, round: int) -> None:
        work = [work for _, work in sorted(self._work.pop(round, {}).items())]
        fits = [(w, w.request.job) for w in work if isinstance(w.request, Train)]
        _answer([w for w, _ in fits], self.trainer.fit([job for _, job in fits]))
        for kind, compute in ((Evaluate, self.trainer.evaluate), (Predict, self.trainer.predict)):
            requested = [(w, w.request.jobs) for w in work if isinstance(w.request, kind)]
            results: Iterator[Any] = iter(compute([job for _, jobs in requested for job in jobs]))
            _answer([w for w, _ in requested], [[next(results) for _ in jobs] for _, jobs in requested])
        calls = [(w, w.request.function) for w in work if isinstance(w.request, Compute)]
        _answer([w for w, _ in calls], self.trainer.call([function for _, function in calls]))

    def measured(self, round: int) -> dict[int, Measured]:
        measures = sorted(self._measures.pop(round, []), key=lambda measure: measure.me.id)
        for measure in measures:
            if self._to_keep.get(measure.me.id) is measure:
                del self._to_keep[measure.me.id]
        scores = score_all(measures, self.trainer, self.evaluation)
        return {m.me.id: measured for m, measured in zip(measures, scores, strict=True) if measured}

    # -- messages and artifacts ------------------------------------------------------------------

    def deliver(self, peer: int, artifact: Artifact) -> None:
        self._inboxes[peer].setdefault(artifact.name, []).append(artifact)

    def whole(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        return list(artifacts)

    def adopt(self, artifact: Artifact) -> Artifact:
        return artifact

    # -- checkpoints ---------------------------------------------------------------------------

    def keep(self, peer: int, round: int) -> None:
        inbox = {name: [packed(a) for a in messages] for name, messages in self._inboxes[peer].items()}
        self._kept[round][peer] = {**checkpoint.of_peer(self.peers[peer]), "inbox": inbox}

    def kept(self, round: int) -> dict[int, SavedActor]:
        return self._kept.pop(round, {})

    def restore(self, saved: Mapping[int, SavedActor]) -> None:
        for id, snapshot in saved.items():
            checkpoint.to_peer(self.peers[id], snapshot)
            self.method.revive(self.peers[id])
            self._inboxes[id] = {name: [unpacked(a) for a in packs] for name, packs in snapshot["inbox"].items()}


def _answer(work: Sequence[_Work], values: Sequence[object]) -> None:
    for item, value in zip(work, values, strict=True):
        item.value = value


def _cost(request: Train | Evaluate | Predict | Compute[Any]) -> float:
    """Simulated cost, in samples of training."""
    if isinstance(request, Train):
        job = request.job
        return len(job.split) * job.settings.epochs * max(1, job.views)
    if isinstance(request, Compute):
        return request.samples
    return EVALUATION_COST * sum(len(job.split) for job in request.jobs)
