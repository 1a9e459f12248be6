"""Lay out the peers of a graph: each near the peers it takes most from."""

from __future__ import annotations

import numpy as np

from coterie.report.matrix import Floats

STEPS = 150
STEPS_OF_MANY = 50
MANY = 300  # peers


def places(weights: Floats, width: float, margin: float) -> Floats:
    """x and y of each peer, in a box at least as wide as high."""
    if len(weights) == 1:
        return np.full((1, 2), margin)
    return _fitted(spring_layout(weights), width, margin)


def spring_layout(weights: Floats) -> Floats:
    """x and y of each peer, about the origin, by a spring layout (Fruchterman and Reingold).

    The layout is deterministic. Peers start on a circle in their order, so that unconnected peers stay apart.
    """
    peers = len(weights)
    angle = 2 * np.pi * np.arange(peers) / peers - np.pi / 2
    at = np.column_stack([np.cos(angle), np.sin(angle)])
    pull = np.maximum(weights, weights.T)
    pull = pull / (pull.sum(1).mean() or 1.0) * 6  # as if each peer had about six springs, however many peers there are
    near = 1.6 / np.sqrt(peers)  # the length at which one spring balances the repulsion
    steps = STEPS if peers <= MANY else STEPS_OF_MANY
    for step in range(steps):
        distance = np.maximum(_distances(at), 1e-3)
        move = _moves(at, near**2 / distance**2 - pull * distance / near)
        move -= at * (0.6 * peers * near**2)  # towards the middle
        length = np.maximum(np.sqrt((move**2).sum(1, keepdims=True)), 1e-9)
        at = at + move / length * np.minimum(length, 0.12 * (1 - step / steps))
    return _kept_apart(at, 0.75 * near)


def _distances(at: Floats) -> Floats:
    squares = (at**2).sum(1)
    distances: Floats = np.sqrt(np.maximum(squares[:, None] + squares[None, :] - 2 * (at @ at.T), 0.0))
    return distances


def _moves(at: Floats, force: Floats) -> Floats:
    """The displacement of each peer by pairwise forces: the sum over j of force * (at - at_j)."""
    moves: Floats = at * force.sum(1, keepdims=True) - force @ at
    return moves


def _kept_apart(at: Floats, least: float) -> Floats:
    """Push overlapping peers apart until they at most touch."""
    for _ in range(40):
        distance = _distances(at)
        np.fill_diagonal(distance, np.inf)
        close = distance < least
        if not close.any():
            break
        at = at + 0.3 * _moves(at, np.where(close, least / np.maximum(distance, 1e-6) - 1, 0.0))
    return at


def _fitted(at: Floats, width: float, margin: float) -> Floats:
    """The layout scaled to the width, turned by 90 degrees if it is higher than wide."""
    extent = np.ptp(at, axis=0)
    at = at[:, ::-1] if extent[1] > extent[0] else at
    scale = (width - 2 * margin) / max(float(extent.max()), 1e-9)
    fitted: Floats = np.round((at - at.min(0)) * scale + margin, 1)
    return fitted
