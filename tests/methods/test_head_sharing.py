"""FedSim and FedClassAvg: heads are averaged by data, backbones stay, and the loss is what its formula says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods_support import MIXED, STILL, LinearNet, cross_entropy, gather, play, small

from coterie.core.loss import Batch
from coterie.core.peer import Peer
from coterie.core.requests import Train
from coterie.methods.head_sharing import classavg_loss


@pytest.mark.parametrize("method", ["fedsim", "fedclassavg"])
@pytest.mark.parametrize("words", [(), MIXED], ids=["one", "mixed"])
def test_heads_are_averaged_by_data_and_backbones_stay(method: str, words: tuple[str, ...]) -> None:
    e = small(method, STILL, *words)
    before = [me.model.copy() for me in gather(e)[:3]]
    after = play(e, gather(e)).participants
    for name in ("head.weight", "head.bias"):  # of 12, 9 and 6 samples
        expected = (12 * before[0][name] + 9 * before[1][name] + 6 * before[2][name]) / 27
        for me in after:  # the server too
            torch.testing.assert_close(me.model[name], expected)
    for me, old in zip(after, before, strict=False):
        assert all(torch.equal(me.model[name], old[name]) for name in old if name.startswith("backbone."))


def contrast(features: np.ndarray[Any, Any], y: np.ndarray[Any, Any], tau: float) -> float:
    """Khosla et al.'s loss, term by term: over all others of one's class, the log share among all others."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    losses = []
    for i in range(len(y)):
        others = [j for j in range(len(y)) if j != i]
        total = sum(np.exp(unit[i] @ unit[j] / tau) for j in others)
        same = [j for j in others if y[j] == y[i]]
        losses.append(-sum(np.log(np.exp(unit[i] @ unit[j] / tau) / total) for j in same) / len(same))
    return float(np.mean(losses))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 10), st.floats(0.1, 100))
def test_the_loss_is_its_formula(seed: int, batch: int, rho: float, tau: float) -> None:
    rng = np.random.default_rng(seed)
    net = LinearNet(rng, inputs=5, features=4, classes=3)
    views, y = rng.normal(size=(2, batch, 5)), rng.integers(3, size=batch)
    weight, bias = rng.normal(size=(3, 4)), rng.normal(size=3)
    reference = {"ref.head.weight": torch.from_numpy(weight), "ref.head.bias": torch.from_numpy(bias)}
    strengths = {"rho": torch.tensor(rho), "tau": torch.tensor(tau)}
    stacked = Batch(torch.from_numpy(views[0]), torch.from_numpy(y), torch.from_numpy(views))
    loss = classavg_loss(net, stacked, {**reference, **strengths})
    logits, _ = net.numpy(views[0])
    _, features = net.numpy(views.reshape(-1, 5))
    distance = ((net.w - weight) ** 2).sum() + ((net.b - bias) ** 2).sum()
    expected = cross_entropy(logits, y) + contrast(features, np.tile(y, 2), tau) + rho / 2 * distance
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_head_is_held_near_the_last_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first round near one's own, for there is no average yet."""
    e = small("fedclassavg", rounds=2)
    references: dict[tuple[int, int], torch.Tensor] = {}
    train = Peer.train

    def watched(self: Peer, *args: Any, **kwargs: Any) -> Train:
        references[self.round, self.id] = kwargs["given"]["ref.head.weight"].clone()
        return train(self, *args, **kwargs)

    monkeypatch.setattr(Peer, "train", watched)
    own = [me.model["head.weight"].clone() for me in gather(e)[:3]]
    play(e, gather(e))
    assert all(torch.equal(references[1, i], own[i]) for i in range(3))
    assert torch.equal(references[2, 0], references[2, 1])
    assert torch.equal(references[2, 0], references[2, 2])
    assert not torch.equal(references[2, 0], own[0])


def test_heads_are_all_that_is_exchanged() -> None:
    # 3 peers, 2 rounds: one head up and one down; 4 features and 10 classes make 50 numbers of 4 bytes.
    played = play(small("fedsim", *MIXED, rounds=2))
    assert played.messages == {"head": 6, "global": 6}
    for record in played.rounds(0):
        assert 200 < record.bytes["global"] < 500  # names and shapes take the rest
