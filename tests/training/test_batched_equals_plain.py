"""The batched loop against its oracle, the plain one: every loss, optimiser and shape of data."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor, nn

from coterie import methods
from coterie.core.errors import ModelError
from coterie.core.jobs import FitJob, OptimizerMemory, Pool, Split, TrainSettings
from coterie.core.loss import Loss, cross_entropy, task_loss
from coterie.core.model import Architecture, Model
from coterie.core.net import Net
from coterie.methods.class_means import feddistill_loss, fedproto_loss
from coterie.methods.components.distillation import aligned_loss, taught_as_printed_loss, taught_loss
from coterie.methods.components.heads import head_loss
from coterie.methods.components.own_models import weighted
from coterie.methods.fedrod import fedrod_loss, private_head_loss
from coterie.methods.head_sharing import classavg_loss
from coterie.methods.mapl_losses import authors_loss, mapl_loss
from coterie.methods.mentees import fedkd_loss, fml_loss
from coterie.training import batched, losses, plain, recording
from coterie.training.batched import gradients_of
from coterie.training.recording import Repeated

MakeMLP = Callable[..., Architecture]
MakePool = Callable[..., Pool]


def reference(model: Model) -> dict[str, Tensor]:
    """A reference of its own for each peer, and a strength of its own."""
    ref = {f"ref.{slot.name}": model[slot.name] + 0.1 for slot in model.layout.parameters}
    return {**ref, "mu": 0.5 + model.vector[0].abs()}


def head_reference(model: Model) -> dict[str, Tensor]:
    ref = {f"ref.{name}": model[name] + 0.1 for name in ("head.weight", "head.bias")}
    return {**ref, "rho": torch.tensor(0.3), "tau": 0.5 + model.vector[0].abs()}


def some_logits(model: Model) -> dict[str, Tensor]:
    near = model["head.weight"] @ model["head.weight"].T
    return {"means": near, "known": torch.tensor([1.0, 0.0, 1.0]), "lam": torch.tensor(0.7)}


def some_prototypes(model: Model) -> dict[str, Tensor]:
    near = model["head.weight"] + 0.1
    return {"means": near, "known": torch.tensor([1.0, 0.0, 1.0]), "lam": torch.tensor(0.7)}


def anchors(model: Model) -> dict[str, Tensor]:
    return {"anchors": model["head.weight"] + 0.1, "lam": torch.tensor(0.4), "mu": torch.tensor(0.7)}


def terms(model: Model) -> dict[str, Tensor]:
    weights = {"ce": 1.0, "contrast": 0.5, "proto": 0.7, "uniform": 0.2}
    warmth = 0.5 + model.vector[0].abs()
    return {**{key: torch.tensor(value) for key, value in weights.items()}, "tau": warmth, "tau_proto": 1.5 * warmth}


# What each loss must be given. A new loss needs an entry here, or test_every_loss_has_a_case fails.
GIVEN: dict[Loss, Callable[[Model], Mapping[str, Tensor]]] = {
    task_loss: lambda _: {},
    cross_entropy: lambda _: {},
    losses.proximal: reference,
    classavg_loss: head_reference,
    fedproto_loss: some_prototypes,
    feddistill_loss: some_logits,
    head_loss: lambda _: {},
    fml_loss: lambda _: {"alpha": torch.tensor(0.3), "beta": torch.tensor(0.6)},
    fedkd_loss: lambda _: {},
    mapl_loss: terms,
    authors_loss: terms,
    fedrod_loss: lambda _: {"prior": torch.tensor([3.0, 1.0, 5.0]).log()},
    aligned_loss: anchors,
    taught_loss: anchors,
    taught_as_printed_loss: anchors,
    weighted: lambda _: {"weights": torch.tensor([0.5, 2.0, 1.0])},
    private_head_loss: lambda _: {},
}
TARGETS = (taught_loss, taught_as_printed_loss)  # want something about every sample
VIEWS: dict[Loss, int] = {classavg_loss: 2, mapl_loss: 2, authors_loss: 2}
PARTS: dict[Loss, tuple[str, ...]] = {
    mapl_loss: ("projector", "prototypes"),
    authors_loss: ("projector", "prototypes"),
    fml_loss: ("mentee",),
    fedkd_loss: ("mentee", "adapter"),
    fedrod_loss: ("private",),
    private_head_loss: ("private",),
}
ONLY: dict[Loss, str] = {
    head_loss: "head",
    private_head_loss: "private",
}  # reads features: there is nothing else to train
OWN_WEIGHTS: set[Loss] = {weighted, fedrod_loss, private_head_loss}  # they balance classes in their own way
SGD = TrainSettings(epochs=2, batch=4, lr=0.1, momentum=0.0)
SETTINGS = {
    "sgd": SGD,
    "sgd with momentum": TrainSettings(epochs=2, batch=4, lr=0.1, momentum=0.9),
    "sgd with momentum and decay": TrainSettings(epochs=2, batch=4, lr=0.1, momentum=0.9, weight_decay=0.05),
    "adam": TrainSettings(epochs=2, batch=4, optimizer="adam", lr=0.01),
    "adam with decay": TrainSettings(
        epochs=2, batch=4, optimizer="adam", lr=0.01, betas=(0.8, 0.99), weight_decay=0.05
    ),
    "sgd with class weights": TrainSettings(epochs=2, batch=4, lr=0.1, momentum=0.0, balance="weights"),
    "sgd with balanced sampling": TrainSettings(epochs=2, batch=4, lr=0.1, momentum=0.0, balance="sampling"),
}
SIZES = {
    "equal": (8, 8, 8),
    "batch does not divide": (10, 10),
    "last batch of one": (9, 9),
    "unequal": (9, 3, 10, 1, 8),
    "one peer": (6,),
}


@pytest.fixture(autouse=True)
def _unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording takes a while; the tests below that are about it ask for it."""
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 10**9)


def net_for(make_mlp: MakeMLP, loss: Loss) -> Architecture:
    """With the parts that the loss wants; where it reads samples as features, with as many features."""
    return make_mlp((4,) if loss in ONLY else (5,), parts=PARTS.get(loss, ()))


def losses_there_are() -> set[Loss]:
    """Those of the training package and of all methods."""
    modules = pkgutil.walk_packages(methods.__path__, "coterie.methods.")
    places = [losses, *(importlib.import_module(module.name) for module in modules)]
    functions = [f for place in places for _, f in inspect.getmembers(place, inspect.isfunction)]
    return {f for f in functions if list(inspect.signature(f).parameters) == ["net", "batch", "given"]}


def splits(pool: Pool, sizes: Sequence[int]) -> list[Split]:
    """Rows of their own for each peer, not in order."""
    order = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(1))
    return [Split(pool, rows) for rows in order.split(list(sizes))]


def targets_of(split: Split) -> Tensor:
    """For each sample something of its own, in the order of the split."""
    return torch.stack([split.rows, split.rows.flip(0), split.rows * 2], 1).float().mul(0.1).softmax(1)


class Case:
    """The same jobs, as often as asked for: from the same starts, each time on copies."""

    def __init__(
        self,
        architecture: Architecture,
        pool: Pool,
        sizes: Sequence[int],
        settings: TrainSettings = SGD,
        loss: Loss = task_loss,
        only: str | None = None,
        keep: bool = False,
    ) -> None:
        self.starts = [architecture.initial(0, draw) for draw in range(len(sizes))]
        self.splits = splits(pool, sizes)
        self.settings, self.loss, self.only, self.keep = settings, loss, only, keep

    def models(self) -> list[Model]:
        return [start.copy() for start in self.starts]

    def memories(self) -> list[OptimizerMemory | None]:
        return [OptimizerMemory() if self.keep else None for _ in self.starts]

    def jobs(
        self, models: Sequence[Model], memories: Sequence[OptimizerMemory | None], key: str = "call"
    ) -> list[FitJob]:
        return [
            FitJob(
                model,
                split,
                self.loss,
                self.settings,
                (key, i),
                GIVEN[self.loss](start),
                self.only,
                memory,
                VIEWS.get(self.loss, 0),
                targets_of(split) if self.loss in TARGETS else None,
            )
            for i, (model, split, start, memory) in enumerate(
                zip(models, self.splits, self.starts, memories, strict=True)
            )
        ]

    def check(self) -> None:
        """Both loops from the same starts: equal losses and models, and something was learned."""
        one, other = self.models(), self.models()
        plain_losses = [plain.fit(job) for job in self.jobs(one, self.memories())]
        assert batched.fit(self.jobs(other, self.memories())) == pytest.approx(plain_losses, rel=1e-4, abs=1e-6)
        for start, a, b in zip(self.starts, one, other, strict=True):
            assert (a.vector - start.vector).abs().max() > 1e-3
            torch.testing.assert_close(b.vector, a.vector, rtol=1e-4, atol=2e-5)


def test_every_loss_has_a_case() -> None:
    assert set(GIVEN) == losses_there_are()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("loss", GIVEN, ids=lambda loss: loss.__name__)
def test_for_every_loss_and_optimiser(
    make_mlp: MakeMLP, make_pool: MakePool, loss: Loss, settings: TrainSettings
) -> None:
    Case(net_for(make_mlp, loss), make_pool(16), (6, 7, 3), settings, loss, ONLY.get(loss)).check()


@pytest.mark.parametrize("loss", [loss for loss in GIVEN if loss not in OWN_WEIGHTS], ids=lambda loss: loss.__name__)
def test_every_loss_counts_samples_by_their_class_weights(make_mlp: MakeMLP, make_pool: MakePool, loss: Loss) -> None:
    values = []
    for balance in ("none", "weights"):
        settings = TrainSettings(epochs=1, batch=16, lr=0.1, balance=balance)
        case = Case(net_for(make_mlp, loss), make_pool(9), (9,), settings, loss, ONLY.get(loss))
        values += [plain.fit(job) for job in case.jobs(case.models(), case.memories())]
    assert values[0] != pytest.approx(values[1], rel=1e-3)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
@pytest.mark.parametrize("optimizer", ["sgd with momentum", "adam"])
def test_for_all_numbers_of_samples(
    mlp: Architecture, make_pool: MakePool, sizes: tuple[int, ...], optimizer: str
) -> None:
    Case(mlp, make_pool(sum(sizes)), sizes, SETTINGS[optimizer]).check()


@pytest.mark.parametrize("loss", GIVEN, ids=lambda loss: loss.__name__)
def test_for_a_part_of_the_model(make_mlp: MakeMLP, make_pool: MakePool, loss: Loss) -> None:
    case = Case(net_for(make_mlp, loss), make_pool(13), (6, 7), SETTINGS["sgd with momentum"], loss, only="head")
    case.check()
    for loop in (lambda jobs: [plain.fit(job) for job in jobs], batched.fit):
        models = case.models()
        loop(case.jobs(models, case.memories()))
        for start, model in zip(case.starts, models, strict=True):
            assert torch.equal(model["backbone.1.weight"], start["backbone.1.weight"])
            assert not torch.equal(model["head.weight"], start["head.weight"])


def test_training_a_part_leaves_the_module_whole_for_the_next_job(mlp: Architecture, make_pool: MakePool) -> None:
    pool = make_pool(6)
    Case(mlp, pool, (6,), only="head").check()
    model = mlp.initial(0)
    plain.fit(FitJob(model, Split(pool, torch.arange(6)), task_loss, SGD, ("k",)))
    assert not torch.equal(model["backbone.1.weight"], mlp.initial(0)["backbone.1.weight"])


@pytest.mark.parametrize("optimizer", ["sgd with momentum", "adam with decay", "sgd"])
@pytest.mark.parametrize("only", [None, "head"])
def test_the_optimiser_remembers_over_two_calls(
    mlp: Architecture, make_pool: MakePool, optimizer: str, only: str | None
) -> None:
    case = Case(mlp, make_pool(17), (9, 3, 5), SETTINGS[optimizer], only=only, keep=True)
    one, other, forgetful = case.models(), case.models(), case.models()
    memory_one, memory_other = case.memories(), case.memories()
    for call in ("first", "second"):
        expected = [plain.fit(job) for job in case.jobs(one, memory_one, call)]
        assert batched.fit(case.jobs(other, memory_other, call)) == pytest.approx(expected, rel=1e-4)
        batched.fit(case.jobs(forgetful, [None] * 3, call))
    for a, b, c, m, n in zip(one, other, forgetful, memory_one, memory_other, strict=True):
        torch.testing.assert_close(b.vector, a.vector, rtol=1e-4, atol=2e-5)
        assert m is not None
        assert n is not None
        assert m.step == n.step > 0
        assert set(m.vectors) == set(n.vectors)
        for key in m.vectors:
            torch.testing.assert_close(n.vectors[key], m.vectors[key], rtol=1e-3, atol=1e-5)
        assert torch.equal(b.vector, c.vector) == (optimizer == "sgd")  # the memory matters


def test_a_memory_can_go_from_one_loop_to_the_other(mlp: Architecture, make_pool: MakePool) -> None:
    """A peer is trained batched in one round and alone in the next; both orders give the same."""
    case = Case(mlp, make_pool(10), (4, 6), SETTINGS["adam"], keep=True)
    ends = []
    for first, second in ((batched.fit, _all_plain), (_all_plain, batched.fit)):
        models, memories = case.models(), case.memories()
        first(case.jobs(models, memories, "first"))
        second(case.jobs(models, memories, "second"))
        ends.append(torch.stack([m.vector for m in models]))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=2e-5)


def _all_plain(jobs: Sequence[FitJob]) -> list[float]:
    return [plain.fit(job) for job in jobs]


@pytest.mark.parametrize("optimizer", ["sgd with momentum", "adam"])
def test_for_a_convolution_with_group_norm(convolutional: Architecture, make_pool: MakePool, optimizer: str) -> None:
    Case(convolutional, make_pool(9, (1, 4, 4)), (4, 5), SETTINGS[optimizer]).check()


@pytest.mark.parametrize("loss", GIVEN, ids=lambda loss: loss.__name__)
def test_for_every_loss_when_recorded(
    make_mlp: MakeMLP, make_pool: MakePool, loss: Loss, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlp = net_for(make_mlp, loss)
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 3)
    Case(mlp, make_pool(8), (4, 4), TrainSettings(epochs=5, batch=4, lr=0.1), loss, ONLY.get(loss)).check()
    assert len(gradients_of(mlp, loss).recorded) == 1


def test_a_recorded_call_gives_the_same_bits(
    make_mlp: MakeMLP, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, ends = make_pool(24), []
    for uses in (10**9, 1, 3):
        monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", uses)
        architecture = make_mlp()
        case = Case(architecture, pool, (8, 8, 8), SETTINGS["sgd with momentum"], losses.proximal)
        models = case.models()
        totals = batched.fit(case.jobs(models, case.memories()))
        recorded = gradients_of(architecture, losses.proximal).recorded
        assert len(recorded) == (0 if uses == 10**9 else 1)
        ends.append((totals, torch.stack([m.vector for m in models])))
    for totals, vectors in ends[1:]:
        assert totals == ends[0][0]
        assert torch.equal(vectors, ends[0][1])


def test_recorded_calls_of_several_shapes_do_not_mix(
    make_mlp: MakeMLP, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same architecture object: other batch sizes, peers, parts and losses, each recorded at once."""
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 1)
    architecture, pool = make_mlp(), make_pool(20)
    for loss in set(GIVEN) - set(PARTS) - set(ONLY):
        for sizes, only in (((4, 4), None), ((4, 4), "head"), ((3, 3, 3), None)):
            Case(architecture, pool, sizes, loss=loss, only=only).check()


def test_a_loss_that_cannot_be_recorded_is_computed_all_the_same(
    make_mlp: MakeMLP, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("cannot be recorded")

    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 3)
    monkeypatch.setattr(recording, "recording", refuse)
    Case(make_mlp(), make_pool(16), (8, 8), TrainSettings(epochs=3, batch=4, lr=0.1)).check()


def test_peers_of_several_sizes_in_turn(make_mlp: MakeMLP, make_pool: MakePool) -> None:
    """Their first steps are of one size, and so computed together: each on its own samples."""
    Case(make_mlp(), make_pool(49), (8, 12, 8, 12, 9), TrainSettings(epochs=2, batch=4, lr=0.1)).check()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("keep", [False, True], ids=["forgetful", "remembering"])
@pytest.mark.parametrize("loop", [_all_plain, batched.fit], ids=["plain", "batched"])
def test_no_epochs_change_nothing(
    mlp: Architecture,
    make_pool: MakePool,
    loop: Callable[[Sequence[FitJob]], list[float]],
    keep: bool,
    optimizer: str,
) -> None:
    case = Case(mlp, make_pool(8), (4, 4), TrainSettings(epochs=0, optimizer=optimizer), keep=keep)
    models, memories = case.models(), case.memories()
    assert loop(case.jobs(models, memories)) == [0.0, 0.0]
    for model, start, memory in zip(models, case.starts, memories, strict=True):
        assert torch.equal(model.vector, start.vector)
        assert memory is None or memory.step == 0


def test_a_memory_of_another_optimiser_is_not_used(mlp: Architecture, make_pool: MakePool) -> None:
    """A method may call `me.train(optimizer="adam")` after rounds of sgd; both loops must agree on what that means."""
    ends = []
    for loop in (_all_plain, batched.fit):
        case = Case(mlp, make_pool(8), (4, 4), SETTINGS["sgd with momentum"], keep=True)
        models, memories = case.models(), case.memories()
        loop(case.jobs(models, memories, "first"))
        case.settings = SETTINGS["adam"]
        loop(case.jobs(models, memories, "second"))
        ends.append(torch.stack([m.vector for m in models]))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=2e-5)


def test_other_numbers_of_views_are_recorded_apart(
    make_mlp: MakeMLP, make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 1)
    architecture = make_mlp()
    for count in (2, 3):
        monkeypatch.setitem(VIEWS, classavg_loss, count)
        Case(architecture, make_pool(8), (4, 4), loss=classavg_loss).check()
    assert len(gradients_of(architecture, classavg_loss).recorded) == 2


def test_for_training_on_views(mlp: Architecture, make_pool: MakePool) -> None:
    pool = make_pool(12)
    augmented = TrainSettings(epochs=2, batch=4, lr=0.1, augment=True)
    Case(mlp, pool, (6, 6), augmented).check()
    ends = []
    for settings in (SGD, augmented):
        case = Case(mlp, pool, (6, 6), settings)
        models = case.models()
        batched.fit(case.jobs(models, case.memories()))
        ends.append(models[0].vector)
    assert not torch.equal(*ends)


# -- frozen parameters ---------------------------------------------------------------------------

MIDDLE = ("backbone.2.weight", "backbone.4.bias")  # neither the first nor the last of the vector, and not side by side
BACKBONE = tuple(f"backbone.{layer}.{name}" for layer in (0, 2, 4) for name in ("weight", "bias"))


def frozen_net(names: Sequence[str]) -> Architecture:
    """Three dense layers and a head on 4 features, of which these parameters are frozen where they are made."""

    def make() -> Net:
        layers = [nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)]
        net = Net(nn.Sequential(*layers), 4, 3)
        for name in names:
            net.get_parameter(name).requires_grad_(False)
        return net

    return Architecture("frozen", make)


both_loops = pytest.mark.parametrize("loop", [_all_plain, batched.fit], ids=["plain", "batched"])


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("names", [MIDDLE, BACKBONE], ids=["in the middle", "all but the head"])
def test_with_frozen_parameters_for_every_optimiser(
    make_pool: MakePool, names: tuple[str, ...], settings: TrainSettings
) -> None:
    Case(frozen_net(names), make_pool(16), (6, 7, 3), settings, losses.proximal).check()


@both_loops
@pytest.mark.parametrize("only", [None, "backbone", "head"])
@pytest.mark.parametrize("optimizer", ["sgd with momentum and decay", "adam with decay"])
def test_frozen_parameters_keep_their_bits_and_the_optimiser_nothing_of_them(
    make_pool: MakePool, loop: Callable[[Sequence[FitJob]], list[float]], only: str | None, optimizer: str
) -> None:
    """Neither gradient nor weight decay nor momentum moves them, and others of the same part do move."""
    case = Case(frozen_net(MIDDLE), make_pool(13), (6, 7), SETTINGS[optimizer], only=only, keep=True)
    models, memories = case.models(), case.memories()
    for call in ("first", "second"):
        loop(case.jobs(models, memories, call))
    for start, model, memory in zip(case.starts, models, memories, strict=True):
        moved = {name for name in model if not torch.equal(model[name], start[name])}
        assert moved == {n for n in model if n not in MIDDLE and (only is None or n.startswith(f"{only}."))}
        assert memory is not None
        for vector in memory.vectors.values():
            assert vector.shape == model.parameters.shape
            remembered = {s.name for s in model.layout.parameters if vector[s.start : s.stop].any()}
            assert remembered == moved


def test_frozen_parameters_when_recorded(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 3)
    architecture = frozen_net(MIDDLE)
    Case(architecture, make_pool(8), (4, 4), TrainSettings(epochs=5, batch=4, lr=0.1)).check()
    assert len(gradients_of(architecture, task_loss).recorded) == 1


@both_loops
def test_what_is_frozen_later_than_in_the_making_is_not_frozen(
    make_pool: MakePool, loop: Callable[[Sequence[FitJob]], list[float]]
) -> None:
    """The module that computes is set up again for every training: only what `build` makes counts."""
    architecture = frozen_net(())
    architecture.scratch().requires_grad_(False)
    case = Case(architecture, make_pool(6), (6,))
    models = case.models()
    loop(case.jobs(models, case.memories()))
    assert not any(torch.equal(models[0][name], case.starts[0][name]) for name in models[0])


@both_loops
@pytest.mark.parametrize(
    ("names", "only", "message"),
    [
        ((*BACKBONE, "head.weight", "head.bias"), None, r"nothing to train in 'frozen': all of its parameters are fro"),
        (BACKBONE, "backbone", r"nothing to train in the part 'backbone' of 'frozen': all of its parameters are fro"),
    ],
)
def test_nothing_to_train_is_an_error(
    make_pool: MakePool,
    loop: Callable[[Sequence[FitJob]], list[float]],
    names: tuple[str, ...],
    only: str | None,
    message: str,
) -> None:
    case = Case(frozen_net(names), make_pool(6), (6,), only=only)
    with pytest.raises(ModelError, match=message):
        loop(case.jobs(case.models(), case.memories()))


def test_a_loss_that_does_not_reach_every_parameter_is_remembered_for_the_others(
    make_mlp: MakeMLP, make_pool: MakePool
) -> None:
    """The projector is not part of cross entropy: torch's optimiser then knows nothing of it."""
    case = Case(make_mlp(parts=("projector",)), make_pool(8), (4, 4), SETTINGS["sgd with momentum"], keep=True)
    one, other, memory_one, memory_other = case.models(), case.models(), case.memories(), case.memories()
    for call in ("first", "second"):
        _all_plain(case.jobs(one, memory_one, call))
        batched.fit(case.jobs(other, memory_other, call))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(b.vector, a.vector, rtol=1e-4, atol=2e-5)
