"""What is said of long work."""

from __future__ import annotations

import time

import pytest

from coterie.terminal.steps import Steps


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_rest_is_estimated_from_the_work_that_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    steps = Steps("all runs", {"a": 30.0, "b": 10.0}, done=1, clock=clock)
    assert steps.so_far() == "1 of 3"  # nothing can be said yet
    steps.begin("a", "preparing")
    steps.begin("b")
    clock.now += 6
    steps.update("a", 0.5, "round 5/10")
    # 15 of 40 in 6 seconds: the other 25 take 10.
    assert steps.share() == pytest.approx(0.375)
    assert steps.left() == pytest.approx(10.0)
    assert steps.status() == "all runs: a (round 5/10, for 6 s); b (for 6 s); 1 of 3, 10 s left"
    steps.end("a", "done")
    assert capsys.readouterr().err == "a: done (2 of 3, 2 s left)\n"  # 30 of 40 in 6 seconds: 2 for the other 10
    clock.now += 4
    steps.end("b", "done")
    assert capsys.readouterr().err == "b: done (3 of 3, 10 s in all)\n"


def test_a_step_that_is_dropped_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    steps = Steps("bench", {"a": 1.0, "b": 1.0, "c": 2.0}, clock=clock)
    steps.drop("c")
    steps.begin("a")
    clock.now += 3
    steps.end("a", "0.5 s a round")
    assert capsys.readouterr().err == "a: 0.5 s a round (1 of 2, 3 s left)\n"


def test_a_long_step_is_not_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with Steps("bench", {"growth, 50,000 peers": 1.0}, silence=0.01) as steps:
        steps.begin("growth, 50,000 peers")
        said = ""
        until = time.monotonic() + 60
        while not said and time.monotonic() < until:
            time.sleep(0.01)
            said = capsys.readouterr().err
        steps.end("growth, 50,000 peers")
    assert said.startswith("bench: growth, 50,000 peers (for 0")
    assert "; 0 of 1" in said


def test_results_go_to_stdout_though_there_are_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes stderr for a terminal, while stdout may be a file
    line = "figures " * 40  # a terminal's width does not break it
    with Steps("bench", {"a": 1.0}) as steps:
        steps.begin("a", "preparing")
        steps.out(line)
        steps.end("a", "measured")
    told = capsys.readouterr()
    assert told.out == f"{line}\n"
    assert "preparing" in told.err
    assert "measured" not in told.err  # the bar shows it
