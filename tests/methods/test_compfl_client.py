"""What a CompFL client hands to its trainings, and offers as its mixture: worked out anew from the models it has."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from methods_support import STILL, Played, gather, play, small
from torch import Tensor

from coterie import wiring
from coterie.core.loss import cross_entropy
from coterie.core.peer import Peer, held_by
from coterie.methods.components import distillation
from coterie.methods.components.expert_walks import reach
from coterie.methods.components.experts import can_train, expert
from coterie.methods.components.heads import head_loss

ZOO = "model.zoo=cnn3,mlp"  # the even peers are the strong ones
TAUGHT = (distillation.taught_loss, distillation.taught_as_printed_loss)


@dataclass
class Call:
    """Of `me.train` on all of a model: what it was given, and what the client's models then said."""

    peer: int
    round: int
    kind: str
    loss: Any
    given: dict[str, Tensor]
    targets: Tensor | None
    samples: Tensor  # their labels
    said: dict[str, Tensor]  # of the training samples, by expert: probabilities
    features: Tensor  # of the model that is trained
    correct: dict[str, float]  # share of the validation samples, by expert

    @property
    def lam(self) -> float:
        return float(self.given.get("lam", 0.0))


def outputs(me: Peer, kind: str, split: str) -> tuple[Tensor, Tensor, Tensor]:
    """Logits and features of one of its experts, by PyTorch alone; and the labels."""
    net, data = me.kinds.network(kind).build(), getattr(held_by(me), split)
    net.load_state_dict({name: tensor.clone() for name, tensor in expert(me, kind).items()})
    net.eval()
    with torch.no_grad():
        out = net(data.x)
    return out.logits, out.features, data.y


def share_correct(logits: Tensor, labels: Tensor) -> float:
    return float((logits.argmax(1) == labels).double().mean())


def by_hand(accuracies: list[float], tau: float) -> list[float]:
    least, most = min(accuracies), max(accuracies)
    powers = [float(np.exp((a - least) / (most - least or 1) / tau)) for a in accuracies]
    return [power / sum(powers) for power in powers]


def play_and_watch(monkeypatch: pytest.MonkeyPatch, *words: str, **sizes: int) -> tuple[Played, list[Call]]:
    calls: list[Call] = []
    train = Peer.train

    def watched(me: Peer, loss: Any = cross_entropy, **how: Any) -> Any:
        if loss is not head_loss:
            calls.append(_call(me, (how.get("model") or me.model).architecture.name, loss, how))
        return train(me, loss, **how)

    monkeypatch.setattr(Peer, "train", watched)
    return play(small("compfl", *words, **sizes)), calls


def _call(me: Peer, kind: str, loss: Any, how: dict[str, Any]) -> Call:
    said = {k: outputs(me, k, "train")[0].softmax(1) for k in can_train(me)}
    valid = {k: outputs(me, k, "validation") for k in can_train(me)}
    correct = {k: share_correct(logits, y) for k, (logits, _, y) in valid.items()}
    _, features, labels = outputs(me, kind, "train")
    return Call(
        me.id, me.round, kind, loss, how.get("given") or {}, how.get("targets"), labels, said, features, correct
    )  # fmt: skip


# -- with a server -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kl", ["usual", "printed"])
def test_a_round_of_a_client(monkeypatch: pytest.MonkeyPatch, kl: str) -> None:
    """First cross entropy alone; from round 2 on anchors; after the warm-up, of two rounds, teachers."""
    words = (ZOO, "method.epsilon=0.5", "method.lam=3", "method.mu=0.7", "method.warmup=2", f"method.kl={kl}")
    _, calls = play_and_watch(monkeypatch, *words, "method.teachers=held", "method.tau=0.5", rounds=5, peers=4)
    assert len(calls) == 20
    for call in calls:
        loss = (
            cross_entropy
            if call.round == 1
            else distillation.aligned_loss
            if call.round == 2
            else TAUGHT[kl == "printed"]
        )
        assert call.loss is loss
        if call.round > 1:
            _anchored(call)
        if call.round > 2:
            _taught(call, list(call.said), tau=0.5)
            assert float(call.given["mu"]) == pytest.approx(0.7)
    assert {call.kind for call in calls if call.peer % 2 == 0} == {"mlp", "cnn3"}
    assert any(len(set(call.correct.values())) == 2 for call in calls if call.round > 2), "their weights never differ"


def _anchored(call: Call) -> None:
    """By the means of its classes under the representation as it came; of the sum over features, the mean."""
    assert call.lam == pytest.approx(3 / call.features.shape[1])
    for k in call.samples.unique().tolist():
        mean = call.features[call.samples == k].mean(0)
        torch.testing.assert_close(call.given["anchors"][k], mean, atol=1e-5, rtol=1e-4)


def _taught(call: Call, by: list[str], tau: float) -> None:
    weights = by_hand([call.correct[k] for k in by], tau)
    mixed = sum(w * call.said[k] for w, k in zip(weights, by, strict=True))
    assert call.targets is not None
    torch.testing.assert_close(call.targets, 0.5 * F.one_hot(call.samples, 10) + 0.5 * mixed, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("off", "loss"),
    [
        (("method.lam=0", "method.mu=0"), cross_entropy),
        (("method.mu=0",), distillation.aligned_loss),
        (("method.lam=0",), distillation.taught_loss),
    ],
)
def test_each_part_can_be_left_out(monkeypatch: pytest.MonkeyPatch, off: tuple[str, ...], loss: Any) -> None:
    _, calls = play_and_watch(monkeypatch, ZOO, "method.warmup=0", "method.epsilon=0", *off, rounds=2, peers=2)
    [strong] = [call for call in calls if call.round == 2 and call.peer == 0]
    assert strong.kind == "cnn3"
    assert strong.loss is loss
    assert bool(strong.lam) == ("method.lam=0" not in off)


def test_an_experts_average_is_weighted_by_data() -> None:
    """Peers that stay as they are, with 12, 9 and 6 samples."""
    e = small("compfl", STILL)
    members = gather(e)
    a, b, c = (me.model.part("backbone").vector.clone() for me in members[:3])
    for me in play(e, members).participants[:3]:
        expected = (12 * a + 9 * b + 6 * c) / 27
        torch.testing.assert_close(me.model.part("backbone").vector, expected, atol=1e-6, rtol=1e-5)


def test_the_epoch_of_a_head_has_a_step_that_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1, or one over the mean squared length of the features where that is less."""
    steps: list[tuple[float, float]] = []
    train = Peer.train

    def watched(me: Peer, loss: Any = cross_entropy, **how: Any) -> Any:
        if loss is head_loss:
            steps.append((how["lr"], 1 / float((how["on"][0] ** 2).sum(1).mean())))
        return train(me, loss, **how)

    monkeypatch.setattr(Peer, "train", watched)
    e = small("compfl", STILL, "method.adapt_epochs=1")
    play(e, gather(e))
    for lr, most in steps:
        assert lr == pytest.approx(min(0.1, most))
    assert any(most < 0.1 for _, most in steps)


def test_the_mixture_is_weighted_by_validation_accuracy() -> None:
    e = small("compfl", ZOO, "method.tau=0.5", "data.validation=20", "data.test=40", rounds=3, peers=4)
    played = play(e)
    for i in (0, 2):
        me, last = played.participants[i], played.rounds(i)[-1]
        accuracies = [share_correct(*outputs(me, kind, "validation")[::2]) for kind in ("mlp", "cnn3")]
        weights = by_hand(accuracies, 0.5)
        assert last.notes["experts"] == pytest.approx(dict(zip(("mlp", "cnn3"), weights, strict=True)))
        assert weights[0] != weights[1]
        said = [outputs(me, kind, "test") for kind in ("mlp", "cnn3")]
        mixed = weights[0] * said[0][0].softmax(1) + weights[1] * said[1][0].softmax(1)
        assert last.notes["beside"]["mixture"]["test"] == pytest.approx(share_correct(mixed, said[0][2]))


# -- without one -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "helps"), [(0, False), (1, True)])
def test_on_a_walk_a_strong_client_helps_with_probability_epsilon(epsilon: int, helps: bool) -> None:
    words = (ZOO, "method.setting=device-by-device", f"method.epsilon={epsilon}")
    played = play(small("compfl", *words, rounds=20, peers=4))
    rounds = [r for i in (0, 2) for r in played.rounds(i) if "hop.mlp" in r.notes and "hop.cnn3" not in r.notes]
    assert rounds
    assert all((r.notes.get("trained") == "mlp") == helps for r in rounds)


def test_on_a_walk_those_teach_that_have_been_there(monkeypatch: pytest.MonkeyPatch) -> None:
    words = (ZOO, "method.setting=device-by-device", "method.warmup=0", "method.epsilon=1")
    played, calls = play_and_watch(monkeypatch, *words, rounds=20, peers=4)
    came: dict[tuple[int, str], int] = defaultdict(lambda: 99)
    hops = {}
    for i in range(4):
        for r in reversed(played.rounds(i)):
            for kind in ("mlp", "cnn3"):
                if f"hop.{kind}" in r.notes:
                    came[i, kind], hops[i, r.round, kind] = r.round, r.notes[f"hop.{kind}"]
    for call in calls:
        other = {"mlp": "cnn3", "cnn3": "mlp"}[call.kind]
        before = came[call.peer, other] < call.round or (other == "mlp" and came[call.peer, other] == call.round)
        assert (call.targets is not None) == (before and call.peer % 2 == 0)
        assert bool(call.lam) == (hops[call.peer, call.round, call.kind] > 1)
    assert {call.targets is None for call in calls if call.peer % 2 == 0} == {True, False}


def test_how_long_news_may_take() -> None:
    """One round where all are linked; else, should those on the short way be gone, as many as there are others."""
    for graph, rounds in (("complete", 1), ("ring", 5)):
        e = small("compfl", f"graph.kind={graph}", "method.setting=device-by-device", peers=6)
        assert {reach(me) for me in wiring.gather(e).participants} == {rounds}


def test_nobody_misses_an_expert_that_is_only_far_away() -> None:
    """On a line of eleven, news takes up to ten rounds."""
    e = small("compfl", "method.setting=device-by-device", "graph.kind=grid", STILL, rounds=60, peers=11)
    played = play(e)
    notes = [r.notes for i in range(11) for r in played.rounds(i)]
    assert not any("found.mlp" in note for note in notes)
    assert sorted(note["hop.mlp"] for note in notes if "hop.mlp" in note) == list(range(1, 61))


def test_model_by_model_the_finished_teach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds each: cnn3 with nobody to teach it; then mlp, which the strong teach what cnn3 says."""
    words = (ZOO, "method.setting=model-by-model", "method.warmup=0", "method.lam=3")
    _, calls = play_and_watch(monkeypatch, *words, rounds=4, peers=4)
    assert len(calls) == 2 * 2 + 4 * 2
    for call in calls:
        assert call.kind == ("cnn3" if call.round <= 2 else "mlp")
        if call.kind == "mlp" and call.peer % 2 == 0:
            _taught(call, ["cnn3"], tau=0.1)
        else:
            assert call.targets is None
        if call.round in (2, 4):
            _anchored(call)
        else:
            assert call.lam == 0
