"""`coterie plan`, as a person meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.cli import plan
from coterie.cli.main import FAILED, OK, main
from coterie.core.summary import Summary, Totals
from coterie.planning.plan import Plan
from coterie.training.recording import Repeated

TINY = (
    "panm-digits", "peers=4", "rounds=3", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "method.name=gossip", "method.k=1", "engine.threads=1", "engine.workers=1",
)  # fmt: skip
PLAN = Plan(
    "panm", 10, 20, {"training": 30.0, "evaluating": 10.0, "getting started": 0.1}, 2.5, {"model": 4_000_000},
    {"model": 400}, 500_000, 1200, 300_000_000, 8, "who is whose neighbour",
)  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 1_000_000)


def test_a_plan_and_its_baseline_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["plan", *TINY, "--all-rounds"]) == OK
    out = capsys.readouterr().out
    assert "gossip: 4 peers, 3 rounds" in out
    assert "in 12 messages" in out  # four peers, one model each, three rounds
    assert "local: 4 peers, 3 rounds" in out  # the preset's baseline, which `run` would run, too
    assert not list(tmp_path.iterdir())


def test_what_a_plan_says() -> None:
    assert plan.text(PLAN).splitlines() == [
        "panm: 10 peers, 20 rounds",
        "  time         40.1 s, 2 s per round",
        "    of it      training 30 s, evaluating 10 s",
        "    plus       2.5 s to read the data and write the report",
        "  memory       300 MB at peak",
        "  exchanged    4 MB in 400 messages",
        "    per round  200 kB in 20 messages",
        "    per peer   400 kB in 40 messages; busiest peer 500 kB",
        "    model      4 MB in 400 messages",
        "  rehearsed 8 of the rounds and assumed that the others are like them",
        "  not predictable: who is whose neighbour",
    ]


def test_a_plan_against_what_came_of_it() -> None:
    """40.1 s of 50, 4 MB of 5, 400 messages of 400."""
    summary = Summary(seconds=50.0, bytes=Totals(5_000_000), messages=Totals(400))
    said = [line.split() for line in plan.compared(PLAN, summary).splitlines()[1:5]]
    assert said == [
        ["planned", "actual", "ratio"],
        ["seconds", "40.1", "s", "50", "s", "0.80"],
        ["bytes", "4", "MB", "5", "MB", "0.80"],
        ["messages", "400", "400", "1.00"],
    ]


def test_a_run_that_is_done_is_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", *TINY, "baseline=", "--out", "here", "--plain"]) == OK
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "here").rglob("*")}
    capsys.readouterr()
    assert main(["plan", "--check", "here", "--all-rounds"]) == OK
    rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["bytes"][-1] == rows["messages"][-1] == "1.00"
    assert float(rows["seconds"][-1]) > 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "here").rglob("*")} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no-such-preset",), "unknown preset 'no-such-preset'"),
        (("panm-digits", "rouns=3"), "Did you mean 'rounds'"),
        (("panm-digits", "method.k=99"), "method.k must be from 1"),
        (("--check", "nowhere"), "nowhere is not the folder of a run"),
        (("rounds=3", "--check", "nowhere"), "--check takes no experiment or settings"),
    ],
)
def test_errors_are_one_line(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == FAILED
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_run_that_is_not_done_cannot_be_checked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", *TINY, "baseline=", "--out", "here", "--plain"]) == OK
    (tmp_path / "here" / "summary.json").unlink()
    assert main(["plan", "--check", "here"]) == FAILED
    assert "has not finished: a plan can only" in capsys.readouterr().err


def test_a_note_only_if_it_takes_long(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "DELAY", 3600.0)
    assert main(["plan", *TINY, "baseline="]) == OK
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(plan, "DELAY", 0.0)
    assert main(["plan", *TINY, "baseline="]) == OK
    assert "rehearsing" in capsys.readouterr().err
