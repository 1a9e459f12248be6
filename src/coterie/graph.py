"""The collaboration graph against the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Neighbourhood(NamedTuple):
    precision: float  # the share of a peer's neighbours that are of its cluster
    recall: float  # the share of a peer's cluster (itself left out) that are its neighbours


def neighbour_scores(lists: Mapping[int, Sequence[int]], clusters: Sequence[int]) -> Neighbourhood:
    """Averaged over peers. A peer without neighbours has no precision and is left out of that mean;
    one that is alone in its cluster has no recall."""
    precisions, recalls = [], []
    for peer, neighbours in lists.items():
        others = {j for j in neighbours if j != peer}
        kin = sum(clusters[j] == clusters[peer] for j in others)
        of_its_kind = sum(c == clusters[peer] for c in clusters) - 1
        if others:
            precisions.append(kin / len(others))
        if of_its_kind:
            recalls.append(kin / of_its_kind)
    return Neighbourhood(_mean(precisions), _mean(recalls))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
