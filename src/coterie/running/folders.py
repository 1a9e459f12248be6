"""Which runs a folder holds, and what can be said of each without reading its events."""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.core.formatting import short_name
from coterie.running.state import FAILED, FINISHED, read_state

DEPTH = 3  # of folders below the one that is watched
OWN = ".dashboard"  # where the dashboard keeps what runs that it started print
CIRCLE, PEER, SIMULATION = "circle", "peer", "simulation"
STARTING = "starting"
UNFINISHED = "unfinished"  # nobody says whether it was stopped or killed: it was made before there was a state.json
MOST_RUNS = 2_000
BEGINNING = 60.0  # seconds in which a run without events has just begun


@dataclass
class RunEntry:
    """One run's folder. Its id is its path below the watched one; a request can name it, and never a path."""

    id: str
    folder: Path
    kind: str
    _known: dict[str, tuple[int, Any]] = field(default_factory=dict)  # files that seldom change, by name

    def listed(self) -> dict[str, Any]:
        """Its row in the list of runs."""
        config, summary = self.config(), self.summary()
        state, method, data = self.state(summary), table(config.get("method")), table(config.get("data"))
        last = table(table(summary).get("accuracy")).get("last")  # of one real peer, a number; else a spread over peers
        total = table(summary).get("bytes") if summary else state["bytes"]
        return {
            "id": self.id, "kind": self.kind, "state": state["state"], "round": state["round"],
            "rounds": state["rounds"] or finite(config.get("rounds")), "peers": finite(config.get("peers")),
            "seed": finite(config.get("seed")), "method": short(method.get("name")),
            "data": short(data.get("name")), "partition": data.get("partition"), "validation": state["accuracy"],
            "test": finite(last) if not isinstance(last, dict) else finite(last.get("mean")),
            "bytes": finite(total) if not isinstance(total, dict) else finite(total.get("total")),
            "error": state["error"], "time": self.changed(), "report": (self.folder / "report.html").exists(),
        }  # fmt: skip

    def state(self, summary: dict[str, Any] | None) -> dict[str, Any]:
        """How it is with this run, as far as its files tell."""
        said = read_state(self.folder) or {}
        about: dict[str, Any] = {key: finite(said.get(key)) for key in ("round", "rounds", "accuracy", "bytes", "age")}
        diverged = bool(summary and "not_finite" in summary)  # a real peer's folder has no state.json that says so
        ended = FAILED if diverged else FINISHED
        state = str(said.get("state") or (ended if summary else STARTING if self._has_just_begun() else UNFINISHED))
        error = str(said.get("error") or ("its model is not finite: training diverged" if diverged else ""))
        if summary and not said:
            about["round"] = finite(summary.get("rounds"))
        return {
            **about, "state": state, "error": error, "traceback": str(said.get("traceback", "")),
            "doings": [table(d) for d in sequence(said.get("peers"))],
        }  # fmt: skip

    def _has_just_begun(self) -> bool:
        return not (self.folder / "events.jsonl").exists() and time.time() - self.changed() < BEGINNING

    def config(self) -> dict[str, Any]:
        return self._file("config.toml", tomllib.loads) or {}

    def summary(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._file("summary.json", json.loads)
        return found

    def changed(self) -> float:
        """When something was last written."""
        times = [0.0]
        for name in ("config.toml", "events.jsonl", "state.json", "status.json"):
            try:
                times.append((self.folder / name).stat().st_mtime)
            except OSError:
                continue
        return max(times)

    def _file(self, name: str, parse: Any) -> dict[str, Any] | None:
        """A file's content, read again only when it has changed; None where it is absent or damaged."""
        path = self.folder / name
        try:
            changed = path.stat().st_mtime_ns
            if name not in self._known or self._known[name][0] != changed:
                value = parse(path.read_text(encoding="utf-8"))
                self._known[name] = changed, value if isinstance(value, dict) else None
            content: dict[str, Any] | None = self._known[name][1]
            return content
        except (OSError, ValueError, RecursionError):
            return None


def table(value: Any) -> dict[str, Any]:
    """What should be a table; an empty one where a damaged file has something else."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def finite(value: Any) -> Any:
    """What should be a number that JSON has; None where it is not."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def short(name: Any) -> str | None:
    """A name for a table; None where a damaged file has something else."""
    return short_name(name) if isinstance(name, str) else None


def find_runs(top: Path, known: dict[str, RunEntry], most: int | None = MOST_RUNS) -> dict[str, RunEntry]:
    """The runs below a folder (or that folder itself), by id; those that are known already are kept."""
    found: dict[str, RunEntry] = {}
    for folder in _folders(top):
        kind = kind_of(folder)
        if kind is not None:
            id = folder.relative_to(top).as_posix() if folder != top else top.resolve().name
            old = known.get(id)
            found[id] = old if old is not None and old.kind == kind else RunEntry(id, folder, kind)
        if most is not None and len(found) >= most:
            break
    return found


def kind_of(folder: Path) -> str | None:
    """What a folder holds the run of: a simulation, one real peer, or a circle that `coterie up` started."""
    if not (folder / "config.toml").exists():
        return None
    if not (folder / "events.jsonl").exists() and not _is_of_a_run(folder / "config.toml"):
        return None
    if (folder / "peers").is_dir():
        return CIRCLE
    return PEER if (folder / "status.json").exists() else SIMULATION


def _is_of_a_run(config: Path) -> bool:
    """Whether it is what a run begins with, before there are events: other things have a config.toml, too."""
    try:
        return tomllib.loads(config.read_text(encoding="utf-8")).keys() >= {"rounds", "peers", "method", "engine"}
    except (OSError, ValueError, RecursionError):
        return False


def _folders(top: Path, depth: int = 0) -> list[Path]:
    """The folder and those below it, except the peers of a circle, which are its own, and hidden or linked ones."""
    found = [top]
    if depth == DEPTH:
        return found
    try:
        entries = sorted(os.scandir(top), key=lambda e: e.name)
    except OSError:
        return found
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False) or not _is_text(entry.name):
            continue
        if entry.name in _INSIDE and (top / "config.toml").exists():
            continue
        found += _folders(top / entry.name, depth + 1)
    return found


def _is_text(name: str) -> bool:
    """Whether a page can spell the name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


_INSIDE = {"peers", "keys", "models", "checkpoint", "letters"}  # parts of a run's folder that hold no runs
