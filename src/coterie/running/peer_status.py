"""Shows the status of real peers from the status.json that each of them writes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from coterie.core.errors import CoterieError
from coterie.core.formatting import aligned, duration, size
from coterie.core.run_folder import RunFolder
from coterie.network.membership import DONE
from coterie.running.state import FRESH


def text(where: Path, as_json: bool = False) -> str:
    """The status of one peer, or of all peers of a run that `coterie up` started."""
    statuses = [_read(path) for path in _paths(where)]
    if as_json:
        return json.dumps(statuses if len(statuses) > 1 else statuses[0], indent=2)
    return _of_circle(statuses) if len(statuses) > 1 else _of_peer(statuses[0])


def _paths(given: Path) -> list[Path]:
    where = given
    if where.suffix == ".toml":
        from coterie.running.real_peer import read_file

        where = read_file(where).out
    files = RunFolder(where)
    if files.status.exists():
        return [files.status]
    statuses = [member.status for member in files.members() if member.status.exists()]
    paths = sorted(statuses, key=lambda p: (len(p.parent.name), p.parent.name))
    if not paths and given != where:
        raise CoterieError(f"{where} has no status.json: the peer of {given} has not been started yet")
    if not paths:
        raise CoterieError(f"{where} has no status.json: give a peer's .toml file, its folder, or that of `coterie up`")
    return paths


def _read(path: Path) -> dict[str, Any]:
    try:
        status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        age = max(0.0, time.time() - float(status["time"]))
        round = min(status["round"], status["rounds"])  # files of older versions count one more at the end
        return {**status, "age": age, "round": round, "peers": [_now(peer, age) for peer in status["peers"]]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CoterieError(f"{path} is not a peer's status ({error})") from error


def _now(peer: dict[str, Any], age: float) -> dict[str, Any]:
    """Update how long ago another peer answered: the status has it as of its writing."""
    return peer if peer["answered"] is None else {**peer, "answered": round(peer["answered"] + age, 1)}


def _alive(status: dict[str, Any]) -> str:
    if status.get("error"):  # files of older versions have none
        return "failed"
    if status["process"] is None:
        return _state(status["state"]) if status["state"] == DONE else "stopped"
    if status["age"] >= FRESH:
        return f"no sign of life for {duration(status['age'])}"
    return f"{_state(DONE)}, still serving others" if status["state"] == DONE else str(status["state"])


def _state(announced: str) -> str:
    return "finished" if announced == DONE else announced


def _of_circle(statuses: list[dict[str, Any]]) -> str:
    rows = [("peer", "state", "round", "knows", "received", "sent", "waiting for")]
    for s in statuses:
        received, sent = (sum(p[key] for p in s["peers"]) for key in ("received_bytes", "sent_bytes"))
        there = sum(not p["silent"] for p in s["peers"])
        round = f"{s['round']}/{s['rounds']}"
        rows.append((s["name"], _alive(s), round, f"{there}", size(received), size(sent), s["waits_for"]))
    return aligned(rows)


def _of_peer(s: dict[str, Any]) -> str:
    waits = f", waiting for {s['waits_for']}" if s["waits_for"] else ""
    head = (
        f"{s['name']} (number {s['number']}) at {s['endpoint']}: {_alive(s)}, round {s['round']}/{s['rounds']}{waits}"
    )
    facts = f"deadline {s['deadline']} s; roster version {s['roster']}; audit {s['audit']['records']} records"
    rows = [("peer", "state", "round", "answered", "received", "sent", "remarks")]
    for p in s["peers"]:
        answered = "never" if p["answered"] is None else f"{duration(round(p['answered']))} ago"
        remarks = [p["trouble"], "silent" if p["silent"] else "", "ignored" if p["ignored"] else ""]
        remarks.append(f"{p['offences']} offences" if p["offences"] else "")
        received, sent = (f"{p[k]} ({size(p[f'{k}_bytes'])})" for k in ("received", "sent"))
        rows.append(
            (p["name"], _state(p["state"]), str(p["round"]), answered, received, sent, ", ".join(filter(None, remarks)))
        )
    error = f"\nerror: {s['error']}" if s.get("error") else ""
    return f"{head}{error}\n{facts}\n\n{aligned(rows)}"
