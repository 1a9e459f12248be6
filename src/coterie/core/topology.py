"""Communication graphs: a pure function of settings, number of peers and seed.

So every peer of a real network computes the same graph by itself. All draws use the integer arithmetic of
`randomness`, not NumPy's generators, whose streams may differ between versions.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from coterie.core import randomness
from coterie.core.errors import ConfigError
from coterie.core.settings import check_values, setting

COMPLETE = "complete"
KINDS = {
    COMPLETE: "",
    "erdos-renyi": "",
    "ring": "",
    "grid": "as close to square as the number of peers allows; a line if it is prime",
    "regular": "",
    "star": "peer 0 in the middle",
    "file": "",
}
TRIES = 1000  # Erdos-Renyi graphs to draw before giving up on a connected one
SWEEPS = 10  # each swaps every edge twice on average; after these a regular graph counts as random
SHOWN_PARTS, SHOWN_PEERS = 4, 8  # in an error message
DENSER = 'Use a denser graph, or graph.kind = "complete", which connects all peers'

Edge: TypeAlias = tuple[int, int]
Lists: TypeAlias = list[tuple[int, ...]]
Neighbours: TypeAlias = Sequence[Sequence[int]] | Mapping[int, Sequence[int]]  # by peer; of all peers, or of some


@dataclass(frozen=True)
class TopologySettings:
    """Which peers are connected: the [graph] section."""

    kind: str = setting(
        COMPLETE,
        "kind of graph",
        choices=KINDS,
    )
    p: float = setting(
        0.6, "erdos-renyi: probability of each edge; redrawn until the graph is connected", above=0, most=1
    )
    k: int = setting(4, "regular: number of neighbours of each peer, drawn at random")
    file: str = setting("", "file: path of a text file with one edge `a b` per line; # begins a comment")


def check(settings: TopologySettings) -> None:
    """Raise ConfigError for a value that is not allowed, or a graph file that would be ignored."""
    check_values(settings, "graph.")
    if settings.file and settings.kind != "file":
        raise ConfigError(
            f"graph.file = '{settings.file}' would be ignored, because graph.kind = '{settings.kind}': "
            "set graph.kind = 'file', or leave graph.file empty"
        )


def links_of(settings: TopologySettings, peers: int, seed: int) -> list[tuple[int, ...]] | None:
    """The neighbours of each peer in the graph; None if the graph is complete."""
    return None if settings.kind == COMPLETE else neighbours(settings, peers, seed)


def neighbours(settings: TopologySettings, peers: int, seed: int) -> Lists:
    """The neighbours of each peer, in ascending order. The graph is connected."""
    check(settings)
    match settings.kind:
        case "erdos-renyi":
            return _erdos_renyi(settings.p, peers, seed)
        case "regular":
            return _regular(settings.k, peers, seed)
        case "ring":
            return _lists(peers, _ring(range(peers)))
        case "grid":
            return _lists(peers, _grid(peers))
        case "star":
            return _lists(peers, ((0, peer) for peer in range(1, peers)))
        case "file":
            return _from_file(settings.file, peers)
    return _complement(_lists(peers, ()))


def parts(neighbours: Neighbours) -> list[list[int]]:
    """The connected components, each in ascending order, by their lowest peer."""
    near = _by_peer(neighbours)
    components: list[list[int]] = []
    seen: set[int] = set()
    for peer in sorted(near):
        if peer not in seen:
            component = _reachable(near, peer)
            seen |= component
            components.append(sorted(component))
    return components


def within(neighbours: Neighbours, members: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """The subgraph of some of the peers. It need not be connected."""
    inside = set(members)
    return {peer: tuple(j for j in neighbours[peer] if j in inside) for peer in sorted(inside)}


def check_connected(neighbours: Neighbours, who: str, remedy: str = DENSER) -> None:
    """Raise ConfigError, naming the components, unless the graph is connected. `who` describes the peers in the
    plural: "the peers that can train resnet9"."""
    components = parts(neighbours)
    if len(components) > 1:
        raise ConfigError(
            f"graph: {who} fall into {len(components)} parts without an edge between them: {_named(components)}. "
            f"{remedy}"
        )


def _lists(peers: int, edges: Iterable[Edge]) -> Lists:
    near: list[set[int]] = [set() for _ in range(peers)]
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    return [tuple(sorted(others)) for others in near]


def _complement(lists: Lists) -> Lists:
    """The complement graph."""
    all_peers = set(range(len(lists)))
    return [tuple(sorted(all_peers.difference(others, [peer]))) for peer, others in enumerate(lists)]


def _by_peer(neighbours: Neighbours) -> Mapping[int, Sequence[int]]:
    return neighbours if isinstance(neighbours, Mapping) else dict(enumerate(neighbours))


def _reachable(near: Mapping[int, Sequence[int]], start: int) -> set[int]:
    reached, waiting = {start}, [start]
    while waiting:
        new = [j for j in near[waiting.pop()] if j not in reached]
        reached.update(new)
        waiting += new
    return reached


def _ring(order: Sequence[int]) -> list[Edge]:
    line = list(itertools.pairwise(order))
    return [*line, (order[-1], order[0])] if len(order) > 2 else line


def _grid(peers: int) -> list[Edge]:
    """Numbered row by row; not wrapped around."""
    rows = max(d for d in range(1, math.isqrt(peers) + 1) if peers % d == 0)
    columns = peers // rows
    along = [(peer, peer + 1) for peer in range(peers) if (peer + 1) % columns]
    down = [(peer, peer + columns) for peer in range(peers - columns)]
    return along + down


def _erdos_renyi(p: float, peers: int, seed: int) -> Lists:
    """Each edge with probability p, redrawn until the graph is connected, as in the CompFL paper."""
    for attempt in range(TRIES):
        edges = _chosen_pairs(p, peers, (seed, "graph", "erdos-renyi", attempt))
        lists = [] if edges is None else _lists(peers, edges)
        if lists and len(parts(lists)) == 1:
            return lists
    raise ConfigError(
        f"graph.p = {p}: none of {TRIES} random graphs of {peers} peers was connected. "
        f"Use a p above about log({peers})/{peers} = {math.log(peers) / peers:.2g}"
    )


def _chosen_pairs(p: float, peers: int, key: tuple[object, ...]) -> list[Edge] | None:
    """The drawn edges; None as soon as a peer has no edge, so that a thousand tries are fast if p is far too low."""
    edges: list[Edge] = []
    has_edge = np.full(peers, peers == 1)
    for a in range(peers):
        draws = randomness.uniforms([randomness.number(*key, a)], peers - 1 - a)[0].astype(float)
        chosen = np.flatnonzero(draws < p) + a + 1
        if not len(chosen) and not has_edge[a]:
            return None
        has_edge[chosen] = True
        edges += [(a, b) for b in chosen.tolist()]
    return edges


def _regular(k: int, peers: int, seed: int) -> Lists:
    """A random connected graph in which every peer has k neighbours."""
    if peers == 1:
        return [()]
    _check_degree(k, peers)
    key = (seed, "graph", "regular")
    if k == 2:  # a connected one is a ring, which random edge swaps would rarely produce
        order = randomness.permutations([randomness.number(*key)], 1, peers)[0, 0]
        return _lists(peers, _ring(order.tolist()))
    if 2 * k >= peers - 1:  # always connected when so dense; few of the swaps would be possible
        rest = peers - 1 - k
        return _complement(_swapped(_circulant(rest, peers), peers, key))
    attempts = (_swapped(_circulant(k, peers), peers, (*key, attempt)) for attempt in itertools.count())
    return next(lists for lists in attempts if len(parts(lists)) == 1)


def _check_degree(k: int, peers: int) -> None:
    least = min(2, peers - 1)  # with 1, the graph would fall apart into pairs
    if not least <= k < peers or k * peers % 2:
        even = "an even number " if peers % 2 else ""
        raise ConfigError(f"graph.k must be {even}from {least} to {peers - 1} with {peers} peers, not {k}")


def _circulant(k: int, peers: int) -> list[Edge]:
    """Each peer with the k/2 next ones on a ring and, if k is odd, with the one opposite."""
    beside = [(peer, (peer + step) % peers) for step in range(1, k // 2 + 1) for peer in range(peers)]
    opposite = [(peer, peer + peers // 2) for peer in range(peers // 2)] if k % 2 else []
    return beside + opposite


def _swapped(edges: Sequence[Edge], peers: int, key: tuple[object, ...]) -> Lists:
    """Repeatedly replace two random edges a-b and c-d by a-d and c-b, unless that gives a loop or a double edge. Every
    graph of these degrees can be reached this way, and in the limit all are equally likely."""
    edges = list(edges)
    near = [set(others) for others in _lists(peers, edges)]
    for sweep in range(SWEEPS):
        for first, second, turned in _picks(len(edges), randomness.number(*key, sweep)):
            a, b = edges[first]
            c, d = edges[second][::-1] if turned else edges[second]
            if a != d and c != b and d not in near[a] and b not in near[c]:
                for old, new, peer in ((b, d, a), (a, c, b), (d, b, c), (c, a, d)):
                    near[peer].remove(old)
                    near[peer].add(new)
                edges[first], edges[second] = (a, d), (c, b)
    return [tuple(sorted(others)) for others in near]


def _picks(count: int, key: int) -> Iterable[tuple[int, int, int]]:
    """As many picks as there are edges: two edges each, and whether to reverse the second."""
    draws = randomness.uniforms([key], 3 * count).reshape(-1, 3).astype(float)
    picks: list[tuple[int, int, int]] = (draws * [count, count, 2]).astype(int).tolist()
    return picks


def _from_file(file: str, peers: int) -> Lists:
    lists = _lists(peers, _read_edges(file, peers))
    check_connected(lists, f"the {peers} peers in {file}", "Add lines with edges that join them")
    return lists


def _read_edges(file: str, peers: int) -> list[Edge]:
    if not file:
        raise ConfigError("graph.file is empty: graph.kind = 'file' needs the path of a file with one edge per line")
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "it is not text" if isinstance(error, UnicodeError) else getattr(error, "strerror", None) or error
        raise ConfigError(f"graph.file = '{file}' cannot be read: {reason}") from error
    lines = enumerate(text.split("\n"), start=1)
    contents = ((number, line.partition("#")[0].strip()) for number, line in lines)
    return [_read_edge(line, peers, f"{file}, line {number}") for number, line in contents if line]


def _read_edge(line: str, peers: int, where: str) -> Edge:
    match = re.fullmatch(r"(-?[0-9]{1,18})\s+(-?[0-9]{1,18})", line)
    if not match:
        raise ConfigError(f"{where}: {line[:40]!r} is not an edge: write two integers, such as 0 1")
    a, b = map(int, match.groups())
    for peer in (a, b):
        if not 0 <= peer < peers:
            raise ConfigError(f"{where}: there is no peer {peer}. The {peers} peers are 0 to {peers - 1}")
    if a == b:
        raise ConfigError(f"{where}: {a} {b} is an edge from a peer to itself. Remove it")
    return a, b


def _named(components: Sequence[Sequence[int]]) -> str:
    shown = [f"[{_some(part, SHOWN_PEERS)}]" for part in components]
    return _some(shown, SHOWN_PARTS)


def _some(things: Sequence[object], most: int) -> str:
    left = len(things) - most
    return ", ".join(map(str, things[:most])) + (f" and {left} more" if left > 0 else "")
