"""Partitions in which a peer has some of the classes: classes, windows, and MAPL's scenarios."""

from __future__ import annotations

import numpy as np

from coterie.data.dataset import Array
from coterie.data.partitions.plan import Plan, Request, exceeds, fitting_per_holder, too_few
from coterie.data.partitions.rounding import largest_remainder, split_counts
from coterie.data.partitions.settings import PartitionSettings, exact_sizes, fractions_of

_PAPER_SIZES = (300, 15, 15)  # images per class in MAPL's scenarios (the validation size is ours)


def plan_classes(request: Request) -> Plan:
    """A few classes per peer; all classes have nearly the same number of peers, and are divided evenly."""
    held = _choose_classes(request)
    holders = held.sum(axis=0)
    if exact := exact_sizes(request.settings):
        return Plan(_equal_classes(request, held, exact))
    totals = np.zeros(held.shape, dtype=np.int64)
    for number in np.flatnonzero(holders):
        share, extra = divmod(int(request.supply[number]), int(holders[number]))
        owners = request.rng.permutation(np.flatnonzero(held[:, number]))
        totals[owners, number] = share
        totals[owners[:extra], number] += 1
    return Plan(split_counts(totals, fractions_of(request.settings)))


def _choose_classes(request: Request) -> Array:
    """(peers, classes) of bool: each peer takes the classes with the fewest holders so far."""
    held = np.zeros((request.peers, len(request.supply)), dtype=bool)
    for peer in range(request.peers):
        by_chance = request.rng.random(len(request.supply))
        held[peer, np.lexsort((by_chance, held.sum(axis=0)))[: request.settings.classes_per_peer]] = True
    return held


def _equal_classes(request: Request, held: Array, exact: tuple[int, int, int]) -> Array:
    """Exact numbers of images per peer, the same number of each class it has."""
    counts = np.zeros((request.peers, 3, held.shape[1]), dtype=np.int64)
    for peer in range(request.peers):
        owned = request.rng.permutation(np.flatnonzero(held[peer]))
        for split, size in enumerate(exact):
            counts[peer, split, owned] = size // len(owned)
            # The odd images go to different classes in each split, so that no class provides all three.
            counts[peer, split, np.roll(owned, split)[: size % len(owned)]] += 1
    if exceeds(request, counts):
        fitting = request.settings.classes_per_peer * fitting_per_holder(request, held)
        raise too_few(request, min(fitting, sum(exact) - 1), sum(exact), "each")
    return counts


def plan_scenario(request: Request) -> Plan:
    """Two clusters of classes. Scenarios 2 and 4 share classes 3-6; 3 and 4 draw their training sizes."""
    number = int(request.settings.partition[-1])
    sets = (range(5), range(5, 10)) if number in (1, 3) else (range(7), range(3, 10))
    held = np.zeros((request.peers, 10), dtype=bool)
    for peer, cluster in enumerate(request.clusters):
        held[peer, list(sets[cluster])] = True
    drawn = number in (3, 4)
    exact = exact_sizes(request.settings)
    counts = _scenario_counts(request, held, exact or _PAPER_SIZES, drawn)
    if exact and exceeds(request, counts):
        raise too_few(request, fitting_per_holder(request, held), sum(exact), "of a class each")
    if not exact and (not _has_default_fractions(request) or exceeds(request, counts)):
        counts = _scenario_counts(request, held, _scenario_sizes(request, held), drawn)
    return Plan(counts, clusters=request.clusters)


def plan_windows(request: Request) -> Plan:
    """Any number of clusters, each with a few neighbouring classes; the last cluster wraps around to class 0."""
    classes, width = len(request.supply), request.settings.classes_per_peer
    held = np.zeros((request.peers, classes), dtype=bool)
    for peer, cluster in enumerate(request.clusters):
        first = cluster * classes // request.settings.clusters
        held[peer, (first + np.arange(width)) % classes] = True
    sizes = exact_sizes(request.settings)
    if sizes is None:
        sizes = _divided(request, fitting_per_holder(request, held))
    counts = _scenario_counts(request, held, sizes, drawn=False)
    if exceeds(request, counts):
        raise too_few(request, fitting_per_holder(request, held), sum(sizes), "of a class each")
    return Plan(counts, clusters=request.clusters)


def _has_default_fractions(request: Request) -> bool:
    return fractions_of(request.settings) == fractions_of(PartitionSettings())


def _scenario_counts(request: Request, held: Array, sizes: tuple[int, int, int], drawn: bool) -> Array:
    """(peers, 3, classes) from sizes per class; drawn training sizes are a third to all of `sizes[0]`."""
    counts: Array = held[:, None, :] * np.asarray(sizes)[None, :, None]
    if drawn:
        training = request.rng.integers(-(-sizes[0] // 3), sizes[0], size=held.shape, endpoint=True)
        counts[:, 0] = held * training
    return counts


def _scenario_sizes(request: Request, held: Array) -> tuple[int, int, int]:
    """Sizes per class if the paper's are not requested or do not fit: the same for every class and peer.

    With the default fractions, the paper's validation and test sizes are kept while they are a smaller share of what
    fits than those fractions. With other fractions, at most the paper's 330 images are divided by them.
    """
    fitting = min(sum(_PAPER_SIZES), fitting_per_holder(request, held))
    train, validation, test = _divided(request, fitting)
    if not _has_default_fractions(request):
        return train, validation, test
    # An odd image is more useful in the test split: validation gets the smaller part.
    validation, test = sorted((min(validation, _PAPER_SIZES[1]), min(test, _PAPER_SIZES[2])))
    return fitting - validation - test, validation, test


def _divided(request: Request, fitting: int) -> tuple[int, int, int]:
    """`fitting` images divided by the requested fractions, at least one per split if there are enough."""
    shares = np.array(fractions_of(request.settings))
    sizes = largest_remainder(fitting * shares, round(fitting * shares.sum()))
    while sizes.min() < 1 <= sizes.max() - 1:
        sizes[sizes.argmin()] += 1
        sizes[sizes.argmax()] -= 1
    train, validation, test = sizes.tolist()
    return train, validation, test
