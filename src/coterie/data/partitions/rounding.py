"""Rounds ideal shares to whole numbers of images, without losing images or favouring peers."""

from __future__ import annotations

import numpy as np

from coterie.data.dataset import Array

_SLACK = 1e-9  # so that 2.9999999999 counts as 3


def largest_remainder(ideal: Array, total: int) -> Array:
    """Whole numbers that sum to `total`, each the ideal one rounded down or up.

    What rounding down leaves goes to the largest fractions; ties go to the first.
    """
    whole = np.floor(ideal + _SLACK).astype(np.int64)
    left = total - int(whole.sum())
    whole[np.argsort(whole - ideal, kind="stable")[:left]] += 1
    return whole


def round_matrix(ideal: Array) -> Array:
    """A matrix of non-negative numbers with whole row sums, rounded so that the row sums stay.

    Every entry and every column sum is the ideal one rounded down or up. Rounding row by row would favour the same
    classes each time, and need more of them than there are. (Giving each row's units to the columns that lack most is
    the construction of Gale and Ryser, which always fits.)
    """
    whole = np.floor(ideal + _SLACK).astype(np.int64)
    row_sums = np.rint(ideal.sum(axis=1)).astype(np.int64)
    column_sums = largest_remainder(ideal.sum(axis=0), int(row_sums.sum()))
    lacking = column_sums - whole.sum(axis=0)
    for row, units in enumerate(row_sums - whole.sum(axis=1)):
        neediest = np.lexsort((whole[row] - ideal[row], -lacking))[:units]
        whole[row, neediest] += 1
        lacking[neediest] -= 1
    return whole


def split_counts(totals: Array, fractions: tuple[float, float, float]) -> Array:
    """Divide each peer's images of each class among train, validation and test.

    `totals` is (peers, classes); returns (peers, 3, classes). Every split keeps the peer's own mix of
    classes within one image. If the fractions sum to less than 1, the rest is left out.
    """
    shares = np.array([*fractions, max(0.0, 1.0 - sum(fractions))])
    counts = np.empty((len(totals), 3, totals.shape[1]), dtype=np.int64)
    for peer, held in enumerate(totals):
        counts[peer] = round_matrix(held[:, None] * shares)[:, :3].T
    return counts
