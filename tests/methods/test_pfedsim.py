"""pFedSim: weights from the likeness of heads, bodies averaged by them, and nobody left waiting."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods_support import STILL, gather, play, small

from coterie.methods.pfedsim import similarity_weights


def test_weights_by_hand() -> None:
    heads = {
        0: torch.tensor([[1.0, 0], [0, 1]]),
        4: torch.tensor([[2.0, 0], [3, 4]]),  # cosines with 0: 1 and 0.8; mean 0.9
        7: torch.tensor([[-1.0, 0], [0, -1]]),  # cosines with 0: -1 and -1; with 4: -1 and -0.8
    }
    weights = similarity_weights(heads)
    # -ln(1 - 0.9) = ln 10 against one's own -ln(1 - 0.9999) = 4 ln 10.
    assert weights[0] == pytest.approx({0: 0.8, 4: 0.2, 7: 0.0})
    assert weights[4] == pytest.approx({0: 0.2, 4: 0.8, 7: 0.0})
    assert weights[7] == {0: 0.0, 4: 0.0, 7: 1.0}
    assert similarity_weights({}) == {}


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_weights_are_their_formula(seed: int, peers: int) -> None:
    rng = np.random.default_rng(seed)
    centre = rng.normal(size=(3, 4))
    heads = {2 * i: centre + rng.normal(size=(3, 4)) * rng.uniform(0, 2) for i in range(peers)}
    found = similarity_weights({j: torch.from_numpy(head) for j, head in heads.items()})
    for i in heads:
        expected = {}
        for j in heads:
            pairs = zip(heads[i], heads[j], strict=True)
            cosine = np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs])
            expected[j] = -math.log(1 - (0.9999 if i == j else min(max(cosine, 0.0), 0.9999)))
        total = sum(expected.values())
        assert found[i] == pytest.approx({j: w / total for j, w in expected.items()})
        assert sum(found[i].values()) == pytest.approx(1)


def test_a_model_that_diverged_weighs_for_nobody() -> None:
    e = small("pfedsim", "method.t_warm=0", STILL)
    participants = gather(e)
    participants[1].model.vector.fill_(math.nan)
    played = play(e, participants)
    assert "weights" not in played.rounds(1)[0].notes  # it gets no answer, and goes on by itself
    assert "not finite" in played.rounds(3)[0].notes["declined"][1]
    for i in (0, 2):
        assert 1 not in played.rounds(i)[0].notes["weights"]
        assert played.participants[i].model.vector.isfinite().all()


def test_bodies_are_averaged_by_weight_and_heads_stay() -> None:
    e = small("pfedsim", "method.t_warm=0", STILL)
    participants = gather(e)
    for me in participants[1:3]:  # so that all are somewhat alike
        me.model["head.weight"].add_(2 * participants[0].model["head.weight"])
    before = [me.model.copy() for me in participants[:3]]
    weights = similarity_weights({i: model["head.weight"] for i, model in enumerate(before)})
    assert all(0.01 < w < 0.99 for row in weights.values() for w in row.values())
    played = play(e, participants)
    for i, me in enumerate(played.participants[:3]):
        for name, tensor in me.model.items():
            average = sum((weights[i][j] * before[j][name] for j in range(3)), torch.zeros(()))
            torch.testing.assert_close(tensor, before[i][name] if name.startswith("head.") else average)
        assert played.rounds(i)[0].notes["weights"] == pytest.approx(weights[i])


def test_the_warm_up_is_fedavg() -> None:
    played, fedavg = (play(small(name, rounds=2)) for name in ("pfedsim", "fedavg"))
    assert played.messages == fedavg.messages
    for one, other in zip(played.participants, fedavg.participants, strict=True):
        assert torch.equal(one.model.vector, other.model.vector)


def test_messages() -> None:
    # 3 peers, 1 + 2 rounds: a model up in each; a model down in the first, then who is answered and a body.
    played = play(small("pfedsim", "method.t_warm=1", rounds=3))
    assert played.messages == {"update": 9, "global.mlp": 3, "answered": 6, "body": 6}


LATE = ("clock.deadline=0.2", "clock.spread=3", "clock.latency=[0.3, 0.01]", "clock.bandwidth=[3000.0, 100000.0]")
AWAY = ("clock.offline=[[0, 0.5, 2.5], [2, 1.2, inf], [3, 0, 3]]",)


@pytest.mark.parametrize("method", ["pfedsim", "flt"])
@pytest.mark.parametrize("words", [LATE, AWAY, (*LATE, *AWAY, "clock.dropout=0.4")], ids=["late", "away", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_nobody_waits_for_an_answer_that_is_not_made(method: str, words: tuple[str, ...], seed: int) -> None:
    """Its server answers only those whose update it had, and letters of rounds gone by are not taken for new ones."""
    warm = ("method.t_warm=1",) if method == "pfedsim" else ()
    played = play(small(method, f"seed={seed}", *warm, *words, peers=5, rounds=6))
    for record in (r for i in range(5) for r in played.rounds(i)):
        if "weights" in record.notes:
            assert record.notes["weights"][record.peer] > 0
            assert sum(record.notes["weights"].values()) == pytest.approx(1)


def test_who_is_too_late_keeps_its_model_and_goes_on() -> None:
    """Peer 2 trains for three seconds, the others for one, and the server waits for one and a half."""
    words = ("method.t_warm=0", "clock.speed=[12, 12, 4]", "clock.deadline=1.5")
    played = play(small("pfedsim", *words, rounds=2))
    assert [set(r.notes["weights"]) for r in played.rounds(0)] == [{0, 1}, {0, 1}]
    assert [r.notes for r in played.rounds(2)] == [{}, {}]
