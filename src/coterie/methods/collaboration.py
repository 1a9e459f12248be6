"""Collaboration weights: one peer's row of them, and how alike two heads are. Arithmetic alone, for MAPL."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from coterie.graph import project_to_simplex
from coterie.shelf import Artifact


class Acquaintance(NamedTuple):
    """One entry of a peer's row of collaboration weights; its own entry is one, too."""

    weight: float  # zero: met, and found to be of another kind
    samples: int


Row = dict[int, Acquaintance]


def equally(samples: Mapping[int, int]) -> Row:
    return {j: Acquaintance(1 / len(samples), count) for j, count in samples.items()}


def on_simplex(own: int, row: Row) -> Row:
    """The same entries with weights that sum to one again, after some have come or gone; zeros stay zero."""
    positive = sorted(j for j, a in row.items() if a.weight > 0) or [own]
    weights = project_to_simplex(np.array([row[j].weight for j in positive]))
    return {**row, **{j: row[j]._replace(weight=float(w)) for j, w in zip(positive, weights, strict=True)}}


def most(scores: Mapping[int, float], count: int) -> list[int]:
    """Those of the highest scores, in ascending order."""
    return sorted(sorted(scores, key=lambda j: (-scores[j], j))[:count])


def alike_in_rows(mine: Tensor, theirs: Tensor) -> float:
    """The mean over classes of the cosine between the two heads' weights of that class: the paper's."""
    return float(F.cosine_similarity(mine, theirs, dim=1).mean())


def alike_in_gram(mine: Tensor, theirs: Tensor) -> float:
    """The cosine between the two heads' tables of inner products, class by class.

    Two peers' features may be turned against each other, and with different backbones always are, which the
    cosine of rows takes for different tasks. Inner products within one head do not see it.
    """
    return float(F.cosine_similarity((mine @ mine.T).flatten(), (theirs @ theirs.T).flatten(), dim=0))


LIKENESS = {"gram": alike_in_gram, "rows": alike_in_rows}


def similarities(mine: Tensor, heads: Mapping[int, Artifact], likeness: str) -> dict[int, float]:
    found = {j: LIKENESS[likeness](mine, head["weight"]) for j, head in heads.items()}
    return {j: s if math.isfinite(s) else -1.0 for j, s in found.items()}  # a model that diverged is like nobody's
