"""Figures are shown only of what there is now: a run whose sources or files were changed runs again, and says why."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coterie.cli.main import FAILED, OK, main
from coterie.comparing import plan
from coterie.comparing.execution import RunsFailed, compare
from coterie.comparing.plan import Job, Variant
from coterie.config import loading, provenance
from coterie.core import imports
from coterie.core.errors import ConfigError, Interrupted, RunError
from coterie.core.run_folder import RunFolder
from coterie.running import simulated

TINY = (
    "panm-digits", "peers=4", "rounds=2", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "engine.models=false",
)  # fmt: skip
METHOD = """
from dataclasses import dataclass

from coterie import Method, parameter


@dataclass(frozen=True)
class Mine(Method):
    speed: float = parameter(1.0, "of learning")

    async def round(self, me):
        {helped}
        await me.train(lr=0.05 * self.speed)
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def write_method(name: str = "mine.py", helped: str = "pass") -> Path:
    path = Path(name)
    path.write_text(METHOD.format(helped=helped))
    return path


def edit(path: Path, old: str, new: str) -> None:
    """It keeps its time, and its size if the words are as long: a compiled file of the old text would look current."""
    text, was = path.read_text(), path.stat()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def accuracy(out: str, label: str) -> float:
    rows = csv.DictReader(Path(out, "comparison.csv").read_text().splitlines())
    return next(float(row["last.mean"]) for row in rows if row["label"] == label)


# -- through the command -----------------------------------------------------------------------


def test_compare_edit_compare_shows_the_new_figure_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    mine = write_method()
    words = ["compare", "mine.py:Mine", *TINY, "--seeds", "0", "--out", "here", "--plain"]
    assert main(words) == OK
    before = accuracy("here", "mine.py:Mine")
    capsys.readouterr()

    edit(mine, "lr=0.05", "lr=9.95")
    assert main([*words, "--print"]) == OK
    told = capsys.readouterr()
    assert "OUTDATED: mine.py changed since" in told.err
    assert "To run them again, omit --print (in Python: run=True)" in told.err
    assert "OUTDATED: mine.py changed since" in told.out  # and in the files
    assert "OUTDATED: mine.py changed since" in Path("here/comparison.md").read_text()
    assert "OUTDATED" in Path("here/comparison.csv").read_text().splitlines()[0]  # a column, which says why
    assert accuracy("here", "mine.py:Mine") == before

    local = Path("here/local-0/summary.json").stat().st_mtime_ns
    assert main(words) == OK
    told = capsys.readouterr()
    assert "note: runs again, because mine.py changed since" in told.err
    assert "mine.py:Mine, seed 0" in told.err
    assert "OUTDATED" not in told.out + told.err
    after = accuracy("here", "mine.py:Mine")
    assert after != before
    assert Path("here/local-0/summary.json").stat().st_mtime_ns == local  # it does not depend on that file

    assert main(words) == OK  # nothing more to do
    assert "again" not in capsys.readouterr().err
    (job,) = plan.jobs(TINY[0], [Variant("x", ("method.name=mine.py:Mine",))], (0,), TINY[1:], Path("alone"))
    alone = simulated.run(job.experiment, job.folder)
    assert alone["accuracy"]["last"]["mean"] == after


def test_a_sweep_sees_an_edited_helper_and_leaves_nothing_half_old(capsys: pytest.CaptureFixture[str]) -> None:
    write_method(helped="from sweep_helper import rate; assert rate")  # imported where it is used
    helper = Path("sweep_helper.py")
    helper.write_text("rate = 1\n")
    words = ["sweep", *TINY, "method.name=mine.py:Mine", "--over", "method.speed=1,2", "--seeds", "0", "--out", "here"]
    assert main([*words, "--no-local", "--plain"]) == OK
    Path("here/speed=1-0/leftover.txt").write_text("of the old run")
    capsys.readouterr()
    helper.write_text("rate = 0\n")
    os.utime(helper, (later := time.time() + 2, later))  # Python takes a file of the same second and size for the same
    assert main([*words, "--no-local", "--plain"]) == FAILED
    told = capsys.readouterr()
    again = [line for line in told.err.splitlines() if "runs again, because sweep_helper.py changed since" in line]
    for run in ("speed=1, seed 0", "speed=2, seed 0"):  # in one line, or in two if they began in different minutes
        assert any(run in line for line in again)
    assert "speed=1, seed 0 failed: AssertionError" in told.err
    assert "speed=1" not in told.out, "the old figure is not shown beside a failure"
    assert not Path("here/speed=1-0/summary.json").exists()
    assert not Path("here/speed=1-0/leftover.txt").exists()


def test_two_methods_whose_files_have_the_same_name(capsys: pytest.CaptureFixture[str]) -> None:
    for folder, helped in (("a", "pass"), ("b", "me.id")):
        Path(folder).mkdir()
        write_method(f"{folder}/m.py", helped)
    words = ["compare", "a/m.py:Mine", "b/m.py:Mine", *TINY, "--seeds", "0", "--out", "here", "--no-local", "--plain"]
    assert main(words) == OK
    made = {path: path.stat().st_mtime_ns for path in Path("here").glob("*/summary.json")}
    assert len(made) == 2
    digests = {json.loads(RunFolder(path.parent).provenance.read_text())["made_with"]["m.py"] for path in made}
    assert len(digests) == 2
    capsys.readouterr()

    assert main(words) == OK
    told = capsys.readouterr()
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert "again" not in told.err
    assert main([*words, "--print"]) == OK
    told = capsys.readouterr()
    assert "OUTDATED" not in told.out + told.err


def test_a_method_file_crosses_to_the_processes_that_compute_it() -> None:
    Path("b").mkdir()
    write_method("b/m.v2.py")
    found = done("method.name=b/m.v2.py:Mine", "engine.name=processes", "engine.workers=2")
    record = provenance.read(found.folder)
    assert record is not None
    assert "m.v2.py" in record.made_with


REPRODUCED = (
    "reproduce", "panm-table2/mnist", "--small", "--only", "Local", "--seeds", "0", "data.name=digits",
    "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5", "peers=8", "rounds=1", "method.k=2",
    "method.l=3", "method.t1=1", "model.hidden=[4]", "engine.models=false", "--plain", "--record", "kept.jsonl",
)  # fmt: skip


def test_records_carry_it_and_older_ones_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*REPRODUCED]) == OK
    (line,) = Path("kept.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["made_with"]["coterie/methods/local.py"].startswith("sha256:")
    (summary,) = Path("runs/reproduce").glob("*/summary.json")
    summary.parent.rename("elsewhere")
    capsys.readouterr()

    assert main([*REPRODUCED]) == OK  # the record counts, without its folder
    assert capsys.readouterr().err == ""
    Path("kept.jsonl").write_text(json.dumps({k: v for k, v in record.items() if k != "made_with"}) + "\n")
    assert main([*REPRODUCED]) == OK
    assert "1 of the 1 runs shown were measured before sources were recorded" in capsys.readouterr().err
    assert "made_with" not in Path("kept.jsonl").read_text(), "a record stays as it is"

    record["made_with"]["torch"] = "1.0"
    Path("kept.jsonl").write_text(json.dumps(record) + "\n")
    assert main([*REPRODUCED, "--print"]) == OK
    told = capsys.readouterr()
    assert "OUTDATED: panm-table2/mnist: torch 1.0 -> " in told.err
    assert "Versions and own files: OUTDATED, torch 1.0 -> " in told.out
    assert main([*REPRODUCED]) == OK
    told = capsys.readouterr()
    assert "runs again, because its record is outdated: torch 1.0 -> " in told.err
    assert "OUTDATED" not in told.err + told.out
    (line,) = Path("kept.jsonl").read_text().splitlines()
    assert json.loads(line)["made_with"] != record["made_with"]


# -- job by job --------------------------------------------------------------------------------


def job(*words: str, label: str = "it", out: str = "here") -> Job:
    (found,) = plan.jobs(TINY[0], [Variant(label, words)], (0,), TINY[1:], Path(out))
    return found


def done(*words: str) -> Job:
    found = job(*words)
    simulated.run(found.experiment, found.folder)
    assert plan.run_status(found).current
    return found


def csv_file(name: str = "mine.csv") -> Path:
    rows = [f"{i % 7},{i % 3},{'ab'[i % 2]}" for i in range(80)]
    Path(name).write_text("\n".join(["one,two,label", *rows, ""]))
    return Path(name)


ON_CSV = ("method.name=local", "data.name=mine.csv", "data.partition=iid")


def test_a_csv_that_was_edited() -> None:
    data = csv_file()
    first = done(*ON_CSV)
    edit(data, "label\n0,0,a", "label\n0,0,b")  # one label, so that the size stays
    assert "data mine.csv changed since" in plan.run_status(first).outdated


def test_networks_of_the_same_name_in_two_folders() -> None:
    """Each counts, in the order of the settings; their folders do not, so they may be moved."""
    for folder in ("z", "a", "moved"):
        Path(folder).mkdir()
    Path("z/net.onnx").write_bytes(b"1")
    Path("a/net.onnx").write_bytes(b"2")

    def made_with(*places: str) -> dict[str, str]:
        e = loading.load(TINY[0], [*TINY[1:], "method.name=local"])
        zoo = tuple(str(Path(place).resolve()) for place in places)
        return provenance.on_disk(dataclasses.replace(e, model=dataclasses.replace(e.model, zoo=zoo)))

    before = made_with("z/net.onnx", "a/net.onnx", "z/net.onnx")
    assert [name for name in before if name.startswith("model ")] == ["model net.onnx", "model net.onnx (2)"]
    Path("z/net.onnx").write_bytes(b"3")
    now = made_with("z/net.onnx", "a/net.onnx", "z/net.onnx")
    assert provenance.differences(before, now) == ["model net.onnx changed"]
    Path("z/net.onnx").write_bytes(b"1")
    Path("a/net.onnx").write_bytes(b"4")
    now = made_with("z/net.onnx", "a/net.onnx", "z/net.onnx")
    assert provenance.differences(before, now) == ["model net.onnx (2) changed"]
    Path("a/net.onnx").write_bytes(b"2")
    Path("z/net.onnx").rename("moved/net.onnx")
    assert made_with("moved/net.onnx", "a/net.onnx", "moved/net.onnx") == before
    Path("a/net.onnx").rename("z/net.onnx")
    assert made_with("moved/net.onnx", "z/net.onnx", "moved/net.onnx") == before


def test_a_folder_of_data_is_its_names_and_contents() -> None:
    Path("images/a").mkdir(parents=True)
    Path("images/a/1.png").write_bytes(b"1")
    before = provenance._of_place(Path("images"))
    assert provenance._of_place(Path("images")) == before
    Path("images/a/1.png").rename("images/a/2.png")
    renamed = provenance._of_place(Path("images"))
    Path("images/a/2.png").write_bytes(b"2")
    assert len({before, renamed, provenance._of_place(Path("images"))}) == 3


def test_a_module_with_a_class_its_base_and_a_brought_model() -> None:
    Path("base_of_mine.py").write_text(METHOD.format(helped="pass"))
    Path("class_of_mine.py").write_text("from base_of_mine import Mine\n\n\nclass Younger(Mine):\n    pass\n")
    Path("net_of_mine.py").write_text(
        "from torch import nn\n\n\ndef make(input_shape):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n"
    )
    words = ("method.name=class_of_mine:Younger", "model.zoo=net_of_mine:make")
    first = done(*words)
    record = provenance.read(first.folder)
    assert record is not None
    assert {"base_of_mine.py", "class_of_mine.py", "net_of_mine.py"} <= record.made_with.keys()
    for name, old, new in (
        ("base_of_mine.py", "0.05", "0.06"),
        ("class_of_mine.py", "pass", "pass  # a word"),
        ("net_of_mine.py", "(64, 3)", "(64, 4)"),
    ):
        text = Path(name).read_text()
        edit(Path(name), old, new)
        assert f"{name} changed since" in plan.run_status(first).outdated
        Path(name).write_text(text)
    assert plan.run_status(first).current, "as it was before, it counts again"


def test_a_comment_is_a_change_too_and_so_is_a_new_import() -> None:
    mine = write_method()
    done("method.name=mine.py:Mine")
    edit(mine, "        pass\n", "        pass  # a word\n")
    assert "mine.py changed" in plan.run_status(job("method.name=mine.py:Mine")).outdated
    Path("beside_mine.py").touch()
    edit(mine, "# a word\n", "\n        import beside_mine\n")
    assert "beside_mine.py is new, mine.py changed" in plan.run_status(job("method.name=mine.py:Mine")).outdated


@pytest.mark.parametrize("changed", ["speed: float = parameter(2.0,", "pace: float = parameter(1.0,"])
def test_a_default_that_changed_or_a_parameter_that_is_gone_is_a_change_of_the_source(changed: str) -> None:
    mine = write_method()
    done("method.name=mine.py:Mine")
    edit(mine, "speed: float = parameter(1.0,", changed)
    mine.write_text(mine.read_text().replace("self.speed", "1.0"))
    assert "mine.py changed" in plan.run_status(job("method.name=mine.py:Mine")).outdated


def test_a_file_that_was_moved_is_the_same_if_its_content_is() -> None:
    mine = write_method()
    csv_file()
    first = done("method.name=mine.py:Mine", *ON_CSV[1:])
    Path("sub").mkdir()
    mine.rename("sub/mine.py")
    Path("mine.csv").rename("sub/mine.csv")
    moved = job("method.name=sub/mine.py:Mine", "data.name=sub/mine.csv", ON_CSV[2])
    assert plan.run_status(moved).current
    (first.folder / "summary.json").unlink()
    assert "moved" in plan.run_status(moved).outdated  # it could not go on: its settings name the old place
    (first.folder / "summary.json").write_text("{}")
    edit(Path("sub/mine.py"), "0.05", "0.06")
    moved = job("method.name=sub/mine.py:Mine", "data.name=sub/mine.csv", ON_CSV[2])
    assert "mine.py changed" in plan.run_status(moved).outdated
    write_method()  # with the old file there again, it is another one
    csv_file()
    with pytest.raises(RunError, match="other settings"):
        plan.run_status(moved)


def test_an_older_folder_runs_again_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    found = done("method.name=local")
    RunFolder(found.folder).provenance.unlink()
    assert plan.run_status(found).outdated == "made before sources were recorded"
    RunFolder(found.folder).provenance.write_text("{}")
    with pytest.raises(RunError, match=r"provenance\.json cannot be read"):
        plan.run_status(found)
    assert capsys.readouterr().err == ""


def test_versions_and_settings_without_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    found = done("method.name=local")
    other = job("method.name=local", "engine.name=processes", "engine.workers=7", "engine.checkpoint=3")
    assert plan.run_status(other).current
    versions: Callable[[str], str] = provenance._version_of
    monkeypatch.setattr(provenance, "_version_of", lambda name: "99" if name == "torch" else versions(name))
    assert f"torch {versions('torch')} -> 99 since" in plan.run_status(found).outdated


def test_a_line_for_each_reason_with_the_runs_that_it_concerns() -> None:
    outdated = {f"panm, seed {seed}": "torch 1 -> 2" for seed in range(5)} | {"local, seed 0": "x.py changed"}
    assert plan.rerun_reasons(outdated) == [
        "torch 1 -> 2: panm, seed 0; panm, seed 1; panm, seed 2 and 2 more",
        "x.py changed: local, seed 0",
    ]


# -- the source that runs ----------------------------------------------------------------------


def test_what_is_recorded_is_what_this_process_has_loaded() -> None:
    """A helper that was edited after its import still runs as it was: the run's figures are of that source."""
    write_method(helped="from helper_in_use import rate")
    Path("helper_in_use.py").write_text("rate = 1\n")
    importlib.import_module("helper_in_use")
    loaded = loading.load(TINY[0], [*TINY[1:], "method.name=mine.py:Mine"])
    before = provenance.on_disk(loaded)
    Path("helper_in_use.py").write_text("rate = 2\n")
    assert provenance.of(loaded) == before
    assert provenance.differences(before, provenance.on_disk(loaded)) == ["helper_in_use.py changed"]


def test_a_module_that_was_edited_between_its_import_and_the_run_is_run_again() -> None:
    """The old source runs, but was not kept: the record equals neither it nor the new one."""
    mine = write_method("edited_mine.py")
    loaded = importlib.import_module("edited_mine")
    edit(mine, "lr=0.05", "lr=0.06")  # it keeps its time of writing, as a copy may
    words = ("method.name=edited_mine:Mine",)
    found = job(*words)
    assert type(found.experiment.method) is loaded.Mine
    simulated.run(found.experiment, found.folder)
    assert "edited_mine.py changed (edited after it was loaded, at " in plan.run_status(found).outdated
    edit(mine, "lr=0.06", "lr=0.05")
    assert not plan.run_status(found).current, "nobody knows that this is the source that ran"

    importlib.reload(loaded)  # from here on it is known again
    simulated.run(job(*words).experiment, found.folder, overwrite=True)
    assert plan.run_status(job(*words)).current


def test_a_module_that_was_loaded_before_coterie_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the only time that is known is that of Coterie's own import: a file that is older was not edited."""
    for name, years in (("older_mine", -1), ("newer_mine", 1)):
        path = write_method(f"{name}.py")
        importlib.import_module(name)
        monkeypatch.delitem(imports._import_started, name)
        monkeypatch.setattr(imports, "_FIRST_SEEN", path.stat().st_ctime_ns - years * 365 * 86_400 * 10**9)
        e = loading.load(TINY[0], [*TINY[1:], f"method.name={name}:Mine"])
        changes = provenance.differences(provenance.of(e), provenance.on_disk(e))
        assert [change.partition(" (")[0] for change in changes] == ([] if years < 0 else [f"{name}.py changed"])


def test_a_method_that_is_loaded_again_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    mine = write_method()
    first = loading.load(TINY[0], ["method.name=mine.py:Mine"])
    edit(mine, "parameter(1.0,", "parameter(3.0,")
    second = loading.load(TINY[0], ["method.name=mine.py:Mine"])
    assert (first.tables()["method"]["speed"], second.tables()["method"]["speed"]) == (1.0, 3.0)
    assert not list(Path().rglob("*.pyc"))


# -- runs that go on ---------------------------------------------------------------------------


def halted(found: Job) -> None:
    """A run that was stopped after its first round."""

    def stop(simulation: Any) -> None:
        simulation.stop()

    with pytest.raises(Interrupted):
        simulated.run(found.experiment, found.folder, on_start=stop)


def test_a_run_that_goes_on_with_other_sources_says_so_and_is_a_mixture(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    mine = write_method()
    found = job("method.name=mine.py:Mine")
    halted(found)
    edit(mine, "lr=0.05", "lr=0.06")
    assert main(["run", "--resume", str(found.folder), "--plain"]) == OK
    assert "resumes after round 1, but mine.py changed: its results will be a mixture" in caplog.text
    assert "MIXTURE of versions" in capsys.readouterr().out
    change = "after round 1: mine.py changed"
    assert json.loads((found.folder / "summary.json").read_text())["mixture"] == [change]
    assert change in (found.folder / "report.html").read_text()
    assert main(["report", str(found.folder)]) == OK
    assert change in (found.folder / "report.html").read_text()
    found = job("method.name=mine.py:Mine")
    assert plan.run_status(found).outdated == f"a mixture ({change})"


def test_a_run_that_goes_on_as_it_was_is_none(caplog: pytest.LogCaptureFixture) -> None:
    write_method()
    found = job("method.name=mine.py:Mine")
    halted(found)
    summary = simulated.resume(found.folder)
    assert "mixture" not in summary
    assert caplog.text == ""
    assert plan.run_status(found).current
    edit(Path("mine.py"), "lr=0.05", "lr=0.06")
    assert simulated.resume(found.folder) == summary
    assert "is finished and its figures are kept, but they are outdated: mine.py changed" in caplog.text


def test_without_recorded_sources_a_change_cannot_be_detected(caplog: pytest.LogCaptureFixture) -> None:
    write_method()
    found = job("method.name=mine.py:Mine")
    halted(found)
    RunFolder(found.folder).provenance.unlink()
    summary = simulated.resume(found.folder)
    not_known = "it is unknown whether its sources changed, as it was made before sources were recorded"
    assert f"resumes after round 1: {not_known}" in caplog.text
    assert "mixture" not in summary
    assert not plan.run_status(found).current, "its first rounds are still of unknown sources"
    caplog.clear()
    assert simulated.resume(found.folder) == summary
    assert f"is finished and its figures are kept, but {not_known}" in caplog.text
    assert "outdated" not in caplog.text


def test_a_run_that_begins_again_is_of_one_source() -> None:
    write_method()
    found = job("method.name=mine.py:Mine", "engine.checkpoint=0")
    halted(found)
    for checkpoint in (found.folder / "checkpoint").glob("*"):
        checkpoint.unlink()
    edit(Path("mine.py"), "lr=0.05", "lr=0.06")
    assert "mixture" not in simulated.resume(found.folder)
    assert plan.run_status(job("method.name=mine.py:Mine", "engine.checkpoint=0")).current


# -- from Python -------------------------------------------------------------------------------


def test_python_and_the_command_are_alike(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.py").write_text(METHOD.format(helped="raise ValueError('bad')"))
    found = compare(["gossip,k=1"], TINY[0], TINY[1:], seeds=(0, 0), out=Path("here"), local=False)
    assert [line.label for line in found.blocks[0].lines] == ["gossip,k=1"]
    written = {path.name: path.read_text() for path in Path("here").glob("comparison.*")}
    assert Path("here/report.html").exists()
    assert main(["compare", "gossip,k=1", *TINY, "--seeds", "0", "--out", "here", "--no-local", "--print"]) == OK
    assert {path.name: path.read_text() for path in Path("here").glob("comparison.*")} == written
    capsys.readouterr()

    with pytest.raises(RunsFailed, match=r"bad\.py:Mine, seed 0 failed: ValueError: bad") as failure:
        compare(["gossip,k=1", "bad.py:Mine"], TINY[0], TINY[1:], seeds=(0,), out=Path("here"), local=False)
    assert [line.label for line in failure.value.found.blocks[0].lines] == ["gossip,k=1"]
    assert "MISSING: bad.py:Mine, seed 0" in Path("here/comparison.md").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"methods": ["gosip"]}, "gossip"),
        ({"methods": []}, "name the methods to compare"),
        ({"seeds": (-1,)}, "negative"),
        ({"seeds": ()}, "one or more"),
        ({"target": 85.0}, "fraction of 1"),
        ({"words": ["seed=3"]}, "--seeds"),
        ({"run": False}, "no run of this comparison yet"),
    ],
)
def test_python_makes_the_checks_of_the_command(options: dict[str, Any], told: str) -> None:
    with pytest.raises((ConfigError, RunError), match=told):
        compare(**{"methods": ["gossip,k=1"], "experiment": TINY[0], "out": Path("here"), **options})
    assert not Path("here").exists()
