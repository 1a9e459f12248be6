"""Prepare the collaboration graph for the page: the strongest ties of each peer, and a thinned matrix of all."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from coterie.dashboard.history import History, Row

MOST_DRAWN = 150  # peers; larger graphs are shown only as a matrix
ALL_DRAWN = 40  # peers; of larger graphs, only the strongest ties are drawn
STRONGEST = 8  # of each peer
NAMED = 3  # of the peers that a peer takes most from
ALIKE = 1e-4  # weights that differ by less are shown as equal
MOST_CELLS = 200  # along one side of the matrix


def rows(history: History) -> dict[str, list[list[float]]]:
    """For each peer: the peers with its largest weights, and the weights."""
    if history.peers > MOST_DRAWN:
        return {}
    count = history.peers if history.peers <= ALL_DRAWN else STRONGEST
    return {str(peer): _strongest(row, peer, history.peers, count) for peer, row in history.rows().items()}


def _strongest(row: Row, peer: int, peers: int, count: int) -> list[list[float]]:
    """The largest weights. Ties go to the next numbers after the peer; otherwise all would seem to favour peer 0."""
    best = np.lexsort(((row.others - peer) % peers, -row.weights))[:count]
    return [[int(row.others[i]), round(float(row.weights[i]), 3)] for i in best]


def favourites(history: History, peer: int) -> dict[str, Any] | None:
    """The peers that a peer takes most from (the first few), how many share that weight, and the weight."""
    row = history.rows().get(peer)
    if row is None or not len(row.others):
        return None
    weight = float(row.weights.max())
    alike = row.others[row.weights >= weight - ALIKE]
    return {"who": alike[:NAMED].tolist(), "of": len(alike), "weight": round(weight, 3)}


def matrix(history: History) -> dict[str, Any] | None:
    """All weights, with peers ordered by true cluster where known, and thinned by averaging neighbouring peers."""
    rows_by_peer = history.rows()
    if not rows_by_peer:
        return None
    order, clusters, by = list(range(history.peers)), clusters_of(history), -(-history.peers // MOST_CELLS)
    if clusters:
        order.sort(key=lambda p: (clusters[p], p))
    place = np.empty(history.peers, dtype=np.int64)  # of each peer, among the cells
    place[order] = np.arange(history.peers) // by
    side = int(place.max()) + 1
    cells = np.zeros((side, side))
    for peer, row in rows_by_peer.items():
        np.add.at(cells[place[peer]], place[row.others], row.weights)
    counts = np.bincount(place, minlength=side)
    cells /= np.outer(counts, counts)
    most = float(cells.max())
    levels = np.round(cells / (most or 1.0) * 255).astype(np.uint8)
    return {
        "round": max(history.weights_round.values()),
        "side": side,
        "by": by,
        "most": round(most, 4),
        "order": order if by == 1 else [],
        "clusters": [clusters[p] for p in order] if clusters else [],
        "cells": base64.b64encode(levels.tobytes()).decode("ascii"),
    }


def clusters_of(history: History) -> list[int]:
    """The true clusters; empty unless known for every peer."""
    clusters = history.start.get("clusters")
    if not isinstance(clusters, list) or len(clusters) != history.peers:
        return []
    return clusters if all(isinstance(c, int) and c >= 0 for c in clusters) else []
