"""Puts all peers' samples, scaled for the models, into one pool, and records which rows each peer has."""

from __future__ import annotations

import hashlib
import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from coterie.core.errors import DataError
from coterie.core.jobs import Pool, Split
from coterie.core.peer_data import PeerData
from coterie.data import Dataset, Share, available
from coterie.data.augmentation import Augmentation, FeatureAugmentation, ImageAugmentation, NoAugmentation
from coterie.data.dataset import FEATURES, IMAGES, INTEGERS
from coterie.data.feature_sums import FeatureSums, scaling_of_all
from coterie.data.own import refuse_large_integers
from coterie.data.preparation import Preparation
from coterie.data.scaling import POOLED, Scaling

if TYPE_CHECKING:
    from coterie.config.sections import DataSettings

TOO_LARGE = "has values that are too large for the models' float32: use other units"
DIVISION_DIGITS = 12
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PooledData:
    """A dataset divided among peers. It has only arrays and plain values, so processes can share it."""

    dataset: Dataset
    x: Array  # the samples of all peers, peer by peer
    y: Array  # class numbers; for regression float32, scaled
    cuts: list[
        tuple[int, int, int, int]
    ]  # by peer: where its train, validation and test rows begin, and where they end
    class_counts: list[list[int]]  # training samples of each class, by peer; empty for regression
    clusters: list[int] | None  # the true clusters by peer, if the partition makes clusters
    augment: Augmentation  # how a view of a sample is made
    scalings: list[Scaling]  # by peer: from its features to what its model sees
    preparations: list[Preparation | None]  # by peer: from the columns of a schema to features; None without a schema
    kind: str  # of the scaled samples: images, features, or integers
    division: str  # a digest of which rows each peer has
    rows: Array  # of the samples: their row numbers in the dataset, or in the file of their site
    label_scalings: list[Scaling | None]  # by peer: of the numbers to predict; None: classes
    shares: tuple[Share, ...] = ()  # with data.scale = "pooled": by peer, for a real peer that scales again

    def without_raw(self) -> PooledData:
        """The same without the raw rows of the dataset, which peers do not need."""
        return replace(self, dataset=replace(self.dataset, x=self.dataset.x[:0]), shares=())

    def splits(self, device: str) -> list[PeerData]:
        """The splits of all peers, which index into one pool."""
        with warnings.catch_warnings():  # a pool is never written to, and may be read-only memory
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            pool = Pool(torch.from_numpy(self.x).to(device), torch.from_numpy(self.y).to(device), self.augment)
        return [self._of_peer(pool, peer, device) for peer in range(len(self.cuts))]

    def _of_peer(self, pool: Pool, peer: int, device: str) -> PeerData:
        bounds = itertools.pairwise(self.cuts[peer])
        train, validation, test = (Split(pool, torch.arange(a, b, device=device)) for a, b in bounds)
        return PeerData(
            train, validation, test, scaling=self.scalings[peer], preparation=self.preparations[peer],
            label_scaling=self.label_scalings[peer],
        )  # fmt: skip


@dataclass(frozen=True)
class Unscaled:
    """The rows of one real peer before scaling: what it tells other peers of them, and the same rows in their scaling.

    Scaling begins with the raw rows each time, so rows are never scaled twice.
    """

    pooled: PooledData
    settings: DataSettings
    index: int  # of the peer's share
    device: str

    def sums(self) -> FeatureSums:
        return feature_sums(self.pooled.dataset, self.pooled.shares[self.index])

    def scaled_by(self, scaling: Scaling) -> PeerData:
        again = pool_data(self.pooled.dataset, self.pooled.shares, self.settings, scaling)
        return again.splits(self.device)[self.index]


def pool_data(
    dataset: Dataset, shares: Sequence[Share], settings: DataSettings, common: Scaling | None = None
) -> PooledData:
    """The samples of all shares, transformed as the shares say, and scaled.

    `common` is the scaling of all peers, if it is known; with data.scale = "pooled" it is else that of these shares.
    """
    total = sum(len(s.train) + len(s.validation) + len(s.test) for s in shares)
    pool_x = np.empty((total, *dataset.shape), dtype=np.float32)
    pool_y = np.empty(total, dtype=np.int64 if dataset.classes else np.float32)
    pool_rows = np.empty(total, dtype=np.int64)
    kind, at, cuts, counts, scalings = _kind(dataset, settings), 0, [], [], []
    _refuse_missing(dataset)
    if settings.scale == POOLED and kind != IMAGES:
        common = common or scaling_of_all([feature_sums(dataset, share) for share in shares])
    common, common_label = _apart(dataset, common)
    preparations: list[Preparation | None] = []
    label_scalings: list[Scaling | None] = []
    for share in shares:
        rows = np.concatenate([share.train, share.validation, share.test])
        x, y = share.transform.apply(dataset.x[rows], dataset.y[rows])
        prepared = _preparation(dataset, x[: len(share.train)], common)
        x = prepared.features(x) if prepared else x
        preparations.append(prepared)
        if kind != IMAGES:
            scalings.append(common or _scaling(dataset.name, kind, x[: len(share.train)], settings, prepared))
            x = _scaled(dataset.name, kind, x, scalings[-1])
        place = slice(at, at + len(rows))
        label_scalings.append(common_label or _label_scaling(dataset, y[: len(share.train)], settings))
        pool_x[place], pool_y[place] = x, _scaled_labels(dataset, y, label_scalings[-1])
        pool_rows[place] = rows if dataset.row_ids is None else dataset.row_ids[rows]
        cuts.append((at, at + len(share.train), at + len(share.train) + len(share.validation), at + len(rows)))
        if dataset.classes:
            counts.append(np.bincount(y[: len(share.train)], minlength=len(dataset.classes)).tolist())
        at += len(rows)
    augment = _augmentation_of_numbers(kind, pool_x.shape, settings)
    if kind == IMAGES:
        augment, scaling = _scale_images(pool_x, cuts, settings)
        scalings = [scaling] * len(shares)
    return PooledData(
        dataset, pool_x, pool_y, cuts, counts, _clusters(shares), augment, scalings, preparations, kind,
        _division(shares), pool_rows, label_scalings, tuple(shares) if settings.scale == POOLED else (),
    )  # fmt: skip


def _augmentation_of_numbers(kind: str, shape: tuple[int, ...], settings: DataSettings) -> Augmentation:
    if kind == INTEGERS:
        return NoAugmentation()
    return FeatureAugmentation(math.prod(shape[1:]), settings.noise, settings.drop)


def feature_sums(dataset: Dataset, share: Share) -> FeatureSums:
    """The sums over the training rows of one peer, without values that were filled in; after those of the features,
    that of labels that are numbers."""
    x, y = share.transform.apply(dataset.x[share.train], dataset.y[share.train])
    preparation = _preparation(dataset, x)
    sums = FeatureSums.of(preparation.features(x), preparation.present(x)) if preparation else FeatureSums.of(x)
    if not dataset.classes:
        sums = sums.followed_by(FeatureSums.of(y[:, None]))
    if sums.fault():
        raise DataError(f"{dataset.name}: {TOO_LARGE}")
    return sums


def _apart(dataset: Dataset, common: Scaling | None) -> tuple[Scaling | None, Scaling | None]:
    """The common scaling of the features, and that of labels that are numbers: see `feature_sums`."""
    if common is None or dataset.classes:
        return common, None
    return (
        Scaling(common.mean[:-1], common.deviation[:-1]),
        Scaling(common.mean[-1:], common.deviation[-1:]),
    )


def _preparation(dataset: Dataset, train: Array, common: Scaling | None = None) -> Preparation | None:
    if not dataset.schema:
        return None
    preparation = Preparation.fitted(dataset.schema, train)
    return preparation.centred_by(common) if common else preparation


def _refuse_missing(dataset: Dataset) -> None:
    if dataset.x.dtype.kind != "f" or dataset.schema:  # a schema says how they are filled
        return
    missing = np.argwhere(np.isnan(dataset.x))  # a row, a column, ... each
    if not len(missing):
        return
    names = [dataset.columns[column].name for column in np.unique(missing[:, 1]) if dataset.columns]
    where = f"columns {', '.join(names)} have" if names else "x has"
    raise DataError(
        f"{dataset.name}: {where} missing values, which models do not take: write the rows (`coterie.data.load`) to a "
        "table of your own, and fill them in or drop them"
    )


def _division(shares: Sequence[Share]) -> str:
    """Of row numbers alone: peers that divide the same dataset can compare it without revealing anything."""
    digest = hashlib.sha256()
    for rows in (rows for share in shares for rows in (share.train, share.validation, share.test)):
        digest.update(len(rows).to_bytes(8, "little") + np.asarray(rows, dtype="<i8").tobytes())
    return digest.hexdigest()[:DIVISION_DIGITS]


def _kind(dataset: Dataset, settings: DataSettings) -> str:
    """The kind of samples that models see: standardised integers are features."""
    return FEATURES if dataset.kind == INTEGERS and settings.scale in ("standard", POOLED) else dataset.kind


def _clusters(shares: Sequence[Share]) -> list[int] | None:
    clusters = [int(share.cluster) for share in shares if share.cluster is not None]
    return clusters if len(clusters) == len(shares) else None


def _scaling(
    name: str, kind: str, train: Array, settings: DataSettings, preparation: Preparation | None = None
) -> Scaling:
    """The scaling of features and integers, from one peer's own training rows, in a simulation as on a network.

    A real peer does not have other peers' rows, and rows that a model is evaluated on must not affect its scaling.
    """
    if settings.scale == "unit":
        raise DataError(f"data.scale = 'unit' only applies to images, and {name} has none: use 'standard' or 'none'")
    if settings.scale == "schema":
        if preparation is None:
            raise DataError("data.scale = 'schema' needs data.schema: name the schema, or use 'standard'")
        return preparation.agreed_scaling()
    if kind == INTEGERS or settings.scale == "none":
        return Scaling.none(train.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        scaling = preparation.scaling(train) if preparation else Scaling.standard(train)
    if not np.isfinite([*scaling.mean, *scaling.deviation]).all():
        raise DataError(f"{name}: {TOO_LARGE}")
    return scaling


def _label_scaling(dataset: Dataset, train: Array, settings: DataSettings) -> Scaling | None:
    """The scaling of numbers to predict, by the same rule as that of features; None for classes.

    A peer's model predicts scaled numbers, which its own constants turn back, so models of peers with other ranges of
    labels can be merged.
    """
    if dataset.classes:
        return None
    if settings.scale == "none":
        return Scaling.none(1)
    if settings.scale == "schema" and dataset.schema:
        label = dataset.schema.label
        if label.mean is None or label.deviation is None:
            raise DataError("data.scale = 'schema' needs the agreed mean and deviation of the label, too: [label]")
        return Scaling((label.mean,), (label.deviation,))
    return Scaling.standard(train[:, None])


def _scaled_labels(dataset: Dataset, y: Array, scaling: Scaling | None) -> Array:
    if scaling is None:
        return y
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = scaling.of_numbers(y[:, None])[:, 0]
    if not np.isfinite(scaled).all():
        raise DataError(f"{dataset.name}: the label {TOO_LARGE}")
    return scaled


def _scaled(name: str, kind: str, x: Array, scaling: Scaling) -> Array:
    """The scaled samples as float32, which models take."""
    if kind == INTEGERS:
        refuse_large_integers(name, x)
    with np.errstate(over="ignore"):
        scaled = scaling.of_numbers(x)
    if not np.isfinite(scaled).all():
        raise DataError(f"{name}: {TOO_LARGE}")
    return scaled


def _scale_images(
    x: Array, cuts: Sequence[tuple[int, int, int, int]], settings: DataSettings
) -> tuple[Augmentation, Scaling]:
    """Scale pixels in place; returns how views of the scaled images are made, and the scaling.

    The standard scale of a named dataset is computed from the images of all peers, as is usual. For the user's own
    images it is computed from the training images.
    """
    if settings.scale == "schema":
        raise DataError("data.scale = 'schema' only applies to tables with data.schema: use 'standard' or 'unit'")
    if settings.scale == POOLED:
        raise DataError("data.scale = 'pooled' only applies to tables and other features: use 'standard' or 'unit'")
    mean, std = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if settings.scale == "unit":
        std = np.full(x.shape[1], 255.0)
    elif settings.scale != "none":
        seen = x if settings.name in available() else _training_rows(x, cuts)
        mean, std = seen.mean(axis=(0, 2, 3)), seen.std(axis=(0, 2, 3)) + 1e-6
    scaling = Scaling(tuple(mean.tolist()), tuple(std.tolist()))
    scaling.of_images(x)
    views = settings.views
    augment = ImageAugmentation(
        tuple((mean / 255.0).tolist()), tuple((std / 255.0).tolist()), scale=(views.crop, 1.0),
        flip=views.flip, jitter=views.jitter, grey=views.grey, blur=views.blur,
    )  # fmt: skip
    return augment, scaling


def _training_rows(x: Array, cuts: Sequence[tuple[int, int, int, int]]) -> Array:
    if len(cuts) == 1:
        return x[cuts[0][0] : cuts[0][1]]
    return np.concatenate([x[start:stop] for start, stop, *_ in cuts])
