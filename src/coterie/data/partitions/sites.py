"""Partitions that take the peers from the data: one peer per site, whose rows are only split in three."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.core import randomness
from coterie.core.errors import ConfigError
from coterie.data.dataset import Array, Dataset
from coterie.data.partitions.deal import partition, with_labels_of, with_private_labels
from coterie.data.partitions.settings import (
    COLUMN,
    PartitionSettings,
    check_row_columns,
    check_settings,
    exact_sizes,
    fractions_of,
)
from coterie.data.partitions.shares import Share, Shares

_SPLITS = 3


def partition_sites(dataset: Dataset, peers: int, settings: PartitionSettings, seed: int) -> Shares:
    """One share for each site of the dataset. Raises ConfigError if there are not as many sites as `peers`."""
    classes, names = dataset.outputs, dataset.site_names
    check_settings(settings, classes)
    if peers != len(names):
        raise ConfigError(
            f"peers = {peers}, but the data has {len(names)} sites, and each is a peer (data.partition = "
            f"{settings.partition}): set peers = {len(names)}, or remove it"
        )
    assert dataset.sites is not None  # it has names of sites
    shares = []
    for site, name in enumerate(names):
        rows = np.flatnonzero(dataset.sites == site)
        shares.append(_split(dataset, rows, settings, seed, f"site '{name}'"))
    return with_private_labels(shares, classes, seed) if settings.private_labels else shares


def partition_alone(dataset: Dataset, peer: int, settings: PartitionSettings, seed: int, owner: str) -> Share:
    """The share of a peer that has all rows of the dataset, by its number; errors name it as `owner`."""
    check_settings(_undivided(settings), dataset.outputs)
    share = _split(dataset, np.arange(len(dataset.y)), settings, seed, owner)
    return with_labels_of(peer, share, dataset.outputs, seed) if settings.private_labels else share


def _undivided(settings: PartitionSettings) -> PartitionSettings:
    """The settings for the rows of one peer: those of partitions, which divide rows among peers, do not apply."""
    return replace(settings, partition="iid", column="", group="", time="")


def _split(dataset: Dataset, rows: Array, settings: PartitionSettings, seed: int, owner: str) -> Share:
    """The rows of one peer in three splits: by time, by group, or stratified by class.

    The result depends on these rows alone: a real peer that has no others gets the same splits.
    """
    check_row_columns(settings)
    if dataset.times is not None:
        parts = _by_time(dataset.times[rows], _wanted(len(rows), settings, owner), owner)
    elif dataset.groups is not None:
        rng = randomness.generator(seed, "groups")
        parts = _by_group(dataset.groups[rows], _wanted(len(rows), settings, owner), rng, owner)
    else:
        parts = _by_class(dataset.strata[rows], dataset.outputs, settings, seed, owner)
    train, validation, test = (np.sort(rows[part]) for part in parts)
    return Share(train, validation, test)


def _by_class(labels: Array, classes: int, settings: PartitionSettings, seed: int, owner: str) -> list[Array]:
    """Every split with the peer's own mix of classes."""
    alone = replace(_undivided(settings), private_labels=False)
    check_settings(alone, classes)
    try:
        (share,) = partition(labels, classes, 1, alone, seed)
    except ConfigError as error:
        raise _too_few(len(labels), settings, owner) from error
    return [share.train, share.validation, share.test]


def _by_group(groups: Array, wanted: Array, rng: np.random.Generator, owner: str) -> list[Array]:
    """Whole groups in random order, each to the split that lacks most rows; every split gets at least one."""
    names, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    _require_three(len(names), "groups (data.group)", owner)
    lacking, filled = wanted.copy(), np.zeros(len(wanted), dtype=bool)
    filled[_SPLITS:] = True  # rows that no split asks for may be none
    split_of = np.empty(len(names), dtype=np.int64)
    for place, group in enumerate(rng.permutation(len(names))):
        only_empty = len(names) - place <= np.count_nonzero(~filled)
        split = int(np.argmax(np.where(filled & only_empty, -np.inf, lacking)))
        split_of[group] = split
        lacking[split] -= sizes[group]
        filled[split] = True
    return [np.flatnonzero(split_of[group_of] == split) for split in range(_SPLITS)]


def _by_time(times: Array, wanted: Array, owner: str) -> list[Array]:
    """The latest rows to test, those before to validate, those before them to train; equal times stay together."""
    moments, sizes = np.unique(times, return_counts=True)
    _require_three(len(moments), "different times (data.time)", owner)
    ends = np.concatenate([[0], np.cumsum(sizes)])  # rows before each moment
    train, validation, test, _ = wanted
    total, last = len(times), len(moments)
    to_test = _nearest(ends, total - test, 2, last - 1)
    to_validation = _nearest(ends, total - test - validation, 1, to_test - 1)
    start = _nearest(ends, total - test - validation - train, 0, to_validation - 1)
    bounds = (start, to_validation, to_test, last)
    moment_of = np.searchsorted(moments, times)
    return [np.flatnonzero((moment_of >= bounds[i]) & (moment_of < bounds[i + 1])) for i in range(_SPLITS)]


def _nearest(ends: Array, rows: float, first: int, last: int) -> int:
    """The boundary between moments, from `first` to `last`, that comes nearest to this number of rows."""
    return first + int(np.argmin(np.abs(ends[first : last + 1] - rows)))


def _wanted(rows: int, settings: PartitionSettings, owner: str) -> Array:
    """How many rows each split should have, and how many are left over."""
    exact = exact_sizes(settings)
    sizes = np.array(exact or [fraction * rows for fraction in fractions_of(settings)], dtype=np.float64)
    if sizes.sum() > rows * (1 + 1e-9):
        raise _too_few(rows, settings, owner)
    return np.append(sizes, max(0.0, rows - sizes.sum()))


def _require_three(number: int, what: str, owner: str) -> None:
    if number < _SPLITS:
        raise ConfigError(
            f"{owner} has {number} {what}, but needs at least 3: one each for train, validation and test. Leave these "
            "rows out, or use another column"
        )


def _too_few(rows: int, settings: PartitionSettings, owner: str) -> ConfigError:
    remedy = "raise data.least" if settings.partition == COLUMN else "use a file with more rows"
    sizes = ", ".join(f"data.{name} = {getattr(settings, name)}" for name in ("train", "validation", "test"))
    return ConfigError(f"{owner} has {rows} rows, too few for {sizes}: change these, or {remedy}")
