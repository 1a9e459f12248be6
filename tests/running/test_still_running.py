"""A run that another process is still computing is not resumed: two processes would write one folder."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.config import loading
from coterie.core.errors import Interrupted, RunError
from coterie.running import simulated
from coterie.simulation.director import Simulation

WORDS = ["peers=3", "rounds=3", "baseline=", "data.train=12", "data.validation=5", "data.test=5", "model.hidden=[4]"]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    e = loading.load("panm-digits", [*WORDS, "method.name=local", "data.clusters=2", "engine.checkpoint=1"])
    with pytest.raises(Interrupted):
        simulated.run(e, tmp_path / "run", on_start=Simulation.stop)
    return tmp_path / "run"


def of_process(folder: Path, number: int) -> None:
    state = json.loads((folder / "state.json").read_text())
    now = {"state": "running", "process": number, "host": socket.gethostname(), "time": time.time()}
    (folder / "state.json").write_text(json.dumps({**state, **now}))


def test_it_is_refused_with_the_number_of_the_process(stopped: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        of_process(stopped, other.pid)
        with pytest.raises(RunError, match=rf"is still running \(process {other.pid}\): stop that process first"):
            simulated.resume(stopped)
        other.kill()
    assert simulated.resume(stopped)["rounds"] == 3  # the process has ended


def test_this_process_may_go_on_with_its_own_run(stopped: Path) -> None:
    of_process(stopped, os.getpid())
    assert simulated.resume(stopped)["rounds"] == 3


def test_a_checkpoint_of_other_models_is_refused(stopped: Path) -> None:
    config = stopped / "config.toml"
    config.write_text(config.read_text().replace("hidden = [4]", "hidden = [5]"))
    with pytest.raises(RunError, match=r"the checkpoint has models of .* changed since the run began"):
        simulated.resume(stopped)
