"""Real peers from their folders: the status that each writes every second, and the audit log of what left it."""

from __future__ import annotations

import json
import re
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coterie.dashboard.tail import Tail
from coterie.running.folders import CIRCLE, RunEntry, finite, sequence, table
from coterie.running.state import FRESH, process_lives

KEPT_RECORDS = 60  # of each audit log, to look at
LAST_LINES = 3  # of what a peer printed, shown when it is gone
WORKING = {"train": "training", "evaluate": "evaluating", "predict": "computing", "compute": "computing"}


class Leaving:
    """What left one peer, from its audit log. The log is read, not verified: `coterie audit` does that."""

    def __init__(self, path: Path) -> None:
        self.tail = Tail(path)
        self._forget()

    def _forget(self) -> None:
        self.by_artifact: Counter[str] = Counter()  # bytes
        self.times: Counter[str] = Counter()
        self.to: Counter[str] = Counter()  # bytes, by recipient
        self.pairs: Counter[tuple[str, str]] = Counter()  # bytes, by recipient and artifact
        self.recent: deque[dict[str, Any]] = deque(maxlen=KEPT_RECORDS)

    def look(self) -> None:
        anew, records = self.tail.look()
        if anew:
            self._forget()
        for record in records:
            if record.get("event") != "artifact":
                continue
            try:
                name, to, size = str(record["name"]), str(record["to"]), int(record["bytes"])
                kept = {
                    "time": str(record["time"]),
                    "to": to,
                    "name": name,
                    "round": int(record["round"]),
                    "bytes": size,
                }
            except (KeyError, TypeError, ValueError, OverflowError):
                continue
            self.by_artifact[name] += size
            self.times[name] += 1
            self.to[to] += size
            self.pairs[to, name] += size
            self.recent.append(kept)

    def told(self) -> dict[str, Any]:
        """Everything that a page shows of it."""
        return {
            "artifacts": [[name, self.times[name], self.by_artifact[name]] for name in sorted(self.by_artifact)],
            "to": [[to, size, *self._parts(to)] for to, size in sorted(self.to.items())],
            "recent": list(self.recent)[::-1],
        }

    def _parts(self, to: str) -> list[str]:
        return sorted(name for other, name in self.pairs if other == to)


class PeerFolder:
    """One real peer's folder, looked at again and again: that is how it is known to have been gone and come back."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.name = folder, folder.name
        self.events = Tail(folder / "events.jsonl")
        self.leaving = Leaving(folder / "audit.jsonl")
        self.status: dict[str, Any] = {}
        self.architecture = ""
        self.gone_since = 0.0
        self.back_since = 0.0

    def look(self) -> None:
        try:
            status = json.loads((self.folder / "status.json").read_text(encoding="utf-8"))
            self.status = status if isinstance(status, dict) else {}
        except (OSError, ValueError, RecursionError):
            pass  # not there yet
        self.leaving.look()
        if self.is_gone():
            self.gone_since = self.gone_since or time.time()
        elif self.gone_since and self.status.get("process"):
            self.gone_since, self.back_since = 0.0, time.time()

    def read_events(self) -> tuple[bool, list[dict[str, Any]]]:
        """The tail's answer; what it trains is in its first record."""
        anew, records = self.events.look()
        for record in records[:1]:
            kinds = record.get("architectures")
            if isinstance(kinds, list) and kinds:
                self.architecture = str(kinds[0])
        return anew, records

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
        """It had a process, and did not say goodbye."""
        process, here = self.status.get("process"), socket.gethostname()
        if not isinstance(process, int):
            return False
        return self.age() > FRESH or (self.status.get("host", here) == here and not process_lives(process))

    def state(self) -> tuple[str, str]:
        """One word, and the rest as text."""
        s = self.status
        if not s:
            return "starting", ""
        if self.is_gone():
            return "gone", f"no sign of life for {self.age():.0f} s"
        if s.get("error"):
            return "failed", str(s["error"])
        if s.get("state") == "done":
            return "done", "still serves others" if s.get("process") else ""
        if s.get("process") is None:
            return "stopped", ""
        if s.get("waits_for"):
            names = [str(name) for name in sequence(s.get("awaits"))]
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            whom = f" from {', '.join(names[:4])}{more}" if names else ""
            return "waiting", f"for {s['waits_for']}{whom}"
        if s.get("state") == "running":
            return WORKING.get(str(s.get("doing")), "working"), ""
        return str(s.get("state")), ""

    def last_words(self) -> str:
        """The end of what its process printed, where `coterie up` kept it."""
        try:
            with (self.folder / "output.txt").open("rb") as file:
                file.seek(0, 2)
                file.seek(max(0, file.tell() - 4_000))
                lines = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-LAST_LINES:])


class RealPeers:
    """The members of a circle on this machine, or the one peer whose folder it is."""

    def __init__(self, run: RunEntry) -> None:
        self.run = run
        self.members: dict[str, PeerFolder] = {}

    def look(self) -> None:
        folders = (self.run.folder / "peers").glob("*/") if self.run.kind == CIRCLE else [self.run.folder]
        for folder in folders:
            if folder.name not in self.members and not folder.is_symlink():
                self.members[folder.name] = PeerFolder(folder)
        for member in self.members.values():
            member.look()

    def by_number(self) -> Iterator[tuple[int, PeerFolder]]:
        for member in self.members.values():
            if member.number is not None:
                yield member.number, member

    def absent(self) -> set[int]:
        """Who cannot be waited for: gone, or stopped."""
        return {number for number, m in self.by_number() if m.state()[0] in ("gone", "stopped")}

    def seen_by_others(self) -> dict[int, dict[str, Any]]:
        """What the peers that are alive say of each other, by number."""
        seen: dict[int, dict[str, Any]] = {}
        for _, member in self.by_number():
            for other in [] if member.is_gone() else map(table, sequence(member.status.get("peers"))):
                if not isinstance(other.get("number"), int):
                    continue
                about = seen.setdefault(other["number"], {"silent": [], "offences": 0, "trouble": "", **_as(other)})
                about["silent"] += [member.name] if other.get("silent") else []
                about["offences"] += finite(other.get("offences")) or 0
                about["trouble"] = about["trouble"] or str(other.get("trouble") or "")
        return seen


def _as(other: dict[str, Any]) -> dict[str, Any]:
    return {"name": str(other.get("name")), "state": str(other.get("state")), "round": finite(other.get("round")) or 0}
