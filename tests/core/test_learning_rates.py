"""The learning rate of each round, against torch's schedulers: they step from round to round, ours is a formula."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR, StepLR

from coterie.core.jobs import TrainSettings
from coterie.core.schedules import learning_rate

ROUNDS = 12


def by_torch(settings: TrainSettings) -> list[float]:
    """The learning rates of torch's scheduler of this name, after a linear warm-up."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=settings.lr)
    rest = ROUNDS - settings.warmup
    schedulers: dict[str, LRScheduler] = {
        "constant": StepLR(optimizer, 1, gamma=1.0),
        "step": StepLR(optimizer, settings.step_every, settings.lr_decay),
        "cosine": CosineAnnealingLR(optimizer, rest),
    }
    scheduler = schedulers[settings.schedule]
    if settings.warmup:
        first = LinearLR(optimizer, 1 / (settings.warmup + 1), total_iters=settings.warmup)
        scheduler = SequentialLR(optimizer, [first, scheduler], [settings.warmup])
    rates = []
    for _ in range(ROUNDS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")  # SequentialLR's own call
@pytest.mark.parametrize("warmup", [0, 1, 4])
@pytest.mark.parametrize(
    "how",
    [
        {"schedule": "constant"},
        {"schedule": "step", "lr_decay": 0.9},
        {"schedule": "step", "lr_decay": 0.5, "step_every": 3},
        {"schedule": "cosine"},
    ],
    ids=str,
)
def test_it_is_that_of_torch(how: dict[str, object], warmup: int) -> None:
    settings = TrainSettings(lr=0.2, warmup=warmup, **how)  # type: ignore[arg-type]
    rates = [learning_rate(settings, round, ROUNDS) for round in range(1, ROUNDS + 1)]
    assert rates == pytest.approx(by_torch(settings))


def test_by_default_lr_decay_applies_every_round() -> None:
    """To the bit, as runs were computed before there were schedules."""
    settings = TrainSettings(lr=0.05, lr_decay=0.99)
    assert [learning_rate(settings, t, 60) for t in (1, 2, 60)] == [0.05, 0.05 * 0.99, 0.05 * 0.99**59]
    assert learning_rate(TrainSettings(lr=0.05), 60, 60) == 0.05


def test_the_set_up_has_the_learning_rate_of_the_first_round() -> None:
    for settings in (TrainSettings(lr_decay=0.5), TrainSettings(warmup=3), TrainSettings(schedule="cosine")):
        assert learning_rate(settings, 0, 10) == learning_rate(settings, 1, 10)


def test_a_cosine_never_rises_again() -> None:
    """A peer that trains after the last round has 0, not a negative or rising rate: half a cosine ends at 0."""
    assert learning_rate(TrainSettings(schedule="cosine"), 99, 10) == 0
