"""Shows which peer has which data, as plain text and as an SVG picture."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from html import escape
from itertools import pairwise

import numpy as np

from coterie.core.formatting import peer_label, peer_name, plain
from coterie.data.dataset import Array, Dataset
from coterie.data.partitions.shares import Share, Shares

_BINS = 10  # ranges of labels that are numbers
_SHADES = "·░▒▓█"
_COLUMNS = 100
_MOST_LINES = 40
_MOST_ROWS = 200
_MOST_NAME_LINES = 8
_LONGEST_NAME = 24
_CLUSTER_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # distinguishable with colour blindness


def binned(dataset: Dataset) -> Dataset:
    """The same with ranges as classes, if its labels are numbers: what peers have is shown in classes."""
    if dataset.classes:
        return dataset
    edges = np.linspace(dataset.y.min(), dataset.y.max(), _BINS + 1)
    y = np.clip(np.searchsorted(edges, dataset.y, side="right") - 1, 0, _BINS - 1)
    names = tuple(f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges.tolist()))
    return replace(dataset, y=y, classes=names)


def class_counts(dataset: Dataset, shares: Shares) -> Array:
    """The number of training rows of each class (of the pool, before any relabelling) per peer."""
    classes = len(dataset.classes)
    return np.stack([np.bincount(dataset.y[share.train], minlength=classes) for share in shares])


def describe_shares(dataset: Dataset, shares: Shares) -> str:
    """A table at most 100 characters wide: per peer its sizes, cluster, transform and classes as shades."""
    classes = f"{len(dataset.classes)} classes" if dataset.classes else f"numbers in {_BINS} ranges"
    dataset = binned(dataset)
    counts = class_counts(dataset, shares)
    used = np.unique(np.concatenate([np.concatenate(_splits(share)) for share in shares]))
    lines = [
        f"{dataset.name}: {len(dataset.y):,} rows, {classes}, {len(shares)} peers, {len(used):,} rows in use",
        f"Shades: training rows of a class, from few ({_SHADES[0]}) to {counts.max()} ({_SHADES[-1]})",
        *_class_names(dataset.classes),
        *dataset.remarks,
        "",
    ]
    shown = _spread(len(shares), _MOST_LINES)
    labels = [peer_label(peer, dataset.site_names) for peer in shown]
    widest = max(map(len, labels))
    labels = [label.rjust(widest) for label in labels]
    prefix = _prefix("peer".rjust(widest), "train", "valid", "test", "cluster", "transform")
    per_cell, width = _cell_form(counts.shape[1], _COLUMNS - len(prefix))
    lines.append(prefix + _class_header(counts.shape[1], per_cell, width))
    shades = _shaded(counts)
    lines += [
        _line(label, shares[peer], shades[peer], per_cell, width) for peer, label in zip(shown, labels, strict=True)
    ]
    if len(shares) > len(shown):
        lines.append(f"... {len(shares) - len(shown)} more like these")
    if per_cell > 1:
        lines.append(f"(each shade stands for {per_cell} neighbouring classes: the largest of them)")
    return "\n".join(lines)


def _class_names(names: tuple[str, ...]) -> list[str]:
    """The class names with their numbers, in a few lines; none if the numbers are the names."""
    if names == tuple(str(number) for number in range(len(names))):
        return []
    entries = [f"{number} {_clipped(name)}" for number, name in enumerate(names)]
    start = "Classes: "
    # NULs keep the blanks within an entry from being wrapped.
    packed = [entry.replace(" ", "\0") for entry in entries]
    lines = textwrap.wrap(", ".join(packed), _COLUMNS, initial_indent=start, subsequent_indent=" " * len(start))
    shown = [line.replace("\0", " ") for line in lines[:_MOST_NAME_LINES]]
    left = len(names) - sum(line.rstrip(",").count(", ") + 1 for line in shown)
    return [*shown, f"{' ' * len(start)}... and {left} more"] if left else shown


def _clipped(name: str) -> str:
    """The name, shortened, without commas and control characters."""
    return plain(name.replace(",", "?"), _LONGEST_NAME)


def _spread(peers: int, most: int) -> list[int]:
    """At most `most` of the peers, evenly spaced, so that every cluster is shown."""
    return [int(peer) for peer in np.linspace(0, peers - 1, min(peers, most)).round()]


def _splits(share: Share) -> tuple[Array, Array, Array]:
    return share.train, share.validation, share.test


def _cell_form(classes: int, available: int) -> tuple[int, int]:
    """How many classes share a cell, and its width in characters, so that all cells fit into `available`."""
    per_cell = -(-classes // available)
    width = max(1, min(4, available // -(-classes // per_cell)))
    return per_cell, width


def _class_header(classes: int, per_cell: int, width: int) -> str:
    """The class numbers above their cells; every tenth if cells are narrow."""
    cells = range(0, classes, per_cell)
    if width > len(str(classes - 1)):
        return "".join(f"{number:<{width}}" for number in cells).rstrip()
    header = ""
    for position, number in enumerate(cells):
        if position % 10 == 0:
            header = header.ljust(position * width) + str(number)
    return header


def _shaded(counts: Array) -> Array:
    """Counts as positions in the shades: 0 for none, then 1 to len(_SHADES)."""
    shades: Array = np.ceil(counts * len(_SHADES) / max(1, counts.max())).astype(int)
    return shades


def _line(peer: str, share: Share, shades: Array, per_cell: int, width: int) -> str:
    train, validation, test = (len(rows) for rows in _splits(share))
    cluster = "-" if share.cluster is None else str(share.cluster)
    cells = [int(shades[start : start + per_cell].max()) for start in range(0, len(shades), per_cell)]
    # A gap between wide cells keeps the columns apart.
    block = max(1, width - 1)
    drawn = "".join((" " + _SHADES)[cell] * block + " " * (width - block) for cell in cells)
    return (_prefix(peer, train, validation, test, cluster, share.transform) + drawn).rstrip()


def _prefix(*fields: object) -> str:
    """The columns before the shades."""
    peer, train, validation, test, cluster, transform = map(str, fields)
    return f"{peer:>5} {train:>7} {validation:>7} {test:>7} {cluster:>7}  {transform:<12} "


def draw_shares(dataset: Dataset, shares: Shares) -> str:
    """A self-contained SVG: one row per peer, one column per class; more training rows are darker."""
    dataset = binned(dataset)
    shown = _spread(len(shares), _MOST_ROWS)
    counts = class_counts(dataset, shares)[shown]
    peers, classes = counts.shape
    cell_width = max(6, min(46, 760 // classes))
    cell_height = max(5, min(24, 700 // peers))
    left, top = (
        96 if not dataset.site_names else 26 + 7 * max(len(peer_name(p, dataset.site_names)) for p in shown),
        118,
    )
    width, height = max(420, left + classes * cell_width + 24), top + peers * cell_height + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="16" y="24" font-size="15" font-weight="600">{escape(_title(dataset, shares))}</text>',
        f'<text x="16" y="42" fill="#666">Training rows per class; darkest: {counts.max()}</text>',
    ]
    parts.append(_cluster_legend(shares))
    parts += _column_labels(dataset.classes, left, top, cell_width)
    for position, (peer, row) in enumerate(zip(shown, counts, strict=True)):
        y = top + position * cell_height
        labelled = position % -(-14 // cell_height) == 0
        parts += _row_label(peer_name(peer, dataset.site_names), shares[peer], left, y, cell_height, labelled)
        parts += _row_cells(row, int(counts.max()), left, y, cell_width, cell_height)
    if len(shares) > peers:
        parts.append(f'<text x="16" y="{height - 14}" fill="#666">... {len(shares) - peers} more peers</text>')
    return "\n".join([*parts, "</svg>"])


def _title(dataset: Dataset, shares: Shares) -> str:
    clusters = {share.cluster for share in shares} - {None}
    suffix = f", {len(clusters)} clusters" if clusters else ""
    return f"{dataset.name}: {len(shares)} peers, {len(dataset.classes)} classes{suffix}"


def _cluster_legend(shares: Shares) -> str:
    """The colour of each cluster, and how its peers transform their rows."""
    seen = {share.cluster: share.transform for share in shares if share.cluster is not None}
    entries = [
        f'<tspan fill="{_cluster_colour(cluster)}">■</tspan> cluster {cluster}: {escape(str(transform))}'
        for cluster, transform in sorted(seen.items())
    ]
    return f'<text x="16" y="58" fill="#666">{" &#160; ".join(entries)}</text>'


def _cluster_colour(cluster: int | None) -> str:
    return "#bbb" if cluster is None else _CLUSTER_COLOURS[cluster % len(_CLUSTER_COLOURS)]


def _column_labels(names: tuple[str, ...], left: int, top: int, cell_width: int) -> list[str]:
    """Class names, slanted if they are wider than their column, and fewer if columns are narrow."""
    slant = max(map(len, names)) * 7 > cell_width
    every = -(-(20 if slant else 12) // cell_width)
    labels = []
    for number in range(0, len(names), every):
        x, y = left + number * cell_width + cell_width // 2, top - 8
        turn = f' transform="rotate(-35 {x} {y})"' if slant else ' text-anchor="middle"'
        labels.append(f'<text x="{x}" y="{y}"{turn}>{escape(names[number][:14])}</text>')
    return labels


def _row_label(peer: str, share: Share, left: int, y: int, cell_height: int, labelled: bool) -> list[str]:
    """The peer's name, a strip in its cluster's colour, and a tooltip with details."""
    train, validation, test = (len(rows) for rows in _splits(share))
    cluster = "" if share.cluster is None else f", cluster {share.cluster}"
    about = f"{peer}: {train} train, {validation} validation, {test} test{cluster}, {share.transform}"
    colour = _cluster_colour(share.cluster)
    strip = f'<rect x="{left - 12}" y="{y}" width="7" height="{cell_height}" fill="{colour}">'
    parts = [f"{strip}<title>{escape(about)}</title></rect>"]
    if labelled:
        baseline = y + cell_height / 2 + 4
        parts.append(f'<text x="{left - 18}" y="{baseline:g}" text-anchor="end">{escape(peer)}</text>')
    return parts


def _row_cells(row: Array, most: int, left: int, y: int, cell_width: int, cell_height: int) -> list[str]:
    cells = []
    for number in np.flatnonzero(row):
        count, x = int(row[number]), left + int(number) * cell_width
        # From 0.12: one image must not look like none.
        opacity = 0.12 + 0.88 * count / max(1, most)
        cells.append(
            f'<rect x="{x}" y="{y}" width="{cell_width - 1}" height="{cell_height - 1}" '
            f'fill="#08306b" fill-opacity="{opacity:.2f}"/>'
        )
        if cell_height >= 13 and cell_width >= 7 * len(str(count)) + 4:
            ink = "white" if opacity > 0.5 else "#222"
            middle, baseline = x + cell_width / 2, y + cell_height / 2 + 3.5
            cells.append(
                f'<text x="{middle:g}" y="{baseline:g}" text-anchor="middle" font-size="10" fill="{ink}">{count}</text>'
            )
    return cells
