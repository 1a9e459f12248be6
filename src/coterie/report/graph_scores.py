"""The collaboration graph against the truth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Neighbourhood(NamedTuple):
    """Averages over peers; 0 where no peer has any."""

    precision: float  # the share of a peer's neighbours that are of its cluster
    recall: float  # the share of a peer's cluster (itself left out) that are its neighbours


def neighbour_scores(lists: Mapping[int, Sequence[int]], clusters: Sequence[int]) -> Neighbourhood:
    """A peer without neighbours has no precision and is left out of that mean; one that is alone in its
    cluster has no recall. Whoever has no cluster (a server) is nobody's neighbour."""
    sizes = Counter(clusters)
    precisions, recalls = [], []
    for peer, neighbours in lists.items():
        others = {j for j in neighbours if j != peer and j < len(clusters)}
        kin = sum(clusters[j] == clusters[peer] for j in others)
        of_its_kind = sizes[clusters[peer]] - 1
        if others:
            precisions.append(kin / len(others))
        if of_its_kind:
            recalls.append(kin / of_its_kind)
    return Neighbourhood(_mean(precisions), _mean(recalls))


def mass_inside(rows: Mapping[int, Mapping[int, float]], clusters: Sequence[int]) -> float | None:
    """The share of a peer's weight, its own included, that lies on its true cluster: the mean over peers.

    Each row is divided by its sum. One without weight is left out; None where no peer has any. Whoever has no
    cluster (a server) gets no weight.
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
