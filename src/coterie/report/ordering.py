"""The order, groups and colours of peers in figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from coterie.core.events import RunStarted
from coterie.report.legend import Key
from coterie.report.marks import colour
from coterie.report.matrix import Group, rows_per_cell

MAX_KEYS = 12  # clusters in a legend


def order(start: RunStarted) -> tuple[list[int], str]:
    """The peers in order, and the name of that order."""
    return order_by(start.peers, start.clusters, start.classes if class_count(start) else None)


def order_by(
    peers: int, clusters: Sequence[int] | None, classes: Sequence[Sequence[int]] | None
) -> tuple[list[int], str]:
    """The order by true cluster, by most frequent class or by number, whichever is known first, and its name."""
    if clusters is not None:
        return sorted(range(peers), key=lambda p: (clusters[p], p)), "by true cluster"
    if classes is not None:
        return sorted(range(peers), key=lambda p: (int(np.argmax(classes[p])), p)), "by most frequent class"
    return list(range(peers)), "by number"


def class_count(start: RunStarted) -> int:
    """The number of classes; 0 where the class counts of some peer are missing."""
    lengths = {len(c) for c in start.classes}
    return lengths.pop() if len(start.classes) >= start.peers > 0 and len(lengths) == 1 else 0


def cluster_groups(start: RunStarted, peers: Sequence[int]) -> list[Group]:
    if start.clusters is None:
        return []
    groups, at = [], 0
    for i, (name, members) in enumerate(groupby(start.clusters[p] for p in peers)):
        stop = at + len(list(members))
        groups.append(Group(at, stop, str(name), i))
        at = stop
    return groups


def cluster_colours(start: RunStarted) -> list[int] | None:
    """Each peer's colour number, where the true clusters are known."""
    if start.clusters is None:
        return None
    place = {name: i for i, name in enumerate(sorted(set(start.clusters)))}
    return [place[name] for name in start.clusters]


def cluster_keys(start: RunStarted, shape: str) -> tuple[Key, ...]:
    """Legend entries for these colours."""
    names = sorted(set(start.clusters)) if start.clusters is not None else []
    keys = [Key(colour(i), f"true cluster {name}", shape) for i, name in enumerate(names[:MAX_KEYS])]
    if len(names) > MAX_KEYS:
        keys.append(Key("plain", f"{len(names) - MAX_KEYS} more", shape))
    return tuple(keys)


def order_sentence(start: RunStarted) -> str:
    """A caption sentence about the order of peers."""
    by = rows_per_cell(start.peers)
    marks = ": lines separate the clusters, whose colours are at the sides" if start.clusters is not None else ""
    thinned = f"; each cell is the mean of {by} neighbouring peers" if by > 1 else ""
    return f"Peers are ordered {order(start)[1]}{marks}{thinned}."
