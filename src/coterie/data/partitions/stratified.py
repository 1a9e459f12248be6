"""Partitions in which every peer has the pool's mix of classes: only sizes or transforms differ."""

from __future__ import annotations

import numpy as np

from coterie.data.dataset import Array
from coterie.data.partitions.plan import FEWEST_IMAGES, Plan, Request, require_total
from coterie.data.partitions.rounding import largest_remainder, round_matrix, split_counts
from coterie.data.partitions.settings import exact_sizes, fractions_of
from coterie.data.partitions.shares import Transform

_ANGLES = {2: (0, 180), 4: (0, 90, 180, 270)}
_SWAPS = {2: ((0, 1), (6, 7)), 4: ((0, 1), (2, 3), (4, 5), (6, 7))}


def plan_iid(request: Request) -> Plan:
    """The pool's mix of classes for every peer."""
    return Plan(_stratified(request, np.ones(request.peers)))


def plan_quantity(request: Request) -> Plan:
    """The pool's mix of classes, in sizes by a power law over the peers in random order."""
    ranks = 1.0 + request.rng.permutation(request.peers)
    return Plan(_stratified(request, ranks**-request.settings.skew))


def plan_rotation(request: Request) -> Plan:
    """Like iid, with one angle per cluster."""
    angles = _ANGLES[request.settings.clusters]
    transforms = [Transform(rotate=angles[cluster]) for cluster in request.clusters]
    return Plan(plan_iid(request).counts, transforms, request.clusters)


def plan_label_swap(request: Request) -> Plan:
    """Like iid, with one swapped pair of labels per cluster."""
    relabels = [_swap(len(request.supply), *pair) for pair in _SWAPS[request.settings.clusters]]
    transforms = [Transform(relabel=relabels[cluster]) for cluster in request.clusters]
    return Plan(plan_iid(request).counts, transforms, request.clusters)


def plan_independent(request: Request) -> Plan:
    """Like iid, with one permutation of the labels per peer."""
    classes = len(request.supply)
    permutations = [request.rng.permutation(classes) for _ in range(request.peers)]
    transforms = [Transform(relabel=tuple(map(int, permutation))) for permutation in permutations]
    return Plan(plan_iid(request).counts, transforms)


def _swap(classes: int, first: int, second: int) -> tuple[int, ...]:
    labels = list(range(classes))
    labels[first], labels[second] = second, first
    return tuple(labels)


def _stratified(request: Request, weights: Array) -> Array:
    """Counts in which every split of every peer has the pool's mix of classes, within one image per class.

    (Not the same number of each class: MNIST has 6,313 fives and 7,877 ones, and would run out of fives.)
    """
    total = int(request.supply.sum())
    mix = request.supply / total
    if exact := exact_sizes(request.settings):
        require_total(request, exact)
        rows = np.tile(exact, request.peers)
        return round_matrix(rows[:, None] * mix).reshape(request.peers, 3, -1)
    # Every peer gets the least that can be split in three; the weights divide the rest.
    least = min(FEWEST_IMAGES, total // request.peers)
    beyond = total - least * request.peers
    sizes = least + largest_remainder(beyond * weights / weights.sum(), beyond)
    return split_counts(round_matrix(sizes[:, None] * mix), fractions_of(request.settings))
