"""Draw the share of each class in each peer's training data."""

from __future__ import annotations

import numpy as np

from coterie.core.events import RunStarted
from coterie.core.formatting import percent
from coterie.report.figure import Figure, NothingToDraw
from coterie.report.matrix import Scale, heat_map, thinned
from coterie.report.ordering import class_count, cluster_groups, cluster_keys, order, order_sentence


def classes(start: RunStarted) -> Figure:
    """The share of each class in each peer's training data."""
    count = class_count(start)
    if not count:
        raise NothingToDraw("The class counts of some peers are unknown.")
    peers, how = order(start)
    counts = np.array([start.classes[p] for p in peers], dtype=np.float64).T
    shares = counts / np.maximum(counts.sum(axis=0), 1)
    most = float(thinned(shares).max())
    label, axes = f"Share of each class in the peers' training data, peers ordered {how}", ("class", "peer")
    size = (400.0, min(400.0, max(90.0, 18.0 * count)))
    groups, names = cluster_groups(start, peers), [str(c) for c in range(count)]
    columns = [start.label(peer) for peer in peers]
    scale = Scale(most, "share", lambda share: f"{100 * share:.3g}%")
    drawn = heat_map(shares / (most or 1.0), size, label, axes, (), groups, names, columns, scale)
    caption = (
        f"The share of each class in a peer's training data. Full colour: {percent(most)}. {order_sentence(start)}"
    )
    return Figure("classes", "Classes held by each peer", drawn, caption, cluster_keys(start, "patch"))
