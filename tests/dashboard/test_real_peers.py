"""Real peers from their files: who is there, who is gone, what left them; and files that are nonsense."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dashboard_support import make_run, record

from coterie.core.events import Offence
from coterie.dashboard.view import RunView
from coterie.network.audit import AuditLog
from coterie.running.folders import RunEntry, find_runs

DIGEST = "0" * 64


@pytest.fixture(scope="module")
def ended() -> int:
    """The number of a process that is not there any more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def status(folder: Path, number: int, **facts: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "name": folder.name, "number": number, "process": os.getpid(), "time": time.time(), "state": "running",
        "round": 2, "rounds": 5, "doing": "train", "waits_for": "", "awaits": [], "peers": [], **facts,
    }  # fmt: skip
    (folder / "status.json").write_text(json.dumps(about), encoding="utf-8")


def seen(name: str, number: int, **facts: Any) -> dict[str, Any]:
    about = {"name": name, "number": number, "state": "running", "round": 2}
    return {**about, "silent": False, "offences": 0, "trouble": "", **facts}


def circle(top: Path) -> Path:
    folder = top / "circle"
    make_run(folder)
    for number in range(4):
        make_run(folder / "peers" / f"peer-{number}", peers=4)
    return folder


def view_of(folder: Path) -> dict[str, Any]:
    run = find_runs(folder, {})[folder.name]
    view = RunView(run)
    view.refresh()
    told: dict[str, Any] = view.versions.after(0)["set"]
    return told


def test_what_each_peer_is_doing(tmp_path: Path, ended: int) -> None:
    folder = circle(tmp_path)
    peers = folder / "peers"
    trouble = [seen("peer-1", 1, silent=True, trouble="refused the connection"), seen("peer-2", 2, offences=2)]
    status(peers / "peer-0", 0, peers=trouble)
    status(peers / "peer-1", 1, process=ended)
    status(peers / "peer-2", 2, waits_for="'model' of round 2", awaits=["peer-0", "peer-1"], peers=[trouble[0]])
    status(peers / "peer-3", 3, process=None, state="done")
    rows = view_of(folder)["peers"]
    assert [(rows[n]["state"], rows[n]["detail"]) for n in "0123"] == [
        ("training", ""),
        ("gone", "no sign of life for 0 s"),
        ("waiting", "for 'model' of round 2 from peer-0, peer-1"),
        ("done", ""),
    ]
    assert rows["1"]["remarks"] == "no answer to peer-0, peer-2; refused the connection"
    assert rows["2"]["remarks"] == "2 offences"


def test_a_status_that_is_old_is_no_sign_of_life(tmp_path: Path) -> None:
    folder = circle(tmp_path)
    status(folder / "peers/peer-0", 0, time=time.time() - 30)
    status(folder / "peers/peer-1", 1, time=time.time() - 5)
    rows = view_of(folder)["peers"]
    assert (rows["0"]["state"], rows["1"]["state"]) == ("gone", "training")
    assert rows["2"]["state"] == "starting"


def test_a_peer_on_another_machine_is_not_looked_for_here(tmp_path: Path, ended: int) -> None:
    folder = circle(tmp_path)
    status(folder / "peers/peer-0", 0, process=ended, host="far-away")
    assert view_of(folder)["peers"]["0"]["state"] == "training"


def test_no_figure_waits_for_a_peer_that_is_gone(tmp_path: Path, ended: int) -> None:
    folder = circle(tmp_path)
    for number in range(4):
        status(folder / f"peers/peer-{number}", number, process=ended if number == 3 else os.getpid())
        with (folder / f"peers/peer-{number}/events.jsonl").open("a", encoding="utf-8") as file:
            for round in (1, 2) if number < 3 else (1,):
                file.write(json.dumps(record(number, round, 0.25 * (number + 1))) + "\n")
    told = view_of(folder)
    assert told["figures"]["it"]["round"] == 2
    assert told["points"]["0"]["validation"] == pytest.approx(0.625)  # the mean of 0.25, 0.5, 0.75 and 1
    assert told["points"]["1"]["validation"] == pytest.approx(0.5)  # of the three who are there
    assert [e["head"] for e in told["errors"]["it"]] == ["peer-3 (number 3) is gone."]


def test_a_peer_that_comes_back_is_marked(tmp_path: Path, ended: int) -> None:
    folder = circle(tmp_path)
    status(folder / "peers/peer-0", 0, process=ended)
    view = RunView(find_runs(folder, {})["circle"])
    view.refresh()
    status(folder / "peers/peer-0", 0)
    view.refresh()
    row = view.versions.after(0)["set"]["peers"]["0"]
    assert (row["state"], row["remarks"]) == ("training", "rejoined")


def test_what_left_a_peer(tmp_path: Path) -> None:
    folder = circle(tmp_path)
    status(folder / "peers/peer-0", 0)
    log = AuditLog(folder / "peers/peer-0/audit.jsonl", "peer-0", "01", "gossip")
    for to, name, size in (("peer-1", "model", 100), ("peer-1", "head", 20), ("peer-2", "model", 100)):
        log.record(to=to, how="fetch", name=name, round=1, bytes=size, digest=DIGEST)
    log.close()
    view = RunView(find_runs(folder, {})["circle"])
    view.refresh()
    leaving = view.versions.after(0)["set"]["leaving"]["it"]
    assert leaving["audited"]
    assert leaving["artifacts"] == [("head", 1, 20), ("model", 2, 200)]
    assert leaving["senders"][0] == ("peer-0", 3, 220)
    newest_first = [("peer-2", "model"), ("peer-1", "head"), ("peer-1", "model")]  # also within one second
    assert [(r["to"], r["name"]) for r in leaving["recent"]] == newest_first
    assert view.real is not None
    told = view.real.members["peer-0"].leaving.as_json()
    assert told["to"] == [["peer-1", 120, "head", "model"], ["peer-2", 100, "model"]]


def test_offences_are_shown(tmp_path: Path) -> None:
    folder = circle(tmp_path)
    status(folder / "peers/peer-0", 0)
    status(folder / "peers/peer-1", 1)
    with (folder / "peers/peer-0/events.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(vars(Offence(0, 2, 1.0, "peer-1", "not finite"))) + "\n")
    told = view_of(folder)
    assert told["errors"]["it"] == [
        {"head": "Peer 0 dropped an artifact from peer-1 in round 2.", "text": "not finite", "more": ""}
    ]
    assert told["peers"]["1"]["remarks"] == "1 of its artifacts dropped"


def test_one_real_peer_alone_tells_of_the_others(tmp_path: Path) -> None:
    make_run(tmp_path / "north", peers=3)
    status(tmp_path / "north", 0, peers=[seen("west", 2, silent=True), seen("east", 1, state="done", round=5)])
    rows = view_of(tmp_path / "north")["peers"]
    found = [(rows[n]["name"], rows[n]["state"]) for n in "012"]
    assert found == [("north", "training"), ("east", "done"), ("west", "gone")]


NONSENSE = [
    "", "null", "[]", "3", '"x"', "{", "\x00\xff", "[" * 5000,
    '{"a": NaN}',
    '{"peers": {"x": 1}}',
    '{"peers": [1, {"number": "x"}, {"number": 1}]}',
    '{"state": 3, "time": "x"}',
    '{"method": 3, "data": [], "peers": "many", "rounds": null}',
    '{"accuracy": {"last": 3}, "bytes": "x", "rounds": [1]}',
    '{"state": "running", "time": 1e400, "host": 1, "process": -1, "peers": [{"peer": 0, "waits_for": 3}]}',
    '{"event": "round", "peer": 0, "round": 1, "bytes": {"a": "b"}, "messages": {}, "validation": NaN}',
    '{"event": "artifact", "name": 1, "to": [], "bytes": "x"}',
    '{"event": "run", "peers": 1000000000, "rounds": 1}',
    '{"waits_for": 1, "awaits": 3, "process": 1e9, "time": NaN}',
]  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE)
@pytest.mark.parametrize(
    "name", ["config.toml", "events.jsonl", "state.json", "summary.json", "status.json", "audit.jsonl"]
)
def test_nonsense_in_a_file_breaks_nothing(tmp_path: Path, name: str, text: str) -> None:
    folder = circle(tmp_path)
    for place in (folder, folder / "peers/peer-0"):
        (place / name).write_bytes(text.encode("utf-8", "replace") + b"\n")
    for kind in ("circle", "simulation", "peer"):
        run = RunEntry("run", folder if kind == "circle" else folder / "peers/peer-0", kind)
        view = RunView(run)
        view.refresh()
        json.dumps([run.listed(), view.versions.after(0)], allow_nan=False)
