"""CompFL: its losses and rules against formulas and hand-derived values; its three settings in small runs."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise, product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from methods_support import LinearNet, cross_entropy, gather, play, small

from coterie import wiring
from coterie.core.errors import CoterieError
from coterie.core.loss import Batch
from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.core.weights import Weights
from coterie.methods.compfl import CompFL
from coterie.methods.components import distillation, experts, heads
from coterie.methods.components.expert_walks import walk_of
from coterie.methods.components.experts import SETTINGS, all_experts, can_train, expert, trainings
from coterie.methods.components.prototypes import class_means
from coterie.reproducing import papers

ZOO = "model.zoo=cnn3,mlp"  # the even peers are the strong ones
PLAIN = ("method.epsilon=0", "method.lam=0", "method.mu=0", "method.adapt_epochs=0")


# -- formulas ------------------------------------------------------------------------------------------


def softmax(rows: np.ndarray) -> np.ndarray:
    e = np.exp(rows)
    return np.asarray(e / e.sum(1, keepdims=True))


def divergence(of: np.ndarray, from_: np.ndarray) -> float:
    rows = zip(of, from_, strict=True)
    return float(np.mean([sum(p * np.log(p / q) for p, q in zip(one, other, strict=True)) for one, other in rows]))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(0, 2), st.floats(0, 2))
def test_the_losses_are_their_formulas(seed: int, samples: int, lam: float, mu: float) -> None:
    rng = np.random.default_rng(seed)
    net, x, y = LinearNet(rng, 3, 4, 3), rng.normal(size=(samples, 3)), rng.integers(3, size=samples)
    anchors, targets = rng.normal(size=(3, 4)), softmax(rng.normal(size=(samples, 3)))
    batch = Batch(torch.from_numpy(x), torch.from_numpy(y), None, torch.from_numpy(targets))
    given_ = {"anchors": torch.from_numpy(anchors), "lam": torch.tensor(lam), "mu": torch.tensor(mu)}
    logits, features = net.numpy(x)
    said = softmax(logits)
    apart = [((z - anchors[k]) ** 2).sum() for z, k in zip(features, y, strict=True)]
    aligned = cross_entropy(logits, y) + lam * np.mean(apart)
    printed, usual = divergence(said, targets), divergence(targets, said)
    assert float(distillation.aligned_loss(net, batch, given_)) == pytest.approx(aligned, rel=1e-5)
    assert float(distillation.taught_as_printed_loss(net, batch, given_)) == pytest.approx(
        aligned + mu * printed, rel=1e-5
    )
    assert float(distillation.taught_loss(net, batch, given_)) == pytest.approx(aligned + mu * usual, rel=1e-5)


def test_a_target_of_zero_does_not_make_the_loss_infinite() -> None:
    net = LinearNet(np.random.default_rng(0), 3, 4, 3)
    batch = Batch(torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0]), None, torch.tensor([[1.0, 0.0, 0.0]]))
    for loss in (distillation.taught_loss, distillation.taught_as_printed_loss):
        given_ = {"anchors": torch.zeros(3, 4), "lam": torch.tensor(0.0), "mu": torch.tensor(1.0)}
        assert torch.isfinite(loss(net, batch, given_))


def test_the_experts_weights() -> None:
    # Stretched to 0, 0.5 and 1; over 0.5: e^0, e^1, e^2.
    e = np.e
    expected = np.array([1, e, e**2]) / (1 + e + e**2)
    np.testing.assert_allclose(distillation.expert_weights([0.2, 0.4, 0.6], 0.5), expected)
    assert distillation.expert_weights([0.3, 0.3], 0.1) == [0.5, 0.5]
    assert distillation.expert_weights([0.7], 0.1) == [1.0]
    assert distillation.expert_weights([0.0, 1.0], 1e-3) == pytest.approx([0.0, 1.0])


def test_half_the_truth_half_the_teachers() -> None:
    said = [torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([[0.1, 0.9], [0.2, 0.8]])]
    found = distillation.soft_targets(torch.tensor([0, 1]), said, [0.25, 0.75])
    # 0.5 (1, 0) + 0.5 (0.2, 0.8); 0.5 (0, 1) + 0.5 (0.4, 0.6)
    torch.testing.assert_close(found, torch.tensor([[0.6, 0.4], [0.2, 0.8]]))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(2, 6), st.floats(-3, 3))
def test_a_stable_step_never_raises_a_heads_loss(seed: int, samples: int, classes: int, scale: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(samples, 5, generator=rng, dtype=torch.float64) * 10**scale + 10**scale
    labels = torch.randint(classes, (samples,), generator=rng)
    head = torch.randn(classes, 5, generator=rng, dtype=torch.float64)
    losses = []
    for _ in range(20):
        logits = features @ head.T
        losses.append(F.cross_entropy(logits, labels).item())  # not of probabilities, which may underflow to zero
        slope = (logits.softmax(1) - torch.nn.functional.one_hot(labels, classes)).T @ features / samples
        head -= heads.stable_step(features) * slope
    assert all(later <= earlier * (1 + 1e-9) + 1e-12 for earlier, later in pairwise(losses))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_how_often_which_expert_is_picked(epsilon: float) -> None:
    """Each of three with probability epsilon / 3, and one's own, the last, in the rest: within four deviations."""
    rng, tries = np.random.default_rng(0), 6000
    found = Counter(experts.pick(["small", "base", "large"], epsilon, rng) for _ in range(tries))
    for kind, share in (("small", epsilon / 3), ("base", epsilon / 3), ("large", 1 - 2 * epsilon / 3)):
        deviation = np.sqrt(tries * share * (1 - share))
        assert abs(found[kind] - tries * share) <= 4 * deviation
    assert experts.pick(["only"], epsilon, rng) == "only"


# -- a client ------------------------------------------------------------------------------------------


def strong_and_weak(*words: str, rounds: int = 1, peers: int = 4) -> list[Peer]:
    return play(small("compfl", ZOO, *words, rounds=rounds, peers=peers)).participants


def test_experts_are_in_the_order_of_their_sizes() -> None:
    strong, weak, *_ = wiring.gather(small("compfl", ZOO, "model.hidden=[4]", peers=2)).participants
    assert (strong.kind, weak.kind) == ("cnn3", "mlp")
    assert all_experts(strong) == all_experts(weak) == ["mlp", "cnn3"]
    assert can_train(strong) == ["mlp", "cnn3"]
    assert can_train(weak) == ["mlp"]


@pytest.mark.parametrize("words", [(), ("train.keep_optimizer=true",), ("method.fraction=0.5",)])
def test_without_its_own_ideas_it_is_fedper(words: tuple[str, ...]) -> None:
    """Number for number."""
    compfl = play(small("compfl", *PLAIN, *words, rounds=4))
    fedper = play(small("fedper", *words, rounds=4))
    for one, other in zip(compfl.participants, fedper.participants, strict=True):
        assert torch.equal(one.model.vector, other.model.vector)
    assert compfl.messages == fedper.messages


def by_class(classes: int, common: float = 5.0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Features of four classes, with much in common, and the means of as many classes as there are."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 4
    features = common + torch.randn(60, 3, generator=rng) + 2 * torch.randn(4, 3, generator=rng)[labels]
    return features, class_means(features, labels, classes)


def test_a_head_tells_the_nearest_mean() -> None:
    features, found = by_class(4)
    head = heads.head_from(**found)
    said = features @ head["head.weight"].T + head["head.bias"]
    centre = found["means"].mean(0)
    r = float(np.sqrt(np.mean([float((m - centre).square().sum()) for m in found["means"]])))
    for f, row in zip(features, said, strict=True):
        to = [float((f - m).square().sum()) for m in found["means"]]
        expected = [(float((f - centre).square().sum()) - one) / (2 * r) for one in to]
        torch.testing.assert_close(row, torch.tensor(expected), rtol=1e-3, atol=1e-3)
        assert int(row.argmax()) == to.index(min(to))


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_a_heads_weights_are_of_one_length_whatever_that_of_the_features(scale: float) -> None:
    _, found = by_class(4)
    head = heads.head_from(scale * found["means"], found["counts"])
    torch.testing.assert_close(head["head.weight"], heads.head_from(**found)["head.weight"], rtol=1e-3, atol=1e-4)
    assert head["head.weight"].square().sum(1).mean().item() == pytest.approx(1)


@pytest.mark.parametrize("common", [0.0, 5.0])
def test_a_head_never_says_a_class_without_samples(common: float) -> None:
    _, found = by_class(6, common)
    head = heads.head_from(**found)
    everywhere = 10 * torch.randn(2000, 3, generator=torch.Generator().manual_seed(1))
    said = everywhere @ head["head.weight"].T + head["head.bias"]
    assert set(said.argmax(1).tolist()) == {0, 1, 2, 3}


def test_a_head_of_a_single_class_is_finite() -> None:
    head = heads.head_from(torch.eye(3), torch.tensor([0, 7, 0]))
    assert all(part.isfinite().all() for part in head.values())


def test_heads_follow_the_means_of_the_classes() -> None:
    e = small("compfl", *PLAIN[:3], "method.reinit=true")
    for me in play(e).participants[:3]:
        assert me.data is not None
        net = me.architecture.build()
        net.load_state_dict(dict(me.model.items()))
        net.eval()
        with torch.no_grad():
            features, labels = net(me.data.train.x).features, me.data.train.y
        for k, anchor in enumerate(me.state["anchors"]["mlp"]):
            of_class = features[labels == k]
            expected = of_class.mean(0) if len(of_class) else torch.zeros_like(anchor)
            torch.testing.assert_close(anchor, expected, atol=1e-6, rtol=1e-5)
        head = heads.head_from(**class_means(features, labels, 10))
        torch.testing.assert_close(me.model["head.weight"], head["head.weight"], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(me.model["head.bias"], head["head.bias"], atol=1e-4, rtol=1e-4)


def test_ones_own_head_is_kept_and_those_of_smaller_experts_are_made_anew() -> None:
    e = small("compfl", ZOO, *PLAIN, "train.epochs=0", peers=4)
    participants = gather(e)
    own = participants[0].model.part("head").copy()
    me = play(e, participants).participants[0]
    assert torch.equal(me.model.part("head").vector, own.vector)
    made = heads.head_from(me.state["anchors"]["mlp"], torch.bincount(me.labels(), minlength=10))
    torch.testing.assert_close(expert(me, "mlp")["head.weight"], made["head.weight"])


def test_the_head_epoch_trains_the_head_alone() -> None:
    words = ("method.epsilon=0", "method.lam=0", "method.mu=0", "train.epochs=0")
    without, with_one = (strong_and_weak(*words, f"method.adapt_epochs={n}") for n in (0, 2))
    for one, other in zip(without[:4], with_one, strict=False):
        assert torch.equal(one.model.part("backbone").vector, other.model.part("backbone").vector)
        assert not torch.equal(one.model.part("head").vector, other.model.part("head").vector)


def test_everybody_gets_the_average_of_each_expert_that_it_can_train() -> None:
    """With epsilon = 1 strong clients train either, weak ones only theirs."""
    e = small("compfl", ZOO, "method.epsilon=1", *PLAIN[1:], peers=4, rounds=3)
    played = play(e)
    *clients, server = played.participants
    trained = {i: {r.notes["trained"] for r in played.rounds(i)} for i in range(4)}
    assert trained[0] | trained[2] == {"mlp", "cnn3"}
    assert trained[1] == trained[3] == {"mlp"}
    for me in clients:
        for kind in can_train(me):
            assert torch.equal(expert(me, kind).part("backbone").vector, server.state["averages"][kind].vector)
    assert played.messages["update"] == 12
    assert played.messages["global.mlp"] == 12
    assert played.messages["global.cnn3"] <= 6  # only once somebody has trained it


def test_what_teaches_whom() -> None:
    """A strong client's model is taught by the smaller one, and the smaller by its own; a weak client has nobody."""
    strong, weak, *_ = wiring.gather(small("compfl", ZOO, peers=2)).participants
    method: Any = small("compfl", ZOO, peers=2).method
    for me in (strong, weak):
        me.state |= {"said": {k: torch.full((me.samples, 10), 0.1 * (1 + i)) for i, k in enumerate(can_train(me))}}
        me.state["accuracy"] = dict.fromkeys(can_train(me), 0.5)
    half = 0.5 * torch.nn.functional.one_hot(strong.labels(), 10)
    torch.testing.assert_close(method.targets(strong, "cnn3", can_train(strong)), half + 0.5 * 0.1)
    torch.testing.assert_close(method.targets(strong, "mlp", can_train(strong)), half + 0.5 * 0.2)
    assert method.targets(weak, "mlp", can_train(weak)) is None
    assert method.targets(strong, "cnn3", []) is None  # nobody has learned enough yet
    held: Any = small("compfl", ZOO, "method.teachers=held", peers=2).method
    torch.testing.assert_close(held.targets(strong, "cnn3", can_train(strong)), half + 0.5 * 0.15)
    own = 0.5 * torch.nn.functional.one_hot(weak.labels(), 10) + 0.5 * 0.1
    torch.testing.assert_close(held.targets(weak, "mlp", can_train(weak)), own)


def test_the_mean_over_features_is_a_smaller_weight() -> None:
    """Of an mlp with four features: a quarter."""
    mean, sum_ = ("method.per_feature=true", "method.lam=2"), ("method.per_feature=false", "method.lam=0.5")
    one, other = (play(small("compfl", "method.epsilon=0", "method.mu=0", *w, rounds=3)) for w in (mean, sum_))
    for a, b in zip(one.participants, other.participants, strict=True):
        assert torch.equal(a.model.vector, b.model.vector)


def test_the_mixture_is_measured_beside() -> None:
    e = small("compfl", ZOO, rounds=2, peers=4)
    played = play(e)
    for i in range(4):
        last = played.rounds(i)[-1]
        weights = last.notes["experts"]
        assert sum(weights.values()) == pytest.approx(1)
        assert list(weights) == can_train(played.participants[i])
        assert set(last.notes["beside"]) == {"mixture"}
    weak = played.rounds(1)[-1]
    assert weak.notes["beside"]["mixture"]["test"] == weak.test  # of one expert


def test_the_mixture_may_be_what_a_client_predicts_with() -> None:
    """What is measured then is the weighted mean of its experts' probabilities, worked out here by PyTorch alone."""
    e = small("compfl", ZOO, "method.predict=mixture", rounds=2, peers=4)
    played, beside = play(e), play(small("compfl", ZOO, rounds=2, peers=4))
    differ = False
    for me in played.participants[:4]:
        last, other = played.rounds(me.id)[-1], beside.rounds(me.id)[-1]
        assert (last.test, last.validation) == tuple(
            other.notes["beside"]["mixture"][s] for s in ("test", "validation")
        )
        assert last.notes["beside"] == {"own": {"validation": other.validation, "test": other.test}}
        assert me.data is not None
        assert me.ensemble is not None
        assert me.ensemble.weights == tuple(last.notes["experts"].values())
        said = torch.zeros(len(me.data.validation), 10)
        for kind, weight in last.notes["experts"].items():
            net = me.kinds.network(kind).build()
            net.load_state_dict({name: tensor.clone() for name, tensor in expert(me, kind).items()})
            said += weight * net.eval()(me.data.validation.x).logits.detach().softmax(1)
        correct = (said.argmax(1) == me.data.validation.y).double().mean()
        assert last.validation == pytest.approx(float(correct))
        differ |= len(me.ensemble.members) == 2
    assert differ


def test_the_mixture_is_there_again_after_a_restart() -> None:
    e = small("compfl", ZOO, "method.predict=mixture", rounds=2, peers=4)
    for me in play(e).participants[:4]:
        before = me.ensemble
        assert before is not None
        me.ensemble = None
        e.method.revive(me)
        assert me.ensemble is not None
        assert me.ensemble.weights == before.weights
        for one, other in zip(me.ensemble.members, before.members, strict=True):
            assert one.name == other.name
            assert isinstance(one.model, Model)
            assert isinstance(other.model, Model)
            assert torch.equal(one.model.vector, other.model.vector)


def test_alignment_over_cross_entropy_is_noted_of_each_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a training begins: lam times the mean over features of the squared distance from the class's mean, over
    the cross entropy of the head as it then is."""
    noted: dict[tuple[int, str], float] = {}
    adapt = CompFL.adapt

    async def watched(self: CompFL, me: Peer, kinds: Any) -> None:
        await adapt(self, me, kinds)
        for kind in kinds:
            assert me.data is not None
            net = me.kinds.network(kind).build()
            net.load_state_dict({name: tensor.clone() for name, tensor in expert(me, kind).items()})
            out, y = net.eval()(me.data.train.x), me.data.train.y
            means = torch.stack([out.features[y == k].mean(0) for k in y.tolist()])
            ratio = 3 * (out.features - means).square().mean() / F.cross_entropy(out.logits, y)
            noted[me.id, kind] = float(ratio.detach())

    monkeypatch.setattr(CompFL, "adapt", watched)
    played = play(small("compfl", ZOO, "method.lam=3", "method.adapt_epochs=1", rounds=2, peers=4))
    for i in range(4):
        told = {k.removeprefix("lf_over_ce."): v for k, v in played.rounds(i)[-1].notes.items() if "lf_over" in k}
        assert set(told) == set(can_train(played.participants[i]))
        for kind, value in told.items():
            assert value == pytest.approx(noted[i, kind], rel=1e-4)
    none = play(small("compfl", ZOO, "method.lam=0", rounds=1, peers=4))
    assert not any(name.startswith("lf_over_ce") for name in none.rounds(0)[-1].notes)


def test_alignment_may_be_free_of_scale() -> None:
    """Features and anchors ten times as long: a hundred times the squared distance, and a hundredth of the strength.
    By hand, anchors (3, 4) and (0, 1), and no third class: a mean squared length of (25 + 1) / 2 = 13."""
    method: Any = small("compfl", ZOO, "method.scale_free=true", "method.lam=2", peers=4).method
    anchors = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])
    assert method.strength(anchors, 2.0) == pytest.approx(2 / 13)
    assert method.strength(10 * anchors, 2.0) == pytest.approx(2 / 1300)
    features, labels = torch.tensor([[3.0, 5.0], [2.0, 1.0]]), torch.tensor([0, 1])
    assert heads.distance(features, labels, anchors) == pytest.approx((1 + 4) / 2)
    for scale in (1.0, 10.0):
        loss = method.strength(scale * anchors, 2.0) * heads.distance(scale * features, labels, scale * anchors)
        assert loss == pytest.approx(2 / 13 * 2.5)


def test_held_teachers_weigh_by_their_accuracy() -> None:
    """Own expert 0.8 right, the smaller 0.4: stretched to 1 and 0, over tau = 0.5, weights e^2 / (1 + e^2) and the
    rest. The own expert says 0.2 of each class, the smaller one 0.1."""
    e = small("compfl", ZOO, "method.teachers=held", "method.tau=0.5", peers=2)
    method: Any = e.method
    strong = wiring.gather(e).participants[0]
    small_one, own = can_train(strong)
    strong.state["said"] = {
        small_one: torch.full((strong.samples, 10), 0.1),
        own: torch.full((strong.samples, 10), 0.2),
    }
    strong.state["accuracy"] = {small_one: 0.4, own: 0.8}
    share = math.exp(2) / (1 + math.exp(2))
    expected = 0.5 * F.one_hot(strong.labels(), 10) + 0.5 * (share * 0.2 + (1 - share) * 0.1)
    for kind in (small_one, own):  # whichever of them learns
        torch.testing.assert_close(method.targets(strong, kind, can_train(strong)), expected)


def test_how_often_experts_are_trained_in_a_round() -> None:
    """Five clients own the small expert, five the large one; epsilon 0.3. With a server the strong train the small one
    in 0.3 / 2 of their rounds: 5 + 0.75 and 4.25. A walker is with each client as likely: 0.5 + 0.3 * 0.5 and 0.5.
    Model by model each has half of the rounds: 10 / 2 and 5 / 2."""
    server, walk, gossip = (trainings(setting, (5, 5), 0.3) for setting in SETTINGS)
    assert server == pytest.approx([5.75, 4.25])
    assert walk == pytest.approx([0.65, 0.5])
    assert gossip == pytest.approx([5, 2.5])


@pytest.mark.parametrize("small_form", [True, False])
def test_the_rows_of_figure_7_have_equal_work(small_form: bool) -> None:
    """Trainings in the whole run, in the mean: those of the server's row, to a hundredth."""
    table, [column] = papers.find("compfl-figure7/classes10")
    jobs = table.jobs(column, small_form, [0], [], Path("x"))
    work = {}
    for job in jobs:
        e, method = job.experiment, cast("CompFL", job.experiment.method)
        owners = [e.peers // 2, e.peers - e.peers // 2]
        work[job.variant.label] = e.rounds * sum(trainings(method.setting, owners, method.epsilon))
    assert len(work) == 5
    assert work["server"] == (240 if small_form else 4000)
    for label, trained in work.items():
        assert trained == pytest.approx(work["server"], rel=0.01), label


def test_all_with_heads_of_their_own_have_the_same_budget_in_table_2() -> None:
    table, columns = papers.find("compfl-table2")
    for column, small_form in product(columns, (True, False)):
        methods = {job.variant.label: job.experiment.method for job in table.jobs(column, small_form, [0], [], Path())}
        keys = ("head_epochs", "adapt_epochs", "tune")
        budgets = {label: vars(m)[key] for label, m in methods.items() for key in keys if key in vars(m)}
        assert budgets == dict.fromkeys(("FedAvg-FT", "FedPer", "FedRep", "FedBABU", "FedRoD", "CompFL"), 10)
        when = {label: vars(m)["fit_heads"] for label, m in methods.items() if "fit_heads" in vars(m)}
        assert when == dict.fromkeys(("FedPer", "FedRep", "FedRoD"), "after")  # as CompFL does


# -- without a server ----------------------------------------------------------------------------------


def test_model_by_model_is_gossip_by_metropolis_weights() -> None:
    """On the path 1-0-2 with one expert, and models that stay as they are: a doubly stochastic matrix, twice."""
    words = ("method.setting=model-by-model", "method.epsilon=0", "method.lam=0", "method.mu=0", "train.epochs=0")
    e = small("compfl", *words, "graph.kind=star", rounds=2)
    members = gather(e)
    start = [me.model.part("backbone").vector.clone() for me in members]
    third = 1 / 3
    matrix = torch.tensor([[third, third, third], [third, 2 * third, 0], [third, 0, 2 * third]])
    expected = matrix @ matrix @ torch.stack(start)
    for me, body in zip(play(e, members).participants, expected, strict=True):
        torch.testing.assert_close(me.model.part("backbone").vector, body, atol=1e-5, rtol=1e-4)


def test_model_by_model_weights_stay_those_of_the_graph_while_somebody_is_away() -> None:
    """Real peers know who is there. In a star of three, peer 0 in the middle knows that peer 2 is gone: its
    neighbourhood still has three, as peer 1 may still think, so that each takes a third of the other's."""
    e = small("compfl", "method.setting=model-by-model", "model.zoo=mlp", "graph.kind=star", rounds=1)
    members = gather(e)
    members[0].meet([1])
    [record] = play(e, members).rounds(0)
    assert record.notes["weights"] == pytest.approx({0: 2 / 3, 1: 1 / 3})


def test_model_by_model_begins_with_the_largest() -> None:
    e = small("compfl", ZOO, "method.setting=model-by-model", "method.warmup=0", rounds=4, peers=4)
    played = play(e)
    for i in range(4):
        strong = i % 2 == 0
        trained = {r.round: r.notes.get("trained") for r in played.rounds(i)}
        assert trained == {1: "cnn3" if strong else None, 2: "cnn3" if strong else None, 3: "mlp", 4: "mlp"}
    # Everybody's turn goes to everybody; bodies of the large only among the strong, those of the small among all.
    assert played.messages == {"turn": 4 * 12, "expert.cnn3": 2 * 2, "expert.mlp": 2 * 12}


def test_model_by_model_needs_a_round_for_each_expert() -> None:
    with pytest.raises(CoterieError, match="model-by-model: 2 experts, one after the other, need 2 rounds or more"):
        play(small("compfl", ZOO, "method.setting=model-by-model", rounds=1, peers=4))


def test_device_by_device_each_expert_is_at_one_place() -> None:
    e = small("compfl", ZOO, "method.setting=device-by-device", "graph.kind=ring", rounds=30, peers=5)
    played = play(e)
    for kind in ("mlp", "cnn3"):
        hops = {}
        for i in range(5):
            for r in played.rounds(i):
                if f"hop.{kind}" in r.notes:
                    assert r.round not in hops, "in one round at two places"
                    hops[r.round] = (i, r.notes[f"hop.{kind}"])
        assert sorted(hops) == list(range(1, 31))
        assert [hop for _, (_, hop) in sorted(hops.items())] == list(range(1, 31))
        path = [i for _, (i, _) in sorted(hops.items())]
        assert all(abs(a - b) in (1, 4) for a, b in pairwise(path))  # next to each other on the ring
        assert set(path) == set(range(5))
        assert played.messages[f"expert.{kind}"] == 30


def test_a_client_that_cannot_train_it_sends_it_on_as_it_is() -> None:
    e = small("compfl", ZOO, "method.setting=device-by-device", rounds=12, peers=4)
    played = play(e)
    for i in (1, 3):
        for r in played.rounds(i):
            assert r.notes.get("trained", "mlp") == "mlp"
    assert all(isinstance(w, Weights) for w in played.participants[1].state["carried"].values())


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_an_expert_outlives_its_holder(gone: int) -> None:
    """One of four leaves for good at some time (whoever then holds one takes it along): it is sent on another way."""
    words = (ZOO, "method.setting=device-by-device", f"clock.offline=[[{gone}, 6.5, inf]]")
    played = play(small("compfl", *words, rounds=60, peers=4))
    stayed = [i for i in range(4) if i != gone]
    for kind in ("mlp", "cnn3"):
        late = [(r.round, i) for i in stayed for r in played.rounds(i) if f"hop.{kind}" in r.notes and r.round > 40]
        assert len({round for round, _ in late}) == len(late) == 20
        assert {i for _, i in late} == set(stayed)
        signs = {walk_of(played.participants[i], kind).sign.lineage for i in stayed}
        assert len(signs) == 1


def test_a_receipt_that_is_lost_makes_no_second_expert(monkeypatch: pytest.MonkeyPatch) -> None:
    """In round 5 both neighbours on a ring get it, and its holder, told of neither, keeps it: that one goes on."""
    send = Peer.send

    async def without_a_receipt(me: Peer, *to_and_what: Any, **facts: Any) -> bool:
        return await send(me, *to_and_what, **facts) and me.round != 5

    monkeypatch.setattr(Peer, "send", without_a_receipt)
    e = small("compfl", "method.setting=device-by-device", "graph.kind=ring", rounds=40, peers=6)
    played = play(e)
    at = Counter(r.round for i in range(6) for r in played.rounds(i) if "hop.mlp" in r.notes)
    assert [at[t] for t in range(1, 41)] == [1] * 40
    assert played.messages["expert.mlp"] == 41


def test_training_that_diverges_is_taken_back() -> None:
    """Nobody would take the expert: its walk would end here."""
    words = (ZOO, "method.setting=device-by-device", "train.lr=1e30")
    played = play(small("compfl", *words, rounds=12, peers=4))
    hops = [r.notes["hop.mlp"] for i in range(4) for r in played.rounds(i) if "hop.mlp" in r.notes]
    assert sorted(hops) == list(range(1, 13))
    assert any(r.notes.get("diverged") for i in range(4) for r in played.rounds(i))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("method.setting=mesh",),
            "method.setting must be one of server, device-by-device, model-by-model, not 'mesh'",
        ),
        (("method.teachers=all",), "method.teachers must be one of others, held"),
        (("method.kl=x",), "method.kl must be one of usual, printed"),
        (("method.epsilon=1.5",), "method.epsilon must be from 0 to 1"),
        (("method.lam=-1",), "method.lam must be at least 0"),
        (("method.tau=0",), "method.tau must be above 0"),
        (("method.warmup=-1",), "method.warmup must be at least 0"),
        (("method.setting=model-by-model", "method.fraction=0.5"), "method.fraction only applies to setting = server"),
        (
            ("method.setting=model-by-model", "engine.asynchronous=true"),
            "does not work with compfl, which needs rounds",
        ),
        (("model.zoo=linear,mlp",), "compfl shares the backbone, but linear has none"),
        (
            (ZOO, "peers=6", "method.setting=model-by-model", "graph.kind=ring"),
            r"graph: those that can train cnn3 fall into 3 parts without an edge between them: \[0\], \[2\], \[4\]",
        ),
        (("graph.kind=web",), "graph.kind must be one of complete, .*, not 'web'"),
    ],
)
def test_wrong_parameters(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(CoterieError, match=message):
        wiring.gather(small("compfl", *words))
