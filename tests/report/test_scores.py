"""Metrics other than accuracy in a summary: over peers, by direction, with undefined values."""

from __future__ import annotations

import pytest

from coterie.core.events import PeerRound, RunStarted
from coterie.report.scores import worst_tenth
from coterie.report.summary import summarise


def records(peers: int, higher_is_better: bool, values: list[list[float | None]], select: str = "") -> list[object]:
    """By round, then by peer: the metric on test data; its validation value is the same."""
    metric = {"name": "x", "label": "X", "higher_is_better": higher_is_better, "unit": ""}
    start = RunStarted("local", 0, peers, len(values), [], [], [], None, metrics=[metric], select=select)
    rounds = [
        PeerRound(p, t, float(t), 0.5, 0.5, 1.0, scores={"x": [value, value]})
        for t, of_round in enumerate(values, 1)
        for p, value in enumerate(of_round)
    ]
    return [start, *rounds]


def test_over_peers() -> None:
    events = records(3, True, [[0.2, 0.4, None], [0.1, 0.5, None]], select="x")
    scores = summarise(events, 1.0).scores["x"]  # type: ignore[arg-type]
    assert (scores.label, scores.higher_is_better) == ("X", True)
    # Last: 0.1 and 0.5, mean 0.3, deviation 0.2. Selected: 0.2 (of round 1) and 0.5. The worst tenth of two is one.
    assert scores.last.per_peer == [0.1, 0.5, None]
    assert (scores.last.mean, scores.last.std) == (pytest.approx(0.3), pytest.approx(0.2))
    assert scores.last.worst_decile == 0.1
    assert scores.selected.per_peer == [0.2, 0.5, None]
    assert scores.last.undefined == 1


def test_a_peer_that_was_not_measured_is_not_undefined() -> None:
    events = records(4, False, [[0.2, None, 0.6]])
    last = summarise(events, 1.0).scores["x"].last  # type: ignore[arg-type]
    assert last.per_peer == [0.2, None, 0.6, None]
    assert last.undefined == 1
    assert last.worst_decile == 0.6  # lower is better


def test_undefined_everywhere() -> None:
    last = summarise(records(2, True, [[None, None]]), 1.0).scores["x"].last  # type: ignore[arg-type]
    assert (last.mean, last.std, last.worst_decile, last.undefined) == (None, None, None, 2)


def test_worst_tenth() -> None:
    values = [float(v) for v in range(25)]
    assert worst_tenth(values) == [0, 1]
    assert worst_tenth(values, higher_is_better=False) == [24, 23]
    assert worst_tenth([3.0]) == [3.0]
