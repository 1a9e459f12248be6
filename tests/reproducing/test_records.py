"""What is kept of runs whose folders are gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coterie.cli import FAILED, OK, main
from coterie.errors import RunError
from coterie.experiment import load
from coterie.reproducing import papers, records
from coterie.reproducing.records import Record
from coterie.reproducing.runs import fingerprint, key

TINY = (
    "data.name=digits", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5", "peers=8", "rounds=2",
    "method.k=2", "method.l=3", "method.t1=1", "model.hidden=[4]", "engine.models=false",
)  # fmt: skip
WORDS = [
    "reproduce", "panm-table2/mnist", "--small", "--only", "Local,Random", *TINY, "--plain", "--record", "kept.jsonl"
]  # fmt: skip


def record(accuracy: float, *words: str) -> Record:
    settings = json.loads(json.dumps(load("panm-digits", words).tables()))  # tuples are lists in a file
    return Record(settings, {"accuracy": {"last": {"mean": accuracy}}}, "1.0", "2026-01-02")


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
    """A changed default must not orphan hours of measurements: the settings of every record name a run of a table."""
    kept = records.read(Path(__file__).parents[2] / "docs" / "measured.jsonl")
    jobs = [
        job
        for table in papers.tables().values()
        for column in table.columns.values()
        for job in table.jobs(column, True, (0, 1, 2), (), Path("runs"))
    ]
    assert len(kept.keys() & {key(job) for job in jobs}) > 260
