"""The figures of a run's metrics over peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.core.events import PeerRound, RunStarted
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.summary import LastAndSelected, MetricScores, Spread
from coterie.methods import METHODS

Records = Mapping[int, PeerRound]  # one of each peer


def metric_scores(start: RunStarted, last: Records, selected: Records) -> dict[str, MetricScores]:
    """By metric other than accuracy: its test values at each peer's last and selected round."""
    by_name = {metric.name: metric for metric in start.measured}
    names = [str(m["name"]) for m in start.metrics]
    return {
        name: MetricScores(
            by_name[name].label, by_name[name].higher_is_better, by_name[name].unit,
            spread(by_name[name], last, start), spread(by_name[name], selected, start),
        )
        for name in names
    }  # fmt: skip


def peer_scores(start: RunStarted, last: PeerRound, selected: PeerRound) -> dict[str, LastAndSelected[float | None]]:
    """By metric other than accuracy: the test values of one real peer."""
    names = [str(m["name"]) for m in start.metrics]
    return {name: LastAndSelected(last.value(name), selected.value(name)) for name in names}


def spread(metric: MeasuredMetric, records: Records, start: RunStarted) -> Spread:
    """Mean and spread of a metric over peers, on their test data."""
    is_accuracy = metric.name == ACCURACY.name
    per_peer = [records[p].value(metric.name) if p in records else None for p in range(start.peers)]
    values = [value for value in per_peer if value is not None]
    undefined = None if is_accuracy else sum(r.value(metric.name) is None for r in records.values())
    if not values:
        return Spread(per_peer=per_peer, undefined=undefined)
    worst = worst_tenth(values, metric.higher_is_better)
    means = by_architecture(per_peer, start) if is_accuracy or metric == start.main else {}
    return Spread(
        float(np.mean(values)), float(np.std(values)), float(np.mean(worst)), per_peer, means, undefined=undefined
    )


def worst_tenth(values: Sequence[float], higher_is_better: bool = True) -> list[float]:
    """The worst tenth of the peers' values, at least one."""
    return sorted(values, reverse=not higher_is_better)[: max(1, len(values) // 10)]


def peers_by_architecture(start: RunStarted) -> dict[str, list[int]]:
    """The peers of each architecture; empty where all have the same, or where each has models of several."""
    if start.method in METHODS and METHODS[start.method].ensembles:
        return {}
    peers_of: dict[str, list[int]] = {}
    for peer, architecture in enumerate(start.architectures[: start.peers]):
        peers_of.setdefault(architecture, []).append(peer)
    return dict(sorted(peers_of.items())) if len(peers_of) > 1 else {}


def by_architecture(per_peer: Sequence[float | None], start: RunStarted) -> dict[str, float | None]:
    """The mean over each architecture's peers, where there are several; None where no such peer has a value."""
    means: dict[str, float | None] = {}
    for architecture, peers in peers_by_architecture(start).items():
        values = [value for p in peers if (value := per_peer[p]) is not None]
        means[architecture] = float(np.mean(values)) if values else None
    return means
