"""A run or a real peer that ends with a model that is not finite has failed, says so everywhere, and loses nothing."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from simulation_support import tiny

from coterie import wiring
from coterie.cli.main import OK, main
from coterie.config import loading
from coterie.config.sections import PROCESSES, Experiment
from coterie.core.ensemble import Ensemble, Member
from coterie.core.errors import DivergedError
from coterie.core.events import NotFinite, of_kind, read
from coterie.core.peer import Peer
from coterie.report.run import open_run
from coterie.running import finite, peer_status, simulated
from coterie.running.folders import find_runs
from coterie.running.local_circle import LocalCircle

# Peers 1 and 3 have a NaN among their weights from round 2 on; peer 2 had one, and got over it.
RUINED = """
import math
from coterie import Method
class Mine(Method):
    async def round(self, me):
        if me.round == 3 and me.id == 2:
            me.model.load(me.initial())
        await me.train()
        if (me.round > 1 and me.id in (1, 3)) or (me.round == 2 and me.id == 2):
            me.model.vector[0] = math.nan
"""
TOLD = r"run: 2 of 4 peers \(1, 3\) ended with a model that is not finite \(.* since round 2\).* lower train\.lr"


def ruined(folder: Path, *words: str, peers: int = 4) -> Experiment:
    (folder / "mine.py").write_text(RUINED)
    return tiny(f"{folder / 'mine.py'}:Mine", *words, peers=peers)


@pytest.mark.parametrize("words", [(), (f"engine.name={PROCESSES}", "engine.workers=2"), ("engine.models=false",)])
def test_a_run(words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.simulation.placement.TO_DIRECT", 1e-9)
    out = tmp_path / "run"
    with pytest.raises(DivergedError, match=TOLD):
        simulated.run(ruined(tmp_path, *words), out)
    state = json.loads((out / "state.json").read_text())
    assert (state["state"], state["round"]) == ("failed", 3)
    assert "2 of 4 peers (1, 3)" in state["error"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["not_finite"] == {"peers": [1, 3], "since": 2}
    assert summary["accuracy"]["last"]["per_peer"][0] is not None  # figures are there
    assert len(list(out.glob("models/*"))) == (0 if "engine.models=false" in words else 4)
    assert {(e.peer, e.round) for e in of_kind(read(out / "events.jsonl"), NotFinite)} == {(1, 3), (3, 3)}
    assert "This run failed: 2 of 4 peers (1, 3)" in (out / "report.html").read_text()


ASKS_IN_VAIN = """
import math
from coterie import Method
class Mine(Method):
    async def round(self, me):
        await me.train()
        if me.id == 0:
            await me.fetch(me.peers, "grail")
            me.model.vector[0] = VALUE
"""


@pytest.mark.parametrize(("value", "warned"), [("math.nan", False), ("1.0", True)])
def test_no_warning_of_missing_artifacts_after_divergence(
    value: str, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.py").write_text(ASKS_IN_VAIN.replace("VALUE", value))
    asked = tiny(f"{tmp_path / 'mine.py'}:Mine", "clock.deadline=1.0", rounds=1)
    with nullcontext() if warned else pytest.raises(DivergedError):
        simulated.run(asked, tmp_path / "run")
    assert ("'grail' was fetched, but no peer ever shelved it" in caplog.text) == warned


def test_folders_are_texts_or_paths(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    summary = simulated.run(tiny("local", rounds=1), out)
    assert simulated.resume(out) == summary
    assert simulated.run(tiny("local", rounds=1), out, overwrite=True)["accuracy"] == summary["accuracy"]


def test_resuming_and_reporting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    with pytest.raises(DivergedError):
        simulated.run(ruined(tmp_path), out)
    before = (out / "events.jsonl").read_bytes()
    assert main(["run", "--resume", str(out)]) == DivergedError.exit_code == 3
    assert "2 of 4 peers (1, 3)" in capsys.readouterr().err
    assert (out / "events.jsonl").read_bytes() == before
    assert main(["report", str(out), "--out", str(tmp_path / "again.html")]) == OK
    assert "This run failed: 2 of 4 peers (1, 3)" in (tmp_path / "again.html").read_text()
    [row] = [run.listed() for run in find_runs(tmp_path, {}).values()]
    assert row["state"] == "failed"
    assert "2 of 4 peers (1, 3)" in row["error"]


def test_a_finite_run_has_no_word_of_it(tmp_path: Path) -> None:
    assert "not_finite" not in simulated.run(tiny("local", rounds=1), tmp_path / "run")


def test_compare_lists_it_as_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ruined(tmp_path)
    small = [
        "peers=4", "rounds=3", "data.clusters=2", "data.train=12", "data.validation=5", "data.test=5",
        "model.hidden=[4]", "train.epochs=1", "engine.threads=1",
    ]  # fmt: skip
    command = ["compare", "mine.py:Mine", "local", "panm-digits", *small, "--seeds", "0", "--out", "c", "--plain"]
    written = []
    for _ in range(2):  # the second time nothing is run again
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert "Mine, seed 0 failed: c/" in err
        assert "2 of 4 peers (1, 3) ended with a model that is not finite" in err
        assert "local" in out
        assert "MISSING: " in out
        written.append([path.stat().st_mtime_ns for path in sorted(Path("c").glob("*/events.jsonl"))])
    assert len(written[0]) == 2
    assert written[0] == written[1]


def test_real_peers(tmp_path: Path) -> None:
    """All come to their ends, those that failed too; then the circle says what became of it."""
    quick = ("network.interval=0.2", "network.linger=5", "network.deadline=30")
    circle = LocalCircle(ruined(tmp_path, *quick, peers=2), tmp_path / "run")
    circle.prepare()
    with pytest.raises(DivergedError, match=r"run: 1 of 2 peers \(1\) ended with a model that is not finite"):
        circle.run()
    assert json.loads((tmp_path / "run" / "state.json").read_text())["state"] == "failed"
    codes = [member.process.returncode for member in circle.members if member.process]
    assert codes == [0, 3]
    for member in circle.members:
        assert list(member.out.glob("models/*"))
        summary = json.loads((member.out / "summary.json").read_text())
        expected = {"peers": [1], "since": 2} if member.name == "peer-1" else None
        assert summary.get("not_finite") == expected
    seen = peer_status.text(tmp_path / "run").splitlines()
    assert [line.split()[1] for line in seen[1:]] == ["finished", "failed"]
    assert "error: " in peer_status.text(circle.members[1].out)
    assert "peer 1 ended with a model that is not finite" in (circle.members[1].out / "output.txt").read_text()
    listed = find_runs(circle.members[1].out, {})[circle.members[1].name].listed()
    assert listed["state"] == "failed"


# -- what is looked at -------------------------------------------------------------------------


def peer(*words: str) -> Peer:
    return wiring.gather(tiny("local", *words, peers=2)).participants[0]


def found(me: Peer) -> bool:
    return bool(finite.diverged([(me, 1)], 0.0))


@pytest.mark.parametrize("number", [torch.nan, torch.inf, -torch.inf])
def test_any_number_counts(number: float) -> None:
    me = peer("model.norm=batch", "model.zoo=resnet8")
    assert not found(me)
    parameter, buffer = me.model.layout.parameters[0].start, me.model.layout.buffers[-1].start
    for place in (parameter, buffer):
        before = float(me.model.vector[place])
        me.model.vector[place] = number
        assert found(me)
        me.model.vector[place] = before
    assert not found(me)


def test_a_member_of_an_ensemble_counts_and_a_model_beside_it_does_not() -> None:
    me = peer()
    good, bad = me.initial(), me.initial(1)
    bad.vector[-1] = torch.nan
    me.ensemble = Ensemble((Member("0/a", good), Member("1/b", bad)))
    assert found(me)
    me.ensemble, me.model = Ensemble((Member("0/a", good),)), bad
    assert not found(me)


def test_a_server_predicts_nothing() -> None:
    me = dataclasses.replace(peer(), _held=None)
    me.model.vector.fill_(torch.nan)
    assert not found(me)


def test_a_baseline_that_diverged_is_none_and_the_run_beside_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(RUINED)
    words = ["panm-digits", "method.name=local", "baseline=mine.py:Mine", "peers=4", "rounds=3", "data.clusters=2"]
    assert main(["run", *words, "--out", "run", "--plain"]) == DivergedError.exit_code
    told = capsys.readouterr()
    assert "local: 4 peers, 3 rounds" in told.out
    assert "2 of 4 peers (1, 3) ended with a model that is not finite" in told.err
    found = open_run(tmp_path / "run")
    assert found.baseline is None
    assert "diverged" in found.no_baseline


def test_a_model_that_diverges_is_not_the_fault_of_a_built_in_loss(tmp_path: Path) -> None:
    """Weights so large that the loss overflows while logits are still finite numbers."""
    words = ["method.name=mapl", "train.lr=1e4", "rounds=4", "peers=4", "data.clusters=2", "baseline="]
    with pytest.raises(DivergedError, match=r"lower train\.lr"):
        simulated.run(loading.load("panm-digits", words), tmp_path / "run")
