"""Defines the plan of a partition: how many images of each class every peer gets in each split.

A plan only counts. `deal.py` decides which images those are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core.errors import ConfigError
from coterie.data.dataset import Array
from coterie.data.partitions.settings import PartitionSettings, cluster_count
from coterie.data.partitions.shares import Transform

FEWEST_IMAGES = 10  # the least that dirichlet and quantity give a peer, if the pool allows it


@dataclass(frozen=True)
class Request:
    """The input of a plan."""

    supply: Array
    """The number of images of each class in the pool: (classes,)."""
    peers: int
    settings: PartitionSettings
    rng: np.random.Generator

    @property
    def clusters(self) -> list[int]:
        """The cluster of each peer: contiguous blocks; the first ones are one longer if the division is uneven."""
        blocks = np.array_split(np.arange(self.peers), cluster_count(self.settings))
        return [number for number, block in enumerate(blocks) for _ in block]


@dataclass(frozen=True)
class Plan:
    """How many images of each class each peer gets in each split, and the peers' transforms and clusters."""

    counts: Array
    """(peers, 3, classes): train, validation, test."""
    transforms: list[Transform] | None = None
    clusters: list[int] | None = None


def fitting_per_holder(request: Request, held: Array) -> int:
    """How many images of each class every peer that has the class can get."""
    holders = np.maximum(held.sum(axis=0), 1)
    per_holder = request.supply if request.settings.overlap else request.supply // holders
    return int(per_holder[held.any(axis=0)].min())


def exceeds(request: Request, counts: Array) -> bool:
    """Whether the counts need more images of a class than the pool has."""
    wanted = counts.sum(axis=1).max(axis=0) if request.settings.overlap else counts.sum(axis=(0, 1))
    return bool((wanted > request.supply).any())


def require_total(request: Request, exact: tuple[int, int, int]) -> None:
    """Raise ConfigError if the pool has too few images in total for these sizes per peer."""
    total = int(request.supply.sum())
    fitting = total if request.settings.overlap else total // request.peers
    if sum(exact) > fitting:
        raise too_few(request, fitting, sum(exact), "each")


def too_few(request: Request, fitting: int, asked: int, unit: str) -> ConfigError:
    """The error for too few images, with the sizes that would fit."""
    train = fitting - int(request.settings.validation + request.settings.test)
    remedy = f"data.train = {train} would fit, or fewer peers" if train > 0 else "use fewer peers"
    return ConfigError(
        f"data.train: {request.peers} peers need {asked} images {unit} (train, validation and test), but the "
        f"dataset, with {request.supply.min()} to {request.supply.max()} images per class, "
        f"has {fitting} {unit}: {remedy}"
    )
