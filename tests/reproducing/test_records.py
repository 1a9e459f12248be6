"""What is kept of runs whose folders are gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from coterie.cli.main import FAILED, OK, STOPPED, main
from coterie.comparing.plan import Job
from coterie.config import provenance
from coterie.config.loading import load
from coterie.core.errors import RunError
from coterie.core.summary import Summary
from coterie.reproducing import papers, records, runs
from coterie.reproducing.making import Maker
from coterie.reproducing.records import Record
from coterie.reproducing.runs import fingerprint

TINY = (
    "data.name=digits", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5", "peers=8", "rounds=2",
    "method.k=2", "method.l=3", "method.t1=1", "model.hidden=[4]", "engine.models=false",
)  # fmt: skip
WORDS = [
    "reproduce", "panm-table2/mnist", "--small", "--only", "Local,Random", *TINY, "--plain", "--record", "kept.jsonl"
]  # fmt: skip


def record(accuracy: float, *words: str, day: str = "2026-01-02", made_with: dict[str, str] | None = None) -> Record:
    settings = json.loads(json.dumps(load("panm-digits", words).tables()))  # tuples are lists in a file
    return Record(settings, Summary.from_json({"accuracy": {"last": {"mean": accuracy}}}), "1.0", day, made_with)


def accuracies(path: Path) -> list[float]:
    """Of the records in a file, in ascending order."""
    return sorted(json.loads(line)["summary"]["accuracy"]["last"]["mean"] for line in path.read_text().splitlines())


def test_a_run_that_is_recorded_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*WORDS, "--seeds", "0"]) == OK
    first = capsys.readouterr().out
    assert len(records.read(Path("kept.jsonl"))) == 2

    shutil.rmtree("runs")
    assert main([*WORDS, "--seeds", "0"]) == OK
    assert capsys.readouterr().out == first
    assert not list(Path("runs").glob("*/*/summary.json"))

    assert main([*WORDS, "--seeds", "0,1"]) == OK  # only what is new is run, and added
    assert len(list(Path("runs").glob("*/*/summary.json"))) == 2
    assert len(records.read(Path("kept.jsonl"))) == 4
    assert main([*WORDS[:-2], "--seeds", "0", "--print", "--out", "elsewhere"]) == FAILED  # without it there is nothing


def test_as_written_so_read_and_a_new_run_is_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "a folder" / "kept.jsonl"
    some = [record(0.5, "seed=1"), record(0.25, "seed=0")]
    records.write(path, some)
    lines = path.read_text().splitlines()
    found = records.read(path)
    assert sorted(found.values(), key=lambda r: r.summary["accuracy"]["last"]["mean"]) == some[::-1]
    assert fingerprint(load("panm-digits", ["seed=1", "engine.workers=7"])) in found  # how it was computed is no matter
    records.write(path, [record(0.75, "seed=2"), *found.values()])
    assert set(lines) < set(path.read_text().splitlines())


def test_settings_that_there_are_no_more_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    old = record(0.5)
    records.write(path, [Record({**old.settings, "flavour": "sour"}, old.summary, "0.0", "2020-01-01"), old])
    assert list(records.read(path).values()) == [old]
    assert records.read(tmp_path / "none.jsonl") == {}


def test_records_that_another_process_added_meanwhile_stay(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    mine, theirs = record(0.5, "seed=1"), record(0.25, "seed=2")
    first = records.add(path, {})  # read before the other process writes
    records.add(path, {fingerprint(load("panm-digits", ["seed=2"])): theirs})
    assert first == {}
    both = records.add(path, {fingerprint(load("panm-digits", ["seed=1"])): mine})
    assert len(both) == 2
    assert accuracies(path) == [0.25, 0.5]


def test_a_new_record_does_not_remove_one_with_settings_that_there_are_no_more(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    old = record(0.5)
    records.write(path, [Record({**old.settings, "flavour": "sour"}, old.summary, "0.0", "2020-01-01")])
    records.add(path, {fingerprint(load("panm-digits")): record(0.25)})
    assert accuracies(path) == [0.25, 0.5]


def test_several_files_into_one_with_the_newest_of_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into, one, other = (tmp_path / name for name in ("into.jsonl", "one.jsonl", "other.jsonl"))
    records.write(into, [record(0.1, "seed=1", day="2026-01-02"), record(0.2, "seed=2", day="2026-01-05")])
    records.write(one, [record(0.3, "seed=1", day="2026-01-03"), record(0.4, "seed=2", day="2026-01-04")])
    records.write(other, [record(0.5, "seed=3"), record(0.6, "seed=1", day="2026-01-01")])
    assert main(["reproduce", "merge", str(one), str(other), "--record", str(into)]) == OK
    assert accuracies(into) == [0.2, 0.3, 0.5]
    assert capsys.readouterr().out == f"{into}: 2 records before, 1 added, 1 replaced by newer ones\n"
    assert len(accuracies(one)) == 2  # sources stay as they are
    before = into.read_bytes()
    assert main(["reproduce", "merge", str(one), str(other), "--record", str(into)]) == OK
    assert into.read_bytes() == before  # merging again changes nothing


def test_of_one_days_records_a_current_one_wins_then_the_last_given(tmp_path: Path) -> None:
    into, source = tmp_path / "into.jsonl", tmp_path / "source.jsonl"
    current = provenance.on_disk(load("panm-digits"))
    records.write(into, [record(0.1, made_with=current)])
    records.write(source, [record(0.2, made_with={**current, "torch": "0.0"})])
    records.merge([source], into)
    assert accuracies(into) == [0.1]
    records.write(source, [record(0.3)])  # not known with what it was made
    records.merge([source], into)
    assert accuracies(into) == [0.1]
    records.write(source, [record(0.4, made_with=current)])
    records.merge([source], into)
    assert accuracies(into) == [0.4]


def test_a_record_does_not_age_with_edits_of_the_package() -> None:
    e = load("panm-digits")
    current = provenance.on_disk(e)
    assert "coterie/methods/panm.py" in current
    moved = {**current, "coterie/methods/panm.py": "sha256:0", "coterie/methods/gone.py": "sha256:1"}
    assert record(0.1, made_with=moved).outdated(e) == ""
    assert record(0.1, made_with={**moved, "torch": "0.0"}).outdated(e).startswith("torch 0.0 -> ")
    assert record(0.1, made_with={**moved, "mine.py": "sha256:2"}).outdated(e).startswith("mine.py is no longer used")


def test_prune_removes_what_no_table_asks_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, (column,) = papers.find("panm-table2/mnist")
    asked = table.jobs(column, True, (7,), (), tmp_path, ["Local"])[0].experiment  # a seed of the user's own
    settings = json.loads(json.dumps(asked.tables()))
    old = record(0.5)
    path = tmp_path / "kept.jsonl"
    others = [old, Record({**old.settings, "flavour": "sour"}, old.summary, "0.0", "2020-01-01")]
    its_summary = Summary.from_json({"accuracy": {"last": {"mean": 0.75}}})
    records.write(path, [Record(settings, its_summary, "1.0", "2026-01-02"), *others])
    assert main(["reproduce", "merge", str(path), "--record", str(path)]) == OK
    assert "1 kept with settings that no longer exist (--prune" in capsys.readouterr().out
    assert len(accuracies(path)) == 3
    assert main(["reproduce", "merge", "--prune", "--record", str(path)]) == OK
    assert "2 records before, 0 added, 0 replaced by newer ones, 2 removed" in capsys.readouterr().out
    assert accuracies(path) == [0.75]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["merge"], "name the files to merge"),
        (["merge", "a.jsonl"], "name the files to merge"),
        (["merge", "--record", "b.jsonl"], "name the files to merge"),
        (["merge", "none.jsonl", "--record", "b.jsonl"], "there is no file of records none.jsonl"),
        (["merge", "bad.jsonl", "--record", "b.jsonl"], "bad.jsonl, line 1 is not a record"),
        (["merge", "good.jsonl", "--record", "good.jsonl/b.jsonl"], "good.jsonl/b.jsonl cannot be written"),
        (["panm-table2/mnist", "--prune"], "only works with merge"),
    ],
)
def test_merges_that_cannot_be(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.jsonl").write_text("nonsense\n")
    records.write(Path("good.jsonl"), [record(0.5)])
    assert main(["reproduce", *words]) == FAILED
    assert told in capsys.readouterr().err
    assert not Path("b.jsonl").exists()


def test_each_run_is_recorded_as_soon_as_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops a long table keeps the records of what was done: they are in the file before the next run begins."""
    monkeypatch.chdir(tmp_path)
    seen = []
    ended = Maker._ended

    def look(maker: Maker, job: Job) -> None:
        ended(maker, job)
        seen.append(len(records.read(Path("kept.jsonl"))))

    monkeypatch.setattr(Maker, "_ended", look)
    assert main([*WORDS, "--seeds", "0", "--jobs", "1"]) == OK
    assert seen == [1, 2]


def test_records_of_existing_runs_are_added_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*WORDS[:-2], "--seeds", "0"]
    assert main(words) == OK
    assert main([*words, "--print", "--record", "kept.jsonl"]) == OK
    told = f"note: 2 records of existing runs in {Path('runs/reproduce')} added to kept.jsonl"
    assert told in capsys.readouterr().err
    assert len(records.read(Path("kept.jsonl"))) == 2
    assert main([*words, "--print", "--record", "kept.jsonl"]) == OK
    assert "added to" not in capsys.readouterr().err


def test_who_stops_it_loses_nothing_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*WORDS, "--seeds", "0,1", "--jobs", "1"]
    ended = Maker._ended

    def stop(maker: Maker, job: Job) -> None:
        ended(maker, job)
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C, after the first run

    with monkeypatch.context() as with_ctrl_c:
        with_ctrl_c.setattr(Maker, "_ended", stop)
        assert main(words) == STOPPED
    assert "finished work is kept, and the same command continues" in capsys.readouterr().err
    (first,) = records.read(Path("kept.jsonl")).values()
    shutil.rmtree("runs")  # the record is enough
    assert main(words) == OK
    assert "all 4 runs (seeds 0 and 1)" in capsys.readouterr().out
    assert first in records.read(Path("kept.jsonl")).values()
    assert len(list(Path("runs").glob("*/*/summary.json"))) == 3


def test_a_record_that_cannot_be_written_shows_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file").write_text("")
    assert main([*WORDS[:-1], "a file/kept.jsonl"]) == FAILED
    assert "a file/kept.jsonl cannot be written" in capsys.readouterr().err
    Path("a folder").mkdir()
    assert main([*WORDS[:-1], "a folder"]) == FAILED
    assert "a folder cannot be read" in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "line",
    [
        "", "nonsense", "[]", "{}", '{"settings": {}, "summary": {}, "version": "1", "day": "d"}',
        '{"settings": 3, "summary": {"accuracy": {"last": {"mean": 0.5}}}, "version": "1", "day": "d"}',
        '{"settings": {}, "summary": 3, "version": "1", "day": "d", "more": 1}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "kept.jsonl"
    records.write(path, [record(0.5)])
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(RunError, match=r"kept.jsonl, line 2 .*delete that line"):
        records.read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RunError, match=r"kept.jsonl cannot be read"):
        records.read(path)


def test_the_records_that_ship_are_of_the_tables_as_they_are() -> None:
    """A changed default must not orphan hours of measurements: every record is of a run that a table asks for.

    Where a method or a table has changed, and its old records are to go: coterie reproduce merge --record
    docs/measured.jsonl --prune
    """
    path = Path(__file__).parents[2] / "docs" / "measured.jsonl"
    kept, wanted = records.read(path), runs.asked_for()
    assert len(kept) == len(path.read_text(encoding="utf-8").splitlines())
    assert all(wanted(record) for record in kept.values())
