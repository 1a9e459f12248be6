"""`coterie status`, from status files written by hand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from coterie.core.errors import CoterieError
from coterie.running import peer_status

OTHER = {
    "name": "south", "number": 1, "endpoint": "south:7400", "state": "done", "round": 2, "silent": False,
    "answered": 5.0, "trouble": "", "ignored": False, "offences": 0, "received": 2, "received_bytes": 500, "sent": 2,
    "sent_bytes": 500,
}  # fmt: skip


def write(folder: Path, seconds_ago: float, **facts: Any) -> None:
    about = {
        "name": "north", "number": 0, "endpoint": "north:7400", "process": None, "host": "here",
        "time": time.time() - seconds_ago, "state": "done", "round": 2, "rounds": 2, "waits_for": "", "deadline": 2.0,
        "audit": {"records": 5}, "roster": 1, "peers": [OTHER], **facts,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "status.json").write_text(json.dumps(about), encoding="utf-8")


def test_when_others_answered_is_counted_from_now(tmp_path: Path) -> None:
    write(tmp_path, 7195.2)  # two hours, less 5 seconds and a little: with those 5, 7200.2 seconds
    assert "finished, round 2/2" in peer_status.text(tmp_path)
    assert "2 h 0 min ago" in peer_status.text(tmp_path)
    assert json.loads(peer_status.text(tmp_path, as_json=True))["peers"][0]["answered"] >= 7200.2


def test_a_finished_peer_is_in_its_last_round(tmp_path: Path) -> None:
    write(tmp_path, 60, round=3)  # as older versions wrote it
    assert json.loads(peer_status.text(tmp_path, as_json=True))["round"] == 2
    assert "finished, round 2/2" in peer_status.text(tmp_path)


@pytest.mark.parametrize(
    ("facts", "ago", "said"),
    [
        ({"process": 1}, 1, "finished, still serving others"),
        ({"process": 1, "state": "running"}, 1, "running, round 1/2"),
        ({"process": 1, "state": "running"}, 125, "no sign of life for 2 min 5 s"),
        ({"state": "running"}, 125, "stopped, round 1/2"),
    ],
)
def test_how_a_peer_is(tmp_path: Path, facts: dict[str, Any], ago: float, said: str) -> None:
    write(tmp_path, ago, round=1, **facts)
    assert said in peer_status.text(tmp_path)


def test_a_peer_that_was_never_started(tmp_path: Path) -> None:
    (tmp_path / "north.toml").write_text("[peer]\n", encoding="utf-8")
    with pytest.raises(CoterieError, match=r"north\.toml has not been started yet"):
        peer_status.text(tmp_path / "north.toml")


def test_a_circle_that_has_finished(tmp_path: Path) -> None:
    for name in ("peer-0", "peer-1"):
        write(tmp_path / "peers" / name, 60, name=name)
    _, *rows = peer_status.text(tmp_path).splitlines()
    assert [row.split()[:4] for row in rows] == [[name, "finished", "2/2", "1"] for name in ("peer-0", "peer-1")]


def test_a_status_without_a_field_names_the_file_and_the_field(tmp_path: Path) -> None:
    write(tmp_path, 60, audit={})
    with pytest.raises(CoterieError, match=r"status\.json is not a peer's status \('records'\)"):
        peer_status.text(tmp_path)
    assert json.loads(peer_status.text(tmp_path, as_json=True))["audit"] == {}  # as it is in the file
