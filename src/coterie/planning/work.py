"""Classify jobs for planning: their kind, their amount of work, and how to take part of a job."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from coterie.core.jobs import AnyJob, EvaluateJob, FitJob, PortableJob, Split
from coterie.training.plain import EVALUATION_BATCH

Function = Callable[[], Any]
Job = FitJob | AnyJob | Function


def kind(job: Job) -> Hashable:
    """The kind of a job. Jobs of one kind cost the same per unit of work."""
    if isinstance(job, FitJob):
        s = job.settings  # without the learning rate, which may change every round
        how = (s.epochs, s.batch, s.optimizer, s.momentum == 0, s.augment, s.balance)
        return (job.model.architecture, job.loss, how, job.only, job.views, job.targets is None)
    if isinstance(job, EvaluateJob):
        return job.model.architecture
    if isinstance(job, PortableJob):
        return job.model.kind
    words = tuple(value for value in _values(job) if isinstance(value, str))
    return (getattr(_called(job), "__qualname__", ""), words)


def amount(job: Job) -> int:
    """Units of work: samples seen, or for a function the size of its inputs."""
    if isinstance(job, FitJob):
        return len(job.split) * job.settings.epochs * max(1, job.views)
    if isinstance(job, EvaluateJob | PortableJob):
        return len(job.split)
    arrays = (value for value in _values(job) if isinstance(value, np.ndarray | Tensor))
    return max(1, sum(math.prod(array.shape) for array in arrays))


def steps(job: Job) -> int:
    """Batches in one pass over the samples."""
    if isinstance(job, FitJob | EvaluateJob | PortableJob):
        return max(1, math.ceil(len(job.split) / _batch(job)))
    return 1


def part(job: Job, count: int) -> Job:
    """The job reduced to `count` batches and one epoch; a function cannot be reduced."""
    if not isinstance(job, FitJob | EvaluateJob | PortableJob):
        return job
    rows = job.split.rows[: count * _batch(job)]
    split = Split(job.split.pool, rows)
    if not isinstance(job, FitJob):
        return dataclasses.replace(job, split=split)
    once = dataclasses.replace(job.settings, epochs=min(1, job.settings.epochs))
    targets = None if job.targets is None else job.targets[: len(rows)]
    return dataclasses.replace(job, split=split, settings=once, targets=targets)


def _batch(job: FitJob | AnyJob) -> int:
    return job.settings.batch if isinstance(job, FitJob) else EVALUATION_BATCH


def _called(function: Function) -> Any:
    return function.func if isinstance(function, partial) else function


def _values(value: Any) -> Iterator[Any]:
    """All inputs of a function, unwrapped."""
    if isinstance(value, partial):
        value = [*value.args, *value.keywords.values()]
    if isinstance(value, Mapping):
        value = list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, f.name) for f in dataclasses.fields(value)]
    if isinstance(value, list | tuple):
        for one in value:
            yield from _values(one)
    else:
        yield value
