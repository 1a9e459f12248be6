"""What a run says of itself, and what others can tell when it says nothing any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.config import loading
from coterie.core.errors import Interrupted, RunError
from coterie.core.measured_metric import ACCURACY
from coterie.core.requests import Fetch, Receive
from coterie.running import simulated
from coterie.running.state import RunState, SavedState, process_lives, read_state
from coterie.simulation.participants import OpenFetch, Participant, activities

SMALL = ("peers=4", "rounds=2", "baseline=", "method.l=1", "method.k=1", "engine.models=false")
BROKEN = """
from dataclasses import dataclass
from coterie import Method

@dataclass(frozen=True)
class Broken(Method):
    async def round(self, me):
        await me.train()
        if me.round == 2:
            raise RuntimeError("the roof is on fire")
"""


def state_of(folder: Path) -> SavedState:
    found = read_state(folder)
    assert found is not None
    return found


def test_a_run_tells_how_it_is_while_it_runs_and_how_it_ended(tmp_path: Path) -> None:
    seen: list[SavedState] = []
    summary = simulated.run(
        loading.load("panm-digits", SMALL),
        tmp_path / "run",
        on_round=lambda _: seen.append(state_of(tmp_path / "run")),
    )
    assert {s.state for s in seen} == {"running"}
    content = json.loads((tmp_path / "run" / "state.json").read_text(encoding="utf-8"))
    assert content["process"] == os.getpid()
    ended = state_of(tmp_path / "run")
    assert (ended.state, ended.round, ended.rounds) == ("finished", 2, 2)
    assert ended.bytes == summary["bytes"]["total"]
    assert [p["state"] for p in ended.peers] == ["done"] * 4


def test_events_can_be_read_as_soon_as_a_round_is_done(tmp_path: Path) -> None:
    lines: list[int] = []
    events = tmp_path / "run" / "events.jsonl"
    simulated.run(
        loading.load("panm-digits", SMALL), tmp_path / "run",
        on_round=lambda _: lines.append(len(events.read_text(encoding="utf-8").splitlines())),
    )  # fmt: skip
    assert lines == [1 + 4, 1 + 4 + 4]


def test_a_failed_run_leaves_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN, encoding="utf-8")
    words = ["peers=4", "rounds=3", "baseline=", f"method.name={tmp_path / 'broken.py'}:Broken"]
    with pytest.raises(RuntimeError):
        simulated.run(loading.load("panm-digits", words), tmp_path / "run")
    state = state_of(tmp_path / "run")
    assert (state.state, state.error) == ("failed", "RuntimeError: the roof is on fire")
    assert 'raise RuntimeError("the roof is on fire")' in state.traceback


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [(Interrupted("stopped after round 3"), "stopped", "stopped after round 3"),
     (KeyboardInterrupt(), "stopped", "stopped at once"),
     (RunError("the disk is full"), "failed", "the disk is full")],
)  # fmt: skip
def test_how_a_run_ended(tmp_path: Path, error: BaseException, state: str, text: str) -> None:
    with pytest.raises(type(error)), RunState(tmp_path, 5):
        raise error
    found = state_of(tmp_path)
    assert (found.state, found.error, found.traceback) == (state, text, "")


def write(folder: Path, **facts: Any) -> None:
    state = {**RunState(folder, 5).facts, "time": time.time(), "peers": [], **facts}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")


def test_a_killed_run_is_told_from_a_silent_one(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    write(tmp_path, process=ended.pid)
    assert state_of(tmp_path).state == "killed"
    write(tmp_path, process=ended.pid, host="elsewhere")  # whose processes nobody here knows
    assert state_of(tmp_path).state == "running"
    write(tmp_path, time=time.time() - 60)
    assert state_of(tmp_path).state == "silent"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "running"}', '{"state": "running", "time": "x"}'])
def test_a_damaged_state_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text, encoding="utf-8")
    assert read_state(tmp_path) is None


def test_a_process_that_was_not_collected_yet_does_not_live() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        until = time.monotonic() + 20
        while process_lives(child.pid) and time.monotonic() < until:
            time.sleep(0.02)
        assert child.returncode is None, "nobody has asked for its end"
        assert not process_lives(child.pid)


def test_what_participants_are_doing() -> None:
    fetch = Fetch((1, 2, 3), "model", 4, lambda found: found)
    waiting = Participant(0, round=4, waits_for=fetch)
    waiting.fetching = OpenFetch(fetch, 0, 0.0, {3, 1})
    away = Participant(1, round=4, was_away=True)
    letter = Participant(2, round=5, waits_for=Receive("expert"))
    assert activities([waiting, away, letter]) == [
        {"peer": 0, "round": 4, "state": "waiting", "artifact": "model", "waits_for": [1, 3], "waits_for_more": 0},
        {"peer": 1, "round": 4, "state": "away"},
        {"peer": 2, "round": 5, "state": "waiting", "artifact": "expert"},
    ]


def test_the_state_of_an_older_version_has_an_accuracy(tmp_path: Path) -> None:
    content = {"state": "finished", "time": time.time(), "host": "x", "process": 1, "accuracy": 0.5}
    (tmp_path / "state.json").write_text(json.dumps(content))
    state = read_state(tmp_path)
    assert state is not None
    assert (state.validation, state.metric) == (0.5, ACCURACY)
