"""The collaboration graph, round by round: what the drawing, the matrix and the page's slider show."""

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

MAX_ENTRIES = 200_000  # of one page and kind of graph: of more, some rounds are kept
MAX_FRAMES = 400
LEAST = 0.005  # of the largest weight: less is not drawn
KINDS = {"weights": "averaging weights", "neighbours": "neighbour lists"}


class Frame(NamedTuple):
    """A matrix of one round: cells by number (row after row, peers in the order of figures), and the percentage of
    the full colour that each has."""

    round: int
    cells: list[int]
    shares: list[int]


class Graph:
    """Who takes how much from whom, by round; without what peers take of themselves, and without a server."""

    def __init__(self, events: Sequence[Event], kind: str) -> None:
        self.start: RunStarted = started(events)
        self.kind = kind
        self.peers = order(self.start)[0]
        self._place = {peer: i for i, peer in enumerate(self.peers)}
        entries = {round: self._entries_of(rows) for round, rows in noted(events, kind).items()}
        self._entries = {round: found for round, found in entries.items() if len(found[0])}
        if not self._entries:
            raise NothingToDraw("This run tells of no averaging between peers.")
        self.rounds = list(self._entries)

    def matrix(self, round: int) -> Floats:
        """Peers x peers, in the order of figures."""
        if round not in self._entries:
            raise NothingToDraw(
                f"No peer noted {KINDS[self.kind]} in round {round}: rounds {self.rounds[0]} to {self.rounds[-1]} have "
                f"some, {len(self.rounds)} in all"
            )
        found = np.zeros(len(self.peers) ** 2)
        cells, weights = self._entries[round]
        found[cells] = weights
        return found.reshape(len(self.peers), -1)

    @cached_property
    def most(self) -> float:
        """The largest weight of any round: what has the full colour."""
        return max(float(weights.max()) for _, weights in self._entries.values())

    @cached_property
    def kept(self) -> list[int]:
        """The rounds that a page has room for, evenly spread."""
        entries = sum(len(cells) for cells, _ in self._entries.values())
        most = int(MAX_ENTRIES * len(self.rounds) / entries)
        return spread_out(self.rounds, max(2, min(MAX_FRAMES, most)))

    @cached_property
    def at_last(self) -> Floats:
        """The mean over the last tenth of the rounds: by this, peers are placed."""
        last = self.rounds[-math.ceil(len(self.rounds) / 10) :]
        mean: Floats = np.mean([self.matrix(round) for round in last], axis=0)
        return mean

    def frames(self) -> list[Frame]:
        return [frame(round, self.matrix(round), self.most) for round in self.kept]

    def cell_frames(self) -> list[Frame]:
        """The same for the matrix: with cells of several peers each, where there are too many."""
        return [frame(round, thinned(self.matrix(round)), self.most_of_cells) for round in self.kept]

    @cached_property
    def most_of_cells(self) -> float:
        """The largest of the matrix' cells, in any round that is kept."""
        if not self.is_thinned:
            return self.most
        return max(float(thinned(self.matrix(round)).max()) for round in self.kept)

    @property
    def is_thinned(self) -> bool:
        return len(self.peers) > MAX_CELLS

    def _entries_of(self, rows: Mapping[int, Any]) -> tuple[NDArray[np.int64], Floats]:
        """The cells that have a weight, by number, and what it is."""
        found = []
        for peer, row in rows.items():
            weights: Mapping[Any, Any] = row if isinstance(row, Mapping) else dict.fromkeys(row, 1.0)
            first = self._place[peer] * len(self.peers)
            for j, w in ((int(j), float(w)) for j, w in weights.items()):
                if j != peer and j in self._place and w > 0 and math.isfinite(w):
                    found.append((first + self._place[j], w))
        return np.array([cell for cell, _ in found], dtype=np.int64), np.array([w for _, w in found])


def frame(round: int, matrix: Floats, most: float) -> Frame:
    cells = np.flatnonzero(matrix > LEAST * most)
    shares = np.maximum(1, np.rint(100 * matrix.ravel()[cells] / most)).astype(int)
    return Frame(round, cells.tolist(), shares.tolist())


def values_of(frame: Frame, side: int) -> Floats:
    """A frame as a matrix again, of shares of one."""
    values = np.zeros(side * side)
    values[frame.cells] = np.array(frame.shares) / 100
    return values.reshape(side, side)


def graphs_of(events: Sequence[Event]) -> list[Graph]:
    """Each kind of graph that the run tells of."""
    found = []
    for kind in KINDS:
        try:
            found.append(Graph(events, kind))
        except NothingToDraw:
            continue
    return found
