"""Score the collaboration graph against the true clusters: precision, recall and mass."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Neighbourhood(NamedTuple):
    """Means over peers; 0 where no peer has a score."""

    precision: float  # the share of a peer's neighbours that are of its cluster
    recall: float  # the share of a peer's cluster (itself left out) that are its neighbours


def neighbour_scores(lists: Mapping[int, Sequence[int]], clusters: Sequence[int]) -> Neighbourhood:
    """A peer without neighbours has no precision and is left out of that mean; a peer alone in its cluster has no
    recall. A server has no cluster and never counts as a neighbour."""
    sizes = Counter(clusters)
    precisions, recalls = [], []
    for peer, neighbours in lists.items():
        others = {j for j in neighbours if j != peer and j < len(clusters)}
        in_cluster = sum(clusters[j] == clusters[peer] for j in others)
        others_in_cluster = sizes[clusters[peer]] - 1
        if others:
            precisions.append(in_cluster / len(others))
        if others_in_cluster:
            recalls.append(in_cluster / others_in_cluster)
    return Neighbourhood(_mean(precisions), _mean(recalls))


def mass_inside(rows: Mapping[int, Mapping[int, float]], clusters: Sequence[int]) -> float | None:
    """The share of a peer's weight, its own included, on its true cluster, averaged over peers.

    Each row is divided by its sum. Rows without weight are left out; None where no peer has any. A server has no
    cluster, so weight on it does not count.
    """
    shares = []
    for peer, row in sorted(rows.items()):
        weights = [(j, weight) for j, weight in sorted(row.items()) if j < len(clusters)]
        total = sum(weight for _, weight in weights)
        if 0 < total < math.inf:
            shares.append(sum(weight for j, weight in weights if clusters[j] == clusters[peer]) / total)
    return _mean(shares) if shares else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
