"""The batched loop: equal peers' models stacked along a first axis and trained as one (torch.func.vmap).

Optimisers work number by number, so their functional forms serve stacked models as they are. Peers with
different amounts of data go along too: at each step those whose batches are of one size are computed together.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from coterie.architecture import Architecture
from coterie.models import Net, Output
from coterie.training.jobs import EvaluateJob, FitJob, Pool, Prediction, Score, TrainSettings, batches, looked_at
from coterie.training.losses import Batch, Loss
from coterie.training.plain import forget_other, memory_names
from coterie.weights import Slot

Stack = dict[str, Tensor]  # name -> (peers, *shape)
REGISTER = 64  # numbers: a multiple of what any processor computes at once


class _StackedNet:
    """A net at given parameters, as the losses see it; under vmap these are one peer's."""

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
    memory: dict[str, Stack]  # what the optimiser remembers of each trained tensor

    def at(self, index: Tensor | None) -> _Stacks:
        """Those of some jobs, copied; of all, as they are."""
        if index is None:
            return self
        memory = {key: _take(stack, index) for key, stack in self.memory.items()}
        return _Stacks(_take(self.trained, index), _take(self.fixed, index), _take(self.given, index), memory)

    def put(self, index: Tensor | None, part: _Stacks) -> None:
        """Write back what a step changed of some jobs; of all, it was changed in place."""
        if index is None:
            return
        for stack, changed in ((self.trained, part.trained), *((m, part.memory[k]) for k, m in self.memory.items())):
            for name, tensor in stack.items():
                tensor[index] = changed[name]


def fit(jobs: Sequence[FitJob]) -> list[float]:
    """Train jobs of one kind (architecture, loss, settings, pool) together; returns each one's mean loss."""
    first, vectors = jobs[0], torch.stack([job.model.vector for job in jobs])
    plans = _plans(jobs, [job.split.rows.cpu().numpy() for job in jobs])
    places = None if first.targets is None else _plans(jobs, [np.arange(len(job.split)) for job in jobs])
    stacks = _stack(jobs, vectors)
    gradients = Gradients.of(first.model.architecture, first.loss)
    totals = torch.zeros(len(jobs), device=vectors.device)
    for tick in range(max(map(len, plans))):
        for group in _groups(jobs, plans, tick):
            index = None if len(group) == len(jobs) else torch.tensor(group, device=vectors.device)
            rows = torch.from_numpy(np.stack([plans[j][tick] for j in group])).to(vectors.device)
            part = stacks.at(index)
            batch = _batch([jobs[j] for j in group], rows, tick)
            if places is not None:
                batch = batch._replace(targets=_targets([jobs[j] for j in group], [places[j][tick] for j in group]))
            grads, losses = gradients(part.trained, part.fixed, batch, part.given)
            _step(first.settings, part, grads, tick + 1 + _steps_before(jobs[group[0]]))
            stacks.put(index, part)
            totals[slice(None) if index is None else index] += losses
    for slot in first.model.layout.slots:
        if slot.name in stacks.trained:
            _at(vectors, slot).copy_(stacks.trained[slot.name])
    torch._foreach_copy_([job.model.vector for job in jobs], list(vectors.unbind(0)))
    _remember(jobs, stacks.memory, plans)
    return [float(total) / max(len(plan), 1) for total, plan in zip(totals.tolist(), plans, strict=True)]


def _stack(jobs: Sequence[FitJob], vectors: Tensor) -> _Stacks:
    start, stop = jobs[0].span()
    slots = jobs[0].model.layout.slots
    trained = {s.name: _at(vectors, s).contiguous() for s in slots if start <= s.start and s.stop <= stop}
    fixed = {s.name: _at(vectors, s) for s in slots if s.name not in trained}
    given = {key: torch.stack([job.given[key] for job in jobs]) for key in jobs[0].given}
    return _Stacks(trained, fixed, given, _recall(jobs, trained))


def _steps_before(job: FitJob) -> int:
    return job.memory.step if job.memory else 0


def _batch(jobs: Sequence[FitJob], rows: Tensor, step: int) -> Batch:
    x, y = _samples(jobs[0].split.pool, rows)
    seen, views = looked_at(jobs, x, step)
    return Batch(seen, y, views)


def _targets(jobs: Sequence[FitJob], places: Sequence[np.ndarray[Any, Any]]) -> Tensor:
    chosen = [(job.targets, torch.from_numpy(at)) for job, at in zip(jobs, places, strict=True)]
    return torch.stack([targets[at.to(targets.device)] for targets, at in chosen if targets is not None])


@torch.no_grad()
def evaluate(jobs: Sequence[EvaluateJob]) -> list[Score]:
    """Measure jobs of one kind (architecture, pool, number of samples) together."""
    (logits, _), y = _outputs(jobs)
    losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view(y.shape).mean(1)
    right = (logits.argmax(2) == y).sum(1)
    return [Score(a, b / y.shape[1]) for a, b in zip(losses.tolist(), right.tolist(), strict=True)]


@torch.no_grad()
def predict(jobs: Sequence[EvaluateJob]) -> list[Prediction]:
    """What models of one kind say of their splits."""
    (logits, features), _ = _outputs(jobs)
    return [Prediction(*pair) for pair in zip(logits.unbind(0), features.unbind(0), strict=True)]


def _outputs(jobs: Sequence[EvaluateJob]) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Logits and features, and labels, (jobs, samples, ...)."""
    first = jobs[0]
    vectors = torch.stack([job.model.vector for job in jobs])
    state = {s.name: _at(vectors, s) for s in first.model.layout.slots}
    x, y = _samples(first.split.pool, torch.stack([job.split.rows for job in jobs]))
    net = first.model.architecture.scratch()
    net.eval()
    outputs = vmap(lambda s, inputs: functional_call(net, s, (inputs,))[:2])(state, x)
    return cast("tuple[Tensor, Tensor]", outputs), y


class Gradients:
    """The stacked models' losses and gradients for one architecture and loss.

    torch.func works its transforms out anew at every call, which for small models costs more than the
    numbers themselves. So a call of shapes seen before is recorded once as a plain list of operations and
    then replayed: the same operations on the same numbers, hence the same result to the bit.
    """

    USES_BEFORE_RECORDING = 3
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, architecture: Architecture, loss: Loss) -> None:
        self.architecture = architecture
        self.loss = loss
        self._uses: Counter[object] = Counter()
        self._recorded: dict[object, Callable[..., tuple[Stack, Tensor]]] = {}

    @classmethod
    def of(cls, architecture: Architecture, loss: Loss) -> Gradients:
        kept: dict[Loss, Gradients] = architecture.caches.setdefault("gradients", {})
        if loss not in kept:
            kept[loss] = cls(architecture, loss)
        return kept[loss]

    def __call__(self, trained: Stack, fixed: Stack, batch: Batch, given: Stack) -> tuple[Stack, Tensor]:
        shapes = [tuple((name, t.shape) for name, t in stack.items()) for stack in (trained, fixed, given)]
        extras = [None if extra is None else extra.shape for extra in (batch.views, batch.targets)]
        key = (batch.x.shape, *extras, *shapes)
        recorded = self._recorded.get(key)
        if recorded is None:
            recorded = self._transform(batch)
            self._uses[key] += 1
            if self._uses[key] >= self.USES_BEFORE_RECORDING:
                recorded = self._recorded[key] = self._record(recorded, (trained, fixed, batch, given))
        return recorded(trained, fixed, batch, given)

    def _transform(self, example: Batch) -> Callable[..., tuple[Stack, Tensor]]:
        net = self.architecture.scratch()
        net.train()
        layout = self.architecture.layout

        def value(trained: Stack, fixed: Stack, batch: Batch, given: Stack) -> Tensor:
            parameters = {s.name: trained[s.name] if s.name in trained else fixed[s.name] for s in layout.parameters}
            buffers = {s.name: fixed[s.name] for s in layout.buffers}
            return self.loss(_StackedNet(net, parameters, buffers), batch, given)

        axes = (0, 0, Batch(*(None if part is None else 0 for part in example)), 0)  # type: ignore[arg-type]
        return cast("Callable[..., tuple[Stack, Tensor]]", vmap(grad_and_value(value), in_dims=axes))

    def _record(self, transform: Callable[..., Any], example: tuple[Any, ...]) -> Callable[..., tuple[Stack, Tensor]]:
        try:
            with self._lock:  # recording patches torch for a moment
                return cast("Callable[..., tuple[Stack, Tensor]]", make_fx(transform)(*example))
        except Exception as error:
            # A loss that looks at values cannot be recorded; it is still right, only slower.
            logging.getLogger(__name__).info("%s is not recorded: %s", self.loss, error)
            return lambda *arguments: self._transform(example[2])(*arguments)


def _plans(jobs: Sequence[FitJob], of: Sequence[np.ndarray[Any, Any]]) -> list[list[np.ndarray[Any, Any]]]:
    """What each job's steps take of its array (the rows of its split in the pool, say)."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for j, job in enumerate(jobs):
        by_size[len(job.split)].append(j)
    plans: list[list[np.ndarray[Any, Any]]] = [[] for _ in jobs]
    for size, members in by_size.items():
        rows = np.stack([of[j] for j in members])
        for positions in batches(size, jobs[0].settings, [jobs[j].shuffle_key for j in members]):
            step = np.take_along_axis(rows, positions, axis=1)
            for i, j in enumerate(members):
                plans[j].append(step[i])
    return plans


def _groups(jobs: Sequence[FitJob], plans: Sequence[Sequence[Any]], tick: int) -> list[list[int]]:
    """The jobs that still have a batch at this step, together where batch size and step count agree."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for j, plan in enumerate(plans):
        if tick < len(plan):
            groups[len(plan[tick]), _steps_before(jobs[j])].append(j)
    return list(groups.values())


def _samples(pool: Pool, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs and labels of the rows of each peer, (peers, batch, ...)."""
    flat = rows.flatten()
    x, y = pool.x.index_select(0, flat), pool.y.index_select(0, flat)
    return x.view(*rows.shape, *x.shape[1:]), y.view(rows.shape)


def _take(stack: Stack, index: Tensor) -> Stack:
    return {name: tensor[index] for name, tensor in stack.items()}


def _step(settings: TrainSettings, part: _Stacks, grads: Stack, steps: int) -> None:
    """The optimiser's step of this number, in place.

    Torch's fused steps round what does not fill a register otherwise than the rest. Which numbers those are would
    depend on how many models are stacked; so stacks of odd sizes are filled up.
    """
    names = list(part.trained)
    changed = {key: [stack[n] for n in names] for key, stack in (("", part.trained), *part.memory.items())}
    filled = {key: [_filled_up(tensor) for tensor in stack] for key, stack in changed.items()}
    _fused(settings, filled, [_filled_up(grads[n]) for n in names], steps)
    for key, stack in changed.items():
        for tensor, whole in zip(stack, filled[key], strict=True):
            if whole is not tensor:
                tensor.view(-1).copy_(whole[: tensor.numel()])


def _fused(settings: TrainSettings, stacks: dict[str, list[Tensor]], gradients: list[Tensor], steps: int) -> None:
    """One step on the parameters (named "") and what the optimiser remembers of them."""
    parameters = stacks[""]
    if settings.optimizer == "adam":
        adam(
            parameters, gradients, stacks["exp_avg"], stacks["exp_avg_sq"], [],
            [torch.tensor(float(steps - 1), device=p.device) for p in parameters],
            fused=True, amsgrad=False, maximize=False, beta1=settings.betas[0], beta2=settings.betas[1],
            lr=settings.lr, eps=1e-8, weight_decay=settings.weight_decay,
        )  # fmt: skip
        return
    velocities: list[Tensor | None] = [*stacks.get("momentum_buffer", [None] * len(parameters))]
    sgd(
        parameters, gradients, velocities, fused=True, dampening=0.0, nesterov=False, maximize=False,
        weight_decay=settings.weight_decay, momentum=settings.momentum, lr=settings.lr,
    )  # fmt: skip


def _filled_up(tensor: Tensor) -> Tensor:
    missing = -tensor.numel() % REGISTER
    return F.pad(tensor.reshape(-1), (0, missing)) if missing else tensor


def _recall(jobs: Sequence[FitJob], trained: Stack) -> dict[str, Stack]:
    """What the optimiser remembers, stacked: from the peers' own memories, or zeros."""
    settings, layout, memory = jobs[0].settings, jobs[0].model.layout, {}
    for job in jobs:
        if job.memory:
            forget_other(job.memory, settings)
    for key in memory_names(settings):
        kept = [job.memory.vectors.get(key) if job.memory else None for job in jobs]
        memory[key] = {name: torch.zeros_like(tensor) for name, tensor in trained.items()}
        for j, vector in enumerate(kept):
            if vector is not None:
                for name, tensor in memory[key].items():
                    slot = layout.by_name[name]
                    tensor[j].copy_(vector[slot.start : slot.stop].view(slot.shape))
    return memory


def _at(vectors: Tensor, slot: Slot) -> Tensor:
    return vectors[:, slot.start : slot.stop].view(-1, *slot.shape)


def _remember(jobs: Sequence[FitJob], memory: dict[str, Stack], plans: Sequence[Sequence[Any]]) -> None:
    for j, job in enumerate(jobs):
        if job.memory is None:
            continue
        for key, stack in memory.items():
            vector = job.memory.vectors.setdefault(key, torch.zeros_like(job.model.parameters))
            for name, tensor in stack.items():
                slot = job.model.layout.by_name[name]
                vector[slot.start : slot.stop].view(slot.shape).copy_(tensor[j])
        job.memory.step += len(plans[j])
