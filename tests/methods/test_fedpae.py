"""FedPAE: who chooses what, when, and at what cost; against brute force, plain forward passes and hand-made times."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from methods_support import Played, play, small

from coterie.config.loading import load
from coterie.core import checkpoint
from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, ConfigError, Interrupted, ModelError
from coterie.core.events import PeerRound
from coterie.core.jobs import EvaluateJob, FitJob, Score
from coterie.core.loss import Batch, cross_entropy
from coterie.core.model import Model
from coterie.core.net import Output
from coterie.core.peer import Peer, held_by
from coterie.core.portable_model import Portable
from coterie.data.partitions.deal import partition
from coterie.methods.components.own_models import Own, class_weights, kinds_of, weighted
from coterie.methods.fedpae import FedPAE
from coterie.methods.local_ensemble import LocalEnsemble
from coterie.portable import estimators
from coterie.running import simulated
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer
from coterie.training.plain import bind
from coterie.training.plain import evaluate as plain_evaluate
from coterie.training.plain import fit as plain_fit
from coterie.wiring import gather

DATA = (
    "data.partition=dirichlet", "data.alpha=0.5", "data.train=40", "data.validation=20", "data.test=20",
    "clock.speed=40",
)  # fmt: skip
QUICK = (*DATA, "method.patience=3", "method.k=2", "method.population=20", "method.generations=10")


def fedpae(*words: str, peers: int = 5, rounds: int = 8) -> Played:
    return play(small("fedpae", *QUICK, "method.models=1", *words, peers=peers, rounds=rounds))


def last(played: Played, peer: int) -> PeerRound:
    return played.rounds(peer)[-1]


def bench_of(me: Peer) -> tuple[list[str], np.ndarray, np.ndarray]:
    names = [*(f"{me.id}/model-{i}" for i in range(len(me.state["own"]))), *sorted(me.state["bench"])]
    said = [
        *(own["probabilities"] for own in me.state["own"]),
        *(me.state["bench"][n] for n in sorted(me.state["bench"])),
    ]
    return names, torch.stack(said).double().numpy(), me.labels("validation").numpy()


def soft(said: np.ndarray, labels: np.ndarray, members: tuple[int, ...]) -> float:
    return float((said[list(members)].mean(0).argmax(1) == labels).mean())


def test_everybody_gets_every_model_once() -> None:
    played = fedpae()
    assert played.messages == {"model-0": 5 * 4}
    for me in played.participants:
        assert sorted(me.state["bench"]) == sorted(f"{j}/model-0" for j in range(5) if j != me.id)


def test_the_choice_is_the_best_vote_of_the_front_by_brute_force() -> None:
    played = fedpae()
    for me in played.participants:
        names, said, labels = bench_of(me)
        pairs = list(combinations(range(len(names)), 2))
        strength = [(said[list(p)].argmax(2) == labels).mean() for p in pairs]
        diversity = [np.mean([_determinant(said[list(p), i], y) for i, y in enumerate(labels)]) for p in pairs]
        front = [
            i for i in range(len(pairs))
            if not any(s >= strength[i] and d >= diversity[i] and (s, d) != (strength[i], diversity[i])
                       for s, d in zip(strength, diversity, strict=True))
        ]  # fmt: skip
        best = max([soft(said, labels, pairs[i]) for i in front] + [soft(said, labels, (0,))])
        chosen = tuple(names.index(name) for name in me.state["chosen"])
        assert soft(said, labels, chosen) == pytest.approx(best)
        told = [r.notes for r in played.rounds(me.id) if "front" in r.notes][-1]  # what the report draws
        wanted = sorted((strength[i], diversity[i]) for i in front)
        assert sorted(map(tuple, told["front"])) == [pytest.approx(place) for place in wanted]
        where = {pair: (strength[i], diversity[i]) for i, pair in enumerate(pairs)}
        alone = (np.mean(said[0].argmax(1) == labels), 1.0)  # of one model, the determinant is that of (1)
        assert tuple(told["place"]) == pytest.approx(where.get(tuple(sorted(chosen)), alone))
        assert tuple(told["place_alone"]) == pytest.approx(alone)


def _determinant(said: np.ndarray, label: int) -> float:
    rest = np.delete(said, label, axis=1)
    unit = rest / np.linalg.norm(rest, axis=1, keepdims=True)
    return float(np.linalg.det(unit @ unit.T))


@pytest.mark.parametrize("words", [(), ("method.early=true",), ("method.vote=hard",), ("method.growth=0.5",)])
def test_nobody_does_worse_than_alone_on_validation_at_any_time(words: tuple[str, ...]) -> None:
    e = small("fedpae", *QUICK, "method.models=0", "model.zoo=mlp,linear", *words, "clock.spread=5", peers=4, rounds=8)
    played = play(e)
    records = [r for p in range(4) for r in played.rounds(p)]
    assert any("together" in r.notes for r in records)
    assert all(r.notes["together"] >= r.notes["alone"] for r in records if "together" in r.notes)
    for peer in range(4):
        end = last(played, peer)
        assert end.validation is not None
        assert end.validation >= end.notes["beside"]["alone"]["validation"]
        assert end.validation == pytest.approx(end.notes["together"])


@pytest.mark.parametrize("vote", ["soft", "hard"])
def test_what_is_measured_is_the_members_vote(vote: str) -> None:
    played = fedpae(f"method.vote={vote}", "method.k=3")
    for me in played.participants:
        assert me.ensemble is not None
        data = held_by(me)
        assert data is not None
        x, y = data.test.x, data.test.y
        with torch.no_grad():
            said = torch.stack([bind(m.model).eval()(x).logits.softmax(1) for m in me.ensemble.members])  # type: ignore
        if vote == "hard":
            votes = torch.nn.functional.one_hot(said.argmax(2), said.shape[2]).sum(0) + said.mean(0) / 100
            expected = votes.argmax(1)
        else:
            expected = said.mean(0).argmax(1)
        assert last(played, me.id).test == pytest.approx(float((expected == y).double().mean()))


def test_keeping_predictions_alone_chooses_the_same_and_keeps_only_the_chosen_models() -> None:
    models, predictions = fedpae(), fedpae("method.bench=predictions")
    for one, other in zip(models.participants, predictions.participants, strict=True):
        assert one.state["chosen"] == other.state["chosen"]
        theirs = {name for name in other.state["chosen"] if not name.startswith(f"{other.id}/")}
        assert set(other.state["models"]) == theirs
        assert len(one.state["models"]) == 4
        assert last(models, one.id).test == last(predictions, one.id).test
    assert predictions.messages["model-0"] > models.messages["model-0"]


def test_adaptive_neighbours_are_fewer_messages() -> None:
    played = fedpae("method.neighbours=adaptive", "method.few=2", "method.enough=1", peers=16, rounds=5)
    assert 0 < played.messages["model-0"] < 0.75 * 16 * 15
    for me in played.participants:
        names, said, labels = bench_of(me)
        chosen = tuple(names.index(name) for name in me.state["chosen"])
        assert soft(said, labels, chosen) >= soft(said, labels, (0,))


def asked_others(method: FedPAE, me: Peer, times: int) -> list[bool]:
    """Whether somebody is asked whose models were not chosen, time after time."""
    return [bool(method.whom(me)) for _ in range(times)]


def test_strangers_are_asked_again_from_time_to_time() -> None:
    """After two times in vain nobody is asked but every third time; a gain makes a peer curious again."""
    e = small("fedpae", "method.neighbours=adaptive", "method.few=1", "method.enough=2", "method.again=3", peers=9)
    me = gather(e).participants[0]
    me.begin(1)
    me.state |= {"bench": {}, "refused": [], "counts": {}, "chosen": [], "fruitless": 1}
    assert asked_others(e.method, me, 2) == [True, True]
    me.state["fruitless"] = 2
    assert asked_others(e.method, me, 7) == [False, False, True, False, False, True, False]
    me.state["fruitless"] = 0
    assert asked_others(e.method, me, 2) == [True, True]
    never = replace(e.method, again=0)
    me.state["fruitless"] = 2
    assert asked_others(never, me, 20) == [False] * 20


def test_who_had_some_of_its_models_only_is_asked_for_the_others() -> None:
    e = small("fedpae", "method.neighbours=adaptive", "method.few=9", peers=4)
    me = gather(e).participants[0]
    me.begin(1)
    me.state |= {"bench": {"1/model-0": torch.ones(1)}, "refused": ["2/model-0"], "counts": {1: 2, 2: 1}}
    me.state |= {"chosen": [], "fruitless": 0}
    assert e.method.whom(me) == [1, 3], "1 says it has two; of 2 nothing can be used; 3 said nothing yet"
    me.state["bench"]["1/model-1"] = torch.ones(1)
    assert e.method.whom(me) == [3]


# -- nobody waits ----------------------------------------------------------------------------------


def training(played: Played, peer: int) -> list[PeerRound]:
    """Its rounds before it first looked at what others have."""
    rounds = played.rounds(peer)
    return rounds[: next(i for i, r in enumerate(rounds) if "bench" in r.notes)]


SPREAD = ("clock.speed=[400, 200, 100, 80, 40]",)  # ten times


def test_the_slowest_is_ready_as_early_as_alone_and_nobody_waits() -> None:
    together = fedpae(*SPREAD)
    alone = play(small("local-ensemble", *DATA, "method.models=1", "method.patience=3", *SPREAD, peers=5, rounds=8))
    assert not any("waited" in r.notes for p in range(5) for r in together.rounds(p))
    for peer in range(5):
        # The rounds of training, all but the one that made it ready, end when they end alone.
        mine = training(together, peer)
        assert [r.time for r in mine] == [r.time for r in alone.rounds(peer)[: len(mine)]]
        assert len(mine) >= 3


def test_the_fast_choose_again_when_the_slow_bring_more() -> None:
    played = fedpae(*SPREAD, "method.patience=1", rounds=20)
    sizes = [r.notes["bench"] for r in played.rounds(0) if "bench" in r.notes]
    assert sizes == sorted(sizes)
    assert sizes[-1] == 5
    times = {r.notes["bench"]: r.time for r in reversed(played.rounds(0)) if "bench" in r.notes}
    assert times[min(times)] < times[5]


def test_a_crashed_peer_delays_no_one() -> None:
    played = fedpae("clock.offline=[[4, 0.5, inf]]", *SPREAD)
    whole = fedpae(*SPREAD)
    assert not played.rounds(4)
    for peer in range(4):
        assert len(played.rounds(peer)) == 8
        assert last(played, peer).time <= last(whole, peer).time
        assert "4/model-0" not in played.participants[peer].state["bench"]


def test_a_late_peers_model_is_picked_up() -> None:
    played = fedpae("clock.offline=[[4, 0, 100]]", *SPREAD)
    for peer in range(4):
        assert "4/model-0" in played.participants[peer].state["bench"]
        assert last(played, peer).time > 100
    assert min(r.time for r in played.rounds(0)) < 10


def test_early_uses_others_models_while_ones_own_still_train() -> None:
    slow = fedpae("method.early=true", *SPREAD).rounds(4)
    unready = [r for r in slow if "4/model-0" not in r.notes["members"] and r.round < 8]
    assert any(r.notes["own_share"] < 1 for r in unready)
    assert all(r.notes["own_share"] == 1 for r in training(fedpae(*SPREAD), 4))


# -- what others send ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hostile(FedPAE):
    """Peer 0 publishes something else than a model that works."""

    what: str = "shape"

    async def ready(self, me: Peer, slot: int, own: Own) -> None:
        if me.id != 0:
            await super().ready(me, slot, own)
            return
        weights = {name: tensor.clone() for name, tensor in own["best"].content.items()}
        facts: dict[str, Any] = {"kind": own["kind"], "of": 1}
        if self.what == "shape":
            weights["head.weight"] = weights["head.weight"][:, :-1]
        elif self.what == "nan":
            weights["head.bias"] = torch.full_like(weights["head.bias"], math.nan)
        elif self.what == "unknown":
            facts["kind"] = "os:system"
        elif self.what == "overflow":
            weights["head.weight"] = torch.full_like(weights["head.weight"], 3e38)
        elif self.what == "count":
            facts["of"] = 10**18
        me.shelve(f"model-{slot}", weights, **facts)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("shape", "'head.weight' should be"),
        ("nan", "not finite"),
        ("unknown", "'os:system' is an unknown architecture"),
        ("overflow", "its predictions are not numbers"),
    ],
)
def test_what_cannot_be_used_is_declined_and_named_and_the_run_goes_on(what: str, reason: str) -> None:
    e = small("fedpae", *QUICK, "method.models=1", peers=4, rounds=6)
    played = play(replace(e, method=Hostile(**asdict(e.method), what=what)))
    for me in played.participants[1:]:
        assert "0/model-0" not in me.state["bench"]
        assert len(me.state["bench"]) == 2
        declined = [r.notes["declined"] for r in played.rounds(me.id) if "declined" in r.notes]
        assert len(declined) == 1, "it is not asked for again"
        assert reason in declined[0][0]


def test_somebody_who_says_it_has_endless_models_is_not_asked_for_ever() -> None:
    e = small("fedpae", *QUICK, "method.models=1", peers=3, rounds=5)
    played = play(replace(e, method=Hostile(**asdict(e.method), what="count")))
    assert all(len(me.state["bench"]) == 2 for me in played.participants)
    assert max(played.participants[1].state["counts"].values()) == 100


# -- who trains what -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("models", "peer", "expected"),
    [
        (0, 0, ["mlp", "cnn3", "linear"]),
        (0, 1, ["cnn3", "linear", "mlp"]),
        (2, 2, ["linear", "mlp"]),
        (9, 0, ["mlp", "cnn3", "linear"]),
    ],
)
def test_each_trains_some_of_the_zoo_beginning_with_its_own(models: int, peer: int, expected: list[str]) -> None:
    e = small("local-ensemble", "model.zoo=mlp,cnn3,linear", peers=3)
    assert kinds_of(gather(e).participants[peer], models) == expected


def test_a_model_is_kept_as_it_was_at_its_best() -> None:
    """Early stopping: what is published has the best validation accuracy of all epochs; `patience` more were tried."""
    played = play(small("local-ensemble", *DATA, "method.models=1", "method.patience=3", peers=3, rounds=30))
    for me in played.participants:
        [own] = me.state["own"]
        assert own["ready"]
        assert own["stale"] == 3
        seen = [r.notes for r in played.rounds(me.id)]
        assert len(seen) == 30
        assert own["accuracy"] == pytest.approx(last(played, me.id).validation)
        torch.testing.assert_close(me.model.vector, own["best"].content.vector)


@dataclass(frozen=True)
class Watched(LocalEnsemble):
    """Keeps how the model was after each epoch."""

    async def train_network(self, me: Peer, slot: int, own: Own) -> None:
        await super().train_network(me, slot, own)
        if "model" in own:
            me.state.setdefault("epochs", []).append(own["model"].vector.clone())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_rounds_are_slices_of_one_training(optimizer: str) -> None:
    """Three rounds of one epoch are a training of three epochs: momentum goes on. All samples are one batch, so that
    their order, which is drawn anew in every round, only rounds."""
    alone = ("method.models=1", "method.patience=9", "train.batch=40", f"train.optimizer={optimizer}")
    e = small("local-ensemble", *DATA, *alone, "train.momentum=0.9", "train.lr_decay=1.0", peers=2, rounds=4)
    played = play(replace(e, method=Watched(**asdict(e.method))))
    for me in played.participants:
        model = me.own_initial("mlp", 0)
        assert me.data is not None
        plain_fit(FitJob(model, me.data.train, cross_entropy, replace(me.settings, epochs=3), (0,)))
        after = me.state["epochs"]
        assert len(after) == 3
        torch.testing.assert_close(after[2], model.vector, rtol=1e-4, atol=1e-5)


def test_what_the_optimiser_remembers_survives_a_checkpoint_and_goes_when_a_model_is_ready(tmp_path: Path) -> None:
    alone = ("method.models=0", "model.zoo=mlp,cnn3", "method.patience=9", "engine.checkpoint=1")
    e = small("local-ensemble", *DATA, *alone, peers=2, rounds=5)
    whole, again = tmp_path / "whole", tmp_path / "again"
    simulated.run(e, whole)
    with pytest.raises(Interrupted):
        simulated.run(e, again, on_start=Simulation.stop)
    kept = checkpoint.load(again / "checkpoint")
    assert kept is not None
    owns = [own for participant in kept[1]["participants"] for own in participant["state"]["own"]]
    assert [own["optimizer"]["step"] for own in owns] == [kept[0] * math.ceil(40 / 6)] * 4  # batches of six
    assert all(own["optimizer"]["vectors"]["momentum_buffer"].abs().sum() > 0 for own in owns)
    simulated.resume(again)
    assert _records(again) == _records(whole)
    played = play(e)
    assert not any("optimizer" in own for me in played.participants for own in me.state["own"])


def _records(folder: Path) -> list[dict[str, Any]]:
    """What peers had, round by round: that of a resumed run equals that of a whole one, to the bit."""
    lines = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    found = [line for line in lines if line["event"] == "round"]
    return sorted(found, key=lambda line: (line["peer"], line["round"]))


def on_validation(me: Peer, vector: torch.Tensor) -> Score:
    assert me.data is not None
    return plain_evaluate(EvaluateJob(Model(me.architecture, vector), me.data.validation))


def test_a_model_may_be_stopped_by_its_loss() -> None:
    """The loss of what is kept is the least of all epochs; its accuracy need not be the best."""
    alone = ("method.models=1", "method.patience=20", "train.lr=0.3")
    e = small("local-ensemble", *DATA, *alone, "method.stop=loss", peers=3, rounds=20)
    played = play(replace(e, method=Watched(**asdict(e.method))))
    for me in played.participants:
        [own] = me.state["own"]
        assert me.data is not None
        scores = [
            plain_evaluate(EvaluateJob(Model(me.architecture, v), me.data.validation)) for v in me.state["epochs"]
        ]
        kept = plain_evaluate(EvaluateJob(Model(me.architecture, own["best"].content.vector), me.data.validation))
        assert kept.loss == pytest.approx(-own["merit"], rel=1e-5)
        assert kept.loss <= min(score.loss for score in scores) + 1e-6
        assert kept.accuracy == pytest.approx(own["accuracy"])


class Constant:
    """A net that says the same of every sample."""

    parameters: ClassVar[dict[str, torch.Tensor]] = {}

    def __call__(self, x: torch.Tensor) -> Output:
        return Output(torch.tensor([[0.0, math.log(3.0)]]).expand(len(x), 2), torch.zeros(len(x), 1))


def test_a_balanced_loss_counts_all_classes_of_a_peer_alike() -> None:
    """Three samples of class 0, for which the net has 1/4, and one of class 1, for which it has 3/4: weights 2/3 and 2;
    so each class has half of the weight, and the loss is (log 4 + log 4/3) / 2. Unweighted it would be
    (3 log 4 + log 4/3) / 4."""
    batch = Batch(torch.zeros(4, 1), torch.tensor([0, 0, 0, 1]))
    found = weighted(Constant(), batch, {"weights": torch.tensor([2 / 3, 2.0])})
    assert float(found) == pytest.approx((math.log(4) + math.log(4 / 3)) / 2)


def test_the_weights_of_classes_are_those_of_a_peers_own_training_data() -> None:
    e = small("local-ensemble", *DATA, "method.balanced=true", peers=2)
    me = gather(e).participants[0]
    counts = torch.bincount(me.labels(), minlength=10)
    weights = class_weights(me)
    there = counts > 0
    assert not there.all(), "a class that a peer does not have must not spoil the others' weights"
    assert (weights * counts)[there].tolist() == pytest.approx([40 / int(there.sum())] * int(there.sum()))


def test_a_balanced_training_is_the_same_one_by_one_and_stacked() -> None:
    found = []
    for batching in ("never", "always"):
        e = small("local-ensemble", *DATA, "method.balanced=true", "method.models=1", peers=3, rounds=3)
        members, trainer = gather(e).participants, Trainer(batching, 1, 1)
        try:
            Simulation(LocalStage(e.method, members, 3, trainer), Clock(e.clock, 3, 0)).run()
        finally:
            trainer.close()
        found.append(torch.stack([me.state["own"][0]["best"].content.vector for me in members]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("method.stop=never", "method.stop must be one of accuracy, loss, not 'never'"),
        ("method.again=-1", "method.again must be at least 0"),
        ("method.k=0", "method.k must be at least 1"),
        ("method.vote=loud", "method.vote must be one of soft, hard"),
        ("method.bench=paper", "method.bench must be one of models, predictions"),
        ("method.neighbours=some", "method.neighbours must be one of all, adaptive"),
        ("method.patience=0", "method.patience must be at least 1"),
        ("method.growth=-1", "method.growth must be at least 0"),
    ],
)
def test_parameters_that_cannot_work(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        small("fedpae", word)


# -- any model -------------------------------------------------------------------------------------

ANY = ("method.models=1", "model.zoo=logistic,forest,boosting,mlp", "train.lr=0.05")


@pytest.mark.parametrize("data", ["breast-cancer", "digits"])
def test_a_federation_of_any_models_beats_training_alone_where_data_are_scarce(data: str) -> None:
    words = (f"data.name={data}", "data.partition=iid", "data.train=10", "data.validation=30", "data.test=30")
    e = small("fedpae", *QUICK, *ANY, *words, "method.k=5", "method.patience=5", peers=8, rounds=12)
    played = play(replace(e, method=replace(e.method, generations=40, population=40)))
    ends = [last(played, peer) for peer in range(8)]
    together = np.mean([end.test for end in ends])
    alone = np.mean([end.notes["beside"]["alone"]["test"] for end in ends])
    assert together > alone
    chosen = [member.model for me in played.participants if me.ensemble for member in me.ensemble.members]
    assert len({model.kind for model in chosen if isinstance(model, Portable)}) >= 2
    assert all(len(me.state["bench"]) == 7 for me in played.participants), "networks and estimators are on every bench"


def test_a_method_that_trains_by_gradients_refuses_estimators_before_anything_runs() -> None:
    with pytest.raises(ModelError, match="forest cannot be trained by gradients, as gossip does"):
        gather(small("gossip", "method.k=2", "model.zoo=forest"))


@dataclass(frozen=True)
class Forged(FedPAE):
    """Peer 0 publishes bytes that are no model, or not one for these data."""

    what: str = "bytes"

    async def ready(self, me: Peer, slot: int, own: Own) -> None:
        if me.id != 0:
            await super().ready(me, slot, own)
            return
        content = own["best"].content
        if self.what == "bytes":
            content = torch.arange(1000).to(torch.uint8)
        elif self.what == "cut":
            content = content[: len(content) // 2]
        elif self.what == "classes":
            x = np.random.default_rng(0).random((20, *me.kinds.shape), dtype=np.float32)
            content = estimators.fit("tree", x, np.arange(20) % 3, 3, 0).content
        elif self.what == "inputs":
            x = np.random.default_rng(0).random((20, 5), dtype=np.float32)
            content = estimators.fit("tree", x, np.arange(20) % 10, 10, 0).content
        me.shelve(f"model-{slot}", {"onnx": content}, kind="tree", of=1)


@pytest.mark.parametrize(
    ("what", "words", "reason"),
    [
        ("bytes", (), "ONNX"),
        ("cut", (), "ONNX"),
        ("classes", (), "its output has shape (N, 3); expected is (N, 10)"),
        ("inputs", (), "input"),
        ("large", ("method.largest=20000",), "at most 20,000 are accepted"),
    ],
)
def test_forged_portable_models_are_declined(what: str, words: tuple[str, ...], reason: str) -> None:
    zoo = "model.zoo=forest,mlp,mlp" if what == "large" else "model.zoo=tree,mlp,mlp"
    e = small("fedpae", *QUICK, "method.models=1", zoo, *words, peers=3, rounds=4)
    played = play(replace(e, method=Forged(**asdict(e.method), what=what)))
    for me in played.participants[1:]:
        assert len(me.state["bench"]) == 1
        [declined] = [r.notes["declined"] for r in played.rounds(me.id) if "declined" in r.notes]
        assert reason in declined[0], declined


def test_a_network_of_ones_own_travels_as_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others do not have its code, and run it all the same: it says of their data what its maker's module says."""
    (tmp_path / "a_net_of_mine.py").write_text(
        "from torch import nn\n"
        "def make(input_shape, d_z):\n"
        "    return nn.Sequential(nn.Conv2d(input_shape[0], 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(d_z))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = ("model.zoo=a_net_of_mine:make,mlp,mlp", "method.models=1", "model.d_z=8")
    played = play(small("fedpae", *QUICK, *words, peers=3, rounds=3))
    maker, other = played.participants[:2]
    found = other.state["models"]["0/model-0"]
    assert isinstance(found["content"].content, torch.Tensor)
    assert other.data is not None
    with torch.no_grad():
        expected = bind(maker.model).eval()(other.data.validation.x).logits.softmax(1)
    torch.testing.assert_close(other.state["bench"]["0/model-0"], expected, atol=1e-5, rtol=1e-4)


def test_a_finished_model_of_any_framework_takes_part_as_it_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((40, 1, 8, 8), dtype=np.float32)
    made = estimators.fit("tree", x, np.arange(40) % 10, 10, 0)
    (tmp_path / "mine.onnx").write_bytes(made.bytes)
    words = (f"model.zoo={tmp_path / 'mine.onnx'},mlp,mlp", "method.models=1")
    played = play(small("fedpae", *QUICK, *words, peers=3, rounds=3))
    for me in played.participants[1:]:
        kept = me.state["models"]["0/model-0"]
        assert kept["kind"] == "mine.onnx", "not where it lies on its owner's disk"
        assert kept["content"].content.numpy().tobytes() == made.bytes


def test_a_finished_model_that_does_not_fit_is_an_error_that_names_it(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((20, 5), dtype=np.float32)
    (tmp_path / "other.onnx").write_bytes(estimators.fit("tree", x, np.arange(20) % 10, 10, 0).bytes)
    with pytest.raises(ModelError, match=r"other.onnx' cannot be used: its input has shape \(N, 5\)"):
        play(small("fedpae", *QUICK, f"model.zoo={tmp_path / 'other.onnx'}", "method.models=1", peers=2, rounds=2))


# -- what may go wrong -----------------------------------------------------------------------------


def test_who_chose_a_model_that_can_no_longer_be_had_chooses_again() -> None:
    """Only predictions are kept; some authors leave after they were heard, before their models are fetched again."""
    words = ("method.bench=predictions", "method.growth=9", "method.early=true", "method.patience=8", *SPREAD)
    gone = "clock.offline=[[0, 1.5, inf], [1, 2.5, inf]]"
    played = fedpae(*words, gone, rounds=8)
    for peer in (2, 3, 4):
        end = last(played, peer)
        assert end.validation == pytest.approx(end.notes["together"])
        assert end.validation >= end.notes["beside"]["alone"]["validation"]
        me = played.participants[peer]
        assert me.ensemble is not None
        assert [member.name for member in me.ensemble.members] == me.state["chosen"]


@pytest.mark.parametrize("until", [3, 7])
def test_who_was_gone_when_its_model_was_wanted_is_heard_again_when_it_is_back(until: float) -> None:
    """Peer 0 leaves after it was heard; who wants its model later finds nobody, and does without. Then it returns."""
    words = ("method.bench=predictions", "method.early=true", "method.patience=8", *SPREAD)
    gone = fedpae(*words, "clock.offline=[[0, 1.3, inf]]", rounds=8)
    assert any("0/model-0" not in gone.participants[p].state["bench"] for p in (1, 2, 3, 4)), "nobody wanted it"
    back = fedpae(*words, f"clock.offline=[[0, 1.3, {until}]]", rounds=8)
    assert all("0/model-0" in back.participants[p].state["bench"] for p in (1, 2, 3, 4))


@dataclass(frozen=True)
class TwoFaced(FedPAE):
    """Peer 0 shows one model, and has another under its name by the time that somebody wants to use it."""

    async def use(self, me: Peer, last: bool) -> None:
        if me.id == 0:
            me.shelve("model-0", me.own_initial("mlp"), kind="mlp", of=1)
        await super().use(me, last)


def test_another_model_than_the_one_that_was_heard_is_not_used() -> None:
    e = small("fedpae", *QUICK, "method.models=1", "method.bench=predictions", peers=4, rounds=8)
    played = play(replace(e, method=TwoFaced(**asdict(e.method))))
    assert not any("0/model-0" in me.state["models"] for me in played.participants)


def test_a_model_of_ones_own_that_diverges_is_left_out_and_not_published() -> None:
    played = play(small("fedpae", *QUICK, "model.zoo=mlp,linear", "train.lr=1e30", peers=3, rounds=3))
    for me in played.participants:
        assert all("best" not in own or own["probabilities"].isfinite().all() for own in me.state["own"])
    assert all(r.test is None or 0 <= r.test <= 1 for p in range(3) for r in played.rounds(p))


def test_a_finished_model_that_gives_no_probabilities_is_an_error(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    flat = helper.make_node("Flatten", ["x"], ["flat"])
    product = helper.make_node("MatMul", ["flat", "w"], ["p"])
    weights = helper.make_tensor("w", TensorProto.FLOAT, (64, 10), np.ones(640, dtype=np.float32))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
    found = helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 10])
    graph = helper.make_graph([flat, product], "logits", [given], [found], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "logits.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"logits.onnx' cannot be used: "):
        play(small("fedpae", *QUICK, f"model.zoo={tmp_path / 'logits.onnx'}", "method.models=1", peers=2, rounds=2))


def test_several_brought_networks_are_ready_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exporting to ONNX is for one at a time."""
    (tmp_path / "another_net.py").write_text(
        "from torch import nn\n"
        "def make(input_shape, d_z):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, d_z))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    e = small("fedpae", *QUICK, "model.zoo=another_net:make", "model.d_z=8", "method.models=1", peers=6, rounds=2)
    participants = gather(e).participants
    trainer = Trainer("never", 4, 1)
    try:
        Simulation(LocalStage(e.method, participants, 2, trainer), Clock(e.clock, 6, 0)).run()
    finally:
        trainer.close()
    assert all(len(me.state["bench"]) == 5 for me in participants)


def test_an_infinite_count_is_refused_at_the_door() -> None:
    with pytest.raises(ArtifactError, match="fact 'of' must be finite"):
        Artifact.snapshot("model-0", 0, 1, {}, {"of": math.inf})
    data = Artifact.snapshot("model-0", 0, 1, {}, {"of": 12345}).to_bytes()
    with pytest.raises(ArtifactError, match="fact 'of' must be finite"):
        Artifact.from_bytes(data.replace(b"12345", b"1e999"))


def test_after_a_restart_a_peer_predicts_with_the_same(tmp_path: Path) -> None:
    e = small("fedpae", *QUICK, "method.models=1", peers=3, rounds=6)
    played = play(e)
    for me in played.participants:
        checkpoint.save(tmp_path / str(me.id), 6, checkpoint.of_peer(me))
        found = checkpoint.load(tmp_path / str(me.id))
        assert found is not None
        again = gather(e).participants[me.id]
        checkpoint.to_peer(again, found[1])
        e.method.revive(again)
        assert again.ensemble is not None
        assert me.ensemble is not None
        for one, other in zip(me.ensemble.members, again.ensemble.members, strict=True):
            assert one.name == other.name
            assert torch.equal(one.model.vector, other.model.vector)  # type: ignore[union-attr]


def test_a_model_that_many_keep_is_written_once(tmp_path: Path) -> None:
    played = play(small("fedpae", *QUICK, "method.models=1", "model.hidden=[64]", peers=8, rounds=4))
    tree = {"participants": [checkpoint.of_peer(me) for me in played.participants]}
    checkpoint.save(tmp_path, 1, tree)
    [file] = tmp_path.glob("*.safetensors")
    one = 4 * played.participants[0].model.layout.size
    assert file.stat().st_size < 3.7 * 8 * one  # of everybody its model, its best, what it published; and predictions
    found = checkpoint.load(tmp_path)
    assert found is not None
    first, second = (found[1]["participants"][i]["state"]["models"]["7/model-0"]["content"] for i in (0, 1))
    assert first.content.vector.data_ptr() == second.content.vector.data_ptr()


def test_a_model_that_holds_rows_stays_unless_one_says_otherwise() -> None:
    with pytest.raises(ModelError, match=r"svm can read training rows.*rows_may_leave=true"):
        gather(small("fedpae", *QUICK, "model.zoo=logistic,svm", peers=4, rounds=2))
    gather(small("fedpae", *QUICK, "model.zoo=logistic,svm", "method.rows_may_leave=true", peers=4, rounds=2))


# -- the presets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 0.3, 0.1])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_small_form_has_enough_images_to_choose_by_and_to_judge_by(alpha: float, seed: int) -> None:
    """Of CIFAR-10's labels alone: 6,000 of each of ten classes. Everybody has what it is to have."""
    e = load("fedpae-cifar10-small", [f"data.alpha={alpha}"])
    assert isinstance(e.method, FedPAE)
    assert len(e.model.zoo) == e.method.k == 5
    shares = partition(np.arange(60_000) % 10, 10, e.peers, e.data, seed)
    assert {(len(s.train), len(s.validation), len(s.test)) for s in shares} == {(140, 300, 400)}


def test_the_long_form_divides_all_images_as_the_paper_does() -> None:
    e = load("fedpae-cifar10-long")
    assert (e.peers, e.data.alpha, e.engine.checkpoint) == (20, 0.5, 1)
    shares = partition(np.arange(60_000) % 10, 10, e.peers, e.data, 0)
    sizes = np.array([(len(s.train), len(s.validation), len(s.test)) for s in shares])
    assert sizes.sum() == 60_000
    assert (sizes.sum(0) / 60_000).tolist() == pytest.approx([0.7, 0.15, 0.15], abs=0.002)
