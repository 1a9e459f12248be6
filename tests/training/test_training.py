"""Training against hand calculations: single steps, the losses, batch norm, dropout and evaluation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from coterie.core.jobs import EvaluateJob, FitJob, Pool, Split, TrainSettings, batches
from coterie.core.loss import Batch, BoundNet, Given, cross_entropy
from coterie.core.model import Architecture, Model
from coterie.core.net import Net, Output
from coterie.training import batched, plain
from coterie.training.losses import proximal

MakeMLP = Callable[..., Architecture]
Fit = Callable[[FitJob], float]

both_loops = pytest.mark.parametrize("fit", [plain.fit, lambda job: batched.fit([job])[0]], ids=["plain", "batched"])


def linear_model(make_mlp: MakeMLP, weight: Sequence[Sequence[float]], bias: Sequence[float]) -> Model:
    architecture = make_mlp(hidden=(), features=len(weight[0]), classes=len(weight))
    return architecture.model({"head.weight": torch.tensor(weight), "head.bias": torch.tensor(bias)})


def all_of(x: Sequence[Sequence[float]], y: Sequence[int]) -> Split:
    return Split(Pool(torch.tensor(x), torch.tensor(y)), torch.arange(len(y)))


# -- steps by hand -----------------------------------------------------------------------------


@both_loops
def test_one_step_of_softmax_regression_on_paper(make_mlp: MakeMLP, fit: Fit) -> None:
    """At zero weights both classes have probability 1/2, so the gradient of row c is (1/2 - [y = c]) x."""
    model = linear_model(make_mlp, [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0])
    split = all_of([[1.0, 2.0], [3.0, -1.0]], [0, 1])
    loss = fit(FitJob(model, split, cross_entropy, TrainSettings(epochs=1, batch=2, lr=0.1, momentum=0.0), ("k",)))
    # Row 0: mean of -1/2 (1, 2) and +1/2 (3, -1) = (0.5, -0.75); row 1 the opposite; the biases cancel.
    assert loss == pytest.approx(math.log(2))
    assert model["head.weight"].tolist() == [pytest.approx([-0.05, 0.075]), pytest.approx([0.05, -0.075])]
    assert model["head.bias"].tolist() == pytest.approx([0.0, 0.0], abs=1e-7)


def regression_by_hand(
    w: list[list[float]], b: list[float], x: Sequence[Sequence[float]], y: Sequence[int], s: TrainSettings
) -> float:
    """Full-batch SGD with momentum and weight decay, in plain floats; returns the mean loss."""
    speed_w, speed_b, total = [[0.0] * len(row) for row in w], [0.0] * len(b), 0.0
    for _ in range(s.epochs):
        grad_w, grad_b = [[s.weight_decay * v for v in row] for row in w], [s.weight_decay * v for v in b]
        for features, label in zip(x, y, strict=True):
            logits = [
                sum(wi * f for wi, f in zip(row, features, strict=True)) + bc for row, bc in zip(w, b, strict=True)
            ]
            norm = sum(math.exp(v) for v in logits)
            total -= math.log(math.exp(logits[label]) / norm) / len(y)
            for c, logit in enumerate(logits):
                error = (math.exp(logit) / norm - (c == label)) / len(y)
                grad_b[c] += error
                for i, f in enumerate(features):
                    grad_w[c][i] += error * f
        for c in range(len(b)):
            speed_b[c] = s.momentum * speed_b[c] + grad_b[c]
            b[c] -= s.lr * speed_b[c]
            for i in range(len(w[c])):
                speed_w[c][i] = s.momentum * speed_w[c][i] + grad_w[c][i]
                w[c][i] -= s.lr * speed_w[c][i]
    return total / s.epochs


@both_loops
@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)])
def test_several_steps_against_plain_floats(make_mlp: MakeMLP, fit: Fit, momentum: float, decay: float) -> None:
    w, b = [[0.5, -0.2], [0.1, 0.3], [-0.4, 0.0]], [0.1, -0.1, 0.2]
    x, y = [[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]], [0, 2, 1]
    model = linear_model(make_mlp, w, b)
    settings = TrainSettings(epochs=4, batch=8, lr=0.2, momentum=momentum, weight_decay=decay)
    loss = fit(FitJob(model, all_of(x, y), cross_entropy, settings, ("k",)))
    assert loss == pytest.approx(regression_by_hand(w, b, x, y, settings), rel=1e-5)
    assert model["head.weight"].tolist() == [pytest.approx(row, abs=1e-5) for row in w]
    assert model["head.bias"].tolist() == pytest.approx(b, abs=1e-5)


@both_loops
def test_the_first_step_of_adam_is_the_learning_rate_in_every_number(make_mlp: MakeMLP, fit: Fit) -> None:
    """Bias correction makes it lr * g / (|g| + eps)."""
    model = linear_model(make_mlp, [[0.0, 0.0], [0.0, 0.0]], [0.0, 0.0])
    split = all_of([[1.0, -2.0], [3.0, 4.0]], [0, 0])  # gradients of row 0: -(1, 0.5); of its bias: -1/2
    fit(FitJob(model, split, cross_entropy, TrainSettings(batch=2, optimizer="adam", lr=0.1), ("k",)))
    assert model["head.weight"].flatten().tolist() == pytest.approx([0.1, 0.1, -0.1, -0.1], rel=1e-4)
    assert model["head.bias"].tolist() == pytest.approx([0.1, -0.1], rel=1e-4)


# -- batches -----------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 3))
def test_an_epoch_sees_every_sample_once(samples: int, batch: int, epochs: int) -> None:
    settings = TrainSettings(epochs=epochs, batch=batch)
    plan = [step[0] for step in batches(samples, settings, [5])]
    seen = [int(i) for step in plan for i in step]
    assert len(seen) == epochs * samples
    for epoch in range(epochs):
        assert sorted(seen[epoch * samples : (epoch + 1) * samples]) == list(range(samples))
    full, rest = divmod(samples, batch)
    sizes = [batch] * full + ([rest] if rest else [])
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    assert [len(step) for step in plan] == sizes * epochs


def test_every_epoch_is_shuffled_anew() -> None:
    first, second = (step[0] for step in batches(30, TrainSettings(epochs=2, batch=30), [5]))
    assert first.tolist() != second.tolist() != sorted(second.tolist())


def test_shuffling_does_not_depend_on_other_peers() -> None:
    alone, together = (batches(9, TrainSettings(epochs=2, batch=4), keys) for keys in ([7], [3, 7, 2**64 - 1]))
    assert [step[0].tolist() for step in alone] == [step[1].tolist() for step in together]


# -- losses ------------------------------------------------------------------------------------


class Linear:
    """A net as the losses see one: y = x w + b."""

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.parameters = parameters

    def __call__(self, x: Tensor) -> Output:
        return Output(x @ self.parameters["w"] + self.parameters["b"], x, None)


class Constant:
    def __init__(self, logits: Tensor) -> None:
        self.parameters: Mapping[str, Tensor] = {}
        self.logits = logits

    def __call__(self, x: Tensor) -> Output:
        return Output(self.logits, x, None)


@given(
    st.integers(1, 6).flatmap(
        lambda c: st.lists(
            st.tuples(st.lists(st.floats(-200, 200, width=32), min_size=c, max_size=c), st.integers(0, c - 1)),
            min_size=1,
            max_size=6,
        )
    )
)
def test_cross_entropy_is_that_of_torch(rows: list[tuple[list[float], int]]) -> None:
    logits, y = torch.tensor([row for row, _ in rows]), torch.tensor([label for _, label in rows])
    ours = cross_entropy(Constant(logits), Batch(logits, y), {})
    torch.testing.assert_close(ours, F.cross_entropy(logits, y), rtol=1e-5, atol=1e-5)


def test_proximal_adds_half_mu_times_the_squared_distance() -> None:
    net = Linear({"w": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([0.0, 3.0])})
    batch = Batch(torch.tensor([[1.0]]), torch.tensor([0]))
    ref = {"ref.w": torch.tensor([[0.0, 0.0]]), "ref.b": torch.tensor([1.0, 1.0]), "mu": torch.tensor(0.5)}
    # Distance: 1 + 4 + 1 + 4 = 10; times mu / 2 = 2.5.
    added = proximal(net, batch, ref) - cross_entropy(net, batch, {})
    assert added.item() == pytest.approx(2.5)


def test_the_gradient_of_proximal_is_that_of_finite_differences() -> None:
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    parameters = {"w": normal(3, 2).requires_grad_(), "b": normal(2).requires_grad_()}
    ref = {"ref.w": normal(3, 2), "ref.b": normal(2), "mu": torch.tensor(0.7, dtype=torch.float64)}
    batch = Batch(normal(4, 3), torch.tensor([0, 1, 1, 0]))
    proximal(Linear(parameters), batch, ref).backward()
    step = 1e-6
    for name, parameter in parameters.items():
        assert parameter.grad is not None
        for place in np.ndindex(*parameter.shape):
            ends = []
            for sign in (1, -1):
                moved = {key: value.detach().clone() for key, value in parameters.items()}
                moved[name][place] += sign * step
                ends.append(proximal(Linear(moved), batch, ref).item())
            slope = (ends[0] - ends[1]) / (2 * step)
            assert parameter.grad[place].item() == pytest.approx(slope, rel=1e-5, abs=1e-7)


# -- nets that keep or draw something ------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("groups", [(7,), (1,) * 7, (2, 5), (3, 3, 1), (6, 1)])
def test_how_many_are_stacked_changes_no_bit(
    make_mlp: MakeMLP, make_pool: Callable[..., Pool], groups: tuple[int, ...], optimizer: str
) -> None:
    """Sizes that fill no register: biases of 3, batches of 5 of 11 samples."""
    pool, settings = make_pool(77), TrainSettings(epochs=3, batch=5, lr=0.1, optimizer=optimizer)
    architecture = make_mlp(parts=("projector",))

    def trained(sizes: Sequence[int]) -> list[Tensor]:
        jobs = [
            FitJob(architecture.initial(i), Split(pool, torch.arange(11 * i, 11 * i + 11)), projected, settings, (i,))
            for i in range(7)
        ]
        ends = list(itertools.accumulate(sizes))
        for end, size in zip(ends, sizes, strict=True):
            batched.fit(jobs[end - size : end])
        return [job.model.vector for job in jobs]

    for mine, theirs in zip(trained(groups), trained((4, 3)), strict=True):
        assert torch.equal(mine, theirs)


def projected(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """A loss that trains the projector, too: its norm is over the batch."""
    outputs = net(batch.x)
    assert outputs.projection is not None
    return cross_entropy(net, batch, given) + outputs.projection.square().mean()


def test_batch_norm_statistics_live_in_the_models_vector(batch_normed: Architecture) -> None:
    x = [[1.0, 2.0, 3.0, 4.0], [3.0, 2.0, 0.0, -4.0]]
    model, other = batch_normed.initial(0), batch_normed.initial(0)
    plain.fit(FitJob(model, all_of(x, [0, 1]), cross_entropy, TrainSettings(batch=2), ("k",)))
    # One step of momentum 0.1 from mean 0 and variance 1; the variance of two numbers a, b is (a - b)^2 / 2.
    assert model["backbone.1.running_mean"].tolist() == pytest.approx([0.2, 0.2, 0.15, 0.0], abs=1e-6)
    assert model["backbone.1.running_var"].tolist() == pytest.approx([1.1, 0.9, 1.35, 4.1], abs=1e-5)
    assert model["backbone.1.num_batches_tracked"].item() == 1
    slot = model.layout.by_name["backbone.1.running_mean"]
    assert model.vector[slot.start].item() == pytest.approx(0.2)
    assert torch.equal(other.vector, batch_normed.initial(0).vector)
    before = model.vector.clone()
    plain.evaluate(EvaluateJob(model, all_of(x, [0, 1])))
    assert torch.equal(model.vector, before)  # measuring leaves no trace


@pytest.mark.parametrize("norms", [2, 3])
def test_several_batch_norms_train_as_a_plain_module_does(norms: int) -> None:
    """Their statistics lie in one vector. Torch must not take a change of one layer's for a change of another's."""

    def net() -> Net:
        layers = [layer for _ in range(norms) for layer in (nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())]
        return Net(nn.Sequential(*layers), 4, 3)

    model = Architecture("deep", net).initial(0)
    alone = net()
    alone.load_state_dict(dict(model))
    split = all_of(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).tolist(), [0, 1, 2, 0, 1, 2])
    plain.fit(FitJob(model, split, cross_entropy, TrainSettings(epochs=2, batch=6, lr=0.1, momentum=0.9), ("k",)))
    optimizer = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(alone(split.x).logits, split.y).backward()
        optimizer.step()
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(model[name], tensor.to(torch.float32), msg=name)


def test_a_frozen_batch_norm_still_counts_as_in_torch() -> None:
    """`requires_grad = False` is about parameters. Statistics stand still where the module says so in `train`."""

    class Still(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> Self:  # noqa: ARG002
            return super().train(False)

    x = [[1.0, 2.0, 3.0, 4.0], [3.0, 2.0, 0.0, -4.0]]
    for kind, mean in ((nn.BatchNorm1d, [0.2, 0.2, 0.15, 0.0]), (Still, [0.0] * 4)):

        def make(kind: type[nn.BatchNorm1d] = kind) -> Net:
            return Net(nn.Sequential(nn.Flatten(), kind(4).requires_grad_(False)), 4, 3)

        model = Architecture("normed", make).initial(0)
        plain.fit(FitJob(model, all_of(x, [0, 1]), cross_entropy, TrainSettings(batch=2, lr=0.1), ("k",)))
        assert (model["backbone.1.weight"] == 1).all()
        assert (model["backbone.1.bias"] == 0).all()
        # As above: a tenth of the batch's mean, (2, 2, 1.5, 0).
        assert model["backbone.1.running_mean"].tolist() == pytest.approx(mean, abs=1e-6)


def test_batch_norm_survives_a_last_batch_of_one(batch_normed: Architecture) -> None:
    model = batch_normed.initial(0)
    split = all_of(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).tolist(), [0, 1, 2, 0, 1])
    plain.fit(FitJob(model, split, cross_entropy, TrainSettings(batch=2), ("k",)))
    assert model["backbone.1.num_batches_tracked"].item() == 2
    assert torch.isfinite(model.vector).all()


def test_dropout_repeats_with_its_key_and_leaves_torchs_generator_alone(make_mlp: MakeMLP) -> None:
    split = all_of(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).tolist(), [0, 1, 2, 0, 1, 2])

    dropping, keeping = (make_mlp(hidden=(8,), dropout=dropout) for dropout in (0.5, 0.0))

    def trained(key: str, architecture: Architecture = dropping) -> Tensor:
        model = architecture.initial(0)
        plain.fit(FitJob(model, split, cross_entropy, TrainSettings(epochs=2, batch=6), (key,)))
        return model.vector

    first = trained("a")
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    assert torch.equal(trained("a"), first)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    assert torch.equal(trained("a"), first)
    assert not torch.allclose(trained("b"), first)
    assert not torch.allclose(trained("a", keeping), first)


# -- evaluation --------------------------------------------------------------------------------

both_measures = pytest.mark.parametrize(
    "measure", [plain.evaluate, lambda job: batched.evaluate([job])[0]], ids=["plain", "batched"]
)


@both_measures
def test_evaluation_by_hand(make_mlp: MakeMLP, measure: Callable[[EvaluateJob], object]) -> None:
    model = linear_model(make_mlp, [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0])
    split = all_of([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0], [5.0, 4.0]], [0, 1, 1, 1])  # right, right, wrong, wrong
    model.architecture.scratch()
    score = measure(EvaluateJob(model, split))
    by_margin = [math.log(1 + math.exp(-m)) for m in (1, 3, -1, -1)]  # logit of the label minus the other
    assert score.accuracy == 0.5  # type: ignore[attr-defined]
    assert score.loss == pytest.approx(sum(by_margin) / 4)  # type: ignore[attr-defined]


@both_measures
def test_a_net_can_be_measured_before_it_is_trained(
    convolutional: Architecture, make_pool: Callable[..., Pool], measure: Callable[[EvaluateJob], object]
) -> None:
    """IFCA compares models first: the module is made at that moment, and must serve training after."""
    pool = make_pool(4, (1, 4, 4))
    model, split = convolutional.initial(0), Split(pool, torch.arange(4))
    before = measure(EvaluateJob(model, split))
    plain.fit(FitJob(model, split, cross_entropy, TrainSettings(epochs=3, lr=0.1), ("k",)))
    assert measure(EvaluateJob(model, split)).loss < before.loss  # type: ignore[attr-defined]


def test_batched_evaluation_equals_plain(mlp: Architecture, make_pool: Callable[..., Pool]) -> None:
    """More samples than the plain loop takes at once, and other rows at every peer."""
    pool = make_pool(700)
    draw = torch.Generator().manual_seed(0)
    jobs = [EvaluateJob(mlp.initial(0, i), Split(pool, torch.randperm(700, generator=draw)[:600])) for i in range(3)]
    together = batched.evaluate(jobs)
    assert len({score.loss for score in together}) == 3
    for job, score in zip(jobs, together, strict=True):
        alone = plain.evaluate(job)
        assert score.accuracy == alone.accuracy
        assert score.loss == pytest.approx(alone.loss, rel=1e-5)


@both_loops
def test_no_samples_change_nothing(mlp: Architecture, make_pool: Callable[..., Pool], fit: Fit) -> None:
    model = mlp.initial(0)
    nothing = Split(make_pool(4), torch.arange(0))
    assert fit(FitJob(model, nothing, cross_entropy, TrainSettings(), ("k",))) == 0.0
    assert torch.equal(model.vector, mlp.initial(0).vector)


def view_job(make_mlp: MakeMLP, pool: Pool, loss: Any, key: object) -> FitJob:
    settings = TrainSettings(epochs=2, batch=4, lr=0.1)
    return FitJob(make_mlp().initial(0), Split(pool, torch.arange(8)), loss, settings, ("peer", key), views=2)


def test_every_step_sees_other_views_and_the_same_again(make_mlp: MakeMLP, make_pool: Any) -> None:
    runs: list[list[Tensor]] = []
    for _ in range(2):
        seen: list[Tensor] = []

        def look(net: Any, batch: Batch, given: Any, seen: list[Tensor] = seen) -> Tensor:
            assert batch.views is not None
            seen.append(batch.views.detach() - batch.x)
            return cross_entropy(net, batch, given)

        plain.fit(view_job(make_mlp, make_pool(8), look, 1))
        runs.append(seen)
    first, second = runs
    assert [tuple(change.shape) for change in first] == [(2, 4, 4)] * 4
    changes = [view for step in first for view in step]
    assert all(not torch.equal(a, b) for i, a in enumerate(changes) for b in changes[:i])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_peers_views_do_not_depend_on_other_peers(make_mlp: MakeMLP, make_pool: Any) -> None:
    pool = make_pool(8)
    jobs = [view_job(make_mlp, pool, cross_entropy, key) for key in (1, 2)]
    rows = np.arange(4)[None].repeat(2, axis=0)
    both = batched._batch(jobs, batched._Step(rows, rows), 0)
    alone = batched._batch(jobs[:1], batched._Step(rows[:1], rows[:1]), 0)
    assert both.views is not None
    assert alone.views is not None
    assert torch.equal(both.views[0], alone.views[0])
    assert not torch.equal(both.views[0], both.views[1])


def test_predictions_equal_the_outputs_of_the_net(make_mlp: Any, make_pool: Any) -> None:
    architecture, pool = make_mlp(), make_pool(9)
    jobs = [EvaluateJob(architecture.initial(0, i), Split(pool, torch.arange(i, i + 5))) for i in range(3)]
    for job, one, many in zip(jobs, map(plain.predict, jobs), batched.predict(jobs), strict=True):
        features = torch.relu(job.split.x @ job.model["backbone.1.weight"].T + job.model["backbone.1.bias"])
        logits = features @ job.model["head.weight"].T + job.model["head.bias"]
        for said in (one, many):
            torch.testing.assert_close(said.features, features)
            torch.testing.assert_close(said.logits, logits)
