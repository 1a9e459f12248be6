"""Peers that are sites are called by their sites' names, in everything that a run writes and shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas
import pytest

from coterie import data
from coterie.cli.main import OK, main
from coterie.config.loading import load
from coterie.core.events import EventLog, RunStarted, read
from coterie.core.formatting import peer_label, peer_name
from coterie.core.run_folder import RunFolder
from coterie.dashboard.view import RunView
from coterie.report.heatmap import heat_map
from coterie.running import simulated
from coterie.running.folders import find_runs
from coterie.running.sinks import Sink
from coterie.wiring import divide

HOSTILE = "<b>\x1b[1m & co"  # as it is in a table
SHOWN = "<b>\\x1b[1m & co"  # with its control character escaped
WORDS = (
    "data.partition=column", "data.column=hospital", "data.train=0.7", "data.validation=0.15", "data.test=0.15",
    "model.zoo=mlp", "model.hidden=[4]", "method.name=gossip", "method.k=1", "rounds=2", "engine.workers=1",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run with the sites HOSTILE, north and 7, in this order: 7, HOSTILE, north."""
    where = tmp_path_factory.mktemp("sites")
    rng = np.random.default_rng(0)
    names = np.repeat([HOSTILE, "north", "7"], 20)
    table = pandas.DataFrame({"x": rng.normal(size=60), "z": rng.normal(size=60), "hospital": names})
    table.assign(label=np.arange(60) % 2).to_csv(where / "all.csv", index=False)
    e = load("panm-digits", [*WORDS, f"data.name={where / 'all.csv'}", "baseline="])
    simulated.run(e, where / "run")
    return where / "run"


def test_names() -> None:
    assert [peer_name(i, ("north", "12")) for i in range(3)] == ["north", "site 12", "peer 2"]
    assert [peer_label(i, ("north", "12")) for i in range(3)] == ["north", "12", "2"]
    assert peer_label(0, ("a hospital with a long name",)) == "a hospital wi…"


def test_records_without_names(tmp_path: Path) -> None:
    """They are written as before, and records of earlier versions can be read."""
    start = RunStarted("local", 0, 1, 1, ["mlp"], [1], [[1]], None)
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.write(start)
    log.close()
    assert "names" not in json.loads(path.read_text())
    assert list(read(path)) == [start]
    assert start.called(0) == "peer 0"


def test_first_record(folder: Path) -> None:
    start = next(iter(read(RunFolder(folder).events)))
    assert isinstance(start, RunStarted)
    assert start.names == ["7", HOSTILE, "north"]
    assert [start.called(i) for i in range(3)] == ["site 7", SHOWN, "north"]


def test_report(folder: Path) -> None:
    page = RunFolder(folder).report.read_text(encoding="utf-8")
    assert "<b>\\x1b" not in page
    assert "\x1b" not in page
    assert 'data-name="&lt;b&gt;\\x1b[1m &amp; co"' in page
    assert '<th scope="row" class="name">north</th>' in page
    assert "peer 0" not in page
    assert "north" in heat_map(list(read(RunFolder(folder).events)))


def test_dashboard(folder: Path) -> None:
    view = RunView(find_runs(folder.parent, {})["run"])
    while view.refresh():
        pass
    sections = view._sections([])
    assert sections["about"]["it"]["names"] == ["site 7", SHOWN, "north"]
    rows = sections["peers"]
    assert [rows[str(i)]["name"] for i in range(3)] == ["site 7", SHOWN, "north"]
    assert set(rows["0"]["takes"]["who"]) <= {SHOWN, "north", "site 7"}


def test_sinks(folder: Path, tmp_path: Path) -> None:
    class Kept(Sink):
        package = "kept"

        def _open(self) -> None:
            self.tags: set[str] = set()

        def log(self, round: int, values: dict[str, float]) -> None:  # noqa: ARG002
            self.tags |= set(values)

        def total(self, values: dict[str, float], rounds: int) -> None: ...

        def close(self) -> None: ...

    sink = Kept(tmp_path, {"method": {"name": "gossip"}}, False)
    for event in read(RunFolder(folder).events):
        sink.see(event)
    assert {"north/validation", "site 7/loss", f"{SHOWN}/validation"} <= sink.tags
    assert not any(tag.startswith("peer ") for tag in sink.tags)


def test_models_by_name(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = tmp_path / "new.csv"
    samples.write_text("x,z\n0.5,1\n")
    written = []
    for peer in ("north", "2", "7", "0"):  # peer 2 is north, and peer 0 is site 7
        assert main(["predict", str(folder), "--peer", peer, "--input", str(samples)]) == OK
        written.append(capsys.readouterr().out)
    assert written[0] == written[1]
    assert written[2] == written[3] != written[0]
    assert main(["predict", str(folder), "--peer", "south", "--input", str(samples)]) != OK
    said = capsys.readouterr().err
    assert "there is no peer 'south'" in said
    assert f"named 7, {SHOWN}, north" in said
    assert "\x1b" not in said


def test_data_show(folder: Path) -> None:
    dataset, shares = divide(simulated.of_folder(folder))
    lines = data.describe_shares(dataset, shares).splitlines()
    assert [line[:14].strip() for line in lines[-3:]] == ["7", "<b>\\x1b[1m & co"[:13] + "…", "north"]
    drawn = data.draw_shares(dataset, shares)
    assert "<b>" not in drawn
    assert ">&lt;b&gt;\\x1b[1m &amp; co</text>" in drawn
