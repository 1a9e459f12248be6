"""Related peers, by the distances between embeddings of their samples (FLT)."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

Pair = tuple[int, int]  # the lower number first


def related(features: Mapping[int, Tensor], share: float = 0.0) -> list[Pair]:
    """The pairs of peers with the nearest samples: this share of all pairs, or (0) those below Otsu's threshold."""
    apart = distances(features)
    nearest = sorted((pair for pair in apart if np.isfinite(apart[pair])), key=lambda pair: (apart[pair], pair))
    count = round(share * len(apart)) if share else otsu([apart[pair] for pair in nearest])
    return sorted(nearest[:count])


def distances(features: Mapping[int, Tensor]) -> dict[Pair, float]:
    """The mean distance of a sample to the nearest one of the other peer, averaged over both directions."""
    distances = {}
    for i, j in combinations(sorted(features), 2):
        pairwise = torch.cdist(features[i].double(), features[j].double(), compute_mode="donot_use_mm_for_euclid_dist")
        both = (pairwise.min(0).values.mean() + pairwise.min(1).values.mean()) / 2
        distances[i, j] = float(torch.nan_to_num(both, nan=torch.inf))  # a model that diverged is near none
    return distances


def otsu(ascending: Sequence[float]) -> int:
    """How many of these numbers are low, by the threshold with the most variance between both sides (Otsu 1979)."""
    y = np.array(ascending)
    if len(y) < 2 or y[0] == y[-1]:
        return len(y)  # there are no two sides
    low = np.arange(1, len(y))
    sums, high = np.cumsum(y)[:-1], len(y) - low
    between = low * high * (sums / low - (y.sum() - sums) / high) ** 2
    return int(low[between.argmax()])
