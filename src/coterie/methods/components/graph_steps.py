"""Gradient steps on a peer's row of collaboration weights (MAPL's graph learning)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from coterie.core.errors import MethodError
from coterie.core.named_code import Function, call

EPSILON = 1e-3  # keeps the gradient of log(degree) finite
ADAM_RATE, ADAM_EPSILON = 0.1, 1e-8  # of the authors' optimiser of the graph weights


class GraphLoss(Protocol):
    """The parameters of the graph's loss, mu2 * (beta * ||w|| - log(degree + EPSILON)) - w . pull, and of a step on it.

    The degree is the weight on others; the pull of a peer is mu1 times its share of all data times its similarity.
    """

    @property
    def mu2(self) -> float: ...
    @property
    def beta(self) -> float: ...
    @property
    def norm(self) -> str: ...
    @property
    def step(self) -> float: ...


# From weights that sum to one, the peer's own index among them, and the pull of each, to new weights. These are then
# projected onto the simplex.
GraphStep = Callable[[np.ndarray, int, np.ndarray, GraphLoss], np.ndarray]


def gradient(w: np.ndarray, own: int, pull: np.ndarray, graph: GraphLoss, degree: bool = True) -> np.ndarray:
    """The gradient of the graph's loss; without `degree`, as if the weight on others were a constant."""
    of_norm = np.ones_like(w) if graph.norm == "l1" else w / max(float(np.linalg.norm(w)), EPSILON)
    of_degree = np.zeros_like(w)
    if degree:
        of_degree -= 1 / (w.sum() - w[own] + EPSILON)
        of_degree[own] = 0.0
    slope: np.ndarray = graph.mu2 * (graph.beta * of_norm + of_degree) - pull
    return slope


def along_gradient(w: np.ndarray, own: int, pull: np.ndarray, graph: GraphLoss) -> np.ndarray:
    """A gradient step whose length grows with the number of weights, capped so that it does not overshoot.

    The pulls are shares of all data, so each is small if there are many peers. A step longer than the inverse of the
    norm's curvature (at equal weights) overshoots, and the next one goes back.
    """
    curvature = graph.mu2 * graph.beta * math.sqrt(len(w)) if graph.norm == "l2" else 0.0
    length = min(graph.step * len(w), 1 / curvature if curvature > 0 else math.inf)
    moved: np.ndarray = w - length * gradient(w, own, pull, graph)
    return moved


def by_adam(w: np.ndarray, own: int, pull: np.ndarray, graph: GraphLoss) -> np.ndarray:
    """The first step of Adam, which only uses the sign of the gradient: the authors' code makes a new optimiser for
    every step. Its degree is a number from the round before, so that its log has no gradient."""
    slope = gradient(w, own, pull, graph, degree=False)
    moved: np.ndarray = w - ADAM_RATE * slope / (np.abs(slope) + ADAM_EPSILON)
    return moved


GRAPH_STEPS: dict[str, GraphStep] = {"projected": along_gradient, "adam": by_adam}


def moved_weights(w: np.ndarray, own: int, pull: np.ndarray, graph: GraphLoss, name: str, step: Function) -> np.ndarray:
    """The weights after one step, which may be the user's function `name`; MethodError if it returns no weights."""
    value: Any = call("method.graph_step", name, step, w, own, pull, graph)
    moved = np.asarray(value, dtype=np.float64) if isinstance(value, np.ndarray | list | Tensor) else None
    if moved is None or moved.shape != w.shape or not np.isfinite(moved).all():
        what = f"a {type(value).__name__}" if moved is None else f"{moved.tolist()}"
        raise MethodError(f"method.graph_step = '{name}' returned {what}; it must return {len(w)} finite weights")
    return moved
