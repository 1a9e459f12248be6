"""Processes that are forks of a server: they see this process's environment, and never run the user's script again."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import OK, main
from coterie.core import forking

TINY = (
    "panm-digits", "peers=4", "rounds=1", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "engine.models=false", "engine.name=processes", "engine.workers=2",
)  # fmt: skip
WITHOUT_GUARD = """
import coterie
print("the script runs")
coterie.run(coterie.load("panm-digits", [{words}, "baseline=", "method.name=local"]), "run")
"""


def tell(connection: Connection[Any, Any], name: str) -> None:
    connection.send((os.environ.get(name), sys.modules["__main__"].__dict__.get("__file__")))


def test_the_environment_is_the_callers_at_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first", "second"):  # the server was started with another one, or with none
        monkeypatch.setenv("COTERIE_TEST", value)
        ours, its = Pipe()
        process = forking.start(tell, its, "COTERIE_TEST")
        assert ours.recv()[0] == value
        process.join(60)
        assert process.exitcode == 0


def test_ctrl_c_is_blocked_afterwards_if_it_was_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        ours, its = Pipe()
        forking.start(tell, its, "HOME").join(60)
        assert ours.poll()
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_shards_on_a_system_without_fork_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert main(["run", *TINY, "method.name=local", "baseline=", "--out", str(tmp_path / "run"), "--plain"]) == OK
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["rounds"] == 1


def test_a_script_without_a_guard_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WITHOUT_GUARD.format(words=", ".join(map(repr, TINY[1:]))))
    done = subprocess.run([sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the script runs") == 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["peers"] == 4


def test_a_run_of_a_comparison_may_start_processes_too(tmp_path: Path) -> None:
    assert main(["compare", "local", *TINY, "--out", str(tmp_path / "here"), "--plain"]) == OK
    assert json.loads((tmp_path / "here" / "local-0" / "summary.json").read_text())["rounds"] == 1
