"""Plans of whole experiments: what is counted, by hand and against real runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.planning import leaps, rehearsal
from coterie.planning.plan import CHECKPOINTS, EXCHANGING, plan
from coterie.planning.rehearsal import EVALUATING, TRAINING
from coterie.running import simulated
from coterie.training.recording import Repeated

SMALL = (
    "peers=4", "rounds=3", "baseline=", "data.clusters=2", "data.train=12", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "train.epochs=2", "train.batch=6", "engine.threads=1", "engine.workers=1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 1_000_000)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary folders, too."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)


def small(*words: str) -> Experiment:
    return loading.load("panm-digits", [*SMALL, *words])


def actual(e: Experiment, tmp_path: Path) -> dict[str, Any]:
    return simulated.run(e, tmp_path / "actual")


def test_gossip_by_hand_and_as_it_was(tmp_path: Path) -> None:
    """Four peers fetch two models a round: 4 * 2 * 3 messages. Each trains on 12 samples, twice, in three rounds."""
    e = small("method.name=gossip", "method.k=2")
    found, was = plan(e, all_rounds=True), actual(e, tmp_path)
    assert found.messages == {"model": 24} == was["messages"]["by_artifact"]
    assert found.bytes == was["bytes"]["by_artifact"]
    assert found.busiest == found.bytes["model"] // 4
    assert found.samples == 4 * 12 * 2 * 3
    assert (found.method, found.peers, found.rounds, found.rehearsed) == ("gossip", 4, 3, 3)
    assert found.unforeseen == ""


def test_a_server_by_hand_and_as_it_was(tmp_path: Path) -> None:
    """In a round the server fetches four updates, and the peers its model."""
    e = small("method.name=fedavg")
    found, was = plan(e, all_rounds=True), actual(e, tmp_path)
    assert sum(found.messages.values()) == 3 * (4 + 4)
    assert found.messages == was["messages"]["by_artifact"]
    assert found.bytes == was["bytes"]["by_artifact"]
    assert found.samples == 4 * 12 * 2 * 3


def test_everything_has_its_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With made-up prices. Training: 288 samples at 0.5 s. Four peers are measured on 10 samples each in 3 rounds."""
    prices = {TRAINING: 0.5, EVALUATING: 0.25}
    real = rehearsal.Rehearsal.seconds

    def seconds(self: rehearsal.Rehearsal) -> dict[str, float]:
        for (what, *_), price in self.prices.by_kind.items():  # type: ignore[misc]
            price.measured = [(1.0, prices[what])]
        return real(self)

    monkeypatch.setattr(rehearsal.Rehearsal, "seconds", seconds)
    found = plan(small("method.name=gossip", "method.k=2", "engine.checkpoint=1"), all_rounds=True)
    assert found.parts[TRAINING] == pytest.approx(288 * 0.5)
    assert found.parts[EVALUATING] == pytest.approx(4 * 10 * 3 * 0.25)
    assert found.parts[EXCHANGING] > 0
    assert found.parts[CHECKPOINTS] > 0
    assert found.seconds == pytest.approx(sum(found.parts.values()))
    assert found.around > 0
    assert found.memory > 50_000_000  # torch alone is larger


def test_a_long_run_is_planned_from_some_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time at all: three rounds, one that stands for all the others, the last, and one before each of the two."""
    monkeypatch.setattr(rehearsal, "FOR_ROUNDS", 0.0)
    found = plan(small("method.name=gossip", "method.k=2", "rounds=200"))
    assert found.rehearsed == leaps.FIRST + 4
    assert found.messages == {"model": 4 * 2 * 200}
    assert found.samples == 4 * 12 * 2 * 200


def test_stages_of_a_long_run_are_met(monkeypatch: pytest.MonkeyPatch) -> None:
    """PANM with l = 2, k = 1: stage one fetches 2 strangers and, from round 2 on, a neighbour; stage two 1."""
    e = small("rounds=200", "method.l=2", "method.k=1", "method.t1=100", "method.tau=1000")
    assert plan(e, all_rounds=True).messages == {"model": 4 * (2 + 99 * 3 + 100)}
    turns = iter(range(10_000))
    monkeypatch.setattr(rehearsal, "Leaps", lambda rounds, *_: leaps.Leaps(rounds, lambda: next(turns) / 10, 8.0))
    found = plan(e)
    assert found.rehearsed < 200
    assert found.messages["model"] == pytest.approx(4 * (2 + 99 * 3 + 100), rel=0.1)


def test_models_that_may_stop_early_are_planned_to_the_end() -> None:
    """One model each, 12 samples, an epoch in every round: patience never ends, for predictions get ever better."""
    e = small("method.name=local-ensemble", "method.models=1", "method.patience=2", "rounds=4")
    found = plan(e, all_rounds=True)
    assert found.samples == 4 * 12 * 4
    assert found.unforeseen


def test_nothing_is_left(tmp_path: Path) -> None:
    plan(small("method.name=gossip", "method.k=2"), all_rounds=True)
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]
