"""Accuracy over simulated time and idle shares, against values worked out by hand."""

from __future__ import annotations

import pytest

from coterie.core.events import PeerRound
from coterie.report.timing import MOST_POINTS, idle_shares, mean_over_time, time_to

ROUNDS = [
    PeerRound(0, 1, 1.0, test=0.2),
    PeerRound(1, 1, 4.0, test=0.4, notes={"waited": 1.0}),
    PeerRound(0, 2, 2.0, test=0.6, notes={"waited": 0.5}),
    PeerRound(1, 2, 8.0, test=0.8, notes={"waited": 1.0}),
]


def test_the_curve_begins_when_all_peers_were_measured() -> None:
    """At 4 peer 0 has its 0.6 of time 2, and peer 1 its first 0.4; at 8 they have 0.6 and 0.8."""
    assert mean_over_time(ROUNDS, 2) == [(4.0, pytest.approx(0.5)), (8.0, pytest.approx(0.7))]


def test_time_to_an_accuracy() -> None:
    curve = [(1.0, 0.3), (2.0, 0.6), (3.0, 0.5), (4.0, 0.7)]
    assert [time_to(curve, a) for a in (0.1, 0.5, 0.65, 0.9)] == [1.0, 2.0, 4.0, None]


def test_idle_shares() -> None:
    """Peer 0 waited 0.5 of 2 seconds, peer 1 2 of 8; peer 2 never finished a round."""
    assert idle_shares(ROUNDS, 3) == [0.25, 0.25, 0.0]


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    rounds = [PeerRound(0, t, float(t), test=t / 1000) for t in range(1, 1001)]
    curve = mean_over_time(rounds, 1)
    assert len(curve) == MOST_POINTS
    assert curve[0] == (1.0, 0.001)
    assert curve[-1] == (1000.0, 1.0)
