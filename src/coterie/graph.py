"""The collaboration graph against the truth."""

from __future__ import annotations

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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
