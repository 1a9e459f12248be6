"""The plain loop: one nn.Module, one torch optimiser, one peer after the other. The reference for the batched loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coterie.core.jobs import (
    EvaluateJob,
    FitJob,
    Measurement,
    Pool,
    Prediction,
    Score,
    Split,
    positions_of,
    rows_of,
    step_inputs,
)
from coterie.core.loss import Batch, sample_losses
from coterie.core.model import Model
from coterie.core.net import Net, Output
from coterie.core.optimizers import OPTIMIZERS
from coterie.core.randomness import torch_seeded
from coterie.core.task import REGRESSION, task_of
from coterie.training.checking import MOST_LOSSES, check_draws, guarded, not_finite, value_of

EVALUATION_BATCH = 512
LARGEST_OUTPUT = 1e9  # a model with larger logits or features is diverging


class _ModuleNet:
    """A module seen as the losses see a net."""

    def __init__(self, module: Net) -> None:
        self.module = module
        self.parameters: Mapping[str, Tensor] = dict(module.named_parameters())

    def __call__(self, x: Tensor) -> Output:
        if self.module.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return cast(Output, self.module(x))


def bind(model: Model) -> Net:
    """This thread's module of the architecture, bound to this model's vector, which it trains in place."""
    net = model.architecture.scratch()
    for name, parameter in net.named_parameters():
        parameter.data = model[name]
    for name, _ in list(net.named_buffers()):
        owner, _, attribute = name.rpartition(".")
        # `.data`: all views of the vector share a version counter, so backward would mistake an update of another
        # layer's statistics for a change of this one's.
        net.get_submodule(owner)._buffers[attribute] = model[name].data
    return net


def fit(job: FitJob) -> float:
    """Train; returns the mean loss over the steps."""
    net = bind(job.model)
    _set_modes(net, job)
    trained = _freeze_all_but(net, job)
    optimizer = OPTIMIZERS[job.settings.optimizer].made(job.settings, list(trained.values()))
    _recall(optimizer, trained, job)
    bound, total, steps = _ModuleNet(net), torch.zeros((), device=job.model.vector.device), 0
    with _dropout_seeded(job):
        for positions in positions_of([job]):
            batch = _batch(job, positions[0], steps)
            loss = _first_loss(job, bound, batch) if not steps else value_of(job.loss, bound, batch, job.given)
            optimizer.zero_grad()
            guarded(job.loss, loss.backward, job.given)
            optimizer.step()
            total += loss.detach()
            steps += 1
    _remember(optimizer, trained, job, steps)
    return float(total) / max(steps, 1)


def _set_modes(net: Net, job: FitJob) -> None:
    net.train()
    for name, part in net.named_children():  # parts that are not trained keep their normalisation statistics, too
        part.train(job.only in (None, name))


def _first_loss(job: FitJob, net: _ModuleNet, batch: Batch) -> Tensor:
    """The loss of the first step, with checks of the loss: the model has not been changed yet."""
    architecture = job.model.architecture

    def value() -> Tensor:
        return value_of(job.loss, net, batch, job.given)

    known: set[object] = architecture.caches.setdefault("losses that draw nothing", set())
    if len(known) >= MOST_LOSSES:
        known.clear()
    if architecture.draws or job.loss in known:
        loss = value()
    else:
        loss = check_draws(job.loss, value)
        known.add(job.loss)
    if not math.isfinite(loss.item()):
        blame_loss(job, batch, loss.item())
        _set_modes(net.module, job)
    return loss


def blame_loss(job: FitJob, batch: Batch, value: float) -> None:
    """Raise for a loss that is not finite if the model's outputs have normal sizes; else the model has diverged."""
    rows = Split(Pool(batch.x, batch.y), torch.arange(len(batch.x), device=batch.x.device))
    if all((part.abs() < LARGEST_OUTPUT).all() for part in predict(EvaluateJob(job.model, rows))[:2]):
        raise not_finite(job.loss, value)


def first_batch(job: FitJob) -> Batch:
    return _batch(job, positions_of([job])[0][0], 0)


def _batch(job: FitJob, positions: np.ndarray, step: int) -> Batch:
    rows = rows_of(job.split, positions)
    x, views = step_inputs([job], job.split.pool.x[rows].unsqueeze(0), step)
    targets, weights = (
        None if values is None else values[torch.from_numpy(positions).to(values.device)]
        for values in (job.targets, job.weights)
    )
    return Batch(x[0], job.split.pool.y[rows], None if views is None else views[0], targets, weights)


def evaluate(job: EvaluateJob, see: Callable[[Tensor], None] = lambda _: None) -> Score:
    """Loss and accuracy; `see` is called with the logits of each batch."""
    loss = correct = 0.0
    for outputs, y in _outputs(job):
        if y.is_floating_point():
            loss, correct = loss + float(sample_losses(outputs.logits, y).sum()), math.nan
        else:
            loss += float(F.cross_entropy(outputs.logits, y, reduction="sum"))
            correct += float((outputs.logits.argmax(1) == y).sum())
        see(outputs.logits)
    return Score(loss / len(job.split), correct / len(job.split))


def measure(job: EvaluateJob) -> Measurement:
    logits: list[Tensor] = []
    score = evaluate(job, logits.append)
    return Measurement(score, exact_answers(torch.cat(logits)), job.split.y.cpu().numpy())


def exact_answers(logits: Tensor) -> np.ndarray:
    """In float64, because metrics of many samples add up rounding errors: the softmax (..., samples, classes) of
    logits, or the predicted numbers (..., samples).

    Written out as a formula: torch's softmax takes four times as long on many short rows. NumPy's exp, unlike torch's,
    rounds every number the same, wherever it is in the array: results must not depend on which models are stacked.
    """
    exact = logits.double().cpu()
    if task_of(logits.shape[-1]) == REGRESSION:
        return exact.squeeze(-1).numpy()
    powers = torch.from_numpy(np.exp((exact - exact.amax(-1, keepdim=True)).numpy()))
    return (powers / powers.sum(-1, keepdim=True)).numpy()


def predict(job: EvaluateJob) -> Prediction:
    parts = [outputs for outputs, _ in _outputs(job)]
    return Prediction(torch.cat([p.logits for p in parts]), torch.cat([p.features for p in parts]))


def _outputs(job: EvaluateJob) -> Iterator[tuple[Output, Tensor]]:
    """The model's outputs and the labels, batch by batch."""
    net = bind(job.model)
    net.eval()
    bound = _ModuleNet(net)
    for rows in torch.split(job.split.rows, EVALUATION_BATCH):
        with torch.no_grad():
            yield bound(job.split.pool.x[rows]), job.split.pool.y[rows]


def _dropout_seeded(job: FitJob) -> AbstractContextManager[None]:
    """Torch has one generator for all threads, so models that draw from it are trained alone (see dispatch)."""
    return torch_seeded(*job.key, "training") if job.model.architecture.draws else nullcontext()


def _freeze_all_but(net: Net, job: FitJob) -> dict[str, nn.Parameter]:
    names = {slot.name for slot in job.trained()}
    trained = {}
    for name, parameter in net.named_parameters():
        parameter.grad = None
        parameter.requires_grad_(name in names)
        if parameter.requires_grad:
            trained[name] = parameter
    return trained


def _recall(optimizer: torch.optim.Optimizer, trained: Mapping[str, nn.Parameter], job: FitJob) -> None:
    memory, kind = job.memory, OPTIMIZERS[job.settings.optimizer]
    if memory is None or memory.reset_foreign(job.settings):
        return
    for name, parameter in trained.items():
        slot = job.model.layout.by_name[name]
        state = optimizer.state[parameter]
        for key in kind.names(job.settings):
            state[key] = memory.vectors[key][slot.start : slot.stop].view(slot.shape)
        for key, value in kind.counters(job.settings, memory.step).items():
            state[key] = torch.tensor(value)


def _remember(optimizer: torch.optim.Optimizer, trained: Mapping[str, nn.Parameter], job: FitJob, steps: int) -> None:
    memory, names = job.memory, OPTIMIZERS[job.settings.optimizer].names(job.settings)
    if memory is None or not steps:
        return
    for key in names:
        memory.vectors.setdefault(key, torch.zeros_like(job.model.parameters))
    for name, parameter in trained.items():
        slot = job.model.layout.by_name[name]
        for key in names:
            value = optimizer.state[parameter].get(key)
            if value is not None:  # else the loss does not depend on the parameter
                memory.vectors[key][slot.start : slot.stop].view(slot.shape).copy_(value)
    memory.count(job.settings, steps)
