"""Averaging with neighbours: large models are averaged by workers, to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.config import loading
from coterie.core.events import PeerRound, of_kind, read
from coterie.methods import gossip
from coterie.running import simulated

SMALL = (
    "peers=4", "rounds=3", "baseline=", "data.clusters=2", "data.train=12", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "train.epochs=1", "method.name=gossip", "method.k=2",
)  # fmt: skip


def test_models_that_workers_average_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for size in (1, 10**9):
        monkeypatch.setattr(gossip, "WORTH_A_WORKER", size)
        simulated.run(loading.load("panm-digits", SMALL), tmp_path / str(size))
        records = of_kind(read(tmp_path / str(size) / "events.jsonl"), PeerRound)
        outcomes.append([vars(record) for record in records])
    assert outcomes[0] == outcomes[1]
    assert len(outcomes[0]) == 12
