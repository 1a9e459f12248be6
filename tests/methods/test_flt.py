"""FLT: distances and Otsu's threshold by hand, clusters that are plain to see, and averages that stay within them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from methods_support import STILL, gather, play, small

from coterie.methods.components.relatedness import distances, otsu, related
from coterie.methods.flt import shares_of_related

SCENARIO = ("data.partition=scenario1", "data.train=12", "train.lr=0.05", "model.hidden=[32]", "clock.speed=60")


def test_distances_by_hand() -> None:
    features = {3: torch.tensor([[0.0, 0], [2, 0]]), 5: torch.tensor([[0.0, 1]]), 9: torch.tensor([[math.nan, 0]])}
    # From 3 to 5: 1 and sqrt 5; from 5 to 3: 1.
    expected = ((1 + math.sqrt(5)) / 2 + 1) / 2
    assert distances(features) == pytest.approx({(3, 5): expected, (3, 9): math.inf, (5, 9): math.inf})
    assert related(features) == [(3, 5)]  # the one pair that can be compared; 9 is like nobody


def test_a_share_of_the_pairs_is_taken_from_the_nearest() -> None:
    # On a line at 0, 1, 3, 7: the pairs lie 1, 2, 3, 4, 6 and 7 apart.
    features = {i: torch.tensor([[x]]) for i, x in enumerate((0.0, 1.0, 3.0, 7.0))}
    assert related(features, share=0.5) == [(0, 1), (0, 2), (1, 2)]
    assert len(related(features, share=1.0)) == 6


def variance_between(y: list[float], cut: int) -> float:
    low, high = y[:cut], y[cut:]
    apart = sum(low) / len(low) - sum(high) / len(high)
    return len(low) * len(high) * apart**2


@given(st.lists(st.floats(0, 100), min_size=2, max_size=30))
def test_otsu_finds_the_best_of_all_cuts(numbers: list[float]) -> None:
    y = sorted(numbers)
    if y[0] == y[-1]:
        assert otsu(y) == len(y)
        return
    best = max(variance_between(y, cut) for cut in range(1, len(y)))
    assert variance_between(y, otsu(y)) == pytest.approx(best, rel=1e-9)


def test_otsu_by_hand() -> None:
    assert otsu([1.0, 1.1, 1.2, 5.0, 5.1]) == 3
    assert otsu([2.0]) == 1
    assert otsu([]) == 0


def test_shares_by_hand() -> None:
    # 0 and 1 are related, 1 and 2 too; 3 is not here.
    shares = shares_of_related({0: 10, 1: 30, 2: 20}, [(0, 1), (1, 2), (2, 3)])
    assert shares[0] == pytest.approx({0: 1 / 4, 1: 3 / 4})
    assert shares[1] == pytest.approx({0: 1 / 6, 1: 1 / 2, 2: 1 / 3})
    assert shares[2] == pytest.approx({1: 3 / 5, 2: 2 / 5})


@pytest.mark.parametrize("seed", range(2))
def test_two_clusters_are_told_apart_and_averages_stay_within(seed: int) -> None:
    """Peers 0 to 3 have the digits 0 to 4, peers 4 to 7 the digits 5 to 9."""
    played = play(small("flt", *SCENARIO, f"seed={seed}", peers=8, rounds=3))
    clusters = (range(4), range(4, 8))
    for members in clusters:
        for i in members:
            first, *later = played.rounds(i)
            assert first.notes == {}
            for record in later:
                assert record.notes["neighbours"] == [j for j in members if j != i]
                assert record.notes["weights"] == dict.fromkeys(members, 0.25)  # all have 60 samples
            assert torch.equal(played.participants[i].model.vector, played.participants[members[0]].model.vector)
    one, other = (played.participants[members[0]].model.vector for members in clusters)
    assert not torch.allclose(one, other, atol=1e-3)
    # 8 peers: a model up in 3 rounds; down once in round 1, and once more as the encoder; embeddings once.
    expected = {"update": 24, "global.mlp": 16, "embeddings": 8, "answered": 16, "average": 16}
    assert played.messages == expected


def test_one_round_among_relatives_is_their_mean_by_data() -> None:
    """Still peers, all related: round 1 makes them alike; the models that a test then gives them are averaged."""
    e = small("flt", STILL, "method.related=1", "method.embeddings=3", rounds=2)
    played = play(e, gather(e))
    before = [me.model.vector for me in gather(e)[:3]]
    expected = (12 * before[0] + 9 * before[1] + 6 * before[2]) / 27
    for i in range(3):
        torch.testing.assert_close(played.participants[i].model.vector, expected)
        assert played.rounds(i)[1].notes["weights"] == pytest.approx({0: 12 / 27, 1: 9 / 27, 2: 6 / 27})
    server = played.participants[3]
    assert {j: tuple(f.shape) for j, f in server.state["features"].items()} == dict.fromkeys(range(3), (3, 4))


def test_with_everybody_related_it_is_fedavg() -> None:
    flt, fedavg = (play(small(*words, rounds=4)) for words in (("flt", "method.related=1"), ("fedavg",)))
    for i in range(3):
        torch.testing.assert_close(flt.participants[i].model.vector, fedavg.participants[i].model.vector)


def test_who_comes_late_is_compared_then() -> None:
    """Peer 7 misses the first two rounds of a second each."""
    played = play(small("flt", *SCENARIO, "clock.offline=[[7, 0, 2.5]]", peers=8, rounds=5))
    assert played.rounds(5)[1].notes["neighbours"] == [4, 6]
    assert played.rounds(7)[-1].notes["neighbours"] == [4, 5, 6]
    assert played.rounds(5)[-1].notes["neighbours"] == [4, 6, 7]
    assert np.isclose(sum(played.rounds(7)[-1].notes["weights"].values()), 1)
