"""Groups equal jobs, picks the batched or the plain loop, and spreads the work over threads."""

from __future__ import annotations

import ctypes
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import torch

from coterie.core import repeatable
from coterie.core.errors import ConfigError, LossError
from coterie.core.jobs import AnyJob, EvaluateJob, FitJob, Measurement, PortableJob, Prediction, Score
from coterie.core.loss import Loss
from coterie.core.model import Architecture, Model
from coterie.core.weights import place_side_by_side
from coterie.training import batched, plain
from coterie.training.calling import Caller
from coterie.training.portables import PortableRunner

_log = logging.getLogger(__name__)

# Models, gradients and momentum of one chunk should stay in the cache; measured with `coterie bench`.
CHUNK_BYTES = 24_000_000
LARGEST_CHUNK = 512
SMALLEST_CHUNK = 16  # when jobs are divided to keep every worker busy
# Bytes. A larger model keeps all cores busy by itself, and stacking only costs memory traffic.
LARGEST_BATCHED_MODEL = 16_000_000

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # glibc's malloc.h

Job = TypeVar("Job", FitJob, EvaluateJob)
Result = TypeVar("Result")


class Trainer:
    """Runs jobs; the results do not depend on how they are grouped into workers."""

    def __init__(self, batching: str = "auto", workers: int = 1, threads: int = 1) -> None:
        """`workers` is the number of chunks or peers trained in parallel; `threads` that of threads per operation of
        the plain loop."""
        if batching not in ("auto", "always", "never"):
            raise ConfigError(f"engine.batching must be auto, always or never, not '{batching}'")
        self.batching = batching
        self.workers, self.threads = workers, threads
        torch.set_num_threads(threads)
        repeatable.warn_if_not()
        _keep_freed_memory()
        # The threads per operation do not depend on the number of workers, so neither do the results. One thread is
        # best if there are enough peers: oversubscribed cores have been seen to cost a factor of ten.
        self._workers = ThreadPoolExecutor(workers, "train")
        self._caller = Caller(self._workers, workers)
        self._portables = PortableRunner()
        self._warned: set[Loss] = set()  # losses that cannot be batched, for which a warning was logged

    def close(self, wait: bool = True) -> None:
        self._workers.shutdown(wait, cancel_futures=not wait)
        self._portables.close()

    def colocate(self, models: Sequence[Model]) -> None:
        """Move models that will be stacked into contiguous memory: they will be trained often."""
        alike: dict[int, list[Model]] = defaultdict(list)
        for model in models:
            if self._stacks(model.architecture):
                alike[id(model.architecture)].append(model)
        for group in alike.values():
            place_side_by_side(group)

    def fit(self, jobs: Sequence[FitJob]) -> list[float]:
        """Train every job's model in place; returns the mean training losses, in the jobs' order."""
        return self._run(jobs, _fit_kind, self._fit_together, plain.fit)

    def _fit_together(self, jobs: Sequence[FitJob]) -> list[float]:
        """Train as one; if the loss cannot be batched (control flow on values), one after the other."""
        try:
            return batched.fit(jobs)
        except LossError as error:
            if self.batching == "always":
                raise ConfigError(f"engine.batching = always, but {error}. Use engine.batching = auto") from error
            losses = [plain.fit(job) for job in jobs]  # a faulty loss fails here, too, with a clearer error
            if jobs[0].loss not in self._warned:
                self._warned.add(jobs[0].loss)
                _log.warning("peers are trained one after the other instead of as one, which is slower: %s", error)
            return losses

    def evaluate(self, jobs: Sequence[AnyJob]) -> list[Score]:
        return self._each_kind(jobs, batched.evaluate, plain.evaluate, self._portables.evaluate)

    def measure(self, jobs: Sequence[EvaluateJob]) -> list[Measurement]:
        """As `evaluate`, with the answers and labels."""
        return self._run(jobs, _evaluate_kind, batched.measure, plain.measure)

    def predict(self, jobs: Sequence[AnyJob]) -> list[Prediction]:
        return self._each_kind(jobs, batched.predict, plain.predict, self._portables.predict)

    def call(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """The return values of these functions, computed in parallel if that is faster."""
        return self._caller.call(functions)

    def _each_kind(
        self,
        jobs: Sequence[AnyJob],
        together: Callable[[Sequence[EvaluateJob]], list[Result]],
        alone: Callable[[EvaluateJob], Result],
        portable: Callable[[PortableJob], Result],
    ) -> list[Result]:
        """Networks as usual; portable models one after the other, because the sandbox is one process."""
        of_networks = [job for job in jobs if isinstance(job, EvaluateJob)]
        results = iter(self._run(of_networks, _evaluate_kind, together, alone))
        of_others = [job for job in jobs if isinstance(job, PortableJob)]
        by_model = sorted(of_others, key=lambda job: job.model.digest)  # the sandbox caches the last few models
        of_portables = {id(job): portable(job) for job in by_model}
        return [of_portables[id(job)] if isinstance(job, PortableJob) else next(results) for job in jobs]

    def _run(
        self,
        jobs: Sequence[Job],
        kind: Callable[[Job], Hashable],
        together: Callable[[Sequence[Job]], list[Result]],
        alone: Callable[[Job], Result],
    ) -> list[Result]:
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for i, job in enumerate(jobs):
            groups[kind(job)].append(i)

        def each(jobs: Sequence[Job]) -> list[Result]:
            return [alone(job) for job in jobs]

        pending: list[tuple[list[int], Future[list[Result]]]] = []
        drawing: list[int] = []
        for members in groups.values():
            size = self._chunk(jobs[members[0]], len(members))
            if size:
                chunks = [members[at : at + size] for at in range(0, len(members), size)]
                pending += [(c, self._workers.submit(_threaded, 1, together, [jobs[i] for i in c])) for c in chunks]
            elif jobs[members[0]].model.architecture.draws:
                drawing += members
            else:
                pending += [([i], self._workers.submit(_threaded, self.threads, each, [jobs[i]])) for i in members]
        results: list[Any] = [None] * len(jobs)
        try:
            for members, future in pending:
                for i, value in zip(members, future.result(), strict=True):
                    results[i] = value
        finally:  # after an interrupt, do not wait for jobs that have not started
            for _, future in pending:
                future.cancel()
        for i in drawing:  # one after the other: torch has one generator for all threads
            results[i] = alone(jobs[i])
        return results

    def _chunk(self, job: FitJob | EvaluateJob, count: int) -> int:
        """How many jobs of this kind to compute together; 0 means the plain loop."""
        architecture = job.model.architecture
        model_bytes = 4 * architecture.layout.size
        most = max(2, min(LARGEST_CHUNK, CHUNK_BYTES // (3 * model_bytes)))
        chunks = max(math.ceil(count / most), min(self.workers, count // SMALLEST_CHUNK))
        chunk = math.ceil(count / max(chunks, 1))  # equal sizes: equal work, and only one recording
        if self.batching == "always" and not architecture.can_batch:
            raise ConfigError(
                f"engine.batching = always, but '{architecture.name}' cannot be batched (batch norm or "
                f"dropout): use engine.batching = auto, or model.norm = group and model.dropout = 0"
            )
        # Also for a single job: the last bits must not depend on how many jobs come at a time.
        return chunk if self._stacks(architecture) else 0

    def _stacks(self, architecture: Architecture) -> bool:
        """Whether models of this architecture are computed together."""
        if self.batching == "always":
            return architecture.can_batch
        small = 4 * architecture.layout.size <= LARGEST_BATCHED_MODEL
        return self.batching == "auto" and architecture.batches_well and small


def _threaded(threads: int, compute: Callable[[Sequence[Job]], list[Result]], jobs: Sequence[Job]) -> list[Result]:
    torch.set_num_threads(threads)  # for this worker only
    return compute(jobs)


def _keep_freed_memory() -> None:
    """Make glibc reuse the large blocks that every step frees, instead of returning them to the system.

    Allocating them again costs a page fault per 4 kB: a tenth of the time of stacked models. Does nothing except on
    Linux with glibc.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option, value in ((M_MMAP_THRESHOLD, 256 << 20), (M_TRIM_THRESHOLD, 1 << 30), (M_ARENA_MAX, 1)):
            libc.mallopt(option, value)


def _fit_kind(job: FitJob) -> Hashable:
    given = tuple((key, tensor.shape) for key, tensor in job.given.items())
    kind = (id(job.model.architecture), job.loss, job.settings, job.only, job.memory is None, job.views, given)
    return (*kind, None if job.targets is None else job.targets.shape[1:], id(job.split.pool))


def _evaluate_kind(job: EvaluateJob) -> Hashable:
    return id(job.model.architecture), id(job.split.pool), len(job.split)
