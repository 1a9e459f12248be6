"""The batched loop: equal peers' models stacked along a first axis and trained as one (torch.func.vmap).

Optimisers are elementwise, so their functional forms work on stacked models unchanged. Peers may have different
amounts of data: each step computes those with batches of equal size together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from coterie.core.jobs import EvaluateJob, FitJob, Measurement, Pool, Prediction, Score, positions_of, step_inputs
from coterie.core.loss import Batch, Loss, sample_losses
from coterie.core.model import Architecture
from coterie.core.net import Net, Output
from coterie.core.optimizers import OPTIMIZERS, Stepping
from coterie.core.weights import Slot, lie_side_by_side, side_by_side
from coterie.training.checking import MOST_LOSSES, guarded, value_of
from coterie.training.plain import blame_loss, exact_answers, first_batch
from coterie.training.recording import Function, Repeated

Stack = dict[str, Tensor]  # name -> (peers, *shape)
REGISTER = 64  # numbers: a multiple of the register width of any processor


class _StackedNet:
    """A net with given parameters, as the losses see it; under vmap, one peer's parameters."""

    def __init__(self, module: Net, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor]) -> None:
        self.module = module
        self.parameters = parameters
        self.buffers = buffers

    def __call__(self, x: Tensor) -> Output:
        return cast(Output, functional_call(self.module, {**self.parameters, **self.buffers}, (x,)))


@dataclass(frozen=True)
class _Stacks:
    """Equal jobs' tensors, stacked along a first axis."""

    trained: Stack
    fixed: Stack
    given: Stack
    memory: dict[str, Stack]  # optimiser state of each trained tensor

    def at(self, index: Tensor | None) -> _Stacks:
        """A copy for some of the jobs; None: all jobs, without a copy."""
        if index is None:
            return self
        memory = {key: _take(stack, index) for key, stack in self.memory.items()}
        return _Stacks(_take(self.trained, index), _take(self.fixed, index), _take(self.given, index), memory)

    def put(self, index: Tensor | None, part: _Stacks) -> None:
        """Write back what a step changed for some of the jobs; for all, it was changed in place."""
        if index is None:
            return
        for stack, changed in ((self.trained, part.trained), *((m, part.memory[k]) for k, m in self.memory.items())):
            for name, tensor in stack.items():
                tensor[index] = changed[name]


def fit(jobs: Sequence[FitJob]) -> list[float]:
    """Train jobs of one kind (architecture, loss, settings, pool) together; returns the mean loss of each."""
    first, device = jobs[0], jobs[0].model.vector.device
    vectors = [job.model.vector for job in jobs]
    rows = side_by_side(vectors)
    stacks = _stack(jobs, rows)  # first: it resets state that another optimiser left
    lanes = _lanes(jobs)
    steps = {j: len(lane.steps) for lane in lanes for j in lane.jobs}
    gradients = gradients_of(first.model.architecture, first.loss)
    stepping = OPTIMIZERS[first.settings.optimizer].stepping(first.settings)
    totals = torch.zeros(len(jobs), device=device)
    for tick in range(max(steps.values())):
        for lane in _merged(lanes, tick):
            index = None if len(lane.jobs) == len(jobs) else torch.tensor(lane.jobs, device=device)
            part = stacks.at(index)
            batch = _batch([jobs[j] for j in lane.jobs], lane.steps[tick], tick)
            *grads, losses = gradients(part.trained, part.fixed, batch, part.given)
            _step(stepping, part, grads, tick + 1 + lane.steps_before)
            stacks.put(index, part)
            totals[slice(None) if index is None else index] += losses
    sums = totals.tolist()
    _check_finite(jobs, sums)
    for name, stack in stacks.trained.items():
        _at(rows, first.model.layout.by_name[name]).copy_(stack)
    if not lie_side_by_side(vectors):  # then the rows are copies
        torch._foreach_copy_(vectors, list(rows.unbind(0)))
    _remember(jobs, stacks.memory, steps)
    return [total / max(steps[j], 1) for j, total in enumerate(sums)]


def _check_finite(jobs: Sequence[FitJob], sums: Sequence[float]) -> None:
    """Raise if a loss is not finite from the first step on; the models have not been changed yet."""
    for job, total in zip(jobs, sums, strict=True):
        if not math.isfinite(total):
            model, batch = job.model, first_batch(job)
            kinds = (model.layout.parameters, model.layout.buffers)
            parameters, buffers = ({slot.name: model[slot.name] for slot in slots} for slots in kinds)
            net = _StackedNet(model.architecture.scratch().train(), parameters, buffers)
            with torch.no_grad():
                value = float(job.loss(net, batch, job.given))
            if not math.isfinite(value):
                blame_loss(job, batch, value)


def _stack(jobs: Sequence[FitJob], rows: Tensor) -> _Stacks:
    slots = jobs[0].model.layout.slots
    stacked = {s.name: _at(rows, s).clone(memory_format=torch.contiguous_format) for s in slots}
    trained = {s.name: stacked[s.name] for s in jobs[0].trained()}
    fixed = {name: stack for name, stack in stacked.items() if name not in trained}
    given = {key: torch.stack([job.given[key] for job in jobs]) for key in jobs[0].given}
    return _Stacks(trained, fixed, given, _recall(jobs, trained))


def _steps_before(job: FitJob) -> int:
    return job.memory.step if job.memory else 0


def _batch(jobs: Sequence[FitJob], step: _Step, number: int) -> Batch:
    pool = jobs[0].split.pool
    x, y = _samples(pool, torch.from_numpy(step.rows).to(pool.x.device))
    inputs, views = step_inputs(jobs, x, number)
    return Batch(inputs, y, views, _chosen("targets", jobs, step), _chosen("weights", jobs, step))


def _chosen(key: str, jobs: Sequence[FitJob], step: _Step) -> Tensor | None:
    """These samples' rows of values that each job has for its samples; None if the jobs have none."""
    if getattr(jobs[0], key) is None:
        return None
    values: list[Tensor] = [getattr(job, key) for job in jobs]
    pairs = [(rows, torch.from_numpy(at)) for rows, at in zip(values, step.positions, strict=True)]
    return torch.stack([rows[at.to(rows.device)] for rows, at in pairs])


@torch.no_grad()
def evaluate(jobs: Sequence[EvaluateJob]) -> list[Score]:
    """Measure jobs of one kind (architecture, pool, number of samples) together."""
    (logits, _), y = _outputs(jobs)
    return _scores(logits, y)


@torch.no_grad()
def measure(jobs: Sequence[EvaluateJob]) -> list[Measurement]:
    """As `evaluate`, with the answers and labels."""
    (logits, _), y = _outputs(jobs)
    both = zip(_scores(logits, y), exact_answers(logits), y.cpu().numpy(), strict=True)
    return [Measurement(*one) for one in both]


def _scores(logits: Tensor, y: Tensor) -> list[Score]:
    losses = sample_losses(logits, y).mean(1).tolist()
    if y.is_floating_point():
        return [Score(loss, math.nan) for loss in losses]
    correct = (logits.argmax(2) == y).sum(1)
    return [Score(a, b / y.shape[1]) for a, b in zip(losses, correct.tolist(), strict=True)]


@torch.no_grad()
def predict(jobs: Sequence[EvaluateJob]) -> list[Prediction]:
    """Predictions of models of one kind on their splits."""
    (logits, features), _ = _outputs(jobs)
    return [Prediction(*pair) for pair in zip(logits.unbind(0), features.unbind(0), strict=True)]


def _outputs(jobs: Sequence[EvaluateJob]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Logits and features, and labels, (jobs, samples, ...)."""
    first = jobs[0]
    rows = side_by_side([job.model.vector for job in jobs])
    state = {s.name: _at(rows, s) for s in first.model.layout.slots}
    x, y = _samples(first.split.pool, torch.stack([job.split.rows for job in jobs]))
    logits, features = outputs_of(first.model.architecture)(state, {"x": x})
    return (logits, features), y


def gradients_of(architecture: Architecture, loss: Loss) -> Repeated:
    """A function that returns the stacked models' gradients, in the order of the trained tensors, and their losses."""

    def make(trained: Stack, fixed: Stack, batch: Batch, given: Stack) -> Function:  # noqa: ARG001
        net = architecture.scratch()
        net.train()
        layout = architecture.layout

        def value(trained: Stack, fixed: Stack, batch: Batch, given: Stack) -> Tensor:
            parameters = {s.name: trained[s.name] if s.name in trained else fixed[s.name] for s in layout.parameters}
            buffers = {s.name: fixed[s.name] for s in layout.buffers}
            return value_of(loss, _StackedNet(net, parameters, buffers), batch, given)

        axes = (0, 0, Batch(*(None if part is None else 0 for part in batch)), 0)  # type: ignore[arg-type]
        transform = vmap(grad_and_value(value), in_dims=axes)

        def flat(*arguments: Any) -> list[Tensor]:
            gradients, losses = guarded(loss, lambda: transform(*arguments), given)
            return [*gradients.values(), losses]

        return flat

    return _cached(architecture, loss, lambda: Repeated(str(loss), make))


def outputs_of(architecture: Architecture) -> Repeated:
    """A function that returns the stacked models' logits and features."""

    def make(state: Stack, inputs: Stack) -> Function:  # noqa: ARG001
        net = architecture.scratch()
        net.eval()

        def outputs(state: Stack, inputs: Stack) -> list[Tensor]:
            return list(functional_call(net, state, (inputs["x"],))[:2])

        return vmap(outputs)

    # Recorded later than training: the number of models measured together varies more, and there is less to gain.
    return _cached(architecture, "outputs", lambda: Repeated(f"measuring {architecture.name}", make, delay=12))


def _cached(architecture: Architecture, key: object, make: Callable[[], Repeated]) -> Repeated:
    cache: dict[object, Repeated] = architecture.caches.setdefault("repeated", {})
    if key not in cache:
        if len(cache) >= MOST_LOSSES:
            cache.clear()
        cache[key] = make()
    return cache[key]


class _Step(NamedTuple):
    """The samples of one step, (jobs, batch): their positions in the jobs' splits, and their rows in the pool."""

    positions: np.ndarray[Any, Any]
    rows: np.ndarray[Any, Any]


class _Lane(NamedTuple):
    """Jobs with equal numbers of samples and of earlier steps: their batches have equal sizes."""

    jobs: list[int]
    steps: Mapping[int, _Step]  # by number, from 0
    steps_before: int


def _lanes(jobs: Sequence[FitJob]) -> list[_Lane]:
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for j, job in enumerate(jobs):
        alike[len(job.split), _steps_before(job)].append(j)
    return [_lane(jobs, members, steps_before) for (_, steps_before), members in alike.items()]


def _lane(jobs: Sequence[FitJob], members: list[int], steps_before: int) -> _Lane:
    own = [jobs[j] for j in members]
    rows = torch.stack([job.split.rows for job in own]).cpu().numpy()
    steps = {i: _Step(at, np.take_along_axis(rows, at, axis=1)) for i, at in enumerate(positions_of(own))}
    return _Lane(members, steps, steps_before)


def _merged(lanes: Sequence[_Lane], tick: int) -> list[_Lane]:
    """The lanes that still have a step of this number, merged if batch size and step count agree."""
    groups: dict[tuple[int, int], list[_Lane]] = defaultdict(list)
    for lane in lanes:
        if tick in lane.steps:
            groups[lane.steps[tick].rows.shape[1], lane.steps_before].append(lane)
    return [group[0] if len(group) == 1 else _joined(group, tick) for group in groups.values()]


def _joined(lanes: Sequence[_Lane], tick: int) -> _Lane:
    members = np.concatenate([lane.jobs for lane in lanes])
    order = members.argsort()  # the order in which the jobs are stacked
    arrays = zip(*(lane.steps[tick] for lane in lanes), strict=True)
    step = _Step(*(np.concatenate(parts)[order] for parts in arrays))
    return _Lane(members[order].tolist(), {tick: step}, lanes[0].steps_before)


def _samples(pool: Pool, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and labels of the rows of each peer, (peers, batch, ...)."""
    flat = rows.flatten()
    x, y = pool.x.index_select(0, flat), pool.y.index_select(0, flat)
    return x.view(*rows.shape, *x.shape[1:]), y.view(rows.shape)


def _take(stack: Stack, index: Tensor) -> Stack:
    return {name: tensor[index] for name, tensor in stack.items()}


def _step(stepping: Stepping, part: _Stacks, grads: list[Tensor], number: int) -> None:
    """The optimiser's step of this number, in place.

    Torch's fused steps round the tail elements that do not fill a register differently. Which elements those are
    would depend on how many models are stacked, so stacks of odd sizes are padded.
    """
    names = list(part.trained)
    changed = {key: [stack[n] for n in names] for key, stack in (("", part.trained), *part.memory.items())}
    padded = {key: [_padded(tensor) for tensor in stack] for key, stack in changed.items()}
    gradients = [_padded(gradient) for gradient in grads]
    stepping(padded[""], gradients, padded, number)
    for key, stack in changed.items():
        for tensor, longer in zip(stack, padded[key], strict=True):
            if longer is not tensor:
                tensor.view(-1).copy_(longer[: tensor.numel()])


def _padded(tensor: Tensor) -> Tensor:
    missing = -tensor.numel() % REGISTER
    return F.pad(tensor.reshape(-1), (0, missing)) if missing else tensor


def _recall(jobs: Sequence[FitJob], trained: Stack) -> dict[str, Stack]:
    """The stacked optimiser state: from the jobs' memories, or zeros."""
    settings, layout, memory = jobs[0].settings, jobs[0].model.layout, {}
    for job in jobs:
        if job.memory:
            job.memory.reset_foreign(settings)
    for key in OPTIMIZERS[settings.optimizer].names(settings):
        vectors = [job.memory.vectors.get(key) if job.memory else None for job in jobs]
        memory[key] = {name: torch.zeros_like(tensor) for name, tensor in trained.items()}
        for j, vector in enumerate(vectors):
            if vector is not None:
                for name, tensor in memory[key].items():
                    slot = layout.by_name[name]
                    tensor[j].copy_(vector[slot.start : slot.stop].view(slot.shape))
    return memory


def _at(rows: Tensor, slot: Slot) -> Tensor:
    return rows[:, slot.start : slot.stop].view(-1, *slot.shape)


def _remember(jobs: Sequence[FitJob], memory: dict[str, Stack], steps: Mapping[int, int]) -> None:
    for j, job in enumerate(jobs):
        if job.memory is None:
            continue
        for key, stack in memory.items():
            vector = job.memory.vectors.setdefault(key, torch.zeros_like(job.model.parameters))
            for name, tensor in stack.items():
                slot = job.model.layout.by_name[name]
                vector[slot.start : slot.stop].view(slot.shape).copy_(tensor[j])
        job.memory.count(job.settings, steps[j])
