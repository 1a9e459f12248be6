"""FedAvg per architecture, and what builds on it: FedAvg-FT, FedPer, FedRep, FedBABU, Ditto and FedRoD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from methods_support import MIXED, SAMPLES, STILL, LinearNet, cross_entropy, gather, play, small
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.errors import ConfigError
from coterie.core.loss import Batch
from coterie.core.model import Model
from coterie.core.net import Output
from coterie.core.peer import Peer, held_by
from coterie.core.weights import Weights
from coterie.methods.components.heads import head_loss
from coterie.methods.fedavg import FedAvg, by_kind
from coterie.methods.fedrod import fedrod_loss

FULL_BATCH = ("train.batch=100", "train.momentum=0", "train.lr_decay=1.0")  # the order of the samples plays no role


def same_start(members: list[Peer]) -> list[Peer]:
    for me in members:
        me.model.vector.copy_(members[0].model.vector)
    return members


def weighted(vectors: list[Tensor]) -> Tensor:
    """By the peers' samples: 12, 9 and 6."""
    return sum((n * v for n, v in zip(SAMPLES, vectors, strict=True)), torch.zeros_like(vectors[0])) / 27


def alone(*words: str, rounds: int = 1) -> list[Peer]:
    """What the peers have after training by themselves."""
    e = small("local", *words, rounds=rounds)
    return play(e, same_start(gather(e))).participants


# -- several architectures ------------------------------------------------------------------------------


def test_each_architecture_is_averaged_apart() -> None:
    e = small("fedavg", *MIXED[:1], STILL, peers=4)
    members = gather(e)
    mlps, cnns = [me.model.vector.clone() for me in members[0:4:2]], [me.model.vector.clone() for me in members[1:4:2]]
    played = play(e, members)
    # The peers have 12, 9, 6 and 12 samples; the even ones are mlps.
    for i, expected in ((0, (12 * mlps[0] + 6 * mlps[1]) / 18), (1, (9 * cnns[0] + 12 * cnns[1]) / 21)):
        for j in (i, i + 2):
            torch.testing.assert_close(played.participants[j].model.vector, expected, atol=1e-6, rtol=1e-5)
    assert played.messages == {"update": 4, "global.mlp": 2, "global.cnn3": 2}


def test_what_is_not_of_the_kind_it_says_is_declined() -> None:
    *peers, server = gather(small("fedavg", *MIXED[:1], peers=2))

    def sent(by: int, **facts: str) -> Artifact:
        return Artifact.snapshot("update", by, 1, peers[by].model, facts)

    lies = {1: sent(1, kind="mlp"), 3: sent(0), 4: sent(0, kind="x")}
    updates = {0: sent(0, kind="mlp"), 2: sent(1, kind="cnn3"), **lies}
    groups = by_kind(server, updates)
    assert {kind: [u.author for u in group.values()] for kind, group in groups.items()} == {"mlp": [0], "cnn3": [1]}
    declined = server.notes["declined"]
    assert declined.keys() == lies.keys()
    assert "should" in declined[1]
    assert "'x' is an unknown architecture" in declined[4]


def test_of_a_part_only_the_part_fits() -> None:
    me, _, server = gather(small("fedper", peers=2))
    whole = Artifact.snapshot("update", 0, 1, me.model, {"kind": "mlp"})
    part = Artifact.snapshot("update", 0, 1, me.model.part("backbone"), {"kind": "mlp"})
    assert by_kind(server, {0: whole, 1: part}, ("backbone",)) == {"mlp": {1: part}}
    assert "'head.weight' should not be there" in server.notes["declined"][0]


# -- private heads --------------------------------------------------------------------------------------


def test_fedper_averages_the_representation_and_keeps_the_head() -> None:
    trained = alone()
    e = small("fedper")
    played = play(e, same_start(gather(e)))
    body = weighted([me.model.part("backbone").vector for me in trained])
    for me, by_itself in zip(played.participants, trained, strict=False):
        torch.testing.assert_close(me.model.part("backbone").vector, body, atol=1e-6, rtol=1e-5)
        assert torch.equal(me.model.part("head").vector, by_itself.model.part("head").vector)
    assert played.messages == {"update": 3, "global.mlp": 3}


def test_fedrep_fits_the_head_to_the_representation_that_came() -> None:
    """With one full batch and plain SGD: two steps of the head at the old representation, then one of the other."""
    words = (*FULL_BATCH, "method.head_epochs=2")
    e = small("fedrep", *words)
    start = same_start(gather(e))
    expected_heads, bodies = [], []
    for me in start[:3]:
        assert me.data is not None
        x, y, net = me.data.train.x, me.data.train.y, me.architecture.build()
        net.load_state_dict({name: tensor.clone() for name, tensor in me.model.items()})
        for part, steps in ((net.head, 2), (net.backbone, 1)):
            for _ in range(steps):
                net.zero_grad()
                torch.nn.functional.cross_entropy(net(x).logits, y).backward()  # type: ignore[no-untyped-call]
                with torch.no_grad():
                    for p in part.parameters():
                        p -= 0.1 * p.grad  # type: ignore[operator]
        expected_heads.append(net.head.weight.detach())
        bodies.append(torch.cat([p.detach().flatten() for p in net.backbone.parameters()]))
    played = play(e, start)
    for me, head in zip(played.participants, expected_heads, strict=False):
        torch.testing.assert_close(me.model["head.weight"], head, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(me.model.part("backbone").vector, weighted(bodies), atol=1e-5, rtol=1e-4)


def stepped(me: Peer, vector: Tensor, *steps: tuple[str, ...], lr: float = 0.1) -> Any:
    """A peer's net after plain gradient steps from these weights, each of some of its parts, by PyTorch alone."""
    assert me.data is not None
    net = me.architecture.build()
    net.load_state_dict({name: tensor.clone() for name, tensor in Model(me.architecture, vector).items()})
    for parts in steps:
        net.zero_grad()
        torch.nn.functional.cross_entropy(net(me.data.train.x).logits, me.data.train.y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for part in parts:
                for p in getattr(net, part).parameters():
                    p -= lr * p.grad
    return net


def body_of(net: Any) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.backbone.parameters()])


def test_fedper_may_fit_its_head_first() -> None:
    """Two steps of the head at the old representation, then one of both, as FedPer trains."""
    e = small("fedper", *FULL_BATCH, "method.head_epochs=2")
    start = same_start(gather(e))
    nets = [stepped(me, me.model.vector, ("head",), ("head",), ("head", "backbone")) for me in start[:3]]
    body = weighted([body_of(net) for net in nets])
    for me, net in zip(play(e, start).participants, nets, strict=False):
        torch.testing.assert_close(me.model["head.weight"], net.head.weight.detach(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(me.model.part("backbone").vector, body, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["fedper", "fedrep"])
def test_heads_may_be_fitted_to_the_average_when_it_has_come(name: str) -> None:
    """At the start two steps of the head; the round's training; then two steps of it under the averaged body."""
    e = small(name, *FULL_BATCH, "method.head_epochs=2", "method.fit_heads=after")
    start = same_start(gather(e))
    trained = ("backbone",) if name == "fedrep" else ("head", "backbone")
    nets = [stepped(me, me.model.vector, ("head",), ("head",), trained) for me in start[:3]]
    body = weighted([body_of(net) for net in nets])
    expected = []
    for me, net in zip(start, nets, strict=False):
        vector = torch.cat([p.detach().flatten() for p in (*net.backbone.parameters(), *net.head.parameters())])
        average = Model(me.architecture, vector.clone())
        average.load(Weights(average.part("backbone").layout, body))
        expected.append(stepped(me, average.vector, ("head",), ("head",)))
    for me, net in zip(play(e, start).participants, expected, strict=False):
        torch.testing.assert_close(me.model["head.weight"], net.head.weight.detach(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(me.model.part("backbone").vector, body, atol=1e-5, rtol=1e-4)


@dataclass(frozen=True)
class AsBefore(FedAvg):
    """FedPer and FedRep as they were before heads had a budget: to the bit what `head_epochs` of 0 and 10 must be."""

    shared: ClassVar[tuple[str, ...]] = ("backbone",)

    head_epochs: int = 0

    async def learn(self, me: Peer) -> None:
        if not self.head_epochs:
            await me.train()
            return
        [said] = await me.predict()
        await me.train(head_loss, on=(said.features, me.labels()), only="head", epochs=self.head_epochs)
        await me.train(only="backbone")


@pytest.mark.parametrize(("name", "epochs"), [("fedper", 0), ("fedrep", 10)])
def test_the_budget_of_heads_changes_nothing_by_default(name: str, epochs: int) -> None:
    e = small(name, "train.momentum=0.9", rounds=3)
    before = replace(e, method=AsBefore(head_epochs=epochs))
    for one, other in zip(play(e).participants[:3], play(before).participants, strict=False):
        assert torch.equal(one.model.vector, other.model.vector)


def test_the_budget_of_heads_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"method\.head_epochs must be at least 0, not -1"):
        play(small("fedper", "method.head_epochs=-1"))
    with pytest.raises(ConfigError, match=r"method\.fit_heads must be one of before, after, not 'later'"):
        play(small("fedrod", "method.fit_heads=later"))


@pytest.mark.parametrize("words", [(), ("method.tune_every=1",)])
def test_fedbabus_head_stays_as_it_began_until_the_end(words: tuple[str, ...]) -> None:
    e = small("fedbabu", *words, rounds=3)
    start = same_start(gather(e))
    head, body = start[0].model.part("head").vector, start[0].model.part("backbone").vector
    peers = play(e, start).participants[:3]
    for me in peers:
        before: Weights = me.state["untuned"]
        assert torch.equal(before.part("head").vector, head)
        assert torch.equal(before.vector, peers[0].state["untuned"].vector)
        assert not torch.equal(before.part("backbone").vector, body)
        for part in ("head", "backbone"):  # the tuned model is this peer's own
            assert not torch.equal(me.model.part(part).vector, before.part(part).vector)


def test_tuning_the_head_alone_leaves_the_representation() -> None:
    e = small("fedbabu", "method.tuned=head")
    for me in play(e).participants[:2]:
        before = me.state["untuned"]
        assert torch.equal(me.model.part("backbone").vector, before.part("backbone").vector)
        assert not torch.equal(me.model.part("head").vector, before.part("head").vector)


# -- personal models beside the common one --------------------------------------------------------------


@pytest.mark.parametrize("every", [0, 1, 2])
def test_tuning_does_not_change_what_fedavg_learns(every: int) -> None:
    tuned, fedavg = (
        play(small(*words, rounds=3)) for words in (("fedavg-ft", f"method.tune_every={every}"), ("fedavg",))
    )
    for one, other in zip(tuned.participants[:3], fedavg.participants, strict=False):
        assert torch.equal(one.state["untuned"].vector, other.model.vector)
        assert not torch.equal(one.model.vector, other.model.vector)


def test_the_tuned_model_is_the_common_one_trained_on() -> None:
    """One full batch: tuning for two epochs is what two rounds of training alone do."""
    e = small("fedavg-ft", *FULL_BATCH, "method.tune=2")
    [me, *_] = play(e, same_start(gather(e))).participants
    local = small("local", *FULL_BATCH, rounds=2)
    members = gather(local)
    members[0].model.load(me.state["untuned"])
    torch.testing.assert_close(me.model.vector, play(local, members).participants[0].model.vector)


def test_dittos_common_model_is_fedavgs() -> None:
    ditto, fedavg = (play(small(name, rounds=3)) for name in ("ditto", "fedavg"))
    for one, other in zip(ditto.participants[:3], fedavg.participants, strict=False):
        assert torch.equal(one.state["common"].vector, other.model.vector)
    assert ditto.messages == fedavg.messages


def test_dittos_personal_model_by_hand() -> None:
    """Full batches, plain SGD: v2 = v1 - lr (g(v1) + lam (v1 - w1)), w1 the common model after round 1; v1 is local."""
    lr, lam = 0.1, 0.7
    once, twice = ([me.model.vector for me in alone(*FULL_BATCH, rounds=r)] for r in (1, 2))
    common = weighted(once)
    e = small("ditto", *FULL_BATCH, f"method.lam={lam}", rounds=2)
    played = play(e, same_start(gather(e)))
    for me, v1, local in zip(played.participants, once, twice, strict=False):
        torch.testing.assert_close(me.model.vector, local - lr * lam * (v1 - common), atol=1e-5, rtol=1e-4)


def test_dittos_personal_model_may_have_epochs_of_its_own() -> None:
    """Full batches and no pull: two epochs in one round are two rounds of training alone."""
    e = small("ditto", *FULL_BATCH, "method.lam=0", "method.personal_epochs=2")
    for me, local in zip(play(e, same_start(gather(e))).participants, alone(*FULL_BATCH, rounds=2), strict=False):
        torch.testing.assert_close(me.model.vector, local.model.vector, atol=1e-6, rtol=1e-5)


# -- FedRoD ---------------------------------------------------------------------------------------------


class TwoHeads(LinearNet):
    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng, 3, 4, 3)
        self.v, self.c = rng.normal(size=(3, 4)), rng.normal(size=3)
        more = {"private.weight": torch.from_numpy(self.v), "private.bias": torch.from_numpy(self.c)}
        self.parameters = {key: t.requires_grad_() for key, t in {**self.parameters, **more}.items()}

    def __call__(self, x: Tensor) -> Output:
        out = super().__call__(x)
        own = out.features @ self.parameters["private.weight"].T + self.parameters["private.bias"]
        return Output(out.logits + own, out.features).plus(common=out.logits)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_fedrods_loss_is_its_formula(seed: int, samples: int) -> None:
    rng = np.random.default_rng(seed)
    net, x, y = TwoHeads(rng), rng.normal(size=(samples, 3)), rng.integers(2, size=samples)  # nobody has class 2
    counts = np.bincount(y, minlength=3)
    loss = fedrod_loss(net, Batch(torch.from_numpy(x), torch.from_numpy(y)), {"prior": torch.from_numpy(counts).log()})
    common, features = net.numpy(x)
    shares = [counts[k] * np.exp(row[k]) / (counts * np.exp(row)).sum() for row, k in zip(common, y, strict=True)]
    balanced = -np.mean(np.log(shares))
    own = features @ net.v.T + net.c
    assert float(loss.detach()) == pytest.approx(balanced + cross_entropy(common + own, y), rel=1e-5)


def test_only_the_private_head_learns_from_the_sum() -> None:
    rng = np.random.default_rng(0)
    net = TwoHeads(rng)
    x, y = torch.from_numpy(rng.normal(size=(5, 3))), torch.tensor([0, 1, 0, 1, 1])
    prior = torch.tensor([2.0, 3.0, 0.0], dtype=torch.float64).log()
    names = list(net.parameters)
    loss = fedrod_loss(net, Batch(x, y), {"prior": prior})
    gradients = dict(zip(names, torch.autograd.grad(loss, list(net.parameters.values())), strict=True))
    balanced = torch.nn.functional.cross_entropy(net(x).of("common") + prior, y)
    of_balanced = torch.autograd.grad(balanced, [net.parameters[n] for n in names[:3]])
    for name, gradient in zip(names[:3], of_balanced, strict=True):
        torch.testing.assert_close(gradients[name], gradient)
    assert gradients["head.weight"][2].abs().max() == 0  # a class that the peer does not have is left alone
    assert gradients["private.weight"].abs().min() > 0


def test_fedrod_may_fit_its_private_head_first() -> None:
    """The common part does not learn from the private head, so it is what it is without the fit. The private
    head: two steps on the sum of both heads with all else still, then one together with the others."""
    words = (*FULL_BATCH, "method.head_epochs=2")
    plain, e = small("fedrod", *FULL_BATCH), small("fedrod", *words)
    start = gather(e)
    nets = [stepped(me, me.model.vector, ("private",), ("private",), ("private",)) for me in start[:3]]
    for me, other, net in zip(play(e, start).participants, play(plain, gather(plain)).participants, nets, strict=False):
        if me.data is not None:
            common = [p.model.part("backbone", "head").vector for p in (me, other)]
            torch.testing.assert_close(*common, atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(me.model["private.weight"], net.private.weight.detach(), atol=1e-5, rtol=1e-4)
            assert not torch.equal(me.model["private.weight"], other.model["private.weight"])


def test_fedrods_prior_is_how_many_samples_a_peer_has_of_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    priors: list[tuple[list[int], Tensor]] = []
    train = Peer.train

    def watched(me: Peer, loss: Any, *, given: dict[str, Tensor]) -> Any:
        priors.append((me.labels().tolist(), given["prior"]))
        return train(me, loss, given=given)

    monkeypatch.setattr(Peer, "train", watched)
    play(small("fedrod"))
    assert len(priors) == 3
    for labels, prior in priors:
        assert prior.exp().round().tolist() == [labels.count(k) for k in range(10)]


def test_fedrod_shares_all_but_the_private_head_and_predicts_with_both() -> None:
    e = small("fedrod", rounds=2)
    played = play(e)
    peers = played.participants[:3]
    for me in peers:
        assert torch.equal(me.model.part("backbone", "head").vector, peers[0].model.part("backbone", "head").vector)
        net = me.architecture.build()
        net.load_state_dict(dict(me.model.items()))
        net.eval()
        data = held_by(me)
        assert data is not None
        x = data.test.x
        z = net.backbone(x)
        assert net.private is not None
        torch.testing.assert_close(net(x).logits, net.head(z) + net.private(z))
    assert not torch.equal(peers[0].model["private.weight"], peers[1].model["private.weight"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fedrep", "method.head_epochs=0"), "method.head_epochs must be at least 1"),
        (("fedavg-ft", "method.tune=0"), "method.tune must be at least 1"),
        (("fedbabu", "method.tuned=body"), "method.tuned must be one of model, head, not 'body'"),
        (("fedbabu", "method.tune_every=-1"), "method.tune_every must be at least 0"),
        (("ditto", "method.lam=-1"), "method.lam must be at least 0"),
        (("ditto", "method.personal_epochs=-1"), "method.personal_epochs must be at least 0"),
        (("fedper", "method.fraction=0"), "method.fraction must be above 0"),
    ],
)
def test_wrong_parameters(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        small(*words)
