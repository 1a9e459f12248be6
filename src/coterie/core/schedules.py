"""The learning rate of each round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.core.jobs import TrainSettings

SCHEDULES = CONSTANT, STEP, COSINE = "constant", "step", "cosine"


def learning_rate(settings: TrainSettings, round: int, rounds: int) -> float:
    """The learning rate in a round, from 1: a linear warm-up, then the schedule over the remaining rounds."""
    if round <= settings.warmup:
        return settings.lr * max(round, 1) / (settings.warmup + 1)
    since = max(round - settings.warmup - 1, 0)
    if settings.schedule == STEP:
        return settings.lr * settings.lr_decay ** (since // settings.step_every)
    if settings.schedule == COSINE:
        share = min(since / max(rounds - settings.warmup, 1), 1.0)
        return settings.lr * (1 + math.cos(math.pi * share)) / 2
    return settings.lr
