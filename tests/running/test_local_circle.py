"""What `coterie up` reads while its peers run."""

from __future__ import annotations

from pathlib import Path

from coterie.config.loading import load
from coterie.core.events import EventLog, PeerRound
from coterie.running.local_circle import LocalCircle

WORDS = [
    "peers=2",
    "data.partition=iid",
    "rounds=3",
    "baseline=",
    "method.name=local",
    "data.train=8",
    "data.validation=4",
    "data.test=4",
]


def note_round(path: Path, peer: int, round: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = EventLog(path)
    log.write(PeerRound(peer, round, 1.0 * round, 0.5, 0.5, 1.0, {"model": 10}, {"model": 1}))
    log.close()


def test_progress_survives_restarts_and_damaged_lines(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    circle = LocalCircle(load("panm-digits", WORDS), tmp_path, on_round=lambda p: seen.append((p.round, p.bytes)))
    north, south = circle.members

    def look() -> None:
        for member in circle.members:
            circle._show_progress(member)

    look()  # nothing is there yet
    for round in (1, 2):
        note_round(north.files.events, 0, round)
    note_round(south.files.events, 1, 1)
    look()
    assert seen == [(1, 30)]  # south is in round 2: two rounds of 10 bytes of north, one of south
    south.files.events.unlink()  # it restarts, and writes its first round again
    note_round(south.files.events, 1, 1)
    with south.files.events.open("ab") as file:
        file.write(b"{damaged\n")
    note_round(south.files.events, 1, 2)
    look()
    assert seen == [(1, 30), (2, 40)]  # round 1 of south counts once
