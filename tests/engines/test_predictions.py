"""Predictions of each peer's last and selected round, overall and up to checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coterie.core import checkpoint
from coterie.core.events import PeerRound
from coterie.engines.predictions import Predictions
from coterie.metrics import Selection
from coterie.metrics.selection import BY_ACCURACY


def seen(predictions: Predictions, round: int, accuracy: float, peer: int = 0) -> None:
    """The prediction is the round's number, so that it can be recognised."""
    record = PeerRound(peer, round, 0.0, accuracy, 0.5, 1.0, scores={"brier": [accuracy, None]})
    predictions.see(record, (np.full((2, 2), round, np.float32), np.full((3, 2), round, np.float32)))


def rounds_of(predictions: Predictions, until: int | None = None, peer: int = 0) -> tuple[int, ...] | None:
    of_peer = predictions.of(peer, until)
    if of_peer is None:
        return None
    assert all(one.probabilities[1][0, 0] == one.record.round for one in of_peer)
    return tuple(one.record.round for one in of_peer)


def test_last_and_selected() -> None:
    predictions = Predictions(BY_ACCURACY)
    assert predictions.of(0) is None
    for round, accuracy in enumerate([0.1, 0.9, 0.9, 0.3], 1):
        seen(predictions, round, accuracy)
    assert rounds_of(predictions) == (4, 2)
    assert len(predictions._of_peer[0]) == 2  # no more is kept
    lower = Predictions(Selection("brier", higher_is_better=False))
    for round, value in enumerate([0.4, 0.1, 0.2], 1):
        seen(lower, round, value)
    assert rounds_of(lower) == (3, 2)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=14), st.integers(1, 4), st.integers(1, 3))
def test_every_checkpoint_has_what_a_run_up_to_it_has(values: list[int], every: int, measured_every: int) -> None:
    """A fast peer may have done all rounds before the checkpoint of an early one is complete."""
    rounds = [(r, value / 4) for r, value in enumerate(values, 1) if r % measured_every == 0]
    predictions = Predictions(BY_ACCURACY, every)
    for round, value in rounds:
        seen(predictions, round, value)
    for cut in range(every, len(values), every):
        expected = Predictions(BY_ACCURACY)
        for round, value in rounds:
            if round <= cut:
                seen(expected, round, value)
        assert rounds_of(predictions, cut) == rounds_of(expected)
        resumed = Predictions(BY_ACCURACY, every)
        resumed.restore(predictions.state(cut), cut)
        for round, value in rounds:
            if round > cut:
                seen(resumed, round, value)
        assert rounds_of(resumed) == rounds_of(predictions)
        predictions.saved(cut)


def test_they_survive_a_checkpoint(tmp_path: Path) -> None:
    predictions = Predictions(BY_ACCURACY, 2)
    for peer, best in ((0, 1), (3, 2)):
        for round in (1, 2):
            seen(predictions, round, 0.9 if round == best else 0.1, peer)
    checkpoint.save(tmp_path, 2, {"predictions": predictions.state(2)})
    loaded = checkpoint.load(tmp_path)
    assert loaded is not None
    restored = Predictions(BY_ACCURACY, 2)
    restored.restore(loaded[1]["predictions"], 2)
    assert rounds_of(restored, peer=0) == (2, 1)
    assert rounds_of(restored, peer=3) == (2, 2)
    of_peer = restored.of(0)
    assert of_peer is not None
    assert of_peer.selected.probabilities[0].dtype == np.float32
    assert of_peer.selected.record.scores == {"brier": [0.9, None]}
