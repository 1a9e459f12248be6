"""`coterie compare` and `coterie sweep`, with real runs in real processes."""

from __future__ import annotations

import csv
import fcntl
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.cli.compare import ending
from coterie.cli.main import FAILED, OK, STOPPED, main
from coterie.comparing import plan
from coterie.comparing.plan import Job, Variant
from coterie.comparing.workers import WorkerPool, _Worker

TINY = (
    "panm-digits", "peers=4", "rounds=3", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "engine.models=false",
)  # fmt: skip
PANM = "panm,l=2,k=1,t1=2"

BROKEN = """
from dataclasses import dataclass

from coterie import Method


@dataclass(frozen=True)
class Broken(Method):
    async def round(self, me):
        raise ZeroDivisionError("by the author's mistake")


@dataclass(frozen=True)
class Killed(Method):
    async def round(self, me):
        import os

        os.kill(os.getpid(), 9)


@dataclass(frozen=True)
class Slow(Method):
    async def round(self, me):
        import time

        time.sleep(0.05)
        await me.train()
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Notes:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.started_: list[str] = []
        self.ended_: list[tuple[str, str | None]] = []

    def started(self, job: Job) -> None:
        self.started_.append(job.name)

    def progress(self, job: Job, round: int, text: str) -> None:
        assert 0 < round <= job.experiment.rounds
        assert text.startswith("round ")

    def ended(self, job: Job, error: str | None) -> None:
        self.ended_.append((job.name, error))


def test_print_runs_nothing_and_says_when_there_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "gossip", *TINY, "--seeds", "0", "--out", "here", "--print"]) == FAILED
    assert "here has none of these runs yet" in capsys.readouterr().err
    assert not Path("here").exists()


def test_print_does_not_take_a_run_with_other_settings(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "gossip", *TINY, "--seeds", "0", "--out", "here", "--no-local"]
    assert main(asked) == OK
    capsys.readouterr()
    assert main([*asked, "--print"]) == OK
    assert main([*asked, "train.lr=0.9", "--print"]) == FAILED
    assert "here/gossip-0 holds a run with other settings" in capsys.readouterr().err


def test_a_comparison_its_tables_and_a_second_call(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", PANM, "gossip,k=1", *TINY, "--seeds", "0,1", "--out", "here", "--plain"]
    assert main(words) == OK
    first = capsys.readouterr()
    assert "6 of 6" in first.err
    here = tmp_path / "here"
    rows = list(csv.DictReader((here / "comparison.csv").read_text().splitlines()))
    assert {row["label"] for row in rows} == {PANM, "gossip,k=1", "local"}
    values = {row["label"]: row for row in rows}
    runs = [json.loads((here / f"{PANM}-{seed}" / "summary.json").read_text()) for seed in (0, 1)]
    means = [r["accuracy"]["last"]["mean"] for r in runs]
    assert float(values[PANM]["last.mean"]) == pytest.approx(sum(means) / 2)
    assert float(values[PANM]["bytes"]) == pytest.approx(sum(r["bytes"]["total"] for r in runs) / 2)
    assert rows[0]["validation"] == max(rows, key=lambda r: float(r["validation"]))["validation"]
    shown = f"{100 * sum(means) / 2:.2f}"
    for form in ("comparison.md", "comparison.tex"):
        text = (here / form).read_text()
        assert shown in text
        assert "coterie compare" in text
    assert shown in first.out
    found = json.loads((here / "comparison.json").read_text())
    assert (found["seeds"], found["missing"]) == ([0, 1], [])
    assert main(["report", "here"]) == FAILED
    again = capsys.readouterr().err.split("`")[1]
    assert again == f"{found['command']} --out here --print"
    assert main(shlex.split(again)[1:]) == OK
    assert capsys.readouterr().out == first.out

    before = {p: p.stat().st_mtime_ns for p in here.glob("*/summary.json")}
    assert main(words) == OK
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err == "note: gossip takes none of panm's parameters: metric=loss, tries=0, l=6, t1=15, tau=5\n"
    assert {p: p.stat().st_mtime_ns for p in here.glob("*/summary.json")} == before


def test_a_label_is_in_every_form_and_runs_nothing_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "gossip,k=1", *TINY, "--seeds", "0", "--out", "here", "--plain"]
    assert main(words) == OK
    capsys.readouterr()
    assert main([*words, "--label", "gossip,k=1=Ours (k=1)", "--columns", "last,bytes"]) == OK
    told = capsys.readouterr()
    assert [line.split(" ")[0] for line in told.err.splitlines()] == ["note:"]  # on parameters; nothing was run
    here = tmp_path / "here"
    assert "Ours (k=1)" in told.out
    assert "| Ours (k=1) |" in (here / "comparison.md").read_text()
    assert "Ours (k=1) & " in (here / "comparison.tex").read_text()
    assert "Local & " in (here / "comparison.tex").read_text()
    rows = {row["key"]: row["label"] for row in csv.DictReader((here / "comparison.csv").read_text().splitlines())}
    assert rows == {"gossip,k=1": "Ours (k=1)", "local": "local"}
    found = json.loads((here / "comparison.json").read_text())
    assert {e["key"]: e["label"] for b in found["blocks"] for e in b["lines"]} == rows
    assert set(found["runs"]) == {"Ours (k=1)", "local"}
    page = (here / "report.html").read_text()
    assert 'data-name="Ours (k=1)"' in page  # the marks of a figure
    assert 'data-name="gossip,k=1"' not in page
    assert "--label 'gossip,k=1=Ours (k=1)' --columns last,bytes" in found["command"]
    assert main([*words, "--columns", "lst"]) == FAILED
    assert "unknown column 'lst'. Did you mean 'last'?" in capsys.readouterr().err


def test_only_what_is_missing_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "local", *TINY, "--out", "here", "--plain", "--seeds"]
    assert main([*words, "0"]) == OK
    done = (tmp_path / "here" / "local-0" / "summary.json").stat().st_mtime_ns
    assert main([*words, "0,1", "--print"]) == OK
    assert "MISSING: local, seed 1" in capsys.readouterr().out
    assert not (tmp_path / "here" / "local-1").exists()
    assert main([*words, "0,1"]) == OK
    assert (tmp_path / "here" / "local-0" / "summary.json").stat().st_mtime_ns == done
    assert (tmp_path / "here" / "local-1" / "summary.json").exists()
    assert "MISSING" not in capsys.readouterr().out


@pytest.mark.parametrize("lines", [1, 2])  # a last line may be cut off, so one alone is another case
def test_a_damaged_record_costs_the_page_and_not_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: int
) -> None:
    words = ["compare", "local", *TINY, "--out", "here", "--plain", "--seeds", "0"]
    assert main(words) == OK
    (tmp_path / "here" / "local-0" / "events.jsonl").write_bytes(b"\x00\xff nonsense\n" * lines)
    table = capsys.readouterr().out.partition("\n\n")[0]
    assert main(words) == FAILED
    told = capsys.readouterr()
    assert told.out.startswith(table)
    assert "here/local-0/events.jsonl" in told.err


def test_a_sweep_over_data_compares_within_the_same_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *TINY, "method.name=gossip", "--over", "method.k=1,2", "--over", "data.train=10,20"]
    assert main([*words, "--seeds", "0", "--out", "here", "--plain"]) == OK
    found = json.loads((tmp_path / "here" / "comparison.json").read_text())
    blocks = {b["title"]: {entry["label"] for entry in b["lines"]} for b in found["blocks"]}
    assert blocks == {
        "data.train=10": {"k=1 train=10", "k=2 train=10", "local train=10"},
        "data.train=20": {"k=1 train=20", "k=2 train=20", "local train=20"},
    }
    out = capsys.readouterr().out
    assert "data.train=20" in out
    assert 'data-file="sweep-method.k-data.train-validation"' in (tmp_path / "here" / "report.html").read_text()
    assert "More seeds give intervals" in out
    # Each against the runs of Local on its own data: there are two of these.
    page = (tmp_path / "here" / "report.html").read_text(encoding="utf-8")
    gained = page[page.index("<summary>Gain per peer against local") :].partition("</table>")[0]
    rows = re.findall(r'scope="row" class="name">(.*?)</th><td>(\d+)<', gained)
    assert rows == [(f"k={k},<wbr> train={n}", "4") for k in (1, 2) for n in (10, 20)]


def test_a_sweep_over_methods_with_local_and_one_that_fails(tmp_path: Path) -> None:
    Path("mine.py").write_text(BROKEN)
    words = ["sweep", *TINY, "rounds=1", "--over", "method.name=local,gossip,mine.py:Broken", "--seeds", "0"]
    assert main([*words, "--out", "here", "--plain"]) == FAILED
    found = json.loads((tmp_path / "here" / "comparison.json").read_text())
    assert found["alone"] == {"name=gossip": "local", "local": "local"}
    assert {place["method.name"] for place in found["places"].values()} == {"local", "gossip", "mine.py:Broken"}
    page = (tmp_path / "here" / "report.html").read_text()
    assert re.search(r"Mean validation accuracy by method.name: local [\d.]+%, gossip [\d.]+%\"", page)
    assert "No finished run: method.name=mine.py:Broken." in page
    assert main(["figures", "here", "--only", "sweep-method.name-validation"]) == OK


def test_a_label_that_is_the_title_of_another_row(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "local", "gossip", *TINY, "--seeds", "0", "--out", "here", "--label", "gossip=Local"]
    assert main(words) == FAILED
    assert "label of gossip: the row 'local' is already called 'Local'" in capsys.readouterr().err
    assert not Path("here").exists()


def test_a_failed_run_does_not_affect_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(BROKEN)
    words = ["compare", "mine.py:Broken", "mine.py:Killed", "gossip,k=1", *TINY, "--seeds", "0", "--out", "here"]
    assert main([*words, "--plain", "--jobs", "1"]) == FAILED
    told = capsys.readouterr()
    assert "mine.py:Broken, seed 0 failed: ZeroDivisionError: by the author's mistake" in told.err
    assert "mine.py:Killed, seed 0 failed: its process was killed by signal 9" in told.err
    assert "MISSING: mine.py:Broken, seed 0; mine.py:Killed, seed 0" in told.out
    errors = list((tmp_path / "here").glob("*Broken-0/error.txt"))
    assert "in round" in errors[0].read_text()
    assert (tmp_path / "here" / "gossip,k=1-0" / "summary.json").exists()
    assert (tmp_path / "here" / "local-0" / "summary.json").exists()


def test_a_run_that_was_killed_goes_on(tmp_path: Path) -> None:
    variant = Variant("gossip", ("method.name=gossip", "method.k=1"))
    words = (*TINY[1:], "engine.checkpoint=1")
    (whole,) = plan.jobs("panm-digits", [variant], (0,), words, tmp_path / "whole")
    (halted,) = plan.jobs("panm-digits", [variant], (0,), words, tmp_path / "halted")
    notes = Notes()
    assert WorkerPool([whole, halted], 2, notes).run() == {}
    assert sorted(notes.started_) == [whole.name, halted.name]
    for name in ("summary.json", "report.html", "graph.npz"):
        (halted.folder / name).unlink()
    assert WorkerPool([halted], 1, notes).run() == {}
    assert (whole.folder / "config.toml").read_text() == whole.experiment.toml()  # its share of the cores is no setting
    one, other = (json.loads((job.folder / "summary.json").read_text()) for job in (whole, halted))
    for key in ("accuracy", "bytes", "messages", "validation"):
        assert one[key] == other[key]


def test_two_at_work_in_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "here").mkdir()
    with (tmp_path / "here" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["compare", "local", *TINY, "--out", "here"]) == FAILED
    assert "here is in use by another process: wait for it, or choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--target", "85"], "fraction of 1"),
        (["--jobs", "-1"], "--jobs"),
        (["rouns=3"], "Did you mean 'rounds'"),
        (["gossip,j=3"], "method.j"),
    ],
)
def test_mistakes_show_before_anything_runs(more: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "local", *TINY, "--out", "here", *more]) == FAILED
    assert told in capsys.readouterr().err
    assert not list(Path("here").glob("*/config.toml"))


def test_where_all_failed_no_option_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert ending({"gossip, seed 0": "the disk is full"}, False, "here") == FAILED
    assert capsys.readouterr().err == "coterie: gossip, seed 0 failed: the disk is full\n"


def test_ctrl_c_stops_at_a_checkpoint_and_the_same_command_goes_on(tmp_path: Path) -> None:
    Path("mine.py").write_text(BROKEN)
    words = ["compare", "mine.py:Slow", *TINY, "rounds=20", "--seeds", "0", "--out", "here", "--plain", "--no-local"]
    command = [sys.executable, "-m", "coterie", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    out = tmp_path / "here"
    wait_for(lambda: any(path.stat().st_size for path in out.glob("*/events.jsonl")))
    (folder,) = (path.parent for path in out.glob("*/events.jsonl"))
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == STOPPED, told
    assert b"the same command continues from there" in told
    assert not (folder / "summary.json").exists()
    assert (folder / "checkpoint").exists()
    assert main(words) == OK
    assert json.loads((folder / "summary.json").read_text())["rounds"] == 20
    rounds = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    seen = [(r["peer"], r["round"]) for r in rounds if r["event"] == "round"]
    assert len(seen) == len(set(seen)) == 4 * 20


def test_a_method_of_a_file_is_shown_without_its_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("mine.py").write_text(BROKEN)
    word = f"{tmp_path}/mine.py:Slow"
    assert main(["compare", word, *TINY, "rounds=1", "--seeds", "0", "--out", "here", "--plain", "--no-local"]) == OK
    assert capsys.readouterr().out.splitlines()[1].startswith("mine.py:Slow ")
    assert list(json.loads(Path("here/comparison.json").read_text())["runs"]) == ["mine.py:Slow"]


def test_ctrl_c_reaches_a_process_that_has_hardly_started(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """In the middle of its imports it would end with a traceback: it stops in its first run instead."""
    (job,) = plan.jobs(TINY[0], [Variant("local", ("method.name=local",))], [0], TINY[1:], tmp_path)
    worker = _Worker(1)
    worker.interrupt()
    worker.assign(job)
    message = next(m for m in iter(worker.receive, None) if m.kind != "round")
    worker.job = None
    worker.shut_down()
    assert message.kind == "stopped", message
    assert "Traceback" not in capfd.readouterr().err


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)
