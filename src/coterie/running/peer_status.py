"""Shows the status of real peers from the status.json that each of them writes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

from coterie.core.errors import CoterieError
from coterie.core.formatting import aligned, duration, size
from coterie.core.json_values import Json, items, number, parsed, subtable, table, whole
from coterie.core.json_values import text as json_text
from coterie.core.run_folder import RunFolder
from coterie.network.membership import DONE
from coterie.running.state import FRESH


@dataclass(frozen=True)
class OtherPeer:
    """What a peer knows of another one."""

    name: str
    state: str
    round: int
    silent: bool
    answered: float | None  # seconds ago
    trouble: str
    ignored: bool
    offences: int
    received: int
    received_bytes: int
    sent: int
    sent_bytes: int


@dataclass(frozen=True)
class PeerStatus:
    name: str
    number: int
    endpoint: str
    is_running: bool
    age: float  # seconds since it was written
    state: str
    round: int
    rounds: int
    waits_for: str
    deadline: float
    roster: int
    audited: int  # records in the audit log
    error: str
    peers: list[OtherPeer]


def text(where: Path, as_json: bool = False) -> str:
    """The status of one peer, or of all peers of a run that `coterie up` started."""
    contents = {path: _read(path) for path in _paths(where)}
    if as_json:
        plain = list(contents.values())
        return json.dumps(plain if len(plain) > 1 else plain[0], indent=2)
    statuses = [_status(path, content) for path, content in contents.items()]
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


def _read(path: Path) -> Json:
    """The content of the file, with ages as of now."""
    try:
        content = table(parsed(path.read_text(encoding="utf-8")))
        age = max(0.0, time.time() - number(content, "time"))
        last = min(whole(content, "round"), whole(content, "rounds"))  # older versions count one more at the end
        return {
            **content,
            "age": age,
            "round": last,
            "peers": [_now(table(peer), age) for peer in items(content, "peers")],
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _not_a_status(path, error) from error


def _not_a_status(path: Path, error: Exception) -> CoterieError:
    return CoterieError(f"{path} is not a peer's status ({error})")


def _now(peer: Json, age: float) -> Json:
    """Update how long ago another peer answered: the status has it as of its writing."""
    return peer if peer["answered"] is None else {**peer, "answered": round(number(peer, "answered") + age, 1)}


def _status(path: Path, content: Json) -> PeerStatus:
    try:
        return _parsed_status(content)
    except (KeyError, TypeError) as error:
        raise _not_a_status(path, error) from error


def _parsed_status(content: Json) -> PeerStatus:
    return PeerStatus(
        json_text(content, "name"), whole(content, "number"), json_text(content, "endpoint"),
        content["process"] is not None, number(content, "age"), json_text(content, "state"), whole(content, "round"),
        whole(content, "rounds"), json_text(content, "waits_for"), number(content, "deadline"),
        whole(content, "roster"), whole(subtable(content, "audit"), "records"),
        str(content.get("error") or ""),  # files of older versions have none
        [_other(table(peer)) for peer in items(content, "peers")],
    )  # fmt: skip


def _other(peer: Json) -> OtherPeer:
    return OtherPeer(
        json_text(peer, "name"), json_text(peer, "state"), whole(peer, "round"), bool(peer["silent"]),
        None if peer["answered"] is None else number(peer, "answered"), json_text(peer, "trouble"),
        bool(peer["ignored"]), whole(peer, "offences"), whole(peer, "received"), whole(peer, "received_bytes"),
        whole(peer, "sent"), whole(peer, "sent_bytes"),
    )  # fmt: skip


def _alive(status: PeerStatus) -> str:
    if status.error:
        return "failed"
    if not status.is_running:
        return _state(status.state) if status.state == DONE else "stopped"
    if status.age >= FRESH:
        return f"no sign of life for {duration(status.age)}"
    return f"{_state(DONE)}, still serving others" if status.state == DONE else status.state


def _state(announced: str) -> str:
    return "finished" if announced == DONE else announced


def _of_circle(statuses: list[PeerStatus]) -> str:
    rows = [("peer", "state", "round", "knows", "received", "sent", "waiting for")]
    for s in statuses:
        received, sent = sum(p.received_bytes for p in s.peers), sum(p.sent_bytes for p in s.peers)
        there = sum(not p.silent for p in s.peers)
        rows.append((s.name, _alive(s), f"{s.round}/{s.rounds}", f"{there}", size(received), size(sent), s.waits_for))
    return aligned(rows)


def _of_peer(s: PeerStatus) -> str:
    waits = f", waiting for {s.waits_for}" if s.waits_for else ""
    head = f"{s.name} (number {s.number}) at {s.endpoint}: {_alive(s)}, round {s.round}/{s.rounds}{waits}"
    facts = f"deadline {s.deadline} s; roster version {s.roster}; audit {s.audited} records"
    rows = [("peer", "state", "round", "answered", "received", "sent", "remarks"), *map(_row, s.peers)]
    error = f"\nerror: {s.error}" if s.error else ""
    return f"{head}{error}\n{facts}\n\n{aligned(rows)}"


def _row(p: OtherPeer) -> tuple[str, str, str, str, str, str, str]:
    answered = "never" if p.answered is None else f"{duration(round(p.answered))} ago"
    offences = f"{p.offences} offences" if p.offences else ""
    remarks = [p.trouble, "silent" if p.silent else "", "ignored" if p.ignored else "", offences]
    received, sent = f"{p.received} ({size(p.received_bytes)})", f"{p.sent} ({size(p.sent_bytes)})"
    return p.name, _state(p.state), str(p.round), answered, received, sent, ", ".join(filter(None, remarks))
