"""Data splits, training settings, and the training and evaluation jobs that peers request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coterie.core.errors import ConfigError, ModelError
from coterie.core.randomness import number, permutations, uniforms
from coterie.core.settings import setting

if TYPE_CHECKING:
    from coterie.core.loss import Loss
    from coterie.core.model import Model
    from coterie.core.portable_model import Portable
    from coterie.core.weights import Slot
    from coterie.data.augmentation import Augmentation


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples stored once for all peers of a process; peers index into it."""

    x: Tensor
    y: Tensor
    augment: Augmentation | None = None  # makes a view of a sample, for methods that train on several views

    def views(self, x: Tensor, count: int, keys: Sequence[int]) -> Tensor:
        """`count` views of each sample, (keys, batch, ...) to (keys, count, batch, ...), random per key."""
        if self.augment is None:
            return x.unsqueeze(1).expand(-1, count, *[-1] * (x.dim() - 1))
        repeated = x.unsqueeze(1).expand(-1, count, *[-1] * (x.dim() - 1)).flatten(0, 2)
        u = uniforms(keys, count * x.shape[1] * self.augment.numbers).reshape(len(repeated), self.augment.numbers)
        views: Tensor = self.augment(repeated, torch.from_numpy(u).to(x.device))
        return views.view(len(keys), count, *x.shape[1:])


@dataclass(frozen=True, eq=False)
class Split:
    """Some rows of a pool: one peer's training, validation or test data."""

    pool: Pool
    rows: Tensor

    def __len__(self) -> int:
        return self.rows.shape[0]

    @property
    def x(self) -> Tensor:
        return self.pool.x[self.rows]

    @property
    def y(self) -> Tensor:
        return self.pool.y[self.rows]


@dataclass(frozen=True)
class TrainSettings:
    """How a peer trains locally: the [train] section."""

    epochs: int = setting(1, "passes over the peer's training data per call of train", least=0)
    batch: int = setting(64, "samples per step", least=1)
    optimizer: str = setting("sgd", "the optimiser", choices=("sgd", "adam"))
    lr: float = setting(0.05, "learning rate in round 1", above=0)
    lr_decay: float = setting(1.0, "the learning rate is multiplied by this each round")
    momentum: float = setting(0.9, "for sgd", least=0)
    weight_decay: float = setting(0.0, "L2 penalty on the weights", least=0)
    betas: tuple[float, float] = setting((0.9, 0.999), "for adam", least=0, below=1)
    augment: bool = setting(
        False, "train on a random view of each sample instead of the sample itself ([data] configures views)"
    )
    keep_optimizer: bool = setting(
        False,
        "keep the optimiser's state between rounds instead of resetting it (networks of local-ensemble and "
        "fedpae always keep it: their rounds are slices of one training)",
    )

    def __hash__(self) -> int:  # fast, because it is needed for every job of every peer
        return hash((self.optimizer, self.epochs, self.batch, self.lr))


@dataclass
class OptimizerMemory:
    """Optimiser state between two calls of train: per-parameter vectors, and the step count."""

    vectors: dict[str, Tensor] = field(default_factory=dict)
    step: int = 0


@dataclass(frozen=True, eq=False)
class FitJob:
    """Train one model, in place, on one split."""

    model: Model
    split: Split
    loss: Loss
    settings: TrainSettings
    key: tuple[object, ...]  # random key for shuffling and dropout
    given: Mapping[str, Tensor] = field(default_factory=dict)
    only: str | None = None  # train only this part of the model
    memory: OptimizerMemory | None = None
    views: int = 0  # augmented views of each batch that the loss needs
    targets: Tensor | None = None  # one row per sample of the split, in its order, for the loss

    def __post_init__(self) -> None:
        if not isinstance(self.given, Mapping):
            raise ConfigError(f"me.train(given=...) must be tensors by name, not a {type(self.given).__name__}")
        for key, value in self.given.items():
            if not isinstance(value, Tensor):
                raise ConfigError(
                    f"me.train(given=...): '{key}' is a {type(value).__name__}: make it a tensor (torch.tensor)"
                )
        if self.targets is not None and len(self.targets) != len(self.split):
            raise ConfigError(
                f"me.train(targets=...) has {len(self.targets)} rows for {len(self.split)} samples: it needs one row "
                "per sample, in the order of me.predict"
            )

    @property
    def shuffle_key(self) -> int:
        return number(*self.key, "shuffle")

    def views_key(self, step: int) -> int:
        return number(*self.key, "views", step)

    def trained(self) -> tuple[Slot, ...]:
        """The tensors that training changes: the unfrozen parameters of the model or of one part."""
        architecture, layout = self.model.architecture, self.model.layout
        inside = None if self.only is None else set(layout.within(self.only))
        slots = [slot for slot in layout.parameters if inside is None or slot in inside]
        trained = tuple(slot for slot in slots if slot.name not in architecture.frozen)
        if not trained:
            part = f"the part '{self.only}' of " if self.only else ""
            why = "all of its parameters are frozen (requires_grad = False)" if slots else "it has no parameters"
            raise ModelError(
                f"there is nothing to train in {part}'{architecture.name}': {why}. "
                "Leave some parameters unfrozen, or use a method that trains another part"
            )
        return trained


def step_inputs(jobs: Sequence[FitJob], x: Tensor, step: int) -> tuple[Tensor, Tensor | None]:
    """Inputs of one step of equal jobs, from samples (jobs, batch, ...): the samples or a random view of each, and the
    separate views for losses that compare them."""
    first = jobs[0]
    count = first.views or int(first.settings.augment)
    if not count:
        return x, None
    views = first.split.pool.views(x, count, [job.views_key(step) for job in jobs])
    return (x, views) if first.views else (views[:, 0], None)


@dataclass(frozen=True, eq=False)
class EvaluateJob:
    """Measure one model on one split."""

    model: Model
    split: Split


@dataclass(frozen=True, eq=False)
class PortableJob:
    """Measure one portable model, which only a sandbox runs, on one split."""

    model: Portable
    split: Split
    classes: int  # number of classes that it must predict


AnyJob = EvaluateJob | PortableJob


class Score(NamedTuple):
    """Loss and accuracy of a model on a split."""

    loss: float
    accuracy: float

    @property
    def rank(self) -> float:
        """The loss to compare models by: a diverged model is worse than any other."""
        return self.loss if math.isfinite(self.loss) else math.inf

    @property
    def finite_loss(self) -> float | None:
        """The loss to record; None for a diverged model, because JSON has no NaN."""
        return self.loss if math.isfinite(self.loss) else None


class Prediction(NamedTuple):
    """A model's outputs for every sample of a split, in the split's order."""

    logits: Tensor  # (samples, classes)
    features: Tensor  # (samples, d_z); a portable model has none: (samples, 0)
    trouble: str = ""  # why a portable model could not be run; its logits are then NaN


def batches(samples: int, settings: TrainSettings, keys: Sequence[int]) -> list[np.ndarray]:
    """The positions of each step's samples, (keys, batch): reshuffled every epoch, the last batch may be smaller.

    One row per key (of a peer), computed at once because a generator for each would cost more than training small
    models. A last batch of one sample joins the one before: normalisation over a batch of one is undefined.
    """
    cuts = list(range(0, samples, settings.batch))
    if len(cuts) > 1 and samples - cuts[-1] == 1:
        cuts.pop()
    ends = [*cuts[1:], samples][: len(cuts)]  # empty without samples
    orders = permutations(keys, settings.epochs, samples)
    return [orders[:, epoch, a:b] for epoch in range(settings.epochs) for a, b in zip(cuts, ends, strict=True)]


def rows_of(split: Split, positions: np.ndarray) -> Tensor:
    return split.rows[torch.from_numpy(positions).to(split.rows.device)]
