"""Collaboration weights, for MAPL: one peer's row of them, how alike two heads are, and a step on the row."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.methods.simplex import project_to_simplex

EPSILON = 1e-3  # keeps the pull of the first neighbour finite
ADAM_RATE, ADAM_EPSILON = 0.1, 1e-8  # of the authors' optimiser of the graph


# -- a row of weights --------------------------------------------------------------------------


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


def shares(own: int, row: Row, others: Collection[int], keep_own: bool) -> dict[int, float]:
    """What oneself and these others count in an average of something that all of them have; they sum to one.

    `keep_own`: one's own counts at least as much as the average other's. Graph learning often takes all weight off
    oneself, and two peers would then swap what they have in every round instead of averaging it.
    """
    counts = {j: row[j].weight for j in others}
    mine = row[own].weight
    counts[own] = max(mine, sum(counts.values()) / len(counts)) if keep_own and counts else mine
    total = sum(counts.values())
    return {j: counts[j] / total for j in sorted(counts)} if total > 0 else {own: 1.0}


# -- how alike two heads are -------------------------------------------------------------------

Likeness = Callable[[Tensor, Tensor], float]


def alike_in_rows(mine: Tensor, theirs: Tensor) -> float:
    """The mean over classes of the cosine between the two heads' weights of that class: the paper's."""
    return float(F.cosine_similarity(mine, theirs, dim=1).mean())


def alike_in_gram(mine: Tensor, theirs: Tensor) -> float:
    """The cosine between the two heads' tables of inner products, class by class.

    Two peers' features may be turned against each other, and with different backbones always are, which the
    cosine of rows takes for different tasks. Inner products within one head do not see it.
    """
    return float(F.cosine_similarity((mine @ mine.T).flatten(), (theirs @ theirs.T).flatten(), dim=0))


LIKENESS: dict[str, Likeness] = {"gram": alike_in_gram, "rows": alike_in_rows}


def similarities(mine: Tensor, heads: Mapping[int, Artifact], likeness: Likeness) -> dict[int, float]:
    found = {j: likeness(mine, head["weight"]) for j, head in heads.items()}
    return {j: s if math.isfinite(s) else -1.0 for j, s in found.items()}  # a model that diverged is like nobody's


# -- a step on the row -------------------------------------------------------------------------


class GraphLoss(Protocol):
    """The parameters of the graph's loss, mu2 * (beta * ||w|| - log(degree + EPSILON)) - w . pull, and of a step on it.

    The degree is the weight on others; the pull of a peer is mu1 times its share of all data times its likeness.
    """

    @property
    def mu2(self) -> float: ...
    @property
    def beta(self) -> float: ...
    @property
    def norm(self) -> str: ...
    @property
    def step(self) -> float: ...


# Of weights that sum to one, one's own place among them, and the pull of each: where to go. What it returns is
# projected onto the simplex.
GraphStep = Callable[[np.ndarray, int, np.ndarray, GraphLoss], np.ndarray]


def gradient(w: np.ndarray, own: int, pull: np.ndarray, graph: GraphLoss, degree: bool = True) -> np.ndarray:
    """Of the graph's loss; without `degree`, as if the weight on others were a constant."""
    of_norm = np.ones_like(w) if graph.norm == "l1" else w / max(float(np.linalg.norm(w)), EPSILON)
    of_degree = np.zeros_like(w)
    if degree:
        of_degree -= 1 / (w.sum() - w[own] + EPSILON)
        of_degree[own] = 0.0
    found: np.ndarray = graph.mu2 * (graph.beta * of_norm + of_degree) - pull
    return found


def along_gradient(w: np.ndarray, own: int, pull: np.ndarray, graph: GraphLoss) -> np.ndarray:
    """A step against the gradient, as long as the number of weights asks for, and never so long that it overshoots.

    The pulls are shares of all data: of many peers, each has little. Beyond the inverse of the norm's curvature (at
    equal weights) a step overshoots, and the next one goes back.
    """
    bend = graph.mu2 * graph.beta * math.sqrt(len(w)) if graph.norm == "l2" else 0.0
    length = min(graph.step * len(w), 1 / bend if bend > 0 else math.inf)
    moved: np.ndarray = w - length * gradient(w, own, pull, graph)
    return moved


def by_adam(w: np.ndarray, own: int, pull: np.ndarray, graph: GraphLoss) -> np.ndarray:
    """The first step of Adam, which goes by the sign of the gradient alone: the authors' code makes a new optimiser
    for every step. Its degree is a number from the round before, so that its log has no gradient."""
    slope = gradient(w, own, pull, graph, degree=False)
    moved: np.ndarray = w - ADAM_RATE * slope / (np.abs(slope) + ADAM_EPSILON)
    return moved


GRAPH_STEPS: dict[str, GraphStep] = {"projected": along_gradient, "adam": by_adam}
