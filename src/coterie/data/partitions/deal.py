"""Turns the counts of a plan into rows of the pool. Only this module assigns images to peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from coterie.core import randomness
from coterie.core.errors import ConfigError
from coterie.data.dataset import IMAGES, Array, Dataset
from coterie.data.partitions.plan import Plan, Request
from coterie.data.partitions.plans import PLANS
from coterie.data.partitions.settings import PartitionSettings, check_peers, check_settings
from coterie.data.partitions.shares import Share, Shares, Transform


def partition(labels: Array, classes: int, peers: int, settings: PartitionSettings, seed: int) -> Shares:
    """Divide the pool's rows among `peers` by `settings`; depends only on the arguments.

    No row is in two splits of a peer, nor with two peers unless `settings.overlap`. Raises ConfigError,
    naming the key, when the settings are impossible or the pool is too small for them.
    """
    check_settings(settings, classes)
    if settings.partition not in PLANS:
        raise ConfigError(f"data.partition = {settings.partition} divides nothing: use partition_sites")
    check_peers(settings, peers)
    if seed < 0:
        raise ConfigError(f"seed: must be 0 or more, not {seed}")
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *b"partition"])))
    supply = np.bincount(labels, minlength=classes)
    plan = PLANS[settings.partition](Request(supply, peers, settings, rng))
    _refuse_empty_splits(plan.counts, settings)
    shares = _deal(labels, plan, settings.overlap, rng)
    return with_private_labels(shares, classes, seed) if settings.private_labels else shares


def with_private_labels(shares: Shares, classes: int, seed: int) -> Shares:
    """The same rows, with a permutation of the labels for each peer."""
    return [with_labels_of(peer, share, classes, seed) for peer, share in enumerate(shares)]


def with_labels_of(peer: int, share: Share, classes: int, seed: int) -> Share:
    """The same rows, with this peer's permutation of the labels."""
    own = randomness.generator(seed, "labels", peer).permutation(classes).tolist()
    return replace(share, transform=share.transform.renamed(own))


def check_fits(dataset: Dataset, settings: PartitionSettings) -> None:
    """Raise ConfigError if this dataset is not of the kind that the partition needs."""
    check_settings(settings, dataset.outputs)
    if settings.partition != "rotation":
        return
    if dataset.kind != IMAGES:
        raise ConfigError(f"data.partition: rotation needs images; {dataset.name} has {dataset.kind}")
    height, width = dataset.x.shape[2:]
    if height != width:
        raise ConfigError(f"data.partition: rotation needs square images; {dataset.name} has {height}x{width}")


def _refuse_empty_splits(counts: Array, settings: PartitionSettings) -> None:
    """Raise ConfigError for an empty split: peers need rows to train and to be evaluated on."""
    sizes = counts.sum(axis=2)
    for peer, split in np.argwhere(sizes == 0):
        name = ("train", "validation", "test")[split]
        raise ConfigError(
            f"data.{name}: peer {peer} would have no {name} images ({sizes[peer].sum()} in all, "
            f"data.{name} = {getattr(settings, name)}); use fewer peers, or a larger data.{name}"
        )


def _deal(labels: Array, plan: Plan, overlap: bool, rng: np.random.Generator) -> Shares:
    peers, _, classes = plan.counts.shape
    pools = [np.flatnonzero(labels == number) for number in range(classes)]
    decks: list[_Deck | _SharedDeck]
    if overlap:
        decks = [_SharedDeck(rows, plan.counts[:, :, number], rng) for number, rows in enumerate(pools)]
    else:
        decks = [_Deck(rows, rng) for rows in pools]
    transforms = plan.transforms or [Transform()] * peers
    clusters: Sequence[int | None] = plan.clusters or [None] * peers
    shares = []
    for counts, transform, cluster in zip(plan.counts, transforms, clusters, strict=True):
        hands = [list(deck.hand(counts[:, number])) for number, deck in enumerate(decks)]
        train, validation, test = (np.sort(np.concatenate(parts)) for parts in zip(*hands, strict=True))
        shares.append(Share(train, validation, test, transform, cluster))
    return shares


class _Deck:
    """The rows of one class, shuffled, and dealt without replacement."""

    def __init__(self, rows: Array, rng: np.random.Generator) -> None:
        self._rows = rng.permutation(rows)

    def hand(self, sizes: Array) -> Iterator[Array]:
        """One peer's rows of this class: an array for each of the `sizes`."""
        dealt = _first(self._rows, int(sizes.sum()))
        self._rows = self._rows[len(dealt) :]
        yield from np.split(dealt, np.cumsum(sizes)[:-1])


class _SharedDeck:
    """The rows of one class, for peers that may have the same rows.

    If there are enough rows for the largest hands, rows to train on and rows to evaluate on are separate decks: no peer
    trains on rows that another is evaluated on. Otherwise methods that share models would know the answers.
    """

    def __init__(self, rows: Array, counts: Array, rng: np.random.Generator) -> None:
        """`counts`: (peers, 3), the sizes of all hands."""
        self._rng = rng
        rows = rng.permutation(rows)
        train, measure = int(counts[:, 0].max()), int(counts[:, 1:].sum(axis=1).max())
        self._apart = 0 < train + measure <= len(rows)
        cut = max(len(rows) * measure // (train + measure), measure) if self._apart else 0
        self._measure, self._train = rows[:cut], rows[cut:]

    def hand(self, sizes: Array) -> Iterator[Array]:
        """One peer's rows of this class: an array for each of the `sizes`."""
        train = self._rng.permutation(self._train)
        if not self._apart:
            yield from np.split(_first(train, int(sizes.sum())), np.cumsum(sizes)[:-1])
            return
        yield train[: sizes[0]]
        yield from np.split(self._rng.permutation(self._measure)[: sizes[1:].sum()], np.cumsum(sizes[1:])[:-1])


def _first(rows: Array, count: int) -> Array:
    if count > len(rows):
        raise ConfigError(
            f"data.train: a peer needs {count} images of one class, but only {len(rows)} are left; "
            "lower data.train or peers"
        )
    return rows[:count]
