"""The figures of metrics other than accuracy, over peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.core.events import PeerRound, RunStarted
from coterie.core.formatting import NOTHING, percent
from coterie.core.summary import LastAndSelected, MetricScores, MetricSpread

TEST = 1  # the place of the test split in the scores of a record


def metric_scores(
    start: RunStarted, last: Mapping[int, PeerRound], selected: Mapping[int, PeerRound]
) -> dict[str, MetricScores]:
    """By metric: its test values at each peer's last and selected round."""
    return {
        m["name"]: MetricScores(
            m["label"], m["higher_is_better"], m["unit"],
            _spread(m["name"], m["higher_is_better"], last, start.peers),
            _spread(m["name"], m["higher_is_better"], selected, start.peers),
        )
        for m in start.metrics
    }  # fmt: skip


def shown(value: float | None, unit: str) -> str:
    """A value of a metric in its unit."""
    if value is None:
        return NOTHING
    return percent(value) if unit == "%" else f"{value:.3g}"


def peer_scores(start: RunStarted, last: PeerRound, selected: PeerRound) -> dict[str, LastAndSelected[float | None]]:
    """By metric: the test values of one real peer."""
    names = [m["name"] for m in start.metrics]
    return {name: LastAndSelected(_test_value(last, name), _test_value(selected, name)) for name in names}


def _test_value(record: PeerRound, metric: str) -> float | None:
    return record.scores.get(metric, (None, None))[TEST]


def _spread(metric: str, higher_is_better: bool, records: Mapping[int, PeerRound], peers: int) -> MetricSpread:
    per_peer = [_test_value(records[p], metric) if p in records else None for p in range(peers)]
    values = [value for value in per_peer if value is not None]
    undefined = sum(_test_value(r, metric) is None for r in records.values())
    if not values:
        return MetricSpread(per_peer=per_peer, undefined=undefined)
    worst = worst_tenth(values, higher_is_better)
    return MetricSpread(float(np.mean(values)), float(np.std(values)), float(np.mean(worst)), per_peer, undefined)


def worst_tenth(values: Sequence[float], higher_is_better: bool = True) -> list[float]:
    """The worst tenth of the peers' values, at least one."""
    return sorted(values, reverse=not higher_is_better)[: max(1, len(values) // 10)]
