"""The dirichlet partition: every class is divided by random proportions."""

from __future__ import annotations

import numpy as np

from coterie.data.dataset import Array
from coterie.data.partitions.plan import FEWEST_IMAGES, Plan, Request, require_total
from coterie.data.partitions.rounding import largest_remainder, split_counts
from coterie.data.partitions.settings import exact_sizes, fractions_of

_TRIES = 100


def plan_dirichlet(request: Request) -> Plan:
    """Each class divided among the peers by Dirichlet(alpha) proportions; no peer is left without images.

    With sizes as fractions, draws are repeated until every peer has FEWEST_IMAGES. If that does not happen in 100
    tries, single images move from the largest peers to the smallest. With exact sizes, each peer draws its own
    Dirichlet(alpha) mix of classes, and takes images of other classes once a class is used up.
    """
    if exact := exact_sizes(request.settings):
        require_total(request, exact)
        totals = _dirichlet_mixes(request, sum(exact))
        train, validation, test = (size / sum(exact) for size in exact)
        return Plan(split_counts(totals, (train, validation, test)))
    return Plan(split_counts(_dirichlet_totals(request), fractions_of(request.settings)))


def _dirichlet_totals(request: Request) -> Array:
    """(peers, classes), with every image assigned."""
    least = min(FEWEST_IMAGES, int(request.supply.sum()) // request.peers)
    concentration = np.full(request.peers, request.settings.alpha)
    for _ in range(_TRIES):
        proportions = request.rng.dirichlet(concentration, size=len(request.supply))
        # A tiny alpha can underflow to zero proportions: then one peer gets the whole class.
        lost = ~(np.isfinite(proportions).all(axis=1) & (proportions.sum(axis=1) > 0.5))
        proportions[lost] = np.eye(request.peers)[request.rng.integers(request.peers, size=int(lost.sum()))]
        shares = zip(proportions, request.supply, strict=True)
        totals = np.stack([largest_remainder(row * count, int(count)) for row, count in shares], axis=1)
        if totals.sum(axis=1).min() >= least:
            return totals
    return _feed_the_poorest(totals, least)


def _feed_the_poorest(totals: Array, least: int) -> Array:
    """Move images, one by one, from the largest class of the largest peer to the smallest peer."""
    totals = totals.copy()
    sizes = totals.sum(axis=1)
    while sizes.min() < least:
        rich, poor = int(sizes.argmax()), int(sizes.argmin())
        given = int(totals[rich].argmax())
        totals[rich, given] -= 1
        totals[poor, given] += 1
        sizes[rich] -= 1
        sizes[poor] += 1
    return totals


def _dirichlet_mixes(request: Request, size: int) -> Array:
    """(peers, classes): `size` images for every peer, in its own mix of classes."""
    left = request.supply.copy()
    totals = np.zeros((request.peers, len(left)), dtype=np.int64)
    for peer in range(request.peers):
        mix = request.rng.dirichlet(np.full(len(left), request.settings.alpha)) + 1e-12
        available = request.supply if request.settings.overlap else left
        totals[peer] = _fill(np.nan_to_num(mix, nan=1.0), available, size)
        left = left - totals[peer]
    return totals


def _fill(mix: Array, available: Array, size: int) -> Array:
    """`size` images by `mix`; if a class runs out, the other classes make up for it."""
    taken = np.zeros_like(available)
    while (missing := size - int(taken.sum())) > 0:
        open_mix = np.where(taken < available, mix, 0.0)
        wanted = largest_remainder(missing * open_mix / open_mix.sum(), missing)
        taken = np.minimum(taken + wanted, available)
    return taken
