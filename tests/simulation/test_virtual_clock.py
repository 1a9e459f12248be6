"""The virtual clock."""

from __future__ import annotations

import math
from typing import Any

import pytest

from coterie.config.checks import check_clock
from coterie.config.sections import ClockSettings
from coterie.core.errors import ConfigError
from coterie.simulation.clock import Clock

INF, NAN = float("inf"), float("nan")


def test_speeds_go_round_and_a_server_works_in_no_time() -> None:
    clock = Clock(ClockSettings(speed=(100.0, 50.0)), peers=3, seed=0)
    assert [clock.training(peer, 200) for peer in range(4)] == [2.0, 4.0, 2.0, 0.0]


def test_spread_slows_each_peer_by_a_factor_of_its_own() -> None:
    times = [Clock(ClockSettings(speed=(1.0,), spread=3.0), 200, seed=1).training(i, 1) for i in range(200)]
    assert all(1 <= t <= 3 for t in times)
    assert len(set(times)) == 200
    # The mean of 200 draws from [1, 3] lies within five standard errors of 2.
    assert abs(sum(times) / 200 - 2) < 5 * (2 / math.sqrt(12)) / math.sqrt(200)
    again = Clock(ClockSettings(speed=(1.0,), spread=3.0), 200, seed=1)
    assert [again.training(i, 1) for i in range(200)] == times


def test_a_transfer_takes_latency_and_size_over_bandwidth() -> None:
    clock = Clock(ClockSettings(latency=(0.5, 0.0), bandwidth=(100.0, 0.0, 10.0)), peers=6, seed=0)
    expected = [0.5 + 2.0, 0.0, 0.5 + 20.0, 0.0 + 2.0, 0.5, 20.0]
    assert [clock.transfer(peer, 200) for peer in range(6)] == expected


def test_windows_are_closed_at_the_start_and_open_at_the_end() -> None:
    clock = Clock(ClockSettings(offline=((1, 2.0, 5.0), (1, 8.0, INF), (0, 0.0, 1.0))), peers=3, seed=0)
    assert [clock.away_until(1, t) for t in (0, 1.999, 2, 4.999, 5, 7.999, 8, 1e12)] == [
        None, None, 5.0, 5.0, None, None, INF, INF,
    ]  # fmt: skip
    assert clock.away_until(0, 0.5) == 1.0
    assert clock.away_until(2, 3.0) is None


def test_dropout_has_the_frequency_asked_for() -> None:
    clock = Clock(ClockSettings(dropout=0.3), peers=40, seed=0)
    draws = [[clock.sits_out(peer, round) for round in range(50)] for peer in range(40)]
    total = sum(map(sum, draws))
    assert abs(total - 600) < 5 * math.sqrt(2000 * 0.3 * 0.7)  # binomial, five standard deviations
    assert len({tuple(row) for row in draws}) == 40  # peers differ
    again = Clock(ClockSettings(dropout=0.3), peers=40, seed=0)
    assert [again.sits_out(7, round) for round in range(50)] == draws[7]
    other = Clock(ClockSettings(dropout=0.3), peers=40, seed=1)
    assert [other.sits_out(7, round) for round in range(50)] != draws[7]


def test_no_peer_sits_out_without_dropout_and_a_server_never_does() -> None:
    assert not any(Clock(ClockSettings(), 5, 0).sits_out(peer, 1) for peer in range(6))
    harsh = Clock(ClockSettings(dropout=0.999), 5, 0)
    assert all(harsh.sits_out(peer, 1) for peer in range(5))
    assert not harsh.sits_out(5, 1)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("speed", ()), ("speed", (0.0,)), ("speed", (1.0, -1.0)), ("latency", ()), ("latency", (-0.1,)),
        ("bandwidth", ()), ("bandwidth", (-1.0,)), ("spread", 0.5), ("deadline", -1.0), ("dropout", -0.1),
        ("dropout", 1.0), ("dropout", NAN), ("offline", ((3, 0.0, 1.0),)), ("offline", ((-1, 0.0, 1.0),)),
        ("offline", ((0, 1.0, 1.0),)), ("offline", ((0, 2.0, 1.0),)), ("offline", ((0, -1.0, 1.0),)),
        ("offline", ((0, 0.0, NAN),)), ("offline", ((0, NAN, 1.0),)),
    ],
)  # fmt: skip
def test_bad_values_are_errors_that_name_the_key(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"clock.{key}"):
        check_clock(ClockSettings(**{key: value}), peers=3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("speed", (NAN,)), ("latency", (NAN,)), ("latency", (INF,)), ("bandwidth", (NAN,)), ("spread", NAN),
        ("spread", INF), ("deadline", NAN), ("offline", ((0.5, 0.0, 1.0),)),
    ],
)  # fmt: skip
def test_values_that_are_no_usable_numbers_are_errors(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"clock.{key}"):
        check_clock(ClockSettings(**{key: value}), peers=3)
