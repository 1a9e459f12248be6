"""What tables need of a run, and a file that keeps it when the run's folder is long gone: one line a run."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coterie.comparing.plan import fingerprint
from coterie.config import provenance
from coterie.config.loading import from_tables
from coterie.config.sections import Experiment
from coterie.core.errors import CoterieError, RunError
from coterie.core.files import write_whole
from coterie.report.summary import read_summary
from coterie.reproducing.figures import LAST, at
from coterie.running import simulated


@dataclass(frozen=True)
class Record:
    """One run that is whole: its settings, what came out, which version made it on which day, and with what."""

    settings: Mapping[str, Any]
    summary: Mapping[str, Any]
    version: str
    day: str
    made_with: Mapping[str, str] | None = None  # None in records of older versions: they count as current

    def outdated(self, e: Experiment) -> str:
        """What changed since it was made; empty where nothing did, or nobody knows.

        Coterie's own sources do not count, unlike in a run's folder: records are kept for years, and a digest cannot
        tell a renamed variable from another formula. Whoever changes what a method computes removes its records.
        """
        if self.made_with is None:
            return ""
        changes = provenance.differences(_not_of_package(self.made_with), _not_of_package(provenance.on_disk(e)))
        return f"{', '.join(changes)} since {self.day}" if changes else ""


Records = dict[str, Record]  # by the settings' fingerprint


def _not_of_package(made_with: Mapping[str, str]) -> dict[str, str]:
    return {name: what for name, what in made_with.items() if not name.startswith("coterie/")}


def of_run(folder: Path) -> Record:
    """That of a run which has ended."""
    summary = read_summary(folder)
    if at(summary, "accuracy", LAST, "mean") is None:
        raise RunError(f"{folder / 'summary.json'} has no accuracy: delete its folder, and run this again")
    made = time.localtime((folder / "summary.json").stat().st_mtime)
    settings = simulated.of_folder(folder).tables()
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
    return newest(_told_apart(_all_in(path))[0])


def lines(path: Path) -> dict[str, int]:
    """In which line of a file each record is, by its key; the first line is 1."""
    found = {}
    for number, record in enumerate(_all_in(path), 1):
        for key, _ in _told_apart([record])[0]:
            found[key] = number
    return found


def add(path: Path, new: Records) -> Records:
    """Into the file as it is now, for another process may have written since it was read; returns what is in it then.

    Of two records of one run the newer one stays. Those with settings that there are no more stay as they are.
    """
    with _alone_with(path):
        there, strange = _told_apart(_all_in(path))
        merged = newest([*there, *new.items()])
        write(path, [*merged.values(), *strange])
    return merged


@dataclass(frozen=True)
class Merged:
    """What became of a file into which others were merged, in numbers of records."""

    before: int
    added: int
    replaced: int  # by a newer record of the same run
    removed: int  # because they are of no run that is wanted
    strange: int  # with settings that there are no more; those that are still there


def merge(sources: Sequence[Path], into: Path, wanted: Callable[[Record], bool] | None = None) -> Merged:
    """Put the records of several files into one. With `wanted`, what it does not want is removed from that one, too."""
    for source in sources:
        if not source.exists():
            raise RunError(f"{source}: there is no such file of records")
    new, strange = _told_apart(record for source in sources for record in _all_in(source))
    with _alone_with(into):
        there, more = _told_apart(_all_in(into))
        before, merged = newest(there), newest([*there, *new])
        unusable = {_line(record): record for record in [*more, *strange]}
        kept = [record for record in merged.values() if wanted is None or wanted(record)]
        left = unusable if wanted is None else {}
        write(into, [*kept, *left.values()])
    removed = len(merged) + len(unusable) - len(kept) - len(left)
    replaced = sum(merged[key] != record for key, record in before.items())
    return Merged(len(before), len(merged) - len(before), replaced, removed, len(left))


def newest(several: Iterable[tuple[str, Record]]) -> Records:
    """All records; of those of one run that of the last day. On one day, one that is current, then the last given."""
    found: Records = {}
    for key, record in several:
        if key not in found or _age(record) >= _age(found[key]):
            found[key] = record
    return found


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


def _told_apart(records: Iterable[Record]) -> tuple[list[tuple[str, Record]], list[Record]]:
    """With their settings' fingerprints; and those with settings that there are no more."""
    known, strange = [], []
    for record in records:
        try:
            known.append((fingerprint(from_tables(dict(record.settings))), record))
        except CoterieError:
            strange.append(record)
    return known, strange


def _parsed(line: str, where: str) -> Record:
    try:
        record = Record(**json.loads(line))
        whole = isinstance(record.settings, dict) and at(record.summary, "accuracy", LAST, "mean") is not None
    except (ValueError, TypeError) as error:
        raise RunError(f"{where} is no record of a run ({error}): delete that line") from error
    if not whole:
        raise RunError(f"{where} is a record without settings or without an accuracy: delete that line")
    return record


def _line(record: Record) -> str:
    plain = {key: value for key, value in asdict(record).items() if value is not None}
    return json.dumps(plain, sort_keys=True, ensure_ascii=False)


def write(path: Path, records: Iterable[Record]) -> None:
    """In an order that depends on what was run alone, so that a new run is a new line and nothing else changes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, "".join(f"{line}\n" for line in sorted(map(_line, records))))
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): choose another --record") from error


@contextmanager
def _alone_with(path: Path) -> Iterator[None]:
    """Who reads and writes a file of records waits for others that do: each would lose what the other adds.

    The lock is on the folder: the file itself is another one after every write.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): choose another --record") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
