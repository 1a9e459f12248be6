"""The rule that selects one of a peer's measured rounds by its validation data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.core.events import PeerRound, RunStarted

ACCURACY = "accuracy"


@dataclass(frozen=True)
class Selection:
    """The metric that selects, and its direction."""

    metric: str = ACCURACY
    higher_is_better: bool = True


BY_ACCURACY = Selection()


def selection_of(start: RunStarted) -> Selection:
    """How a run selects, according to its first record."""
    directions = {metric["name"]: metric["higher_is_better"] for metric in start.metrics}
    return Selection(start.select, directions.get(start.select, True)) if start.select else BY_ACCURACY


def selected_round(measured: Sequence[PeerRound], by: Selection = BY_ACCURACY) -> PeerRound:
    """Of one peer's measured rounds, the one with the best value on its validation data.

    Ties go to the lower validation loss, then to the earlier round. A round without a value is the worst.
    """
    return max(measured, key=lambda r: _merit(r, by))


def _merit(r: PeerRound, by: Selection) -> tuple[float, float, int]:
    value = r.validation if by.metric == ACCURACY else r.scores.get(by.metric, (None, None))[0]
    loss = r.loss if r.loss is not None and math.isfinite(r.loss) else math.inf
    if value is None:
        return -math.inf, -loss, -r.round
    return value if by.higher_is_better else -value, -loss, -r.round
