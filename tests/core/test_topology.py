"""Communication graphs, against plain constructions of the same graphs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.config import parsing
from coterie.core.errors import ConfigError
from coterie.core.topology import TopologySettings, check_connected, neighbours, parts, within

Edges = set[frozenset[int]]
World = tuple[int, set[tuple[int, int]]]

sizes = st.integers(1, 40)
seeds = st.integers(0, 2**31)
degrees = [(n, k) for n in range(2, 15) for k in range(1, n) if n * k % 2 == 0 and (k > 1 or n == 2)]  # all there are
any_graphs = st.integers(1, 9).flatmap(
    lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(list(itertools.combinations(range(max(n, 2)), 2)))))
)


def graph(kind: str, peers: int, seed: int = 0, p: float = 0.6, k: int = 4, file: str = "") -> list[tuple[int, ...]]:
    return neighbours(TopologySettings(kind, p, k, file), peers, seed)


def listed(peers: int, edges: set[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Neighbour lists, whether connected or not; edges to peers that do not exist are left out."""
    return [tuple(j for j in range(peers) if (i, j) in edges or (j, i) in edges) for i in range(peers)]


def edges_of(lists: list[tuple[int, ...]]) -> Edges:
    """The edges, once it is sure that the lists are those of a simple graph."""
    for peer, others in enumerate(lists):
        assert list(others) == sorted(set(others))
        assert peer not in others
        assert all(peer in lists[j] for j in others)
    return {frozenset((peer, j)) for peer, others in enumerate(lists) for j in others}


def distances(lists: list[tuple[int, ...]]) -> list[list[float]]:
    """Floyd and Warshall's."""
    n = len(lists)
    d = [[0 if i == j else 1 if j in lists[i] else math.inf for j in range(n)] for i in range(n)]
    for via, i, j in itertools.product(range(n), repeat=3):
        d[i][j] = min(d[i][j], d[i][via] + d[via][j])
    return d


def connected(lists: list[tuple[int, ...]]) -> bool:
    return all(step < math.inf for row in distances(lists) for step in row)


# What has a fixed form


@given(sizes)
def test_complete_has_every_pair(peers: int) -> None:
    lists = graph("complete", peers)
    assert len(lists) == peers
    assert edges_of(lists) == {frozenset((i, j)) for i in range(peers) for j in range(peers) if i != j}


@given(sizes)
def test_a_ring_goes_round(peers: int) -> None:
    lists = graph("ring", peers)
    assert len(lists) == peers
    apart_by_one = {frozenset((i, (i + 1) % peers)) for i in range(peers)}
    assert edges_of(lists) == {edge for edge in apart_by_one if len(edge) == 2}


@given(sizes)
def test_a_star_has_peer_0_in_the_middle(peers: int) -> None:
    assert graph("star", peers) == [tuple(range(1, peers)), *[(0,)] * (peers - 1)]


@given(st.integers(1, 60))
def test_a_grid_is_as_near_to_square_as_can_be(peers: int) -> None:
    shapes = [(rows, columns) for rows in range(1, 61) for columns in range(rows, 61) if rows * columns == peers]
    _, columns = min(shapes, key=lambda shape: shape[1] - shape[0])
    where = [(peer // columns, peer % columns) for peer in range(peers)]
    touching = {
        frozenset((a, b))
        for a, b in itertools.combinations(range(peers), 2)
        if abs(where[a][0] - where[b][0]) + abs(where[a][1] - where[b][1]) == 1
    }
    lists = graph("grid", peers)
    assert len(lists) == peers
    assert edges_of(lists) == touching


def test_small_ones_by_hand() -> None:
    assert graph("ring", 2) == [(1,), (0,)]
    assert graph("grid", 3) == [(1,), (0, 2), (1,)]
    assert graph("grid", 6) == [(1, 3), (0, 2, 4), (1, 5), (0, 4), (1, 3, 5), (2, 4)]


@pytest.mark.parametrize("kind", ["complete", "erdos-renyi", "ring", "grid", "regular", "star"])
def test_one_peer_has_no_neighbours(kind: str) -> None:
    assert graph(kind, 1) == [()]


# What is drawn


@given(st.integers(1, 20), seeds, st.floats(0.3, 1))
def test_erdos_renyi_is_simple_connected_and_repeats(peers: int, seed: int, p: float) -> None:
    lists = graph("erdos-renyi", peers, seed, p)
    edges_of(lists)
    assert len(lists) == peers
    assert connected(lists)
    assert graph("erdos-renyi", peers, seed, p) == lists


@given(sizes, seeds)
def test_erdos_renyi_with_certainty_is_complete(peers: int, seed: int) -> None:
    assert graph("erdos-renyi", peers, seed, p=1.0) == graph("complete", peers)


@pytest.mark.parametrize(("peers", "p"), [(40, 0.6), (60, 0.2), (60, 0.9)])
def test_as_many_edges_as_p_says(peers: int, p: float) -> None:
    """A peer is without an edge at most once in 10,000 graphs (60 x 0.8^59), so connectedness changes nothing."""
    pairs = 50 * math.comb(peers, 2)
    edges = sum(len(edges_of(graph("erdos-renyi", peers, seed, p))) for seed in range(50))
    assert abs(edges - p * pairs) < 4 * math.sqrt(pairs * p * (1 - p))


def test_every_edge_is_as_likely() -> None:
    """Each of 66 pairs in 400 graphs: within five standard deviations (9.8) of 240."""
    counts = Counter(edge for seed in range(400) for edge in edges_of(graph("erdos-renyi", 12, seed)))
    assert len(counts) == 66
    assert all(abs(count - 240) < 5 * 9.8 for count in counts.values())


def test_every_connected_graph_of_three_is_as_likely() -> None:
    """With p = 1/2: a line in three ways or the triangle, 500 of 2,000 each; within five deviations (19.4)."""
    counts = Counter(frozenset(edges_of(graph("erdos-renyi", 3, seed, 0.5))) for seed in range(2000))
    assert len(counts) == 4
    assert all(abs(count - 500) < 5 * 19.4 for count in counts.values())


@pytest.mark.parametrize(("peers", "k"), degrees)
@hypothesis.settings(max_examples=15)
@given(seed=seeds)
def test_regular_is_simple_connected_of_degree_k_and_repeats(peers: int, k: int, seed: int) -> None:
    lists = graph("regular", peers, seed, k=k)
    edges_of(lists)
    assert [len(others) for others in lists] == [k] * peers
    assert connected(lists)
    assert graph("regular", peers, seed, k=k) == lists


def test_regular_of_other_sizes() -> None:
    for peers, k in [(101, 4), (100, 3), (60, 29), (60, 30), (61, 30), (60, 57), (200, 2), (90, 89)]:
        lists = graph("regular", peers, k=k)
        assert len(edges_of(lists)) == peers * k / 2
        assert {len(others) for others in lists} == {k}
        assert len(parts(lists)) == 1


def test_every_regular_graph_is_as_likely() -> None:
    """Of 8 peers with 3 neighbours there are five kinds of connected graphs, with 48, 16, 16, 12 and 4 symmetries,
    hence 8!/48 + ... = 840 + 2520 + 2520 + 3360 + 10080 = 19320 graphs. The cube and the Moebius ladder (840 + 2520)
    are the two without triangles: 4/23 of all. Within four standard deviations, in 1,500 graphs. (Twice four peers,
    which nothing connects, can be had in 35 ways: about 3 of 1,500 draws are drawn again.)"""
    graphs = [graph("regular", 8, seed, k=3) for seed in range(1500)]
    assert all(len(parts(lists)) == 1 for lists in graphs)
    free = sum(not triangles(lists) for lists in graphs)
    assert abs(free - 1500 * 4 / 23) < 4 * math.sqrt(1500 * 4 / 23 * 19 / 23)


def test_every_dense_regular_graph_is_as_likely() -> None:
    """Of 6 peers with 3 neighbours: 60 prisms, and 10 times two teams of three in which everybody has an edge to the
    other team (no triangle)."""
    free = sum(not triangles(graph("regular", 6, seed, k=3)) for seed in range(1500))
    assert abs(free - 1500 / 7) < 4 * math.sqrt(1500 / 7 * 6 / 7)


def triangles(lists: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    trios = itertools.combinations(range(len(lists)), 3)
    return [(a, b, c) for a, b, c in trios if b in lists[a] and c in lists[a] and c in lists[b]]


def test_every_ring_is_as_likely() -> None:
    """Five peers in (5 - 1)!/2 = 12 rings, 100 of 1,200 each; within five standard deviations (9.6)."""
    counts = Counter(frozenset(edges_of(graph("regular", 5, seed, k=2))) for seed in range(1200))
    assert len(counts) == 12
    assert all(abs(count - 100) < 5 * 9.6 for count in counts.values())


@pytest.mark.parametrize("kind", ["erdos-renyi", "regular"])
def test_another_seed_gives_another_graph(kind: str) -> None:
    assert len({tuple(graph(kind, 20, seed)) for seed in range(20)}) == 20


def test_drawn_graphs_are_pinned() -> None:
    """Peers with different versions of things must agree: a change here must be meant."""
    assert graph("erdos-renyi", 6, seed=1) == [(1, 2, 3, 4), (0, 2, 5), (0, 1, 4, 5), (0, 5), (0, 2), (1, 2, 3)]
    assert graph("regular", 9, seed=1, k=2) == [
        (3, 8), (5, 7), (3, 4), (0, 2), (2, 6), (1, 8), (4, 7), (1, 6), (0, 5),
    ]  # fmt: skip
    assert graph("regular", 10, seed=1, k=3) == [
        (3, 6, 9), (2, 8, 9), (1, 3, 6), (0, 2, 5), (5, 8, 9),
        (3, 4, 7), (0, 2, 7), (5, 6, 8), (1, 4, 7), (0, 1, 4),
    ]  # fmt: skip
    assert graph("regular", 7, seed=1, k=4) == [
        (1, 2, 3, 5), (0, 2, 3, 4), (0, 1, 5, 6), (0, 1, 4, 6), (1, 3, 5, 6), (0, 2, 4, 6), (2, 3, 4, 5),
    ]  # fmt: skip


# Files


def test_a_file_of_edges(tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_bytes(b"\xef\xbb\xbf# who knows whom\r\n\r\n0 1\n  3\t2 # twice, either way round\n2 3\n1   2")
    assert graph("file", 4, file=str(file)) == [(1,), (0, 2), (1, 3), (2,)]


@given(world=any_graphs)
def test_a_file_gives_just_its_edges(world: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    peers, pairs = world
    lists = listed(peers, pairs)
    file = tmp_path_factory.mktemp("graph") / "edges.txt"
    file.write_text("\n".join(f"{a} {b}" for a, b in pairs if max(a, b) < peers))
    if connected(lists):
        assert graph("file", peers, file=str(file)) == lists
    else:
        with pytest.raises(ConfigError, match="parts without an edge between them"):
            graph("file", peers, file=str(file))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("0 1\n\n1\n", "line 3: '1' is not an edge: write two integers, such as 0 1"),
        ("0 1 2", "line 1: '0 1 2' is not an edge"),
        ("# a b\n0 1.5", "line 2: '0 1.5' is not an edge"),
        ("0,1", "line 1: '0,1' is not an edge"),
        ("0 \u0661", "line 1: '0 \u0661' is not an edge"),
        ("0 1\n" + "x" * 1000, f"line 2: '{'x' * 40}' is not an edge"),
        ("0 " + "9" * 5000, "line 1: '0 99"),
        ("a\0b", r"line 1: 'a\x00b' is not an edge"),
        ("0 1\n1 4", "line 2: there is no peer 4. The 4 peers are 0 to 3"),
        ("-1 0", "line 1: there is no peer -1. The 4 peers are 0 to 3"),
        ("0 1\n# here\n2 2", "line 3: 2 2 is an edge from a peer to itself. Remove it"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "edges.txt"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        graph("file", 4, file=str(file))
    assert str(raised.value).startswith(f"{file}, {error}")
    assert len(str(raised.value)) < len(str(file)) + 120


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing, binary = tmp_path / "none.txt", tmp_path / "edges.bin"
    binary.write_bytes(b"\x89PNG\xff\xfe")
    for file, reason in [
        (str(missing), "No such file or directory"),
        (str(tmp_path), "Is a directory"),
        (str(binary), "it is not text"),
        ("a\0b", "embedded null byte"),
    ]:
        with pytest.raises(ConfigError) as raised:
            graph("file", 4, file=file)
        assert str(raised.value) == f"graph.file = '{file}' cannot be read: {reason}"


def test_a_file_whose_graph_falls_apart(tmp_path: Path) -> None:
    file = tmp_path / "edges.txt"
    file.write_text("0 3\n1 2\n")
    with pytest.raises(ConfigError) as raised:
        graph("file", 5, file=str(file))
    assert str(raised.value) == (
        f"graph: the 5 peers in {file} fall into 3 parts without an edge between them: [0, 3], [1, 2], [4]. "
        "Add lines with edges that join them"
    )


# Settings that cannot be


@pytest.mark.parametrize(
    ("wrong", "peers", "error"),
    [
        (
            {"kind": "rings"}, 4,
            "graph.kind must be one of complete, erdos-renyi, ring, grid, regular, star, file, not 'rings'. "
            "Did you mean 'ring'?",
        ),
        ({"kind": "file"}, 4, "graph.file is empty: graph.kind = 'file' needs the path of a file"),
        (
            {"file": "a.txt"}, 4,
            "graph.file = 'a.txt' would be ignored, because graph.kind = 'complete': "
            "set graph.kind = 'file', or leave graph.file empty",
        ),
        (
            {"kind": "erdos-renyi", "p": 0.0001}, 20,
            "graph.p = 0.0001: none of 1000 random graphs of 20 peers was connected. "
            "Use a p above about log(20)/20 = 0.15",
        ),
        ({"kind": "erdos-renyi", "p": 0.0}, 4, "graph.p must be above 0 and at most 1, not 0.0"),
        ({"kind": "erdos-renyi", "p": 1.1}, 4, "graph.p must be above 0 and at most 1, not 1.1"),
        ({"kind": "erdos-renyi", "p": math.nan}, 4, "graph.p must be above 0"),
        ({"kind": "regular", "k": 6}, 6, "graph.k must be from 2 to 5 with 6 peers, not 6"),
        ({"kind": "regular", "k": 1}, 6, "graph.k must be from 2 to 5 with 6 peers, not 1"),
        ({"kind": "regular", "k": 0}, 2, "graph.k must be from 1 to 1 with 2 peers, not 0"),
        ({"kind": "regular", "k": 3}, 7, "graph.k must be an even number from 2 to 6 with 7 peers, not 3"),
        ({"kind": "regular", "k": -2}, 7, "graph.k must be an even number from 2 to 6 with 7 peers, not -2"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be(wrong: dict[str, object], peers: int, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        neighbours(parsing.build(TopologySettings, wrong, "graph."), peers, seed=0)
    assert str(raised.value).startswith(error)


def test_the_p_that_an_error_proposes_is_enough() -> None:
    for peers in (2, 3, 10, 50, 300):
        assert len(parts(graph("erdos-renyi", peers, p=math.log(peers) / peers))) == 1


# Parts of a graph


@given(any_graphs)
def test_parts_are_those_of_the_transitive_closure(world: World) -> None:
    peers, pairs = world
    lists = listed(peers, pairs)
    closure = distances(lists)
    expected = {tuple(j for j in range(peers) if closure[i][j] < math.inf) for i in range(peers)}
    assert parts(lists) == [list(part) for part in sorted(expected)]
    assert parts(dict(reversed(list(enumerate(lists))))) == parts(lists)


@given(any_graphs, st.sets(st.integers(0, 8)))
def test_within_keeps_the_edges_between_members(world: World, some: set[int]) -> None:
    peers, pairs = world
    members = {peer for peer in some if peer < peers}
    inside = within(listed(peers, pairs), sorted(members, reverse=True))
    assert list(inside) == sorted(members)
    kept = {(min(i, j), max(i, j)) for i, others in inside.items() for j in others}
    assert kept == {(a, b) for a, b in pairs if a in members and b in members}
    assert all(list(others) == sorted(others) for others in inside.values())
    assert within(inside, members) == inside


def test_an_error_names_the_disconnected_parts() -> None:
    some = within(graph("ring", 10), [0, 1, 4, 5, 6, 9])
    with pytest.raises(ConfigError) as raised:
        check_connected(some, "those that can train resnet9")
    assert str(raised.value) == (
        "graph: those that can train resnet9 fall into 2 parts without an edge between them: [0, 1, 9], [4, 5, 6]. "
        'Use a denser graph, or graph.kind = "complete", which connects all peers'
    )


def test_many_are_named_in_short() -> None:
    """Two crowds of 50, and 10 on their own."""
    crowds = {(first, first + i) for first in (0, 50) for i in range(1, 50)}
    with pytest.raises(ConfigError) as raised:
        check_connected(listed(110, crowds), "all", "Help")
    assert str(raised.value) == (
        "graph: all fall into 12 parts without an edge between them: [0, 1, 2, 3, 4, 5, 6, 7 and 42 more], "
        "[50, 51, 52, 53, 54, 55, 56, 57 and 42 more], [100], [101] and 8 more. Help"
    )


@given(any_graphs)
def test_only_a_disconnected_graph_is_an_error(world: World) -> None:
    lists = listed(*world)
    try:
        check_connected(lists, "they")
    except ConfigError:
        assert not connected(lists)
    else:
        assert connected(lists)


def test_an_empty_graph_is_connected() -> None:
    assert parts({}) == []
    check_connected({}, "nobody")


# Weights


# In words
