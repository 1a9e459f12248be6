"""The collaboration graph as a page can draw it: the strongest ties of each peer, and the whole as a thinned matrix."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from coterie.dashboard.history import History, Row

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
    return {str(peer): _strongest(row, peer, history.peers, count) for peer, row in history.rows().items()}


def _strongest(row: Row, peer: int, peers: int, count: int) -> list[list[float]]:
    """Of equals, those that follow the peer: else everybody would seem to favour the first few."""
    best = np.lexsort(((row.others - peer) % peers, -row.weights))[:count]
    return [[int(row.others[i]), round(float(row.weights[i]), 3)] for i in best]


def favourites(history: History, peer: int) -> dict[str, Any] | None:
    """Whom a peer takes most from, how much, and how many are alike in that (the first of them are named)."""
    row = history.rows().get(peer)
    if row is None or not len(row.others):
        return None
    weight = float(row.weights.max())
    alike = row.others[row.weights >= weight - ALIKE]
    return {"who": alike[:NAMED].tolist(), "of": len(alike), "weight": round(weight, 3)}


def matrix(history: History) -> dict[str, Any] | None:
    """All weights, peers ordered by true cluster where known; neighbours are averaged where there are too many."""
    found = history.rows()
    if not found:
        return None
    order, clusters, by = list(range(history.peers)), clusters_of(history), -(-history.peers // MOST_CELLS)
    if clusters:
        order.sort(key=lambda p: (clusters[p], p))
    place = np.empty(history.peers, dtype=np.int64)  # of each peer, among the cells
    place[order] = np.arange(history.peers) // by
    side = int(place.max()) + 1
    cells = np.zeros((side, side))
    for peer, row in found.items():
        np.add.at(cells[place[peer]], place[row.others], row.weights)
    counts = np.bincount(place, minlength=side)
    cells /= np.outer(counts, counts)
    most = float(cells.max())
    levels = np.round(cells / (most or 1.0) * 255).astype(np.uint8)
    return {
        "round": max(history.told_weights.values()),
        "side": side,
        "by": by,
        "most": round(most, 4),
        "order": order if by == 1 else [],
        "clusters": [clusters[p] for p in order] if clusters else [],
        "cells": base64.b64encode(levels.tobytes()).decode("ascii"),
    }


def clusters_of(history: History) -> list[int]:
    """The true clusters; empty where they are not known for every peer."""
    found = history.start.get("clusters")
    if not isinstance(found, list) or len(found) != history.peers:
        return []
    return found if all(isinstance(c, int) and c >= 0 for c in found) else []
