"""A stub trainer that does and times a sample of each kind of work, and counts all of it.

The method and the engine run unchanged. Their requests are answered as if training went well to the end: models change
as they did when they were really trained, and predictions improve from round to round.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil, inf, nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coterie.config.sections import Experiment
from coterie.core.jobs import AnyJob, EvaluateJob, FitJob, Measurement, PortableJob, Prediction, Score, Split
from coterie.core.peer import held_by
from coterie.core.task import OF_A_NUMBER, REGRESSION, task_of
from coterie.planning import work
from coterie.planning.leaps import FOR_ROUNDS, Leaps
from coterie.planning.prices import Call, Do, Price, Prices, of_call
from coterie.simulation.director import Simulation
from coterie.simulation.participants import Participant
from coterie.training import Trainer
from coterie.training.plain import exact_answers

TRAINING, EVALUATING, MEASURING = "training", "evaluating", "measuring"
PREDICTING, COMPUTING = "predicting", "other computing"
STARTING = "getting started"  # extra time of first calls
QUICK = 0.05  # seconds: faster functions are always called, not answered from the cache
NOISE = 1e-6  # added to losses so that they differ
SURE = 4.0  # the logit of the predicted class in a synthetic prediction


class Lot(NamedTuple):
    """Jobs of one kind that were requested together."""

    price: Price
    places: list[int]  # indices among the requested jobs
    units: int  # of work
    side_by_side: int  # workers that share it


class Rehearsal(Trainer):
    def __init__(self, e: Experiment, all_rounds: bool) -> None:
        super().__init__(e.engine.batching, e.engine.worker_count, e.engine.threads)
        self.rounds, self.workers = e.rounds, e.engine.worker_count
        self.prices = Prices(e.engine.worker_count)
        self.leaps = Leaps(e.rounds, lambda: self.passed, inf if all_rounds else FOR_ROUNDS)
        self.calls: dict[str, Counter[Call]] = defaultdict(Counter)  # number of calls, by purpose
        self.samples = 0  # trained on
        self.engine = 0.0  # seconds of everything else, weighted by the rounds each round represents
        self.passed = 0.0  # the same unweighted
        self._moves: dict[Hashable, Tensor] = {}  # the change of a model by training, by kind of job
        self._answers: dict[Hashable, dict[int, Any]] = defaultdict(dict)  # of functions, by the size of their input
        self._rng = np.random.default_rng(e.seed)
        self._owner: dict[int, Participant] = {}  # by the id of a split
        self._computing: Callable[[], int] = lambda: 0  # returns the round that is being computed
        self.left = time.perf_counter()  # when control last returned to the engine

    def attend(self, simulation: Simulation) -> None:
        """Begin: the progress of peers is read from this simulation, which is about to run."""
        peers = simulation.stage.peers
        splits = [(p, data) for p in simulation.participants if (data := held_by(peers[p.id])) is not None]
        self._owner = {id(s): p for p, data in splits for s in (data.train, data.validation, data.test)}
        self._computing = lambda: simulation.computing
        self.left = time.perf_counter()

    # -- the trainer's interface ---------------------------------------------------------------

    def fit(self, jobs: Sequence[FitJob]) -> list[float]:
        losses = [0.0] * len(jobs)
        with self._engine_paused():
            self.samples += self._weight() * sum(map(work.amount, jobs))
            for lot in self._lots(TRAINING, jobs):
                lot_jobs = [jobs[i] for i in lot.places]
                done = self._train(lot.price, lot_jobs, super().fit)
                for job in lot_jobs[done:]:
                    job.model.vector.add_(self._moves[work.kind(job)])
                for i in lot.places:
                    losses[i] = lot.price.example
        return losses

    def evaluate(self, jobs: Sequence[AnyJob]) -> list[Score]:
        with self._engine_paused():
            self._measure(EVALUATING, jobs, super().evaluate)
            return [self._score(job.split) for job in jobs]

    def measure(self, jobs: Sequence[EvaluateJob]) -> list[Measurement]:
        answers: list[Any] = [None] * len(jobs)
        with self._engine_paused():
            for lot in self._measure(MEASURING, jobs, super().measure):
                of_example = lot.price.example.answers
                classes = of_example.shape[1] if of_example.ndim == 2 else OF_A_NUMBER
                for i in lot.places:
                    answers[i] = self._measurement(jobs[i].split, classes)
        return answers

    def predict(self, jobs: Sequence[AnyJob]) -> list[Prediction]:
        answers: list[Any] = [None] * len(jobs)
        with self._engine_paused():
            for lot in self._measure(PREDICTING, jobs, super().predict):
                for i in lot.places:
                    answers[i] = self._prediction(jobs[i].split, lot.price.example)
        return answers

    def call(self, functions: Sequence[work.Function]) -> list[Any]:
        answers: list[Any] = [None] * len(functions)
        with self._engine_paused():
            for lot in self._lots(COMPUTING, functions):
                lot_functions = [functions[i] for i in lot.places]
                for i, answer in zip(lot.places, self._called(lot.price, lot_functions, super().call), strict=True):
                    answers[i] = answer
        return answers

    # -- measuring and counting ----------------------------------------------------------------

    @contextmanager
    def _engine_paused(self) -> Iterator[None]:
        """Time inside counts for the rehearsal; the time since the last call counts for the engine and the method."""
        passed = time.perf_counter() - self.left
        self.passed += passed
        self.engine += self._weight() * passed
        yield
        self.left = time.perf_counter()

    def _weight(self) -> int:
        return self.leaps.stands_for.get(self._computing(), 1)

    def _lots(self, purpose: str, jobs: Sequence[Any]) -> list[Lot]:
        by_kind: dict[Hashable, list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            by_kind[work.kind(job)].append(i)
        lots = [self._lot(purpose, kind, jobs, places) for kind, places in by_kind.items()]
        if lots:
            self.calls[purpose][tuple((x.price.number, x.units, x.side_by_side) for x in lots)] += self._weight()
        return lots

    def _lot(self, purpose: str, kind: Hashable, jobs: Sequence[Any], places: list[int]) -> Lot:
        units = sum(work.amount(jobs[i]) for i in places)
        side_by_side = min(self.workers, self._pieces(jobs[places[0]], len(places)))
        return Lot(self.prices.of(purpose, kind, len(places)), places, units, side_by_side)

    def _pieces(self, job: Any, count: int) -> int:
        """The number of pieces in which `count` such jobs are computed."""
        if isinstance(job, PortableJob):
            return 1
        if not hasattr(job, "model"):  # a function
            return count
        chunk = self._chunk(job, count)
        return ceil(count / chunk) if chunk else 1 if job.model.architecture.draws else count

    def _measure(self, purpose: str, jobs: Sequence[Any], do: Do) -> list[Lot]:
        lots = self._lots(purpose, jobs)
        for lot in lots:
            self.prices.measure(lot.price, [jobs[i] for i in lot.places], do)
        return lots

    def _train(self, price: Price, jobs: Sequence[FitJob], do: Do) -> int:
        """Train some of these jobs. Returns how many."""
        first, kind = jobs[0].model.vector, work.kind(jobs[0])
        before = first.clone()
        done = len(self.prices.measure(price, jobs, do))
        if done:
            self._moves[kind] = first - before
        return done

    def _called(self, price: Price, functions: Sequence[work.Function], do: Do) -> list[Any]:
        known = self._answers[work.kind(functions[0])]
        if not price.measured:
            first = functions[: self.workers]
            known.update(zip(map(work.amount, first), self.prices.timed(price, first, do), strict=True))
        if price.each() * max(map(work.amount, functions)) <= QUICK:
            return self.prices.timed(price, functions, do)
        new = self._worth_calling(functions, known)
        if new:
            known.update(zip(map(work.amount, new), self.prices.timed(price, new, do), strict=True))
        return [known[max(size for size in known if size <= work.amount(f))] for f in functions]

    def _worth_calling(self, functions: Sequence[work.Function], known: Collection[int]) -> list[work.Function]:
        """Functions with a new input size: a few at a time, while there is time, and always the smallest."""
        new: dict[int, work.Function] = {}
        for function in functions:
            size, least = work.amount(function), min((*known, *new))
            if size < least or (size not in known and len(new) < self.workers and self.prices.left > 0):
                new[size] = function
        return list(new.values())

    def seconds(self) -> dict[str, float]:
        """The predicted seconds of all work, by purpose."""
        prices = list(self.prices.by_kind.values())
        each = [price.each() for price in prices]
        by_purpose = {
            purpose: sum(n * of_call(c, each, self.workers) for c, n in calls.items())
            for purpose, calls in self.calls.items()
        }
        by_purpose[STARTING] = sum(price.once() for price in prices)
        return by_purpose

    # -- synthetic answers ---------------------------------------------------------------------

    def _progress(self, split: Split) -> float:
        """The progress of the split's peer, from 0 to below 1."""
        owner = self._owner.get(id(split))
        round = owner.round if owner else self._computing()
        return round / (self.rounds + 1)

    def _score(self, split: Split) -> Score:
        progress = self._progress(split)
        accuracy = nan if split.y.is_floating_point() else progress
        return Score(2 - progress + NOISE * self._rng.random(), accuracy)

    def _measurement(self, split: Split, classes: int) -> Measurement:
        logits = torch.from_numpy(self._logits(split, classes))
        return Measurement(self._score(split), exact_answers(logits), split.y.cpu().numpy())

    def _prediction(self, split: Split, example: Prediction) -> Prediction:
        """A synthetic prediction; features are those of the example."""
        logits = self._logits(split, example.logits.shape[1])
        rows = torch.arange(len(split), device=example.features.device) % max(1, len(example.features))
        if example.trouble:
            logits *= np.nan
        return Prediction(torch.from_numpy(logits).to(example.logits), example.features[rows], example.trouble)

    def _logits(self, split: Split, classes: int) -> np.ndarray:
        """Logits whose accuracy is the peer's progress, whatever the model; or numbers ever closer to the labels."""
        labels = split.y.cpu().numpy()
        if task_of(classes) == REGRESSION:
            return (labels + self._rng.normal(size=len(labels)) * (1 - self._progress(split)))[:, None]
        away = self._rng.integers(1, max(classes, 2), len(labels))
        right = np.arange(len(labels)) < self._progress(split) * len(labels)
        predicted = np.where(right, labels, (labels + away) % classes)
        logits: np.ndarray = SURE * np.eye(classes)[predicted] + self._rng.random((len(labels), classes))
        return logits
