"""Peers spread over processes of this machine. (The contract tests in `spread` check equal results.)"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from simulation_support import tiny

from coterie.core.errors import RunError
from coterie.report.summary import read_summary
from coterie.running import simulated
from coterie.simulation import placement, processes
from coterie.simulation.local_stage import LocalStage
from coterie.simulation.processes import Processes
from coterie.simulation.shard_process import _sendable
from coterie.wiring import gather, spread

ON_TWO = ("engine.name=processes", "engine.workers=2")


def test_one_worker_is_this_process() -> None:
    e = tiny("gossip", "method.k=1", "engine.name=processes", "engine.workers=1")
    stage = spread(e, gather(e))
    assert type(stage) is LocalStage
    stage.close()


def test_the_director_may_have_no_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated.run(tiny("gossip", "method.k=1"), tmp_path / "one")
    monkeypatch.setattr(placement, "TO_DIRECT", 1000.0)
    held = []
    e = tiny("gossip", "method.k=1", *ON_TWO)
    simulated.run(e, tmp_path / "two", on_start=lambda simulation: held.append(simulation.stage))
    assert isinstance(held[0], Processes)
    assert held[0].members[0] == []
    events = [(tmp_path / name / "events.jsonl").read_bytes() for name in ("one", "two")]
    assert events[0] == events[1]
    assert read_summary(tmp_path / "two")["accuracy"] == read_summary(tmp_path / "one")["accuracy"]


def test_a_mistake_in_a_method_is_shown_where_it_was_made(tmp_path: Path) -> None:
    method = tmp_path / "wrong.py"
    method.write_text(
        "from coterie import Method\n"
        "class Wrong(Method):\n"
        "    async def round(self, me):\n"
        "        if me.id == 3:\n"
        "            self.divided_by_nothing(me.round)\n"
        "    def divided_by_nothing(self, t):\n"
        "        return t / 0\n"
    )
    e = tiny("local", *ON_TWO, f"method.name={method}:Wrong", peers=4)
    with pytest.raises(ZeroDivisionError) as caught:
        simulated.run(e, tmp_path / "run")
    assert "in divided_by_nothing" in caught.value.__notes__[0]


def test_an_error_that_cannot_be_pickled_is_still_reported() -> None:
    known = RunError("no room")
    assert _sendable(known) is known
    told = _sendable(ValueError("odd", lambda: None))  # a function of no module cannot be pickled
    assert type(told) is RuntimeError
    assert str(told).startswith("ValueError: ('odd', ")


def test_a_process_that_cannot_begin_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "serve_shard", int)  # a function that does not accept these arguments
    with pytest.raises(RunError, match=r"a process for a part of the peers exited by itself \(exit code 1\) before it"):
        simulated.run(tiny("gossip", "method.k=1", *ON_TWO), tmp_path / "run")


def test_processes_end_with_the_one_that_began_them(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from coterie.config import loading\n"
        "from coterie.running import simulated\n"
        f"e = loading.load('panm-digits', ['method.name=local', *{ON_TWO!r}])\n"
        "def on_start(simulation):\n"
        "    print(*simulation.stage.pids, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"simulated.run(e, Path({str(tmp_path / 'run')!r}), on_start=on_start)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    [pid] = map(int, done.stdout.split())
    deadline = time.monotonic() + 20
    while _is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_there(pid)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
