"""Models in memory-mapped files: the same numbers, reuse of rows, and errors."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from coterie import wiring
from coterie.config import loading
from coterie.core.artifact import Artifact
from coterie.core.errors import ConfigError, RunError
from coterie.core.events import PeerRound, of_kind, read
from coterie.core.weights import Weights
from coterie.running import simulated
from coterie.simulation import spill
from coterie.simulation.local_stage import LocalStage
from coterie.simulation.spill import Spill
from coterie.training import Trainer

SMALL = (
    "peers=4", "rounds=3", "baseline=", "data.clusters=2", "data.train=12", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "train.epochs=1", "engine.checkpoint=2",
)  # fmt: skip
# Averages of others' models; models of others that are kept for good, and vote; a server and models that are replaced.
METHODS = {
    "gossip": ("method.k=2",),
    "fedpae": ("method.models=1", "method.patience=2", "method.k=2", "method.population=8", "method.generations=3"),
    "ditto": (),
}


@pytest.fixture
def one_row_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "BLOCK", 1)


def artifact(*numbers: float) -> Artifact:
    return Artifact.snapshot("model", 0, 1, Weights.of({"a": torch.tensor(numbers)}), {})


@pytest.mark.parametrize("method", METHODS)
def test_changes_no_number(method: str, tmp_path: Path) -> None:
    outcomes = []
    for words in ((), (f"engine.spill={tmp_path / 'spill'}",)):
        e = loading.load("panm-digits", [*SMALL, f"method.name={method}", *METHODS[method], *words])
        out = tmp_path / f"run{len(outcomes)}"
        summary = simulated.run(e, out)
        del summary["seconds"]
        outcomes.append((summary, [vars(r) for r in of_kind(read(out / "events.jsonl"), PeerRound)]))
    assert outcomes[0] == outcomes[1]
    assert list((tmp_path / "spill").iterdir()) == []


def test_peers_models_stay_in_its_files(tmp_path: Path) -> None:
    """Without it, the trainer moves them to where they lie side by side."""
    for words, stay in (((), False), ((f"engine.spill={tmp_path / 'spill'}",), True)):
        e = loading.load("panm-digits", [*SMALL, "method.name=gossip", "method.k=2", *words])
        circle = wiring.gather(e)
        before = [peer.model.vector.data_ptr() for peer in circle.participants]
        stage = LocalStage(e.method, circle.participants, e.rounds, Trainer(), spill=e.engine.spill)
        assert ([peer.model.vector.data_ptr() for peer in circle.participants] == before) is stay
        stage.close()


@pytest.mark.usefixtures("one_row_a_block")
def test_a_row_is_reused_when_no_tensor_refers_to_it(tmp_path: Path) -> None:
    kept = Spill(str(tmp_path))
    for number in range(20):
        assert kept.moved(artifact(number, 1.0))["a"].tolist() == [number, 1.0]
    assert kept.blocks == 1


@pytest.mark.usefixtures("one_row_a_block")
def test_a_row_is_not_reused_while_a_tensor_refers_to_it(tmp_path: Path) -> None:
    kept = Spill(str(tmp_path))
    view = kept.moved(artifact(1.0, 2.0, 3.0))["a"][1:].view(2, 1)  # all that is left of the artifact
    others = [kept.moved(artifact(7.0, 8.0, 9.0)) for _ in range(3)]
    assert view.tolist() == [[2.0], [3.0]]
    assert kept.blocks == 4
    del others
    assert kept.moved(artifact(5.0, 5.0, 5.0))["a"].tolist() == [5.0] * 3
    assert kept.blocks == 4


def test_a_full_disk_is_reported_before_anything_is_lost(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(RunError, match=r"engine.spill: cannot allocate 64 MB in .*free some disk space"):
            Spill(str(tmp_path)).moved(artifact(1.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"engine.spill = '.*file/spill' cannot be used"):
        Spill(str(tmp_path / "file" / "spill"))
