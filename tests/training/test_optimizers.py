"""Every optimiser and balance of classes: the batched loop against the plain one, with and without kept state."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from coterie.core.jobs import FitJob, OptimizerMemory, Pool, Split, TrainSettings
from coterie.core.loss import Batch, cross_entropy, negative_log_likelihood
from coterie.core.model import Architecture, Model
from coterie.core.net import Output
from coterie.core.optimizers import OPTIMIZERS
from coterie.training import batched, plain
from coterie.training.recording import Repeated

MakePool = Callable[..., Pool]
SIZES = (9, 14, 9)
RATES = {"sgd": 0.1, "adadelta": 1.0, "adagrad": 0.05}  # the others: 0.01
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


@pytest.fixture(autouse=True)
def _unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 10**9)


def settings_of(name: str, **more: object) -> TrainSettings:
    values = {"epochs": 3, "batch": 4, "optimizer": name, "lr": RATES.get(name, 0.01), **more}
    return TrainSettings(**values)  # type: ignore[arg-type]


def jobs_of(
    models: list[Model], pool: Pool, settings: TrainSettings, memories: list[OptimizerMemory] | None, call: int = 0
) -> list[FitJob]:
    rows = torch.arange(sum(SIZES)).split(list(SIZES))
    return [
        FitJob(
            model,
            Split(pool, rows[i]),
            cross_entropy,
            settings,
            (call, i),
            memory=None if memories is None else memories[i],
        )
        for i, model in enumerate(models)
    ]


def starts(architecture: Architecture) -> list[Model]:
    return [architecture.initial(0, draw) for draw in range(len(SIZES))]


def fit_plain(jobs: list[FitJob]) -> list[float]:
    return [plain.fit(job) for job in jobs]


def check_equal(mlp: Architecture, pool: Pool, settings: TrainSettings) -> None:
    one, other, before = starts(mlp), starts(mlp), starts(mlp)
    losses = fit_plain(jobs_of(one, pool, settings, None))
    assert batched.fit(jobs_of(other, pool, settings, None)) == pytest.approx(losses, rel=1e-4)
    for a, b, start in zip(one, other, before, strict=True):
        assert (a.vector - start.vector).abs().max() > 1e-3
        torch.testing.assert_close(b.vector, a.vector, rtol=1e-4, atol=2e-5)


@every_optimizer
@pytest.mark.parametrize("balance", ["none", "weights", "sampling"])
def test_both_loops_agree(mlp: Architecture, make_pool: MakePool, name: str, balance: str) -> None:
    check_equal(mlp, make_pool(sum(SIZES)), settings_of(name, balance=balance))


@every_optimizer
def test_both_loops_agree_with_other_options(mlp: Architecture, make_pool: MakePool, name: str) -> None:
    for momentum in (0.0, 0.5):
        options = {"momentum": momentum, "betas": (0.8, 0.98), "weight_decay": 0.05}
        check_equal(mlp, make_pool(sum(SIZES)), settings_of(name, **options))


@every_optimizer
@pytest.mark.parametrize("fit", [fit_plain, batched.fit], ids=["plain", "batched"])
def test_two_calls_with_kept_state_are_one_training(
    mlp: Architecture, make_pool: MakePool, name: str, fit: Callable[[list[FitJob]], list[float]]
) -> None:
    """Torch's own optimiser, over the full batches of both calls, without a pause."""
    pool, settings = make_pool(sum(SIZES)), settings_of(name, batch=100)
    models, memories = starts(mlp), [OptimizerMemory() for _ in SIZES]
    for call in (0, 1):
        fit(jobs_of(models, pool, settings, memories, call))
    kind = OPTIMIZERS[name]
    for job, model in zip(jobs_of(starts(mlp), pool, settings, None), models, strict=True):
        net = plain.bind(job.model)
        optimizer = kind.kind(net.parameters(), **kind.options(settings))
        for _ in range(6):
            optimizer.zero_grad()
            F.cross_entropy(net(job.split.x).logits, job.split.y).backward()
            optimizer.step()
        torch.testing.assert_close(model.vector, job.model.vector, rtol=1e-4, atol=2e-5)
    assert [memory.step for memory in memories] == [6] * len(SIZES)


@every_optimizer
def test_state_goes_from_one_loop_to_the_other(mlp: Architecture, make_pool: MakePool, name: str) -> None:
    pool, settings, ends = make_pool(sum(SIZES)), settings_of(name), []
    for first, second in ((batched.fit, fit_plain), (fit_plain, batched.fit)):
        models, memories = starts(mlp), [OptimizerMemory() for _ in SIZES]
        first(jobs_of(models, pool, settings, memories, 0))
        second(jobs_of(models, pool, settings, memories, 1))
        ends.append(torch.stack([model.vector for model in models]))
    torch.testing.assert_close(*ends, rtol=1e-4, atol=2e-5)


@every_optimizer
def test_the_table_names_all_state(mlp: Architecture, make_pool: MakePool, name: str) -> None:
    """What torch's optimiser has after a step is kept as vectors, or follows from the number of steps."""
    settings, model = settings_of(name), mlp.initial(0)
    kind, net, pool = OPTIMIZERS[name], plain.bind(model), make_pool(5)
    optimizer = kind.made(settings, list(net.parameters()))
    for steps in range(1, 4):
        F.cross_entropy(net(pool.x).logits, pool.y).backward()
        optimizer.step()
        counters = kind.counters(settings, steps)
        for state in optimizer.state.values():
            assert set(state) == {*kind.names(settings), *counters}
            assert {key: float(state[key]) for key in counters} == pytest.approx(counters)


def test_state_of_an_optimiser_with_equal_names_is_not_used(mlp: Architecture, make_pool: MakePool) -> None:
    """Adam and AdamW keep the same averages; a method that changes from one to the other starts anew."""
    pool = make_pool(sum(SIZES))
    for fit in (fit_plain, batched.fit):
        models, memories = starts(mlp), [OptimizerMemory() for _ in SIZES]
        fit(jobs_of(models, pool, settings_of("adam"), memories))
        fresh = copy.deepcopy([model.vector for model in models])
        fit(jobs_of(models, pool, settings_of("adamw"), memories))
        others = [Model(mlp, vector) for vector in fresh]
        fit(jobs_of(others, pool, settings_of("adamw"), None))
        for model, other in zip(models, others, strict=True):
            assert torch.equal(model.vector, other.vector)
        assert {memory.optimizer for memory in memories} == {"adamw"}


def test_a_weighted_loss_by_hand() -> None:
    """Logits of 0 and log 3 are probabilities of 1/4 and 3/4: losses of log 4 (class 0) and log(4/3) (class 1).

    With weights of 3 and 1 the mean is (3 log 4 + log(4/3)) / 4; without, (log 4 + log(4/3)) / 2.
    """
    logits, labels = torch.tensor([[0.0, 3.0], [0.0, 3.0]]).clamp(min=1).log(), torch.tensor([0, 1])
    by_weight = negative_log_likelihood(logits, labels, torch.tensor([3.0, 1.0]))
    log4, log43 = torch.tensor(4.0).log(), torch.tensor(4 / 3).log()
    assert by_weight.item() == pytest.approx(((3 * log4 + log43) / 4).item())
    assert negative_log_likelihood(logits, labels).item() == pytest.approx(((log4 + log43) / 2).item())


def test_weights_are_those_of_torchs_cross_entropy_of_the_peers_own_classes(
    mlp: Architecture, make_pool: MakePool
) -> None:
    """One step on all samples: F.cross_entropy with the weights n / (classes * count) of the peer's split."""
    pool = make_pool(8)
    labels = torch.tensor([0, 0, 0, 0, 0, 2, 2, 1])
    split = Split(Pool(pool.x, labels), torch.arange(7))  # without class 1
    job = FitJob(mlp.initial(0), split, cross_entropy, settings_of("sgd", balance="weights", epochs=1, batch=8), ("k",))
    logits = plain.bind(mlp.initial(0))(split.x).logits
    expected = F.cross_entropy(logits, split.y, torch.tensor([7 / (2 * 5), 1.0, 7 / (2 * 2)]))
    assert plain.fit(job) == pytest.approx(expected.item(), rel=1e-5)


def test_views_have_the_weights_of_their_samples() -> None:
    batch = Batch(torch.zeros(2, 1), torch.tensor([0, 1]), torch.zeros(3, 2, 1), None, torch.tensor([0.5, 2.0]))
    weights = batch.stacked_weights()
    assert weights is not None
    assert weights.tolist() == [0.5, 2.0] * 3
    assert batch._replace(weights=None).stacked_weights() is None


def test_a_net_of_equal_logits_has_the_same_loss_with_any_weights() -> None:
    """The weights are normalised: a loss of log 2 for each sample stays log 2."""

    def net(x: torch.Tensor) -> Output:
        return Output(logits=torch.zeros(len(x), 2), features=x)

    batch = Batch(torch.zeros(3, 1), torch.tensor([0, 1, 1]), weights=torch.tensor([9.0, 1.0, 4.0]))
    assert cross_entropy(net, batch, {}).item() == pytest.approx(torch.tensor(2.0).log().item())  # type: ignore[arg-type]


def test_balancing_changes_the_model(mlp: Architecture, make_pool: MakePool) -> None:
    pool, ends = make_pool(sum(SIZES)), {}
    for balance in ("none", "weights", "sampling"):
        models = starts(mlp)
        batched.fit(jobs_of(models, pool, settings_of("sgd", balance=balance), None))
        ends[balance] = models[0].vector
    assert len({tuple(vector.tolist()) for vector in ends.values()}) == 3
