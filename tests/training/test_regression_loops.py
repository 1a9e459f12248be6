"""Numbers as labels in both training loops: the squared error by hand, and equal results of the loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_squared_error

from coterie.core.errors import ModelError
from coterie.core.jobs import EvaluateJob, FitJob, Pool, Split, TrainSettings
from coterie.core.loss import Batch, Loss, cross_entropy, sample_losses, task_loss
from coterie.core.model import Architecture, Model
from coterie.core.net import Output
from coterie.methods.components.heads import head_loss
from coterie.training import batched, plain
from coterie.training.losses import proximal, pulled_to

MakeMLP = Callable[..., Architecture]


@pytest.fixture
def pool() -> Pool:
    draw = torch.Generator().manual_seed(1)
    return Pool(torch.randn(30, 4, generator=draw), torch.randn(30, generator=draw))


def splits(pool: Pool) -> list[Split]:
    return [Split(pool, torch.arange(10 * i, 10 * i + 10)) for i in range(3)]


def test_the_loss_of_a_sample_is_its_squared_error() -> None:
    # (2 - 5)^2 = 9 and (1 - 1.5)^2 = 0.25
    outputs, labels = torch.tensor([[2.0], [1.0]]), torch.tensor([5.0, 1.5])
    assert sample_losses(outputs, labels).tolist() == [9.0, 0.25]
    batch = Batch(torch.zeros(2, 1), labels, weights=torch.tensor([1.0, 3.0]))

    class Constant:
        parameters: ClassVar[dict[str, torch.Tensor]] = {}

        def __call__(self, x: torch.Tensor) -> Output:  # noqa: ARG002
            return Output(outputs, outputs)

    # the mean by weight: (1 * 9 + 3 * 0.25) / 4
    assert float(task_loss(Constant(), batch, {})) == pytest.approx(2.4375)
    with pytest.raises(ModelError, match=r"cross entropy needs classes.*use task_loss"):
        cross_entropy(Constant(), batch, {})


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("loss", [task_loss, proximal], ids=lambda loss: loss.__name__)
def test_both_loops_train_alike(make_mlp: MakeMLP, pool: Pool, loss: Loss, optimizer: str) -> None:
    architecture = make_mlp(classes=1)
    starts = [architecture.initial(0, draw) for draw in range(3)]
    settings = TrainSettings(epochs=3, batch=4, lr=0.05, optimizer=optimizer, momentum=0.9)

    def jobs(models: list[Model]) -> list[FitJob]:
        given = [pulled_to(start, 0.1) if loss is proximal else {} for start in starts]
        return [
            FitJob(model, split, loss, settings, ("key", i), given[i])
            for i, (model, split) in enumerate(zip(models, splits(pool), strict=True))
        ]

    one, other = ([start.copy() for start in starts] for _ in range(2))
    losses = [plain.fit(job) for job in jobs(one)]
    assert batched.fit(jobs(other)) == pytest.approx(losses, rel=1e-4)
    for start, a, b in zip(starts, one, other, strict=True):
        assert (a.vector - start.vector).abs().max() > 1e-3
        torch.testing.assert_close(b.vector, a.vector, rtol=1e-4, atol=2e-5)


def test_both_loops_measure_alike(make_mlp: MakeMLP, pool: Pool) -> None:
    architecture = make_mlp(classes=1)
    jobs = [EvaluateJob(architecture.initial(0, i), split) for i, split in enumerate(splits(pool))]
    for job, together in zip(jobs, batched.measure(jobs), strict=True):
        alone = plain.measure(job)
        assert together.answers.shape == alone.answers.shape == (10,)
        assert together.answers == pytest.approx(alone.answers, abs=1e-6)
        for score, answers in ((alone.score, alone.answers), (together.score, together.answers)):
            assert score.loss == pytest.approx(mean_squared_error(job.split.y, answers), rel=1e-5)
            assert math.isnan(score.accuracy)


def test_a_head_alone_learns_the_line_through_its_features(make_mlp: MakeMLP) -> None:
    """Labels are 3 f0 - 2 f1 + 1: gradient descent on features finds these numbers."""
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    y = 3 * x[:, 0] - 2 * x[:, 1] + 1
    model = make_mlp(hidden=(5,), classes=1).initial(0)
    settings = TrainSettings(epochs=200, batch=64, lr=0.3, momentum=0.0)
    plain.fit(FitJob(model, Split(Pool(x, y), torch.arange(64)), head_loss, settings, ("k",), only="head"))
    np.testing.assert_allclose(model["head.weight"][0].tolist(), [3, -2, 0, 0, 0], atol=1e-3)
    assert float(model["head.bias"]) == pytest.approx(1, abs=1e-3)
