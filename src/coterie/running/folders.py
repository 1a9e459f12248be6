"""Finds the runs in a folder, and reads the state of each without its events."""

from __future__ import annotations

import os
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Generic, NotRequired, TypedDict, TypeVar

from coterie.core.formatting import short_name
from coterie.core.json_values import Json, JsonValue, finite, parsed, table
from coterie.core.run_folder import PARTS, RunFolder
from coterie.core.summary import AnySummary, any_from_json
from coterie.running.state import FAILED, FINISHED, SavedState, read_state

DEPTH = 3  # of folders below the one that is watched
OWN = ".dashboard"  # folder for the output of runs that the dashboard started
CIRCLE, PEER, SIMULATION = "circle", "peer", "simulation"
STARTING = "starting"
UNFINISHED = "unfinished"  # stopped or killed: unknown, because old runs have no state.json
MOST_RUNS = 2_000
BEGINNING = 60.0  # seconds in which a run without events counts as starting
T = TypeVar("T")


class Actions(TypedDict):
    """What the page can do with a run that the dashboard started."""

    pause: bool
    stop: bool
    resume: bool
    asked: str  # the pending request: pause or stop


class ListedRun(TypedDict):
    """A row in the list of runs. Numbers and texts are None where the files have none."""

    id: str
    kind: str
    state: str
    round: float | None
    rounds: float | None
    peers: float | None
    seed: float | None
    method: str | None
    data: str | None
    partition: JsonValue
    validation: float | None
    test: float | None
    metric: Json  # the main one, of which both are the mean
    bytes: float | None
    error: str
    time: float
    report: bool
    control: NotRequired[Actions]


@dataclass
class RunEntry:
    """One run's folder. Its id is its path below the watched folder; requests name runs by id, never by path."""

    id: str
    folder: Path
    kind: str
    _config: _Cached[Json] = field(default_factory=lambda: _Cached(_parsed_config))
    _summary: _Cached[AnySummary] = field(default_factory=lambda: _Cached(_parsed_summary))

    @property
    def files(self) -> RunFolder:
        return RunFolder(self.folder)

    def listed(self) -> ListedRun:
        """Its row in the list of runs."""
        config, summary = self.config(), self.summary()
        state, method, data = self.state(summary), table(config.get("method")), table(config.get("data"))
        return {
            "id": self.id, "kind": self.kind, "state": state.state, "round": state.round,
            "rounds": state.rounds or finite(config.get("rounds")), "peers": finite(config.get("peers")),
            "seed": finite(config.get("seed")), "method": short(method.get("name")),
            "data": short(data.get("name")), "partition": data.get("partition"), "validation": state.validation,
            "test": finite(summary.test.last) if summary else None,
            "metric": asdict(summary.main_metric if summary else state.metric),
            "bytes": summary.total_bytes if summary else state.bytes,
            "error": state.error, "time": self.changed(), "report": self.files.report.exists(),
        }  # fmt: skip

    def state(self, summary: AnySummary | None) -> SavedState:
        """The state of the run according to its files."""
        diverged = bool(summary and summary.not_finite)  # a real peer has no state.json
        ended = FAILED if diverged else FINISHED
        inferred = ended if summary else STARTING if self._has_just_begun() else UNFINISHED
        error = "its model is not finite: training diverged" if diverged else ""
        saved = read_state(self.folder) or SavedState("", round=summary.rounds if summary else None)
        return replace(saved, state=saved.state or inferred, error=saved.error or error)

    def _has_just_begun(self) -> bool:
        return not self.files.events.exists() and time.time() - self.changed() < BEGINNING

    def config(self) -> Json:
        return self._config.of(self.files.config) or {}

    def summary(self) -> AnySummary | None:
        return self._summary.of(self.files.summary)

    def changed(self) -> float:
        """The time of the last write."""
        times = [0.0]
        for path in (self.files.config, self.files.events, self.files.state, self.files.status):
            try:
                times.append(path.stat().st_mtime)
            except OSError:
                continue
        return max(times)


class _Cached(Generic[T]):
    """The content of a file that seldom changes, read again when it does."""

    def __init__(self, parse: Callable[[str], T | None]) -> None:
        self._parse = parse
        self._changed: int | None = None
        self._content: T | None = None

    def of(self, path: Path) -> T | None:
        """The content of the file; None if it is absent or damaged."""
        try:
            changed = path.stat().st_mtime_ns
            if self._changed != changed:
                self._changed, self._content = None, self._parse(path.read_text(encoding="utf-8"))
                self._changed = changed
        except (OSError, ValueError, RecursionError):
            return None
        return self._content


def _parsed_config(text: str) -> Json:
    return tomllib.loads(text)


def _parsed_summary(text: str) -> AnySummary | None:
    content = parsed(text)
    return any_from_json(content) if isinstance(content, dict) else None


def short(name: object) -> str | None:
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
