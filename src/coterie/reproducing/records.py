"""Records of finished runs, one line per run in a file that outlives the runs' folders."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.comparing.plan import fingerprint
from coterie.config import provenance
from coterie.config.loading import from_tables
from coterie.config.sections import Experiment
from coterie.core.errors import CoterieError, RunError
from coterie.core.files import locked, write_whole
from coterie.core.run_folder import RunFolder
from coterie.core.summary import Summary
from coterie.report.summary import read_summary
from coterie.reproducing.figures import finite
from coterie.running import simulated


@dataclass(frozen=True)
class Record:
    """One finished run: its settings, its summary, and the version, day and sources that made it."""

    settings: Mapping[str, Any]
    summary: Summary
    version: str
    day: str
    made_with: Mapping[str, str] | None = None  # None in records of older versions, which count as current

    def outdated(self, e: Experiment) -> str:
        """What changed since the record was made; empty if nothing did, or if it is unknown.

        Coterie's own sources do not count, unlike in a run's folder: records are kept for years, and a digest cannot
        tell a renamed variable from a changed formula. A developer who changes what a method computes must remove its
        records.
        """
        if self.made_with is None:
            return ""
        changes = provenance.differences(_without_package(self.made_with), _without_package(provenance.on_disk(e)))
        return f"{', '.join(changes)} since {self.day}" if changes else ""


Records = dict[str, Record]  # by the settings' fingerprint


def _without_package(made_with: Mapping[str, str]) -> dict[str, str]:
    return {name: what for name, what in made_with.items() if not name.startswith("coterie/")}


def of_run(folder: Path) -> Record:
    """The record of a finished run."""
    files, summary = RunFolder(folder), read_summary(folder)
    if finite(summary.accuracy.last.mean) is None:
        raise RunError(f"{files.summary} has no accuracy: delete its folder and run the command again")
    made = time.localtime(files.summary.stat().st_mtime)
    settings = simulated.of_folder(folder).tables()
    source = provenance.read(folder)
    day, made_with = time.strftime("%Y-%m-%d", made), None if source is None else source.made_with
    return Record(settings, summary, _version(files.events), day, made_with)


def _version(events: Path) -> str:
    try:
        with events.open(encoding="utf-8") as lines:
            return str(json.loads(lines.readline()).get("version") or "?")
    except (OSError, ValueError, AttributeError):
        return "?"


def read(path: Path) -> Records:
    """The records in a file, without those whose settings no longer exist; empty if there is no file."""
    return newest(_known_and_obsolete(_all_in(path))[0])


def lines(path: Path) -> dict[str, int]:
    """The line number of each record in a file, by its key; the first line is 1."""
    numbers = {}
    for number, record in enumerate(_all_in(path), 1):
        for key, _ in _known_and_obsolete([record])[0]:
            numbers[key] = number
    return numbers


def add(path: Path, new: Records) -> Records:
    """Add records to the file, rereading it first because another process may have written to it. Returns all records.

    Of two records of one run, the newer is kept. Records whose settings no longer exist are kept unchanged.
    """
    with _locked(path):
        known, obsolete = _known_and_obsolete(_all_in(path))
        merged = newest([*known, *new.items()])
        write(path, [*merged.values(), *obsolete])
    return merged


@dataclass(frozen=True)
class Merged:
    """The result of merging files of records into one, in numbers of records."""

    before: int
    added: int
    replaced: int  # by a newer record of the same run
    removed: int  # because their run is not wanted
    strange: int  # kept, although their settings no longer exist


def merge(sources: Sequence[Path], into: Path, wanted: Callable[[Record], bool] | None = None) -> Merged:
    """Merge the records of several files into one. With `wanted`, that file loses the records it rejects."""
    for source in sources:
        if not source.exists():
            raise RunError(f"there is no file of records {source}")
    new, obsolete = _known_and_obsolete(record for source in sources for record in _all_in(source))
    with _locked(into):
        known, more = _known_and_obsolete(_all_in(into))
        before, merged = newest(known), newest([*known, *new])
        unusable = {_line(record): record for record in [*more, *obsolete]}
        kept = [record for record in merged.values() if wanted is None or wanted(record)]
        left = unusable if wanted is None else {}
        write(into, [*kept, *left.values()])
    removed = len(merged) + len(unusable) - len(kept) - len(left)
    replaced = sum(merged[key] != record for key, record in before.items())
    return Merged(len(before), len(merged) - len(before), replaced, removed, len(left))


def newest(several: Iterable[tuple[str, Record]]) -> Records:
    """The newest record of each run. On the same day a current record wins, then the last given."""
    by_key: Records = {}
    for key, record in several:
        if key not in by_key or _age(record) >= _age(by_key[key]):
            by_key[key] = record
    return by_key


def _age(record: Record) -> tuple[str, bool, bool]:
    if record.made_with is None:
        return record.day, False, False
    return record.day, True, not record.outdated(from_tables(dict(record.settings)))


def _all_in(path: Path) -> list[Record]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    return [_parsed(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _known_and_obsolete(records: Iterable[Record]) -> tuple[list[tuple[str, Record]], list[Record]]:
    """The records with their settings' fingerprints, and those whose settings no longer exist."""
    known, obsolete = [], []
    for record in records:
        try:
            known.append((fingerprint(from_tables(dict(record.settings))), record))
        except CoterieError:
            obsolete.append(record)
    return known, obsolete


def _parsed(line: str, where: str) -> Record:
    try:
        fields = json.loads(line)
        record = Record(**{**fields, "summary": Summary.from_json(fields["summary"])})
        whole = isinstance(record.settings, dict) and finite(record.summary.accuracy.last.mean) is not None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{where} is not a record of a run ({error}): delete that line") from error
    if not whole:
        raise RunError(f"{where} is a record without settings or without an accuracy: delete that line")
    return record


def _line(record: Record) -> str:
    plain = {key: value for key, value in vars(record).items() if value is not None}
    plain["summary"] = record.summary.to_json()
    return json.dumps(plain, sort_keys=True, ensure_ascii=False)


def write(path: Path, records: Iterable[Record]) -> None:
    """Write the records in an order that depends only on their content, so that a new run adds just one line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{line}\n" for line in sorted(map(_line, records))))
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): choose another --record") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock a file of records while it is read and rewritten; otherwise concurrent writers would lose records.

    The lock is on the folder, because every write replaces the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): choose another --record") from error
    with locked(path.parent, wait=True):
        yield
