"""What there is to compute: data splits, training settings, and the jobs that peers ask for."""

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

if TYPE_CHECKING:
    from coterie.core.loss import Loss
    from coterie.core.model import Model
    from coterie.core.portable_model import Portable
    from coterie.core.weights import Slot
    from coterie.data.augmentation import Augmentation


@dataclass(frozen=True, eq=False)
class Pool:
    """Samples held once, for all peers of a process; peers index into it."""

    x: Tensor
    y: Tensor
    augment: Augmentation | None = None  # how a view of a sample is made, for methods that train on several

    def views(self, x: Tensor, count: int, keys: Sequence[int]) -> Tensor:
        """So many views of each sample, (keys, batch, ...) to (keys, count, batch, ...); a key's are its own."""
        if self.augment is None:
            return x.unsqueeze(1).expand(-1, count, *[-1] * (x.dim() - 1))
        many = x.unsqueeze(1).expand(-1, count, *[-1] * (x.dim() - 1)).flatten(0, 2)
        u = uniforms(keys, count * x.shape[1] * self.augment.numbers).reshape(len(many), self.augment.numbers)
        seen: Tensor = self.augment(many, torch.from_numpy(u).to(x.device))
        return seen.view(len(keys), count, *x.shape[1:])


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

    epochs: int = field(default=1, metadata={"help": "passes over the peer's training data per call of train"})
    batch: int = field(default=64, metadata={"help": "samples per step"})
    optimizer: str = field(default="sgd", metadata={"help": "sgd | adam"})
    lr: float = field(default=0.05, metadata={"help": "learning rate in round 1"})
    lr_decay: float = field(default=1.0, metadata={"help": "the learning rate is multiplied by this each round"})
    momentum: float = field(default=0.9, metadata={"help": "for sgd"})
    weight_decay: float = field(default=0.0, metadata={"help": "L2 penalty on the weights"})
    betas: tuple[float, float] = field(default=(0.9, 0.999), metadata={"help": "for adam"})
    augment: bool = field(
        default=False,
        metadata={
            "help": "train on a random view of each sample instead of the sample itself ([data] configures views)"
        },
    )
    keep_optimizer: bool = field(
        default=False,
        metadata={
            "help": "keep the optimiser's state between rounds instead of resetting it (networks of local-ensemble and "
            "fedpae always keep it: their rounds are slices of one training)"
        },
    )

    def __hash__(self) -> int:  # asked for at every training of every peer
        return hash((self.optimizer, self.epochs, self.batch, self.lr))


@dataclass
class OptimizerMemory:
    """What an optimiser remembers between two calls of train: per-parameter vectors, and its step count."""

    vectors: dict[str, Tensor] = field(default_factory=dict)
    step: int = 0


@dataclass(frozen=True, eq=False)
class FitJob:
    """Train one model, in place, on one split."""

    model: Model
    split: Split
    loss: Loss
    settings: TrainSettings
    key: tuple[object, ...]  # of the randomness: shuffling, dropout
    given: Mapping[str, Tensor] = field(default_factory=dict)
    only: str | None = None  # train this part of the model alone
    memory: OptimizerMemory | None = None
    views: int = 0  # augmented twins of each batch that the loss wants
    targets: Tensor | None = None  # something about each sample of the split, in its order, that the loss wants

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
                f"me.train(targets=...) has {len(self.targets)} rows for {len(self.split)} samples: it needs one for "
                "each, in the order of me.predict"
            )

    @property
    def shuffle_key(self) -> int:
        return number(*self.key, "shuffle")

    def views_key(self, step: int) -> int:
        return number(*self.key, "views", step)

    def trained(self) -> tuple[Slot, ...]:
        """The tensors that training changes: the parameters of the model, or of one part, that are not frozen."""
        architecture, layout = self.model.architecture, self.model.layout
        inside = None if self.only is None else set(layout.within(self.only))
        slots = [slot for slot in layout.parameters if inside is None or slot in inside]
        trained = tuple(slot for slot in slots if slot.name not in architecture.frozen)
        if not trained:
            of = f"the part '{self.only}' of " if self.only else ""
            why = "all of its parameters are frozen (requires_grad = False)" if slots else "it has no parameters"
            raise ModelError(
                f"there is nothing to train in {of}'{architecture.name}': {why}. "
                "Leave some parameters unfrozen, or use a method that trains another part"
            )
        return trained


def looked_at(jobs: Sequence[FitJob], x: Tensor, step: int) -> tuple[Tensor, Tensor | None]:
    """What a step of equal jobs trains on, of samples (jobs, batch, ...): themselves or a view, and views apart."""
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
    """The same of a model that only a sandbox runs."""

    model: Portable
    split: Split
    classes: int  # that it must tell apart


AnyJob = EvaluateJob | PortableJob


class Score(NamedTuple):
    """How well a model does on a split."""

    loss: float
    accuracy: float

    @property
    def rank(self) -> float:
        """The loss to compare models by: one that diverged is worse than any."""
        return self.loss if math.isfinite(self.loss) else math.inf

    @property
    def finite_loss(self) -> float | None:
        """The loss to write down: a model that diverged has none, and JSON no word for it."""
        return self.loss if math.isfinite(self.loss) else None


class Prediction(NamedTuple):
    """What a model says of every sample of a split, in the split's order."""

    logits: Tensor  # (samples, classes)
    features: Tensor  # (samples, d_z); of a portable model none, (samples, 0)
    trouble: str = ""  # why a portable model could not be run: its logits are then not numbers


def batches(samples: int, settings: TrainSettings, keys: Sequence[int]) -> list[np.ndarray]:
    """The positions of each step's samples, (keys, batch): shuffled anew every epoch, the last batch as it comes.

    One row for each key (a peer's), all at once because a generator for each would cost more than small
    models' training. A last batch of one sample joins the one before: normalisation over a batch of one is undefined.
    """
    cuts = list(range(0, samples, settings.batch))
    if len(cuts) > 1 and samples - cuts[-1] == 1:
        cuts.pop()
    ends = [*cuts[1:], samples][: len(cuts)]  # no samples: no steps
    orders = permutations(keys, settings.epochs, samples)
    return [orders[:, epoch, a:b] for epoch in range(settings.epochs) for a, b in zip(cuts, ends, strict=True)]


def rows_of(split: Split, positions: np.ndarray) -> Tensor:
    return split.rows[torch.from_numpy(positions).to(split.rows.device)]
