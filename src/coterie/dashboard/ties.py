"""The collaboration graph as a page can draw it: the strongest ties of each peer, and the whole as a thinned matrix."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from coterie.dashboard.history import Floats, History

MOST_DRAWN = 150  # peers; more of them are shown as a matrix alone
ALL_DRAWN = 40  # peers; of more, only the strongest ties are drawn
STRONGEST = 8  # of each peer
NAMED = 3  # of those that a peer takes most from
ALIKE = 1e-4  # weights that differ by less are shown as equal
MOST_CELLS = 200  # along one side of the matrix


def rows(history: History) -> dict[str, list[list[float]]]:
    """By peer: with whom it averages most, and how much."""
    if history.peers > MOST_DRAWN:
        return {}
    count = history.peers if history.peers <= ALL_DRAWN else STRONGEST
    return {str(peer): _strongest(history.weights[peer], peer, count) for peer in history.told_weights}


def favourites(history: History, peer: int) -> dict[str, Any] | None:
    """Whom a peer takes most from, how much, and how many are alike in that (the first of them are named)."""
    if peer not in history.told_weights:
        return None
    row = history.weights[peer]
    weight = float(row.max())
    alike = np.flatnonzero(row >= weight - ALIKE)
    return {"who": alike[:NAMED].tolist(), "of": len(alike), "weight": round(weight, 3)} if weight > 0 else None


def _strongest(row: Floats, peer: int, count: int) -> list[list[float]]:
    """Of equals, those that follow the peer: else everybody would seem to favour the first few."""
    best = (np.argsort(-np.roll(row, -peer), kind="stable")[:count] + peer) % len(row)
    return [[int(j), round(float(row[j]), 3)] for j in best if row[j] > 0]


def matrix(history: History) -> dict[str, Any] | None:
    """All weights, peers ordered by true cluster where known; neighbours are averaged where there are too many."""
    if not history.told_weights:
        return None
    order = list(range(history.peers))
    clusters = clusters_of(history)
    if clusters:
        order.sort(key=lambda p: (clusters[p], p))
    cells = _thinned(history.weights[np.ix_(order, order)])
    most = float(cells.max())
    levels = np.round(cells / (most or 1.0) * 255).astype(np.uint8)
    return {
        "round": max(history.told_weights.values()),
        "side": len(cells),
        "by": -(-history.peers // MOST_CELLS),
        "most": round(most, 4),
        "order": order if history.peers <= MOST_CELLS else [],
        "clusters": [clusters[p] for p in order] if clusters else [],
        "cells": base64.b64encode(levels.tobytes()).decode("ascii"),
    }


def clusters_of(history: History) -> list[int]:
    """The true clusters; empty where they are not known for every peer."""
    found = history.start.get("clusters")
    whole = isinstance(found, list) and len(found) == history.peers and all(isinstance(c, int) for c in found)
    return found if whole and isinstance(found, list) else []


def _thinned(weights: Floats) -> Floats:
    by = -(-len(weights) // MOST_CELLS)
    if by == 1:
        return weights
    at = np.arange(0, len(weights), by)
    counts = np.diff([*at.tolist(), len(weights)])
    sums = np.add.reduceat(np.add.reduceat(weights, at, axis=0), at, axis=1)
    thin: Floats = (sums / np.outer(counts, counts)).astype(np.float32)
    return thin
