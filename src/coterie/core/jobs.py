"""Data splits, training settings, and the training and evaluation jobs that peers request."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from coterie.core.balancing import NONE, SAMPLING, WEIGHTS, balanced_draws, balanced_weights
from coterie.core.errors import ConfigError, ModelError
from coterie.core.optimizers import OPTIMIZERS
from coterie.core.randomness import number, permutations, uniforms
from coterie.core.schedules import CONSTANT, COSINE, STEP
from coterie.core.settings import setting
from coterie.core.task import answers

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


def _used_by(option: str) -> str:
    return f"for {', '.join(name for name, optimizer in OPTIMIZERS.items() if option in optimizer.uses)}"


@dataclass(frozen=True)
class TrainSettings:
    """How a peer trains locally: the [train] section."""

    epochs: int = setting(1, "passes over the peer's training data per call of train", least=0)
    batch: int = setting(64, "samples per step", least=1)
    optimizer: str = setting("sgd", "the optimiser", choices=OPTIMIZERS.keys())
    lr: float = setting(0.05, "learning rate in round 1, or after the warm-up", above=0)
    schedule: str = setting(
        STEP,
        "how the learning rate changes over rounds",
        choices={
            CONSTANT: "not at all",
            STEP: "times lr_decay every step_every rounds",
            COSINE: "down to 0 along half a cosine",
        },
    )
    lr_decay: float = setting(1.0, "for step: the learning rate is multiplied by this every step_every rounds", above=0)
    step_every: int = setting(1, "for step: rounds between two changes of the learning rate", least=1)
    warmup: int = setting(
        0, "rounds over which the learning rate first rises linearly; the schedule begins after them", least=0
    )
    momentum: float = setting(0.9, _used_by("momentum"), least=0, most=1)
    weight_decay: float = setting(0.0, "L2 penalty on the weights; for adamw, decoupled weight decay", least=0)
    betas: tuple[float, float] = setting((0.9, 0.999), _used_by("betas"), least=0, below=1)
    balance: str = setting(
        NONE,
        "for few samples of some classes: all of a peer's classes count the same",
        choices={
            NONE: "no: all samples count the same",
            WEIGHTS: "class weights in the cross entropy",
            SAMPLING: "batches drawn with replacement, each class equally likely",
        },
    )
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
    optimizer: str = ""  # the name of the one that it belongs to; checkpoints of older versions have none

    def reset_foreign(self, settings: TrainSettings) -> bool:
        """Reset state that another optimiser left; returns whether there is no state to restore."""
        names = OPTIMIZERS[settings.optimizer].names(settings)
        if self.vectors and set(self.vectors) == set(names) and self.optimizer in ("", settings.optimizer):
            return False
        self.vectors, self.step = {}, 0
        return True

    def count(self, settings: TrainSettings, steps: int) -> None:
        """Add the steps that an optimiser has made."""
        self.step += steps
        self.optimizer = settings.optimizer


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

    @cached_property
    def weights(self) -> Tensor | None:
        """The weight of each sample of the split, in its order, for `train.balance = "weights"`; else None."""
        return balanced_weights(self.split.y) if self.settings.balance == WEIGHTS else None

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
    classes: int  # number of classes that it must predict; 1: a number


AnyJob = EvaluateJob | PortableJob


class Score(NamedTuple):
    """Loss and accuracy of a model on a split."""

    loss: float
    accuracy: float  # NaN where labels are numbers

    @property
    def rank(self) -> float:
        """The loss to compare models by: a diverged model is worse than any other."""
        return self.loss if math.isfinite(self.loss) else math.inf

    @property
    def finite_loss(self) -> float | None:
        """The loss to record; None for a diverged model, because JSON has no NaN."""
        return self.loss if math.isfinite(self.loss) else None


class Measurement(NamedTuple):
    """A model's score on a split with what it was computed from, for further metrics."""

    score: Score
    answers: np.ndarray  # float64: probabilities (samples, classes), or predicted numbers (samples,), scaled
    labels: np.ndarray


class Prediction(NamedTuple):
    """A model's outputs for every sample of a split, in the split's order."""

    logits: Tensor  # (samples, classes); for regression (samples, 1), predicted numbers
    features: Tensor  # (samples, d_z); a portable model has none: (samples, 0)
    trouble: str = ""  # why a portable model could not be run; its logits are then NaN

    @property
    def answers(self) -> Tensor:
        """The probability of each class (samples, classes), or the predicted numbers (samples, 1)."""
        return answers(self.logits)


def positions_of(jobs: Sequence[FitJob]) -> list[np.ndarray]:
    """The positions of each step's samples in the splits of jobs with equal settings and sizes, (jobs, batch)."""
    first = jobs[0]
    sampling = first.settings.balance == SAMPLING
    labels = [job.split.y.cpu().numpy() for job in jobs] if sampling else None
    return batches(len(first.split), first.settings, [job.shuffle_key for job in jobs], labels)


def batches(
    samples: int, settings: TrainSettings, keys: Sequence[int], labels: Sequence[np.ndarray] | None = None
) -> list[np.ndarray]:
    """The positions of each step's samples, (keys, batch): reshuffled every epoch, the last batch may be smaller.

    One row per key (of a peer), computed at once because a generator for each would cost more than training small
    models. A last batch of one sample joins the one before: normalisation over a batch of one is undefined. With
    `labels`, of each key's samples, positions are drawn with replacement instead, all classes equally likely.
    """
    cuts = list(range(0, samples, settings.batch))
    if len(cuts) > 1 and samples - cuts[-1] == 1:
        cuts.pop()
    ends = [*cuts[1:], samples][: len(cuts)]  # empty without samples
    if labels is None:
        orders = permutations(keys, settings.epochs, samples)
    else:
        drawn = balanced_draws(labels, keys, settings.epochs * samples)
        orders = drawn.reshape(len(keys), settings.epochs, samples)
    return [orders[:, epoch, a:b] for epoch in range(settings.epochs) for a, b in zip(cuts, ends, strict=True)]


def rows_of(split: Split, positions: np.ndarray) -> Tensor:
    return split.rows[torch.from_numpy(positions).to(split.rows.device)]
