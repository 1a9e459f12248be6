"""DFedAvgM: its matrix is doubly stochastic, and a round multiplies the models by it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from methods_support import STILL, gather, play, small

from coterie.core.errors import ConfigError
from coterie.methods.dfedavgm import neighbours


def matrix(peers: int, k: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    w = np.zeros((peers, peers))
    for i in range(peers):
        near = neighbours(i, peers, k)
        w[i, [i, *near]] = 1 / (1 + len(near))
    return w


def test_the_ring_by_hand() -> None:
    assert neighbours(0, 6, 2) == [1, 5]
    assert neighbours(5, 6, 2) == [0, 4]
    assert neighbours(2, 7, 4) == [0, 1, 3, 4]
    assert neighbours(1, 6, 3) == [0, 2, 4]  # both sides, and opposite
    assert neighbours(3, 4, 0) == [0, 1, 2]
    assert neighbours(0, 1, 0) == []


@given(st.integers(1, 30), st.integers(0, 29))
def test_the_matrix_is_doubly_stochastic(peers: int, k: int) -> None:
    assume(k < peers and (k % 2 == 0 or peers % 2 == 0))
    w = matrix(peers, k)
    np.testing.assert_allclose(w.sum(0), 1)
    np.testing.assert_allclose(w.sum(1), 1)
    np.testing.assert_array_equal(w, w.T)
    assert ((w > 0).sum(1) == 1 + (k or peers - 1)).all()


@pytest.mark.parametrize(("peers", "k"), [(5, 2), (6, 3), (5, 4), (4, 0)])
def test_a_round_is_a_product_with_the_matrix(peers: int, k: int) -> None:
    e = small("dfedavgm", f"method.k={k}", STILL, peers=peers, rounds=2)
    before = torch.stack([me.model.vector.double() for me in gather(e)])
    played = play(e, gather(e))
    after = torch.stack([me.model.vector.double() for me in played.participants])
    w = torch.from_numpy(matrix(peers, k))
    torch.testing.assert_close(after, w @ w @ before, atol=1e-5, rtol=1e-5)
    for i in range(peers):
        for record in played.rounds(i):
            assert record.notes["neighbours"] == neighbours(i, peers, k)
            row = np.zeros(peers)
            row[list(record.notes["weights"])] = list(record.notes["weights"].values())
            np.testing.assert_allclose(row, w[i])


def test_a_graph_takes_the_rings_place() -> None:
    """A star of four: the middle has three neighbours, the others one. Metropolis' weights are 1 / (1 + 3)."""
    e = small("dfedavgm", "method.k=2", "graph.kind=star", STILL, peers=4, rounds=2)
    before = torch.stack([me.model.vector.double() for me in gather(e)])
    after = torch.stack([me.model.vector.double() for me in play(e, gather(e)).participants])
    w = torch.tensor([[1, 1, 1, 1], [1, 3, 0, 0], [1, 0, 3, 0], [1, 0, 0, 3]], dtype=torch.float64) / 4
    torch.testing.assert_close(after, w @ w @ before, atol=1e-5, rtol=1e-5)


def test_a_ring_as_a_graph_is_its_own_ring_of_two() -> None:
    """Everybody has two neighbours, so each weight is 1 / 3, to the bit as without a graph."""
    runs = [small("dfedavgm", "method.k=2", f"graph.kind={kind}", peers=5, rounds=3) for kind in ("complete", "ring")]
    own, graph = (play(e, gather(e)).participants for e in runs)
    for one, other in zip(own, graph, strict=True):
        assert torch.equal(one.model.vector, other.model.vector)


def test_weights_stay_those_of_the_graph_while_somebody_is_away() -> None:
    """Of the star, peer 3 is gone: the middle keeps a quarter for each of the other two, and a half for itself."""
    e = small("dfedavgm", "graph.kind=star", "clock.offline=[[3, 0.0, 1e9]]", STILL, peers=4, rounds=1)
    [record] = play(e, gather(e)).rounds(0)
    assert record.notes["weights"] == {0: 0.5, 1: 0.25, 2: 0.25}


def test_the_share_of_who_is_absent_is_one_s_own() -> None:
    """Of five in a ring, peer 3 leaves for good before it shares anything: 2 and 4 have one neighbour left."""
    e = small("dfedavgm", "method.k=2", STILL, "clock.offline=[[3, 0, inf]]", peers=5)
    before = [me.model.vector for me in gather(e)]
    played = play(e, gather(e))
    assert played.rounds(2)[0].notes["weights"] == pytest.approx({2: 2 / 3, 1: 1 / 3})
    assert played.rounds(0)[0].notes["weights"] == pytest.approx({0: 1 / 3, 1: 1 / 3, 4: 1 / 3})
    torch.testing.assert_close(played.participants[2].model.vector, (2 * before[2] + before[1]) / 3)
    assert played.rounds(3) == []


@pytest.mark.parametrize("words", [("clock.dropout=0.5",), ("engine.asynchronous=true", "clock.spread=4")])
def test_rows_stay_stochastic(words: tuple[str, ...]) -> None:
    played = play(small("dfedavgm", "method.k=2", *words, peers=6, rounds=6))
    for record in (r for i in range(6) for r in played.rounds(i)):
        weights = record.notes["weights"]
        assert sum(weights.values()) == pytest.approx(1)
        assert weights[record.peer] == pytest.approx(1 - (len(weights) - 1) / 3)


@pytest.mark.parametrize(("peers", "k", "message"), [(5, 3, "must be even with 5 peers"), (4, 4, "from 0 to 3")])
def test_impossible_rings_are_refused(peers: int, k: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small("dfedavgm", f"method.k={k}", peers=peers)
