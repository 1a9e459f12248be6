"""Everybody's samples in one pool, as the models see them, and who has which of its rows."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from coterie.data import Dataset, Share
from coterie.data.augmentation import Augmentation, FeatureAugmentation, ImageAugmentation
from coterie.data.scaling import Scaling
from coterie.peer import PeerData
from coterie.training import Pool, Split

if TYPE_CHECKING:
    from coterie.experiment import DataSettings

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Holding:
    """A dataset, divided. Arrays and plain values: processes of one machine can have it in common."""

    dataset: Dataset
    x: Array  # all peers' samples, one peer after the other
    y: Array
    cuts: list[tuple[int, int, int, int]]  # by peer: where its train, validation and test rows begin, and its last end
    class_counts: list[list[int]]  # training samples of each class, by peer
    clusters: list[int] | None  # the true ones, by peer, where the data were made with them
    augment: Augmentation  # how a view of a sample is made
    scaling: Scaling  # of raw samples to those that the models see

    def without_raw(self) -> Holding:
        """All that peers need, without the rows as they were before."""
        return replace(self, dataset=replace(self.dataset, x=self.dataset.x[:0]))

    def splits(self, device: str) -> list[PeerData]:
        """Everybody's splits, which index into one pool."""
        with warnings.catch_warnings():  # nobody writes into a pool: it may be memory that cannot be written to
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            pool = Pool(torch.from_numpy(self.x).to(device), torch.from_numpy(self.y).to(device), self.augment)
        of_peers = ([torch.arange(a, b, device=device) for a, b in itertools.pairwise(cut)] for cut in self.cuts)
        return [PeerData(*(Split(pool, rows) for rows in of_peer)) for of_peer in of_peers]


def hold(dataset: Dataset, shares: Sequence[Share], settings: DataSettings) -> Holding:
    """All shares' samples, transformed as these say."""
    total = sum(len(s.train) + len(s.validation) + len(s.test) for s in shares)
    pool_x = np.empty((total, *dataset.x.shape[1:]), dtype=np.float32)
    pool_y = np.empty(total, dtype=np.int64)
    at, cuts, counts = 0, [], []
    for share in shares:
        rows = np.concatenate([share.train, share.validation, share.test])
        x, y = share.transform.apply(dataset.x[rows], dataset.y[rows])
        pool_x[at : at + len(rows)], pool_y[at : at + len(rows)] = x, y
        cuts.append((at, at + len(share.train), at + len(share.train) + len(share.validation), at + len(rows)))
        counts.append(np.bincount(y[: len(share.train)], minlength=len(dataset.classes)).tolist())
        at += len(rows)
    augment, scaling = _scale(pool_x, settings, dataset.x.dtype == np.uint8)
    return Holding(dataset, pool_x, pool_y, cuts, counts, _clusters(shares), augment, dataset.scaling or scaling)


def _clusters(shares: Sequence[Share]) -> list[int] | None:
    found = [int(share.cluster) for share in shares if share.cluster is not None]
    return found if len(found) == len(shares) else None


def _scale(x: Array, settings: DataSettings, are_bytes: bool) -> tuple[Augmentation, Scaling]:
    """Bytes to small numbers, in place; returns how views are made of what comes out, and what was done.

    The standard scale is taken over everybody's images, as is usual.
    """
    if x.ndim != 4:
        features = math.prod(x.shape[1:])
        return FeatureAugmentation(features, settings.noise, settings.drop), Scaling.none(features)
    mean, std, black, white = np.zeros(x.shape[1]), np.ones(x.shape[1]), 0.0, 255.0
    if not are_bytes:  # numbers of the user's own: from the darkest to the brightest there is
        black, white = float(x.min()), float(x.max())
    elif settings.scale == "unit":
        std = np.full(x.shape[1], 255.0)
    else:
        mean, std = x.mean(axis=(0, 2, 3)), x.std(axis=(0, 2, 3)) + 1e-6
    scaling = Scaling(tuple(mean.tolist()), tuple(std.tolist()))
    scaling.of_images(x)
    reach = max(white - black, 1e-12)
    augment = ImageAugmentation(
        tuple(((mean - black) / reach).tolist()), tuple((std / reach).tolist()), scale=(settings.crop, 1.0),
        flip=settings.flip, jitter=settings.jitter, grey=settings.grey, blur=settings.blur,
    )  # fmt: skip
    return augment, scaling
