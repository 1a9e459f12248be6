"""The collaboration graph round by round, for the drawing, the matrix and the page's slider."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coterie.core.events import Event, RunStarted
from coterie.report.figure import NothingToDraw
from coterie.report.matrix import MAX_CELLS, Floats, thinned
from coterie.report.measures import spread_out
from coterie.report.ordering import order
from coterie.report.summary import noted, started

MAX_ENTRIES = 200_000  # of a page, per kind of graph: above this, only some rounds are kept
MAX_FRAMES = 400
LEAST = 0.005  # of the largest weight: smaller weights are not drawn
KINDS = {"weights": "averaging weights", "neighbours": "neighbour lists"}


class Frame(NamedTuple):
    """The matrix of one round: cells by number (row by row, peers in the order of figures), with the percentage of the
    full colour of each."""

    round: int
    cells: list[int]
    shares: list[int]


class Graph:
    """How much each peer takes from each other, by round; without a peer's weight on itself, and without a server."""

    def __init__(self, events: Sequence[Event], kind: str) -> None:
        self.start: RunStarted = started(events)
        self.kind = kind
        self.peers = order(self.start)[0]
        self._place = {peer: i for i, peer in enumerate(self.peers)}
        entries = {round: self._entries_of(rows) for round, rows in noted(events, kind).items()}
        self._entries = {round: pair for round, pair in entries.items() if len(pair[0])}
        if not self._entries:
            raise NothingToDraw("This run recorded no averaging between peers.")
        self.rounds = list(self._entries)

    def matrix(self, round: int) -> Floats:
        """Peers x peers, in the order of figures."""
        if round not in self._entries:
            raise NothingToDraw(
                f"No peer noted {KINDS[self.kind]} in round {round}; {len(self.rounds)} rounds have some, from round "
                f"{self.rounds[0]} to {self.rounds[-1]}"
            )
        flat = np.zeros(len(self.peers) ** 2)
        cells, weights = self._entries[round]
        flat[cells] = weights
        return flat.reshape(len(self.peers), -1)

    @cached_property
    def most(self) -> float:
        """The largest weight of any round, drawn in the full colour."""
        return max(float(weights.max()) for _, weights in self._entries.values())

    @cached_property
    def kept(self) -> list[int]:
        """The rounds that fit on a page, evenly spaced."""
        entries = sum(len(cells) for cells, _ in self._entries.values())
        most = int(MAX_ENTRIES * len(self.rounds) / entries)
        return spread_out(self.rounds, max(2, min(MAX_FRAMES, most)))

    @cached_property
    def at_last(self) -> Floats:
        """The mean over the last tenth of the rounds, which determines the layout."""
        last = self.rounds[-math.ceil(len(self.rounds) / 10) :]
        mean: Floats = np.mean([self.matrix(round) for round in last], axis=0)
        return mean

    def frames(self) -> list[Frame]:
        return [frame(round, self.matrix(round), self.most) for round in self.kept]

    def cell_frames(self) -> list[Frame]:
        """The frames for the matrix, whose cells cover several peers each where there are too many."""
        return [frame(round, thinned(self.matrix(round)), self.most_of_cells) for round in self.kept]

    @cached_property
    def most_of_cells(self) -> float:
        """The largest cell of the matrix in any kept round."""
        if not self.is_thinned:
            return self.most
        return max(float(thinned(self.matrix(round)).max()) for round in self.kept)

    @property
    def is_thinned(self) -> bool:
        return len(self.peers) > MAX_CELLS

    def _entries_of(self, rows: Mapping[int, Any]) -> tuple[NDArray[np.int64], Floats]:
        """The cells with a weight, by number, and their weights."""
        entries = []
        for peer, row in rows.items():
            weights: Mapping[Any, Any] = row if isinstance(row, Mapping) else dict.fromkeys(row, 1.0)
            first = self._place[peer] * len(self.peers)
            for j, w in ((int(j), float(w)) for j, w in weights.items()):
                if j != peer and j in self._place and w > 0 and math.isfinite(w):
                    entries.append((first + self._place[j], w))
        return np.array([cell for cell, _ in entries], dtype=np.int64), np.array([w for _, w in entries])


def frame(round: int, matrix: Floats, most: float) -> Frame:
    cells = np.flatnonzero(matrix > LEAST * most)
    shares = np.maximum(1, np.rint(100 * matrix.ravel()[cells] / most)).astype(int)
    return Frame(round, cells.tolist(), shares.tolist())


def values_of(frame: Frame, side: int) -> Floats:
    """The frame as a matrix of shares between 0 and 1."""
    values = np.zeros(side * side)
    values[frame.cells] = np.array(frame.shares) / 100
    return values.reshape(side, side)


def graphs_of(events: Sequence[Event]) -> list[Graph]:
    """A graph for each kind that the run recorded."""
    graphs = []
    for kind in KINDS:
        try:
            graphs.append(Graph(events, kind))
        except NothingToDraw:
            continue
    return graphs
