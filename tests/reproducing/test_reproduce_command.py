"""`coterie reproduce`, with real runs of a table made tiny."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coterie.cli.main import FAILED, OK, main
from coterie.core.summary import Summary
from coterie.reproducing import papers, records, runs
from coterie.reproducing.sections import Place, parsed

TINY = (
    "data.name=digits", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5", "peers=8", "rounds=2",
    "method.k=2", "method.l=3", "method.t1=1", "model.hidden=[4]", "engine.models=false",
)  # fmt: skip
WORDS = ["reproduce", "panm-table2/mnist", "--small", "--only", "Local,Random", "--seeds", "0", *TINY, "--plain"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def times(out: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.glob("*/summary.json")}


def test_a_table_a_second_call_and_another_table_with_the_same_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs" / "reproduce"
    assert main([*WORDS, "--print"]) == FAILED
    assert "none of these runs yet" in capsys.readouterr().err
    assert not times(out)

    assert main([*WORDS, "--jobs", "1"]) == OK
    first = capsys.readouterr()
    said = [line for line in first.err.splitlines() if not line.startswith("note: ")]
    assert said[0] == "panm-table2/mnist: 2 runs, 1 at a time"  # before anything has run
    assert "2 of 2" in first.err
    done = times(out)
    assert len(done) == 2
    lines = [line.split() for line in first.out.splitlines()]
    assert [line[:2] for line in lines if line[:1] in (["Local"], ["Random"])] == [
        ["Local", "82.57"],
        ["Random", "95.12"],
    ]

    assert main([*WORDS, "--page", "page.md"]) == OK
    second = capsys.readouterr()
    assert [line.split(" from ")[0] for line in second.err.splitlines()] == ["note: gossip takes k=2"]  # no run
    assert second.out == first.out + "written: page.md\n"
    assert times(out) == done
    assert "| Random | 95.12 ±0.04 |" in Path("page.md").read_text(encoding="utf-8")

    # With these settings of ours, this column is the same experiment: nothing is left to run.
    other = ["panm-table5/fashion-mnist-rotation2", "--small", "--only", "Local"]
    assert main(["reproduce", *other, "--seeds", "0", *TINY, "--plain"]) == OK
    assert times(out) == done
    assert "Local" in capsys.readouterr().out


def test_a_page_has_all_that_is_there_whatever_part_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ["--record", "kept.jsonl", "--page", "page.md"]
    assert main([*WORDS, *kept]) == OK
    words = [word if word != "Local,Random" else "Local" for word in WORDS]
    assert main([*words, "--print", *kept]) == OK
    assert "Random" not in capsys.readouterr().out.rpartition("coterie reproduce")[2]  # in the terminal: what was asked
    section = parsed((tmp_path / "page.md").read_text(encoding="utf-8"))[0][Place("panm-table2", "mnist", small=True)]
    assert list(section.cells) == ["Local", "Random"]
    assert section.runs == (2, 24)  # all rows, with three seeds
    assert "Records: [kept.jsonl](kept.jsonl)." in section.text


def test_all_that_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data.clusters=2", "data.train=10", "data.validation=5", "data.test=5", "peers=40", "rounds=1"]
    one = ["fedpae-table2-most", "--small", "--only", "LocalEnsemble", "--seeds", "0", "data.name=digits"]
    more = ["model.zoo=mlp", "model.hidden=[4]", "engine.models=false"]
    assert main(["reproduce", *one, *words, *more, "--plain"]) == OK
    capsys.readouterr()
    everything = ["reproduce", "all", "--print", "--seeds", "0", "--page", "page.md"]
    assert main([*everything, "data.name=digits", *words, *more]) == OK
    told = capsys.readouterr().out
    # Each of these tables has that run; where it is the same in all their columns, in each of them.
    for table in ("fedpae-table2-most/cifar10-0.1", "fedpae-table2-least/cifar10-0.1", "fedpae-table1/cifar10-0.1"):
        assert f"coterie reproduce {table} --small --seeds 0 data.name=digits" in told
    assert "compfl" not in told
    assert "## fedpae-table1/cifar10-0.1, small form" in (tmp_path / "page.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["all"], "name one"),
        (["panm-table9"], "unknown table"),
        (["panm-table2/mnist", "--small", "seed=3"], "--seeds"),
        (["panm-table2/mnist", "--small", "--only", "Lokal"], "Local"),
        (["panm-table2/mnist", "--small", "rouns=3"], "rounds"),
    ],
)
def test_mistakes_show_before_anything_runs(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", *words]) == FAILED
    assert told in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_what_fails_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "data.train=1000000"]) == FAILED
    told = capsys.readouterr()
    assert "coterie: panm-table2/mnist, Local, seed 0 failed: " in told.err
    assert "none of these runs yet" not in told.err  # it failed, and leaving out --print would not help


def test_the_list_says_what_is_there_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.reproducing.estimates.speeds_here", lambda: {"mlp": 1e4, "cnn3": 1e4, "resnet9": 1e4})
    table, (column,) = papers.find("panm-table2/mnist")
    made = {}
    for job in table.jobs(column, True, (0, 1, 2), (), tmp_path, ["Local"]):
        settings = json.loads(json.dumps(job.experiment.tables()))
        half = Summary.from_json({"accuracy": {"last": {"mean": 0.5}}})
        made[runs.key(job)] = records.Record(settings, half, "1", "2026-01-01")
    records.add(tmp_path / "kept.jsonl", made)
    assert main(["reproduce", "list", "--record", "kept.jsonl"]) == OK
    told = capsys.readouterr().out
    of_table = told.partition("  panm-table2: ")[2].partition("  panm-table3: ")[0]
    assert "      small form: 3 of 24 runs: mnist\n" in of_table
    assert "      only defined: no run yet: fashion-mnist, cifar10\n" in of_table
    assert main(["reproduce", "list"]) == OK
    assert "no run yet" not in capsys.readouterr().out  # nobody said where to look


def test_the_list_says_how_long_each_takes_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coterie.reproducing.estimates.speeds_here", lambda: {"mlp": 1e4, "cnn3": 1e4, "resnet9": 1e4})
    assert main(["reproduce", "list"]) == OK
    told = capsys.readouterr()
    lines = told.out.splitlines()
    [at] = [i for i, line in enumerate(lines) if line.startswith("  panm-table2:")]
    assert lines[at + 2].startswith("      time here: about ")
    assert "--small about " in lines[at + 2]
    assert told.out.count("time here: about") == told.out.count("columns: ")
    assert "rough estimates for this machine with 3 seeds" in lines[-1]
    assert "measuring how fast this machine trains" in told.err
