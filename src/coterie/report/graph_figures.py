"""Draw the collaboration graph of one round, as a node diagram and as a matrix."""

from __future__ import annotations

import numpy as np

from coterie.report.figure import Figure
from coterie.report.graphs import KINDS, Frame, Graph, frame, values_of
from coterie.report.layout import places
from coterie.report.marks import colour
from coterie.report.matrix import SHADES, Floats, Scale, heat_map, shade_of
from coterie.report.ordering import cluster_colours, cluster_groups, cluster_keys, order, order_sentence
from coterie.report.svg import circle, figure, number, text

WIDTH = 440.0  # of the drawing; its height follows from the layout
BEND = 0.12  # of an edge, as a share of its length: so that both directions are visible
NUMBERED = 60  # peers: up to this many, nodes are large enough for their numbers


def radius_of(peers: int) -> float:
    return 10.0 if peers <= 30 else 8.0 if peers <= NUMBERED else 5.0 if peers <= 150 else 2.5


def _margin(graph: Graph) -> float:
    return radius_of(len(graph.peers)) + 4


def place_peers(graph: Graph) -> Floats:
    return places(graph.at_last, WIDTH, _margin(graph))


def drawing(graph: Graph, at: Floats, round: int) -> Figure:
    """Peers as nodes at fixed positions, and how much each takes from another as edges."""
    shown = frame(round, graph.matrix(round), graph.most)
    what = KINDS[graph.kind]
    label = f"The graph of round {round}: {len(shown.cells):,} {what} between {len(graph.peers):,} peers"
    parts = [*_edges(shown, at), '<g class="own"></g>', *_nodes(graph, at)]
    most = f" The strongest edge is {graph.most:.2g}." if graph.kind == "weights" else ""
    caption = (
        f"An edge bends to the left, seen from the peer that takes.{most} A peer keeps its position in all rounds, "
        "near the peers it took most from in the last tenth of the rounds. Weights of peers on themselves are left out."
    )
    height = float(at[:, 1].max()) + _margin(graph)
    return Figure("graph", "Drawing", figure(WIDTH, height, label, parts), caption, cluster_keys(graph.start, "dot"))


def matrix(graph: Graph, round: int) -> Figure:
    """The graph as a matrix: a row is a peer, a column a peer it takes from."""
    start, most = graph.start, graph.most_of_cells
    groups = cluster_groups(start, graph.peers)
    values = graph.matrix(round) / most
    if not graph.is_thinned:  # the same percentages as on the page
        values = values_of(frame(round, values, 1.0), len(graph.peers))
    label = f"The matrix of round {round}: {KINDS[graph.kind]}, peers ordered {order(start)[1]}"
    axes = ("peer that takes", "peer it takes from")
    names = [start.label(peer) for peer in graph.peers]
    drawn = heat_map(values, (400, 400), label, axes, groups, groups, names, names, scale_of(graph))
    full = f"The full colour is {most:.2g}. " if graph.kind == "weights" or graph.is_thinned else ""
    return Figure("matrix", "Matrix", drawn, full + order_sentence(start), cluster_keys(start, "patch"))


def scale_of(graph: Graph) -> Scale:
    """The meaning of the colours of its matrix."""
    if graph.kind == "weights":
        return Scale(graph.most_of_cells, "mean averaging weight" if graph.is_thinned else "averaging weight")
    if graph.is_thinned:
        return Scale(graph.most_of_cells, "share of neighbours")
    return Scale(1.0, "a neighbour (1) or not (0)", whole=True)


def _edges(shown: Frame, at: Floats) -> list[str]:
    """One path for each shade, which the page's slider refills for each round."""
    peers = len(at)
    strokes: list[list[str]] = [[] for _ in range(SHADES + 1)]
    shades = shade_of(np.array(shown.shares) / 100)
    for cell, shade in zip(shown.cells, shades.tolist(), strict=True):
        strokes[shade].append(edge(at[cell // peers], at[cell % peers]))
    thick = 1.6 if peers <= NUMBERED else 0.8
    paths = [
        f'<path class="edge" stroke-width="{number(0.4 + thick * s / SHADES)}" opacity="{0.06 + 0.5 * s / SHADES:.2f}" '
        f'd="{"".join(strokes[s])}"/>'
        for s in range(1, SHADES + 1)
    ]
    return ['<g class="edges">', *paths, "</g>"]


def edge(start: Floats, stop: Floats) -> str:
    """A curved edge. Keep in step with graph.js."""
    (x, y), (to_x, to_y) = start.tolist(), stop.tolist()
    middle = ((x + to_x) / 2 + BEND * (to_y - y), (y + to_y) / 2 - BEND * (to_x - x))
    return f"M{number(x)} {number(y)}Q{number(middle[0])} {number(middle[1])} {number(to_x)} {number(to_y)}"


def _nodes(graph: Graph, at: Floats) -> list[str]:
    colours, radius = cluster_colours(graph.start), radius_of(len(graph.peers))
    parts = []
    for peer, (x, y) in zip(graph.peers, at.tolist(), strict=True):
        css = f"node {colour(colours[peer]) if colours else 'plain'}"
        parts.append(circle(x, y, radius, css, graph.start.called(peer)))
        if len(graph.peers) <= NUMBERED:
            if graph.start.names:  # they do not fit into the node
                parts.append(text(x, y + radius + 11, graph.start.label(peer)))
            else:
                parts.append(text(x, y + 3.2, str(peer), css="number"))
    return parts
