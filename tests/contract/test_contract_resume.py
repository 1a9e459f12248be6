"""Every method in the simulation: interrupted or killed at a checkpoint, it goes on as if nothing had happened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from contract_support import (
    ASYNCHRONOUS,
    CASES,
    METHODS,
    method_of,
    of_families,
    once,
    only_plain,
    same,
    simulate,
    slow_unless,
    small,
)

from coterie.core import checkpoint
from coterie.core.errors import Interrupted
from coterie.core.weights import Frozen, Weights
from coterie.running import simulated
from coterie.simulation.director import Simulation

MODES = {
    "sync": (),
    "async": ASYNCHRONOUS,
    "churn": ("clock.spread=3", "clock.dropout=0.3", "clock.offline=[[1, 1.5, 3.5]]"),
    "async-churn": (*ASYNCHRONOUS, "clock.dropout=0.3", "clock.offline=[[1, 1.5, 3.5]]"),
}


every_method = pytest.mark.parametrize("case", slow_unless(only_plain, CASES))
one_of_each_family = pytest.mark.parametrize("case", slow_unless(of_families, CASES))


class KilledError(Exception):
    """Stands for the end of the process."""


def kill_after(monkeypatch: pytest.MonkeyPatch, round: int) -> list[dict[str, Any]]:
    """Have the run die as soon as the checkpoint of this round is on the disk; holds what was saved."""
    saved: list[dict[str, Any]] = []
    save = checkpoint.save

    def save_and_die(folder: Path, at: int, tree: dict[str, Any]) -> None:
        save(folder, at, tree)
        if at == round:
            saved.append(tree)
            raise KilledError

    monkeypatch.setattr(checkpoint, "save", save_and_die)
    return saved


@one_of_each_family
@pytest.mark.parametrize("mode", slow_unless("churn".__eq__, MODES))
def test_stopped_and_resumed(case: str, mode: str, tmp_path: Path) -> None:
    e = small(case, *MODES[mode])
    with pytest.raises(Interrupted, match="stopped after round"):
        simulated.run(e, tmp_path / "run", on_start=Simulation.stop)
    assert not (tmp_path / "run" / "summary.json").exists()
    same(once("simulation", case, *MODES[mode]), simulate(e, tmp_path / "run", resume=True))


@every_method
def test_killed_and_resumed(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With churn; a method without a server also asynchronously."""
    killed_and_resumed(case, "churn" if METHODS[method_of(case)].server else "async-churn", tmp_path, monkeypatch)


@one_of_each_family
@pytest.mark.parametrize("mode", slow_unless("sync".__eq__, MODES))
def test_killed_and_resumed_in_every_mode(
    case: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_and_resumed(case, mode, tmp_path, monkeypatch)


def killed_and_resumed(case: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e = small(case, *MODES[mode], "engine.checkpoint=2")
    with monkeypatch.context() as patch:
        assert kill_after(patch, 2) == []
        with pytest.raises(KilledError):
            simulated.run(e, tmp_path / "run")
    same(once("simulation", case, *MODES[mode]), simulate(e, tmp_path / "run", resume=True))


def plain(value: Any) -> Any:
    """State as values that compare: tensors and weights as lists of numbers with their shapes."""
    if isinstance(value, torch.Tensor):
        return ("tensor", value.dtype, value.shape, value.tolist())
    if isinstance(value, Weights):
        return ("weights", value.layout, value.vector.tolist())
    if isinstance(value, Frozen):
        return ("frozen", plain(value.content))
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(v) for v in value)
    return value


@every_method
def test_state_survives_a_checkpoint(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e = small(case, "engine.checkpoint=2")
    with monkeypatch.context() as patch:
        saved = kill_after(patch, 2)
        with pytest.raises(KilledError):
            simulated.run(e, tmp_path / "run")
    restored: list[dict[str, Any]] = []

    def look(simulation: Simulation) -> None:
        restored.extend(plain(peer.state) for peer in simulation.stage.peers.values())
        raise KilledError

    with pytest.raises(KilledError):
        simulated.resume(tmp_path / "run", on_start=look)
    (tree,) = saved
    assert restored == [plain(p["state"]) for p in tree["participants"]]
    found = checkpoint.load(tmp_path / "run" / "checkpoint")
    assert found is not None
    assert found[0] == 2
    assert plain(found[1]) == plain(tree)
