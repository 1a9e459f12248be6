"""FML and FedKD: losses against their formulas, low-rank updates against the theorem, and what travels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods_support import STILL, cross_entropy, gather, play, small

from coterie.core.loss import Batch
from coterie.core.net import Output
from coterie.methods.components.low_rank import packed, unpacked
from coterie.methods.mentees import fedkd_loss, fml_loss


class Said:
    """A net that has said these logits and features, and its mentee others."""

    def __init__(self, rng: np.random.Generator, samples: int) -> None:
        self.own, self.small = rng.normal(size=(2, samples, 3))
        self.features, self.adapted = rng.normal(size=(2, samples, 4))
        self.parameters: dict[str, torch.Tensor] = {}

    def __call__(self, x: torch.Tensor) -> Output:
        t = torch.from_numpy
        return Output(t(self.own), t(self.features)).plus(mentee=Output(t(self.small), x), adapted=t(self.adapted))


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits)
    return np.asarray(e / e.sum(1, keepdims=True))


def kl(teacher: np.ndarray, taught: np.ndarray) -> float:
    p, q = softmax(teacher), softmax(taught)
    return float(np.mean([sum(p[i, c] * np.log(p[i, c] / q[i, c]) for c in range(3)) for i in range(len(p))]))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 1), st.floats(0, 1))
def test_fmls_loss_is_its_formula(seed: int, samples: int, alpha: float, beta: float) -> None:
    rng = np.random.default_rng(seed)
    net, y = Said(rng, samples), rng.integers(3, size=samples)
    batch = Batch(torch.zeros(samples, 1), torch.from_numpy(y))
    found = fml_loss(net, batch, {"alpha": torch.tensor(alpha), "beta": torch.tensor(beta)})
    own = alpha * cross_entropy(net.own, y) + (1 - alpha) * kl(net.small, net.own)
    other = beta * cross_entropy(net.small, y) + (1 - beta) * kl(net.own, net.small)
    assert float(found) == pytest.approx(own + other, rel=1e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_fedkds_loss_is_its_formula(seed: int, samples: int) -> None:
    rng = np.random.default_rng(seed)
    net, y = Said(rng, samples), rng.integers(3, size=samples)
    found = fedkd_loss(net, Batch(torch.zeros(samples, 1), torch.from_numpy(y)), {})
    own, other = cross_entropy(net.own, y), cross_entropy(net.small, y)
    shared = kl(net.small, net.own) + kl(net.own, net.small) + 2 * ((net.features - net.adapted) ** 2).mean()
    assert float(found) == pytest.approx(own + other + shared / (own + other), rel=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.floats(0.05, 1.0))
def test_low_rank_keeps_the_energy_asked_for_and_no_more_than_needed(seed: int, energy: float) -> None:
    """Eckart and Young: the cut SVD is the nearest matrix of its rank, and misses the singular values left out."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 30)) + 0.05 * rng.normal(size=(12, 30))
    tensor = torch.from_numpy(matrix.reshape(12, 5, 6)).float()
    like = {"w": tensor, "b": torch.ones(3)}
    sent = packed(like, energy)
    back = unpacked(sent, like)
    assert back is not None
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    missed = float((back["w"] - tensor).square().sum())
    assert missed <= (1 - energy) * squares.sum() * (1 + 1e-4) + 1e-4
    if "w.left" in sent:
        rank = sent["w.left"].shape[1]
        assert squares[: rank - 1].sum() < energy * squares.sum() * (1 + 1e-4)  # one less would not do
        assert sum(t.numel() for key, t in sent.items() if key != "b") < tensor.numel()
    assert torch.equal(back["b"], like["b"])


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"w": torch.ones(3, 3)},
        {"w.left": torch.ones(4, 1)},
        {"w.left": torch.ones(4, 2), "w.right": torch.ones(1, 5)},
        {"w.left": torch.ones(5, 1), "w.right": torch.ones(1, 5)},
        {"w.left": torch.ones(4), "w.right": torch.ones(5)},
        {"w": torch.ones(4, 5, dtype=torch.float64)},
    ],
)
def test_what_does_not_fit_is_not_unpacked(sent: dict[str, torch.Tensor]) -> None:
    assert unpacked(sent, {"w": torch.zeros(4, 5)}) is None


def parts(me: object, name: str) -> torch.Tensor:
    return me.model.part(name).vector  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize("words", [(), ("model.zoo=mlp,cnn3",)], ids=["one", "mixed"])
def test_fml_averages_the_small_models_and_nothing_else(words: tuple[str, ...]) -> None:
    e = small("fml", *words)
    before = [parts(me, "backbone") for me in gather(e)]
    played = play(e, gather(e))
    common = parts(played.participants[3], "mentee")
    for me, start in zip(played.participants[:3], before, strict=False):
        assert torch.equal(parts(me, "mentee"), common)
        assert not torch.equal(parts(me, "backbone"), start)  # it learned, and stayed its own
    assert played.messages == {"global": 6, "mentee": 3}  # before the first round, and after it


def test_fml_starts_from_the_servers_small_model() -> None:
    """Nobody trains: so the average of everybody's is what the server had."""
    e = small("fml", STILL)
    server = parts(gather(e)[3], "mentee")
    for me in play(e, gather(e)).participants:
        torch.testing.assert_close(parts(me, "mentee"), server)


def test_fedkd_keeps_all_small_models_in_step_with_little_sent() -> None:
    e = small("fedkd", "method.energy=0.6", "method.energy_end=0.6", "model.hidden=[40]", rounds=3)
    played = play(e, gather(e))
    common = parts(played.participants[3], "mentee")
    for me in played.participants[:3]:
        assert torch.equal(parts(me, "mentee"), common)
    assert played.messages == {"whole": 3, "global": 9, "update": 9}  # the whole model only at the start
    size = {name: sum(r.bytes.get(name, 0) for r in played.rounds(0)) for name in ("global",)}
    assert size["global"] < 3 * 4 * common.numel()


def test_who_misses_a_round_of_fedkd_takes_over_the_whole_model() -> None:
    e = small("fedkd", "clock.offline=[[1, 1.5, 2.5]]", "clock.deadline=0.1", rounds=5)
    played = play(e, gather(e))
    common = parts(played.participants[3], "mentee")
    assert torch.equal(parts(played.participants[1], "mentee"), common)
    assert played.messages["whole"] > 3
