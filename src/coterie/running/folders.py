"""Finds the runs in a folder, and reads the state of each without its events."""

from __future__ import annotations

import json
import math
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.core.formatting import short_name
from coterie.core.run_folder import PARTS, RunFolder
from coterie.core.summary import AnySummary, any_from_json
from coterie.running.state import FAILED, FINISHED, read_state

DEPTH = 3  # of folders below the one that is watched
OWN = ".dashboard"  # folder for the output of runs that the dashboard started
CIRCLE, PEER, SIMULATION = "circle", "peer", "simulation"
STARTING = "starting"
UNFINISHED = "unfinished"  # stopped or killed: unknown, because old runs have no state.json
MOST_RUNS = 2_000
BEGINNING = 60.0  # seconds in which a run without events counts as starting


@dataclass
class RunEntry:
    """One run's folder. Its id is its path below the watched folder; requests name runs by id, never by path."""

    id: str
    folder: Path
    kind: str
    _known: dict[Path, tuple[int, Any]] = field(default_factory=dict)  # cache of files that seldom change

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.folder)

    def listed(self) -> dict[str, Any]:
        """Its row in the list of runs."""
        config, summary = self.config(), self.summary()
        state, method, data = self.state(summary), table(config.get("method")), table(config.get("data"))
        return {
            "id": self.id, "kind": self.kind, "state": state["state"], "round": state["round"],
            "rounds": state["rounds"] or finite(config.get("rounds")), "peers": finite(config.get("peers")),
            "seed": finite(config.get("seed")), "method": short(method.get("name")),
            "data": short(data.get("name")), "partition": data.get("partition"), "validation": state["accuracy"],
            "test": finite(summary.test.last) if summary else None,
            "bytes": summary.total_bytes if summary else state["bytes"],
            "error": state["error"], "time": self.changed(), "report": self.files.report.exists(),
        }  # fmt: skip

    def state(self, summary: AnySummary | None) -> dict[str, Any]:
        """The state of the run according to its files."""
        saved = read_state(self.folder) or {}
        about: dict[str, Any] = {key: finite(saved.get(key)) for key in ("round", "rounds", "accuracy", "bytes", "age")}
        diverged = bool(summary and summary.not_finite)  # a real peer has no state.json
        ended = FAILED if diverged else FINISHED
        state = str(saved.get("state") or (ended if summary else STARTING if self._has_just_begun() else UNFINISHED))
        error = str(saved.get("error") or ("its model is not finite: training diverged" if diverged else ""))
        if summary and not saved:
            about["round"] = summary.rounds
        return {
            **about, "state": state, "error": error, "traceback": str(saved.get("traceback", "")),
            "doings": [table(d) for d in sequence(saved.get("peers"))],
        }  # fmt: skip

    def _has_just_begun(self) -> bool:
        return not self.files.events.exists() and time.time() - self.changed() < BEGINNING

    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self._file(self.files.config, tomllib.loads) or {}
        return config

    def summary(self) -> AnySummary | None:
        summary: AnySummary | None = self._file(self.files.summary, _parsed_summary)
        return summary

    def changed(self) -> float:
        """The time of the last write."""
        times = [0.0]
        for path in (self.files.config, self.files.events, self.files.state, self.files.status):
            try:
                times.append(path.stat().st_mtime)
            except OSError:
                continue
        return max(times)

    def _file(self, path: Path, parse: Callable[[str], Mapping[str, Any] | None]) -> Any:
        """A file's content, cached until it changes; None if it is absent or damaged."""
        try:
            changed = path.stat().st_mtime_ns
            if path not in self._known or self._known[path][0] != changed:
                self._known[path] = changed, parse(path.read_text(encoding="utf-8"))
            return self._known[path][1]
        except (OSError, ValueError, RecursionError):
            return None


def _parsed_summary(text: str) -> AnySummary | None:
    content = json.loads(text)
    return any_from_json(content) if isinstance(content, dict) else None


def table(value: Any) -> dict[str, Any]:
    """The value if it is a table; otherwise (in a damaged file) an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def finite(value: Any) -> Any:
    """The value if it is a finite number; otherwise None."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def short(name: Any) -> str | None:
    """A short name; None if the value (in a damaged file) is not text."""
    return short_name(name) if isinstance(name, str) else None


def find_runs(top: Path, known: dict[str, RunEntry], most: int | None = MOST_RUNS) -> dict[str, RunEntry]:
    """The runs below a folder (or the folder itself), by id; known entries are kept."""
    runs: dict[str, RunEntry] = {}
    for folder in _folders(top):
        kind = kind_of(folder)
        if kind is not None:
            id = folder.relative_to(top).as_posix() if folder != top else top.resolve().name
            old = known.get(id)
            runs[id] = old if old is not None and old.kind == kind else RunEntry(id, folder, kind)
        if most is not None and len(runs) >= most:
            break
    return runs


def kind_of(folder: Path) -> str | None:
    """The kind of run in a folder: a simulation, one real peer, or a circle of `coterie up`; None if there is none."""
    files = RunFolder(folder)
    if not files.is_started():
        return None
    if not files.events.exists() and not _is_of_a_run(files.config):
        return None
    if files.is_circle():
        return CIRCLE
    return PEER if files.status.exists() else SIMULATION


def _is_of_a_run(config: Path) -> bool:
    """Whether this config.toml is that of a run without events yet: other programs also use that name."""
    try:
        return tomllib.loads(config.read_text(encoding="utf-8")).keys() >= {"rounds", "peers", "method", "engine"}
    except (OSError, ValueError, RecursionError):
        return False


def _folders(top: Path, depth: int = 0) -> list[Path]:
    """The folder and its subfolders, except parts of runs, hidden ones and links."""
    folders = [top]
    if depth == DEPTH:
        return folders
    try:
        entries = sorted(os.scandir(top), key=lambda e: e.name)
    except OSError:
        return folders
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False) or not _is_text(entry.name):
            continue
        if entry.name in PARTS and RunFolder(top).is_started():
            continue
        folders += _folders(top / entry.name, depth + 1)
    return folders


def _is_text(name: str) -> bool:
    """Whether the name can be encoded for a page."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
