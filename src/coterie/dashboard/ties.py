"""Prepare the collaboration graph for the page: the strongest ties of each peer, their places, and a thinned matrix.

Order, layout and thinning are those of the report, so that a run looks the same on both pages.
"""

from __future__ import annotations

import base64
from typing import TypedDict

import numpy as np

from coterie.core.json_values import JsonValue
from coterie.dashboard.history import History, Row
from coterie.report.layout import spring_layout
from coterie.report.matrix import rows_per_cell
from coterie.report.ordering import order_by

MOST_DRAWN = 150  # peers; larger graphs are shown only as a matrix
ALL_DRAWN = 40  # peers; of larger graphs, only the strongest ties are drawn
STRONGEST = 8  # of each peer
NAMED = 3  # of the peers that a peer takes most from
ALIKE = 1e-4  # weights that differ by less are shown as equal


class Favourites(TypedDict):
    """The peers that a peer takes most from."""

    who: list[int] | list[str]  # numbers or names
    of: int  # how many share that weight
    weight: float


class WeightMatrix(TypedDict):
    """All weights, thinned; `cells` are bytes in base64."""

    round: int
    side: int
    by: int  # peers in a cell
    most: float
    order: list[int]
    clusters: list[int]
    cells: str


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


def favourites(history: History, peer: int) -> Favourites | None:
    """The peers that a peer takes most from (the first few), how many share that weight, and the weight."""
    row = history.rows().get(peer)
    if row is None or not len(row.others):
        return None
    weight = float(row.weights.max())
    alike = row.others[row.weights >= weight - ALIKE]
    return {"who": alike[:NAMED].tolist(), "of": len(alike), "weight": round(weight, 3)}


class Places:
    """Where the drawing shows each peer. They are computed again only when the ties have changed."""

    def __init__(self) -> None:
        self._ties: dict[str, list[list[float]]] = {}
        self._places: list[list[float]] = []

    def of(self, history: History) -> list[list[float]]:
        """x and y by peer, about the origin; empty for a graph that is too large to draw."""
        ties = rows(history)
        if ties != self._ties or len(self._places) != history.peers:
            self._ties, self._places = ties, self._computed(history)
        return self._places

    def _computed(self, history: History) -> list[list[float]]:
        if not 1 < history.peers <= MOST_DRAWN:
            return [[0.0, 0.0]] * (history.peers == 1)
        order = order_of(history)
        place = np.argsort(order)  # of each peer, in that order
        weights = np.zeros((history.peers, history.peers))
        for peer, row in history.rows().items():
            weights[place[peer], place[row.others]] = row.weights
        at: list[list[float]] = np.round(spring_layout(weights), 3)[place].tolist()
        return at


def matrix(history: History) -> WeightMatrix | None:
    """All weights, with peers in the order of reports, and thinned by averaging neighbouring peers."""
    rows_by_peer = history.rows()
    if not rows_by_peer:
        return None
    order, clusters, by = order_of(history), clusters_of(history), rows_per_cell(history.peers)
    cell = np.empty(history.peers, dtype=np.int64)  # of each peer
    cell[order] = np.arange(history.peers) // by
    side = int(cell.max()) + 1
    cells = np.zeros((side, side))  # filled from the rows: peers x peers would not fit into memory
    for peer, row in rows_by_peer.items():
        np.add.at(cells[cell[peer]], cell[row.others], row.weights)
    counts = np.bincount(cell, minlength=side)
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


def order_of(history: History) -> list[int]:
    return order_by(history.peers, clusters_of(history) or None, _classes_of(history))[0]


def _classes_of(history: History) -> list[list[int]] | None:
    """Training samples of each class, by peer; None unless known for every peer."""
    given = history.start.get("classes")
    rows = [_counts(row) for row in given] if isinstance(given, list) else []
    known = len(rows) >= history.peers and all(rows) and len(set(map(len, rows))) == 1
    return rows if known else None


def _counts(row: JsonValue) -> list[int]:
    """Counts of samples; empty if these are none."""
    counts = [count for count in row if isinstance(count, int)] if isinstance(row, list) else []
    return counts if isinstance(row, list) and len(counts) == len(row) else []


def clusters_of(history: History) -> list[int]:
    """The true clusters; empty unless known for every peer."""
    clusters = history.start.get("clusters")
    if not isinstance(clusters, list) or len(clusters) != history.peers:
        return []
    known = [c for c in clusters if isinstance(c, int) and c >= 0]
    return known if len(known) == len(clusters) else []
