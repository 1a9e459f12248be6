"""The collaboration weights as text, drawn by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from coterie.core.events import Event, PeerRound, RunStarted
from coterie.report.heatmap import WIDTH, heat_map


def run_of(rows: Mapping[int, Mapping[int, float]], peers: int, clusters: Sequence[int] | None) -> list[Event]:
    """One round in which these peers noted these weights."""
    start = RunStarted("x", 0, peers, 1, [], [], [], None if clusters is None else list(clusters))
    return [
        start,
        *(PeerRound(i, 1, 0.0, notes={"weights": {str(j): w for j, w in row.items()}}) for i, row in rows.items()),
    ]


def block(peers: int, clusters: Sequence[int]) -> list[Event]:
    """Everybody's weight is equal on its own cluster, and nothing elsewhere."""
    kin = {i: [j for j in range(peers) if clusters[j] == clusters[i]] for i in range(peers)}
    return run_of({i: dict.fromkeys(kin[i], 1 / len(kin[i])) for i in range(peers)}, peers, clusters)


def test_a_map_by_hand(tiny: list[Event]) -> None:
    # Round 2 alone. The largest is 1: 0.25 is one step of four, 0.5 two. The server (3) has neither row nor column,
    # and peer 2 noted nothing.
    assert heat_map(tiny).splitlines() == [
        "weights of round 2: a row is a peer, a column a peer it takes from",
        "0 ░░▒▒│░░",
        "1 ██  │",
        "  ────┼──",
        "2     │",
        "█ is the largest weight, 1; ' ░▒▓█' are equal steps from 0 to it",
        "peers are sorted by true cluster, with lines between clusters",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_cannot_be_printed_is_ascii(tiny: list[Event], encoding: str) -> None:
    drawn = heat_map(tiny, encoding)
    assert drawn.splitlines()[1:6] == [
        "0 ..::|..",
        "1 ##  |",
        "  ----+--",
        "2     |",
        "# is the largest weight, 1; ' .:*#' are equal steps from 0 to it",
    ]
    assert drawn.isascii()


@pytest.mark.parametrize("encoding", ["utf-8", "cp437", None])
def test_what_can_be_printed_is_blocks(tiny: list[Event], encoding: str | None) -> None:
    assert "1 ██  │" in heat_map(tiny, encoding)


def test_shades_are_the_nearest_of_equal_steps() -> None:
    # Of the largest, 0.8: 0.09 is 0.1125, nearer to nothing; 0.11 is 0.1375, nearer to a quarter; 0.29 is 0.3625 and
    # 0.31 is 0.3875, on the two sides of 3/8; 0.71 is 0.8875, nearer to the whole than to three quarters.
    weights = [0.09, 0.11, 0.29, 0.31, 0.69, 0.71, 0.8]
    drawn = heat_map(run_of({0: dict(enumerate(weights))}, 7, None)).splitlines()
    assert drawn[1] == "0   ░░░░▒▒▓▓████"
    assert drawn[2:8] == ["1", "2", "3", "4", "5", "6"]
    assert drawn[8:] == ["█ is the largest weight, 0.8; ' ░▒▓█' are equal steps from 0 to it"]


def test_peers_are_sorted_by_cluster() -> None:
    drawn = heat_map(block(4, [1, 0, 1, 0])).splitlines()
    assert drawn[1:6] == ["1 ████│", "3 ████│", "  ────┼────", "0     │████", "2     │████"]


def test_forty_one_peers_share_cells_within_their_clusters() -> None:
    # Clusters of 41 - 3 = 38 and 3: in pairs these are 19 and 2 cells, the last of which holds one peer alone.
    clusters = [0] * 38 + [1] * 3
    drawn = heat_map(block(41, clusters)).splitlines()
    light, dark = "  " * 19, "██" * 2  # 1/38 is less than an eighth of 1/3
    assert drawn[1] == f" 0 {light}│"
    assert drawn[19] == f"36 {light}│"
    assert drawn[20] == "   " + "─" * 38 + "┼" + "─" * 4
    assert drawn[21:23] == [f"38 {light}│{dark}", f"40 {light}│{dark}"]
    assert drawn[23].startswith("█ is the largest weight, 0.33")
    assert drawn[25] == "a cell is the mean of up to 2 x 2 weights; a row is named by its first peer"


def test_a_shared_cell_is_the_mean_of_its_weights() -> None:
    # Peers 0 and 1 are one cell: (1 + 0 + 0.5 + 0.5) / 4 = 0.5 on themselves, (0 + 0 + 0 + 0.5) / 4 = 0.125, a quarter
    # of it, on 2 and 3.
    rows = {0: {0: 1.0}, 1: {0: 0.5, 1: 0.5, 2: 0.5}}
    drawn = heat_map(run_of(rows, 42, None)).splitlines()
    assert drawn[1] == " 0 ██░░"
    assert drawn[2] == " 2"
    assert "█ is the largest weight, 0.5" in drawn[22]


@pytest.mark.parametrize("kinds", [1, 2, 7, 20, 21, 40, 60, 1000])
@pytest.mark.parametrize("peers", [1, 2, 36, 39, 40, 41, 100, 1000])
def test_it_fits_a_terminal(peers: int, kinds: int) -> None:
    events = run_of({0: {0: 1.0}, peers - 1: {peers - 1: 1.0}}, peers, [p % kinds for p in range(peers)])
    lines = heat_map(events).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.lstrip()[0].isdigit() for line in lines) <= 40


def test_nothing_noted_nothing_drawn(tiny: list[Event]) -> None:
    assert heat_map(run_of({}, 3, [0, 0, 1])) == ""
    assert heat_map(run_of({0: {}, 1: {}}, 3, [0, 0, 1])) == ""
    assert heat_map(run_of({0: {3: 1.0}}, 3, [0, 0, 1])) == ""  # all on the server: there is no graph either
    without = [tiny[0], PeerRound(0, 1, 0.0, notes={"neighbours": [1]})]
    assert heat_map(without) == ""


def test_weights_of_nothing_are_blank() -> None:
    assert heat_map(run_of({0: {0: 0.0, 1: float("nan")}}, 2, None)).splitlines()[1:3] == ["0", "1"]
