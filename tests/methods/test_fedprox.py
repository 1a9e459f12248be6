"""FedProx against FedAvg and a hand-derived step."""

from __future__ import annotations

import torch
from methods_support import gather, play, small


def test_without_a_pull_it_is_fedavg() -> None:
    one, other = (play(e, gather(e)) for e in (small("fedprox", "method.mu=0", rounds=2), small("fedavg", rounds=2)))
    for a, b in zip(one.participants, other.participants, strict=True):
        torch.testing.assert_close(a.model.vector, b.model.vector)


def test_the_first_step_feels_no_pull_and_the_second_is_shorter_by_it() -> None:
    """Two steps on one full batch, plain SGD: w2 = w1 - lr (g(w1) + mu (w1 - w0)); the pull of the first step is 0."""
    lr, mu = 0.1, 0.5
    words = ("train.momentum=0", "train.batch=100", f"train.lr={lr}")

    def after(method: str, epochs: int, *more: str) -> torch.Tensor:
        """What the server has when only one of two takes part: that one's model. (The same one: the seed draws it.)"""
        e = small(method, *words, f"train.epochs={epochs}", "method.fraction=0.5", *more, peers=2)
        members = gather(e)
        for me in members:
            me.model.vector.copy_(start)
        common: torch.Tensor = play(e, members).participants[2].state["averages"]["mlp"].vector
        return common

    start = gather(small("fedavg", peers=2))[0].model.vector.clone()
    first = after("fedavg", 1)
    second = after("fedavg", 2)
    torch.testing.assert_close(after("fedprox", 1, f"method.mu={mu}"), first)
    expected = second - lr * mu * (first - start)
    torch.testing.assert_close(after("fedprox", 2, f"method.mu={mu}"), expected, atol=1e-6, rtol=1e-5)


def test_it_stays_nearer_to_where_it_came_from() -> None:
    moved = {}
    for mu in (0.0, 5.0):
        e = small("fedprox", f"method.mu={mu}", "train.epochs=5")
        start = [p.model.vector.clone() for p in gather(e)]
        played = play(e, gather(e))
        moved[mu] = sum(float((a.model.vector - b).norm()) for a, b in zip(played.participants, start, strict=True))
    assert moved[5.0] < moved[0.0]
