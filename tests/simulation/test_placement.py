"""Dividing participants into shards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation_support import tiny

from coterie.simulation.placement import divided, sharded
from coterie.wiring import gather


@pytest.mark.parametrize(
    ("costs", "count", "expected"),
    [
        ([1, 1, 1, 1], 2, [[0, 1], [2, 3]]),
        ([1, 1, 1], 2, [[0], [1, 2]]),  # the middle of the second is the middle of all
        ([3, 1, 1, 1], 2, [[0], [1, 2, 3]]),
        ([1, 1, 4], 3, [[0, 1], [2]]),  # two thirds are in the last: a third shard would be empty
        ([5], 4, [[0]]),
    ],
)
def test_pieces_of_about_equal_cost(costs: list[float], count: int, expected: list[list[int]]) -> None:
    assert divided(range(len(costs)), costs, count) == expected


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=40), st.integers(1, 8))
def test_every_member_is_in_one_piece_and_none_is_much_too_large(costs: list[float], count: int) -> None:
    pieces = divided(range(len(costs)), costs, count)
    assert [member for piece in pieces for member in piece] == list(range(len(costs)))
    assert len(pieces) <= count
    for piece in pieces:  # a piece reaches over its share by half of its first and half of its last member, at most
        over = (costs[piece[0]] + costs[piece[-1]]) / 2
        assert sum(costs[member] for member in piece) <= sum(costs) / min(count, len(costs)) + over + 1e-6


def test_a_first_piece_with_extra_cost_has_fewer_members_or_none() -> None:
    assert divided(range(4), [1, 1, 1, 1], 2, first=2) == [[0], [1, 2, 3]]  # 2 + 1 | 3
    assert divided(range(4), [1, 1, 1, 1], 3, first=4) == [[], [0, 1], [2, 3]]  # a third of 8 is less than 4


def shards_of(directs: bool = False) -> list[list[int]]:
    e = tiny("fedavg", 'model.zoo=["linear","mlp"]', "model.hidden=[2]", peers=4)
    circle = gather(e)
    return sharded(circle.participants, circle.shape, 1, 2, directs=directs)


def test_those_of_one_architecture_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is trained here is nothing beside acting: two are as much as two. The server, 4, is with the last.
    assert shards_of() == [[0, 2], [1, 3, 4]]
    # If only training counts: 64 x 10 multiplications a sample at a linear model, 64 x 2 + 2 x 10 at the other.
    monkeypatch.setattr("coterie.simulation.placement.TO_ACT", 0.0)
    assert shards_of() == [[0], [2, 1, 3, 4]]  # 640 | 640 + 2 x 148


def test_the_director_has_fewer_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.simulation.placement.TO_ACT", 1.0)
    monkeypatch.setattr("coterie.simulation.placement.TO_DIRECT", 0.5)
    assert shards_of(directs=True) == [[0], [2, 1, 3, 4]]  # 4 x 0.5 + 1 | 3
