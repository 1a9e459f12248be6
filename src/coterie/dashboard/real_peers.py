"""Read real peers from their folders: the status that each writes every second, its events and its audit log."""

from __future__ import annotations

import re
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from coterie.core.json_values import Json, finite, parsed, sequence, table, whole
from coterie.core.run_folder import RunFolder
from coterie.core.tail import Tail
from coterie.running.folders import CIRCLE, RunEntry
from coterie.running.state import FRESH, process_lives

KEPT_RECORDS = 60  # of each audit log, for display
LAST_LINES = 3  # of a peer's output, shown when it is gone
WORKING = {"train": "training", "evaluate": "evaluating", "predict": "computing", "compute": "computing"}


class SentRecord(TypedDict):
    """One sent artifact."""

    time: str
    to: str
    name: str
    round: int
    bytes: int


class Sent(TypedDict):
    """What one peer sent."""

    artifacts: list[tuple[str, int, int]]  # of each, how often and bytes
    to: list[list[str | int]]  # of each recipient, bytes and the names of artifacts
    recent: list[SentRecord]


@dataclass
class Seen:
    """What live peers report about another one."""

    name: str
    state: str
    round: float
    silent: list[str] = field(default_factory=list)  # the peers that it does not answer
    offences: float = 0
    trouble: str = ""


class SentArtifacts:
    """The artifacts one peer sent, from its audit log. The log is not verified; `coterie audit` verifies it."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self._reset()

    def _reset(self) -> None:
        self.by_artifact: Counter[str] = Counter()  # bytes
        self.times: Counter[str] = Counter()
        self.to: Counter[str] = Counter()  # bytes, by recipient
        self.pairs: Counter[tuple[str, str]] = Counter()  # bytes, by recipient and artifact
        self.recent: deque[SentRecord] = deque(maxlen=KEPT_RECORDS)

    def look(self) -> None:
        replaced, records = self.tail.look()
        if replaced:
            self._reset()
        for record in records:
            if record.get("event") != "artifact":
                continue
            try:
                name, to, size = str(record["name"]), str(record["to"]), whole(record, "bytes")
                kept: SentRecord = {
                    "time": str(record["time"]),
                    "to": to,
                    "name": name,
                    "round": whole(record, "round"),
                    "bytes": size,
                }
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            self.by_artifact[name] += size
            self.times[name] += 1
            self.to[to] += size
            self.pairs[to, name] += size
            self.recent.append(kept)

    def as_json(self) -> Sent:
        """The data that the page shows."""
        return {
            "artifacts": [(name, self.times[name], self.by_artifact[name]) for name in sorted(self.by_artifact)],
            "to": [[to, size, *self._parts(to)] for to, size in sorted(self.to.items())],
            "recent": list(self.recent)[::-1],
        }

    def _parts(self, to: str) -> list[str]:
        return sorted(name for other, name in self.pairs if other == to)


class PeerFolder:
    """One real peer's folder, polled to notice when the peer goes and comes back."""

    def __init__(self, folder: Path) -> None:
        self.files, self.name = RunFolder(folder), folder.name
        self.events = Tail(self.files.events)
        self.leaving = SentArtifacts(self.files.audit)
        self.status: Json = {}
        self.architecture = ""
        self.gone_since = 0.0
        self.back_since = 0.0

    def look(self) -> None:
        with suppress(OSError, ValueError, RecursionError):  # not written yet
            self.status = table(parsed(self.files.status.read_text(encoding="utf-8")))
        self.leaving.look()
        if self.is_gone():
            self.gone_since = self.gone_since or time.time()
        elif self.gone_since and self.status.get("process"):
            self.gone_since, self.back_since = 0.0, time.time()

    def read_events(self) -> tuple[bool, list[Json]]:
        """Whether the file was replaced, and its new records; the first record holds the peer's architecture."""
        replaced, records = self.events.look()
        for record in records[:1]:
            architectures = record.get("architectures")
            if isinstance(architectures, list) and architectures:
                self.architecture = str(architectures[0])
        return replaced, records

    @property
    def number(self) -> int | None:
        number = self.status.get("number")
        if isinstance(number, int):
            return number
        named = re.fullmatch(r"peer-(\d+)", self.name)
        return int(named[1]) if named else None

    def age(self) -> float:
        written = self.status.get("time")
        return max(0.0, time.time() - written) if isinstance(written, int | float) else 0.0

    def is_gone(self) -> bool:
        """Whether its process ended or fell silent without signing off."""
        process, here = self.status.get("process"), socket.gethostname()
        if not isinstance(process, int):
            return False
        return self.age() > FRESH or (self.status.get("host", here) == here and not process_lives(process))

    def state(self) -> tuple[str, str]:
        """The state in one word, with details as text."""
        s = self.status
        if not s:
            return "starting", ""
        if self.is_gone():
            return "gone", f"no sign of life for {self.age():.0f} s"
        if s.get("error"):
            return "failed", str(s["error"])
        if s.get("state") == "done":
            return "done", "still serving other peers" if s.get("process") else ""
        if s.get("process") is None:
            return "stopped", ""
        if s.get("waits_for"):
            names = [str(name) for name in sequence(s.get("awaits"))]
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            sources = f" from {', '.join(names[:4])}{more}" if names else ""
            return "waiting", f"for {s['waits_for']}{sources}"
        if s.get("state") == "running":
            return WORKING.get(str(s.get("doing")), "working"), ""
        return str(s.get("state")), ""

    def last_output(self) -> str:
        """The last lines its process printed, where `coterie up` kept them."""
        try:
            with self.files.output.open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - 4_000))
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-LAST_LINES:])


class RealPeers:
    """The members of a circle on this machine, or a single peer."""

    def __init__(self, run: RunEntry) -> None:
        self.run = run
        self.members: dict[str, PeerFolder] = {}

    def look(self) -> None:
        runs = self.run.files.members() if self.run.kind == CIRCLE else [self.run.files]
        for folder in (run.path for run in runs):
            if folder.name not in self.members and not folder.is_symlink():
                self.members[folder.name] = PeerFolder(folder)
        for member in self.members.values():
            member.look()

    def by_number(self) -> Iterator[tuple[int, PeerFolder]]:
        for member in self.members.values():
            if member.number is not None:
                yield member.number, member

    def absent(self) -> set[int]:
        """Peers not to wait for: gone or stopped."""
        return {number for number, m in self.by_number() if m.state()[0] in ("gone", "stopped")}

    def seen_by_others(self) -> dict[int, Seen]:
        """What live peers report about each other, by number."""
        seen: dict[int, Seen] = {}
        for _, member in self.by_number():
            for other in [] if member.is_gone() else map(table, sequence(member.status.get("peers"))):
                number = other.get("number")
                if not isinstance(number, int):
                    continue
                about = seen.setdefault(number, _seen(other))
                about.silent += [member.name] if other.get("silent") else []
                about.offences += finite(other.get("offences")) or 0
                about.trouble = about.trouble or str(other.get("trouble") or "")
        return seen


def _seen(other: Json) -> Seen:
    return Seen(str(other.get("name")), str(other.get("state")), finite(other.get("round")) or 0)
