"""What tables need of a run, and a file that keeps it when the run's folder is long gone: one line a run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coterie import provenance, running
from coterie.comparing.plan import fingerprint
from coterie.errors import CoterieError, RunError
from coterie.experiment import Experiment, from_tables
from coterie.files import write_whole
from coterie.report.summary import read_summary
from coterie.reproducing.figures import LAST, at


@dataclass(frozen=True)
class Record:
    """One run that is whole: its settings, what came out, which version made it on which day, and with what."""

    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    version: str
    day: str
    made_with: Mapping[str, str] | None = None  # None in records of older versions: they count as current

    def outdated(self, e: Experiment) -> str:
        """What changed since it was made; empty where nothing did, or nobody knows."""
        if self.made_with is None:
            return ""
        changes = provenance.differences(self.made_with, provenance.on_disk(e))
        return f"{', '.join(changes)} since {self.day}" if changes else ""


Records = dict[str, Record]  # by the settings' fingerprint


def of_run(folder: Path) -> Record:
    """That of a run which has ended."""
    summary = read_summary(folder)
    if at(summary, "accuracy", LAST, "mean") is None:
        raise RunError(f"{folder / 'summary.json'} has no accuracy: delete its folder, and run this again")
    made = time.localtime((folder / "summary.json").stat().st_mtime)
    settings = running.of_folder(folder).tables()
    source = provenance.read(folder)
    day, made_with = time.strftime("%Y-%m-%d", made), None if source is None else source.made_with
    return Record(settings, summary, _version(folder / "events.jsonl"), day, made_with)


def _version(events: Path) -> str:
    try:
        with events.open(encoding="utf-8") as lines:
            return str(json.loads(lines.readline()).get("version") or "?")
    except (OSError, ValueError, AttributeError):
        return "?"


def read(path: Path) -> Records:
    """The records of a file, none where there is no file; those with settings that there are no more are left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    found: Records = {}
    for number, line in enumerate(lines, 1):
        record = _parsed(line, f"{path}, line {number}")
        try:
            found[fingerprint(from_tables(dict(record.settings)))] = record
        except CoterieError:
            continue
    return found


def _parsed(line: str, where: str) -> Record:
    try:
        record = Record(**json.loads(line))
        whole = isinstance(record.settings, dict) and at(record.summary, "accuracy", LAST, "mean") is not None
    except (ValueError, TypeError) as error:
        raise RunError(f"{where} is no record of a run ({error}): delete that line") from error
    if not whole:
        raise RunError(f"{where} is a record without settings or without an accuracy: delete that line")
    return record


def _plain(record: Record) -> dict[str, Any]:
    return {key: value for key, value in asdict(record).items() if value is not None}


def write(path: Path, records: Iterable[Record]) -> None:
    """In an order that depends on what was run alone, so that a new run is a new line and nothing else changes."""
    lines = sorted(json.dumps(_plain(record), sort_keys=True, ensure_ascii=False) for record in records)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(f"{line}\n" for line in lines))
