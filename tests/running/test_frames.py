"""Run folders as data frames."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import coterie
from coterie.core.errors import RunError
from coterie.core.events import Event, EventLog, PeerRound, RunStarted

CONFIG = """
seed = {seed}
rounds = 2
peers = 2

[method]
name = "{method}"

[train]
lr = {lr}

[model]
zoo = ["mlp", "lenet"]

[engine]
name = "simulation"
"""


def make(folder: Path, method: str = "gossip", seed: int = 0, lr: float = 0.1, done: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.format(method=method, seed=seed, lr=lr))
    log = EventLog(folder / "events.jsonl")
    events: list[Event] = [RunStarted(method, seed, 2, 2, ["mlp"] * 2, [5, 5], [[5]] * 2, None)]
    # Peer 1 is measured in the last round only; in round 2 each receives 100 bytes of one kind and 20 of another.
    events += [
        PeerRound(0, 1, 1.0, 0.5, 0.4, 2.0),
        PeerRound(1, 1, 1.5),
        PeerRound(0, 2, 2.0, 0.7, 0.6, 1.0, {"model": 100, "head": 20}, {"model": 2, "head": 1}),
        PeerRound(1, 2, 2.5, 0.9, 0.8, 0.5, {"model": 100, "head": 20}, {"model": 2, "head": 1}),
    ]
    for event in events:
        log.write(event)
    log.close()
    if done:
        summary = {
            "method": method,
            "seed": seed,
            "peers": 2,
            "accuracy": {"last": {"mean": 0.7, "per_peer": [0.6, 0.8]}},
        }
        (folder / "summary.json").write_text(json.dumps({**summary, "bytes": {"total": 240}, "seconds": 3.0}))
    return folder


def test_a_row_for_each_run_with_settings_and_figures(tmp_path: Path) -> None:
    make(tmp_path / "runs" / "one", lr=0.1)
    make(tmp_path / "runs" / "compare-x" / "panm-0", "panm", seed=3, lr=0.2)  # in the folder of a comparison
    make(tmp_path / "runs" / "going-on", done=False)
    (tmp_path / "runs" / "notes.txt").write_text("no run")
    found = coterie.runs(str(tmp_path / "runs" / "*"))
    assert isinstance(found, pd.DataFrame)
    assert [Path(path).name for path in found["path"]] == ["panm-0", "going-on", "one"]
    by = found.set_index(found["path"].map(lambda path: Path(path).name))
    assert by.loc["panm-0", "method.name"] == "panm"
    assert by.loc["panm-0", ["seed", "train.lr", "bytes.total", "accuracy.last.mean"]].tolist() == [3, 0.2, 240, 0.7]
    assert by.loc["one", "model.zoo"] == ("mlp", "lenet")  # hashable: rows can be grouped by it
    assert by["state"].to_dict() == {"panm-0": "finished", "going-on": "unfinished", "one": "finished"}
    assert pd.isna(by.loc["going-on", "accuracy.last.mean"])
    assert "accuracy.last.per_peer" not in found
    assert (found["error"] == "").all()
    assert found.columns.is_unique


def test_only_the_settings_in_which_runs_differ(tmp_path: Path) -> None:
    make(tmp_path / "a", lr=0.1)
    make(tmp_path / "b", lr=0.2)
    found = coterie.runs([tmp_path / "a", tmp_path / "b", tmp_path / "a"], varying=True)
    assert found["train.lr"].tolist() == [0.1, 0.2]
    assert "peers" not in found
    assert "method.name" not in found
    assert "bytes.total" in found


def test_what_cannot_be_read_is_a_row_that_says_so(tmp_path: Path) -> None:
    make(tmp_path / "good")
    (make(tmp_path / "no-settings") / "config.toml").write_text("this is = = not TOML")
    (make(tmp_path / "no-summary") / "summary.json").write_text("{cut off")
    failed = make(tmp_path / "failed", done=False)
    facts = {"state": "failed", "time": 0.0, "host": "", "process": 0, "error": "no such peer", "round": 1}
    (failed / "state.json").write_text(json.dumps(facts))
    found = coterie.runs(tmp_path).set_index("path")
    errors = {Path(path).name: error for path, error in found["error"].items()}
    assert errors["good"] == ""
    assert "no-settings/config.toml cannot be read" in errors["no-settings"]
    assert "no-summary/summary.json cannot be read" in errors["no-summary"]
    assert errors["failed"] == "no such peer"
    assert found.loc[str(failed), ["state", "round"]].tolist() == ["failed", 1]
    assert found.loc[str(tmp_path / "no-settings"), "bytes.total"] == 240  # what can be read is there


def test_a_row_for_each_round_of_each_peer(tmp_path: Path) -> None:
    make(tmp_path / "runs" / "a", seed=1)
    (make(tmp_path / "runs" / "b") / "events.jsonl").write_bytes(b"nonsense\n" * 2)
    found = coterie.rounds(tmp_path / "runs" / "*")
    good = found[found["error"] == ""]
    assert good[["peer", "round"]].astype(int).to_numpy().tolist() == [[0, 1], [1, 1], [0, 2], [1, 2]]
    assert good["test"].tolist()[2:] == [0.6, 0.8]
    assert good["bytes"].tolist() == [0, 0, 120, 120]
    assert good["messages"].tolist() == [0, 0, 3, 3]
    assert pd.isna(good["validation"].tolist()[1])
    assert set(good["seed"]) == {1}
    [bad] = found[found["error"] != ""].to_dict("records")
    assert "events.jsonl, line 1: not a valid event record" in bad["error"]


def test_nothing_to_be_found_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match=r"there is no .*nowhere/\*: give folders, or a pattern such as runs/\*"):
        coterie.runs(tmp_path / "nowhere" / "*")
    with pytest.raises(RunError, match=r"no run in .*empty: a run's folder has a config.toml"):
        coterie.runs(tmp_path / "empty")
    with pytest.raises(RunError, match="no run in an empty list"):
        coterie.rounds([])
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file is a file"):
        coterie.runs(tmp_path / "file")


def test_a_folder_with_brackets_is_found(tmp_path: Path) -> None:
    make(tmp_path / "zoo=[mlp]")
    assert len(coterie.runs(tmp_path / "zoo=[mlp]")) == 1


def test_a_mixture_says_so_and_a_run_that_diverged_has_no_figures(tmp_path: Path) -> None:
    mixed, ruined = make(tmp_path / "mixed"), make(tmp_path / "ruined")
    for folder, more in (
        (mixed, {"mixture": ["after round 1: mine.py changed"]}),
        (ruined, {"not_finite": {"peers": [1], "since": 2}}),
    ):
        told = json.loads((folder / "summary.json").read_text())
        (folder / "summary.json").write_text(json.dumps({**told, **more}))
    frame = coterie.runs(tmp_path).set_index("path")
    assert frame.loc[str(mixed), "mixture"] == "after round 1: mine.py changed"
    assert frame.loc[str(mixed), "accuracy.last.mean"] == 0.7
    assert frame.loc[str(ruined), "mixture"] == ""
    assert pd.isna(frame.loc[str(ruined), "accuracy.last.mean"])
