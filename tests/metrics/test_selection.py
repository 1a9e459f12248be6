"""The one rule that selects a peer's round."""

from __future__ import annotations

import dataclasses

from coterie.core.events import PeerRound, RunStarted
from coterie.metrics import Selection, selected_round, selection_of
from coterie.metrics.selection import BY_ACCURACY


def measured(round: int, accuracy: float, loss: float | None, **validation: float | None) -> PeerRound:
    scores = {name: [value, 0.0] for name, value in validation.items()}
    return PeerRound(0, round, 0.0, accuracy, 0.5, loss, scores=scores)


def test_the_best_value_then_the_lower_loss_then_the_earlier_round() -> None:
    rounds = [measured(1, 0.5, 1.0), measured(2, 0.7, 2.0), measured(3, 0.7, 1.5), measured(4, 0.7, 1.5)]
    assert selected_round(rounds).round == 3
    assert selected_round([*rounds, measured(5, 0.7, None)]).round == 3  # no loss is the worst loss


def test_the_direction_of_the_metric() -> None:
    rounds = [measured(1, 0.9, 1.0, brier=0.3), measured(2, 0.1, 1.0, brier=0.1), measured(3, 0.5, 1.0, brier=None)]
    assert selected_round(rounds, Selection("brier", higher_is_better=False)).round == 2
    assert selected_round(rounds, Selection("brier", higher_is_better=True)).round == 1
    assert selected_round(rounds[2:], Selection("brier", higher_is_better=False)).round == 3  # undefined everywhere


def test_it_is_in_the_first_record() -> None:
    start = RunStarted("local", 0, 1, 1, [], [], [], None)
    assert selection_of(start) == BY_ACCURACY
    brier = {"name": "brier", "label": "", "higher_is_better": False, "unit": ""}
    assert selection_of(dataclasses.replace(start, metrics=[brier])) == BY_ACCURACY
    assert selection_of(dataclasses.replace(start, metrics=[brier], select="brier")) == Selection("brier", False)
