"""A run uses the cores that there are, and its folder does not depend on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coterie.config.loading import load
from coterie.config.sections import EngineSettings
from coterie.core import cores
from coterie.running import simulated

TINY = (
    "peers=2", "rounds=2", "data.clusters=2", "data.train=6", "data.validation=3", "data.test=3", "model.hidden=[4]",
    "method.name=local", "engine.models=false", "engine.checkpoint=1", "baseline=",
)  # fmt: skip


def test_config_toml_is_the_same_on_any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summaries, workers = [], []
    for count in (1, 64):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        e = load("panm-digits", TINY)
        workers.append(e.engine.worker_count)
        summaries.append(simulated.run(e, tmp_path / str(count)))
    assert workers == [1, 64]
    one, other = ((tmp_path / name / "config.toml").read_text() for name in ("1", "64"))
    assert one == other
    assert "workers = 0" in one
    assert summaries[0]["accuracy"] == summaries[1]["accuracy"]


def test_an_older_folder_keeps_its_number_of_workers(tmp_path: Path) -> None:
    """Which was written to its config.toml: it opens, and resumes to the same figures."""
    whole = simulated.run(load("panm-digits", TINY), tmp_path / "run")
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace("workers = 0", "workers = 2"))
    (tmp_path / "run" / "summary.json").unlink()
    assert simulated.of_folder(tmp_path / "run").engine.worker_count == 2
    assert simulated.resume(tmp_path / "run")["accuracy"] == whole["accuracy"]


def test_threads_change_last_digits_so_a_run_keeps_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert load("panm-digits", ["engine.threads=0"]).engine.threads == 3


def test_a_run_beside_others_uses_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(cores, "_given", 0)
    assert (EngineSettings().worker_count, cores.given_cores()) == (8, 0)
    cores.give_cores(3)
    assert (EngineSettings().worker_count, cores.machine_cores()) == (3, 8)
    assert EngineSettings(workers=5).worker_count == 5
