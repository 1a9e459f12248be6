"""The trainer: results that do not depend on how jobs are grouped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from coterie.core.errors import ConfigError
from coterie.core.jobs import EvaluateJob, FitJob, Pool, Split, TrainSettings
from coterie.core.loss import cross_entropy
from coterie.core.model import Architecture
from coterie.training import Trainer, batched, dispatch, plain

MakeMLP = Callable[..., Architecture]
MakePool = Callable[..., Pool]
SETTINGS = TrainSettings(epochs=1, batch=4, lr=0.1)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LARGEST_CHUNK", 2)


def jobs_of(architecture: Architecture, pool: Pool, peers: int, samples: int = 6, epochs: int = 1) -> list[FitJob]:
    return [
        FitJob(
            architecture.initial(0, i),
            Split(pool, torch.arange(i, i + samples)),
            cross_entropy,
            replace(SETTINGS, epochs=epochs),
            ("key", i),
        )
        for i in range(peers)
    ]


def vectors(jobs: list[FitJob]) -> Tensor:
    return torch.stack([job.model.vector for job in jobs])


@pytest.mark.usefixtures("small_chunks")
def test_results_are_the_same_bits_for_any_number_of_workers(make_mlp: MakeMLP, make_pool: MakePool) -> None:
    pool, outcomes = make_pool(16), []
    for workers in (1, 2, 3):
        jobs = jobs_of(make_mlp(), pool, 6, 4, epochs=6)
        with closing(Trainer("auto", workers)) as trainer:
            losses = trainer.fit(jobs)
            scores = trainer.evaluate([EvaluateJob(job.model, job.split) for job in jobs])
        outcomes.append((losses, scores, vectors(jobs)))
    for losses, scores, trained in outcomes[1:]:
        assert losses == outcomes[0][0]
        assert scores == outcomes[0][1]
        assert torch.equal(trained, outcomes[0][2])


@pytest.mark.usefixtures("small_chunks")
def test_all_ways_of_batching_agree_and_keep_the_order(make_mlp: MakeMLP, make_pool: MakePool) -> None:
    """Jobs of two architectures, mixed: every result goes to the job that asked for it."""
    pool, outcomes = make_pool(20), []
    for batching in ("never", "auto", "always"):
        a, b = jobs_of(make_mlp(), pool, 3, 4), jobs_of(make_mlp(hidden=(3,)), pool, 3, 8)
        jobs = [job for pair in zip(a, b, strict=True) for job in pair]
        with closing(Trainer(batching)) as trainer:
            losses = trainer.fit(jobs)
            scores = trainer.evaluate([EvaluateJob(job.model, job.split) for job in jobs])
        outcomes.append((losses, [s.loss for s in scores], [s.accuracy for s in scores], vectors(a), vectors(b)))
    expected = outcomes[0]
    assert len(set(expected[0])) == 6
    for outcome in outcomes[1:]:
        assert outcome[0] == pytest.approx(expected[0], rel=1e-4)
        assert outcome[1] == pytest.approx(expected[1], rel=1e-4)
        assert outcome[2] == expected[2]
        torch.testing.assert_close(outcome[3], expected[3], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(outcome[4], expected[4], rtol=1e-4, atol=1e-5)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Which loop was taken, for how many jobs."""
    calls: list[str] = []
    one, many = plain.fit, batched.fit
    monkeypatch.setattr(plain, "fit", lambda job: (calls.append("plain"), one(job))[1])
    monkeypatch.setattr(batched, "fit", lambda jobs: (calls.append(f"batched {len(jobs)}"), many(jobs))[1])
    return calls


def test_auto_takes_the_faster_loop(
    mlp: Architecture,
    convolutional: Architecture,
    batch_normed: Architecture,
    make_pool: MakePool,
    used: list[str],
) -> None:
    images, rows = make_pool(8, (1, 4, 4)), make_pool(8)
    with closing(Trainer("auto")) as trainer:
        for jobs, expected in (
            (jobs_of(mlp, rows, 3), ["batched 3"]),
            (jobs_of(mlp, rows, 1), ["batched 1"]),  # the same numbers as beside others
            (jobs_of(convolutional, images, 2), ["plain", "plain"]),
            (jobs_of(batch_normed, rows, 2), ["plain", "plain"]),
        ):
            used.clear()
            trainer.fit(jobs)
            assert used == expected


@pytest.mark.usefixtures("small_chunks")
def test_always_and_never_are_obeyed(
    mlp: Architecture, convolutional: Architecture, make_pool: MakePool, used: list[str]
) -> None:
    with closing(Trainer("always")) as trainer:
        trainer.fit(jobs_of(convolutional, make_pool(8, (1, 4, 4)), 3))
        assert sorted(used) == ["batched 1", "batched 2"]
    used.clear()
    with closing(Trainer("never")) as trainer:
        trainer.fit(jobs_of(mlp, make_pool(8), 2))
    assert used == ["plain", "plain"]


def test_always_with_a_net_that_cannot_be_batched_is_an_error(
    batch_normed: Architecture, make_mlp: MakeMLP, make_pool: MakePool
) -> None:
    with closing(Trainer("always")) as trainer:
        for architecture in (batch_normed, make_mlp(dropout=0.5)):
            jobs = jobs_of(architecture, make_pool(8), 2)
            with pytest.raises(ConfigError, match=rf"engine.batching.*'{architecture.name}'"):
                trainer.fit(jobs)
            with pytest.raises(ConfigError, match=r"engine\.batching"):
                trainer.evaluate([EvaluateJob(job.model, job.split) for job in jobs])


def test_an_unknown_way_of_batching_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"engine.batching must be auto, always or never, not 'maybe'"):
        Trainer("maybe")


def test_nothing_to_do_is_nothing_done() -> None:
    with closing(Trainer()) as trainer:
        assert trainer.fit([]) == []
        assert trainer.evaluate([]) == []


def test_peers_with_settings_of_their_own_are_not_mixed(mlp: Architecture, make_pool: MakePool) -> None:
    """One of two equal peers trains with another learning rate; each gets its own."""
    pool = make_pool(8)

    def job(lr: float) -> FitJob:
        settings = TrainSettings(epochs=1, batch=6, lr=lr, momentum=0.0)
        return FitJob(mlp.initial(0), Split(pool, torch.arange(6)), cross_entropy, settings, ("same",))

    slow, fast = job(0.1), job(0.2)
    with closing(Trainer("always")) as trainer:
        trainer.fit([slow, fast])
    start = mlp.initial(0).vector
    torch.testing.assert_close(fast.model.vector - start, 2 * (slow.model.vector - start), rtol=1e-3, atol=1e-6)


def test_all_kinds_of_models_give_the_same_bits_for_any_number_of_workers(
    make_mlp: MakeMLP, make_pool: MakePool, convolutional: Architecture, batch_normed: Architecture
) -> None:
    """Convolutions and batch norm, which are trained alone, beside each other; dropout, which draws, one by one."""
    outcomes = []
    for workers in (1, 3):
        kinds = [(convolutional, (1, 4, 4)), (batch_normed, (4,)), (make_mlp(dropout=0.5), (4,)), (make_mlp(), (4,))]
        jobs = [job for kind, shape in kinds for job in jobs_of(kind, make_pool(16, shape), 3, 4, epochs=3)]
        with closing(Trainer("auto", workers)) as trainer:
            losses = trainer.fit(jobs)
        outcomes.append((losses, [job.model.vector for job in jobs]))
    assert outcomes[0][0] == outcomes[1][0]
    assert all(torch.equal(a, b) for a, b in zip(outcomes[0][1], outcomes[1][1], strict=True))


def test_architectures_that_draw_are_detected(make_mlp: MakeMLP, convolutional: Architecture) -> None:
    assert make_mlp(dropout=0.5).draws
    assert not make_mlp().draws
    assert not convolutional.draws
    assert Architecture("mine:net", convolutional.build).draws  # what it does inside cannot be seen
