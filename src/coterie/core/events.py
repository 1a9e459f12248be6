"""The events of a run, as typed records in JSON lines. Reports read these, never a live run's objects."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from coterie.core.errors import RunError
from coterie.core.files import leftovers, replacing
from coterie.core.formatting import peer_label, peer_name
from coterie.core.json_values import Json
from coterie.core.measured_metric import ACCURACY, MeasuredMetric

SPLITS = ("validation", "test")  # those that are measured, in the order of a record's scores


@dataclass(frozen=True)
class RunStarted:
    """The first record: what is run, and facts about the peers."""

    method: str  # its name
    seed: int  # of all randomness
    peers: int  # how many, not counting a server
    rounds: int  # how many the run has
    architectures: list[str]  # by peer
    samples: list[int]  # training samples, by peer
    classes: list[list[int]]  # training samples of each class, by peer
    clusters: list[int] | None  # the true ones, where known
    version: str = ""  # of Coterie
    data: str = ""  # the dataset, and its partition
    # measured besides accuracy: `name`, `label`, `higher_is_better` and `unit` of each; left out if there are none
    metrics: list[dict[str, Any]] = field(default_factory=list)
    select: str = ""  # the metric that selects a round; left out if it is accuracy
    task: str = ""  # "regression"; left out for classification, which alone has an accuracy
    label_unit: str = ""  # of the predicted numbers; left out where it is not declared
    names: list[str] = field(default_factory=list)  # of the peers' sites, by peer; left out where peers have no names
    event: str = "run"

    @property
    def measured(self) -> tuple[MeasuredMetric, ...]:
        """All metrics of the run; the first is the main one, by which rounds are selected and runs are compared."""
        given = [
            MeasuredMetric(m["name"], m["label"], m["higher_is_better"], m["unit"], self.label_unit)
            for m in self.metrics
        ]
        metrics = given if self.task else [ACCURACY, *given]
        return tuple(sorted(metrics, key=lambda metric: metric.name != (self.select or ACCURACY.name)))

    @property
    def main(self) -> MeasuredMetric:
        return self.measured[0]

    def called(self, peer: int) -> str:
        return peer_name(peer, self.names)

    def label(self, peer: int) -> str:
        return peer_label(peer, self.names)


@dataclass(frozen=True)
class PeerRound:
    """One participant finished one round."""

    peer: int  # its number; a server has the number after the last peer's
    round: int  # from 1
    time: float  # simulated seconds at the end of the round
    validation: float | None = None  # accuracy, a fraction of 1
    test: float | None = None  # the same on the test split
    loss: float | None = None  # on the validation split
    bytes: dict[str, int] = field(default_factory=dict)  # received (or sent, for pushes), by artifact
    messages: dict[str, int] = field(default_factory=dict)  # how many of them, by artifact
    notes: dict[str, Any] = field(default_factory=dict)  # what the method noted: neighbours, weights, declined, ...
    # by metric other than accuracy: [on the validation split, on the test split]; left out if there are none
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    event: str = "round"

    @property
    def is_measured(self) -> bool:
        return self.test is not None or bool(self.scores)

    def value(self, metric: str, split: str = "test") -> float | None:
        """Of a metric on the "validation" or the "test" split; None if it was not measured, or is undefined there."""
        if metric == ACCURACY.name:
            return self.validation if split == "validation" else self.test
        return self.scores.get(metric, (None, None))[split == "test"]


@dataclass(frozen=True)
class PeerAway:
    """A participant was away: for one round, or permanently (`until` is None)."""

    peer: int  # its number
    round: int  # the one that it missed, or left in
    time: float  # simulated seconds
    until: float | None  # the end of the round that it missed; None: it has left permanently
    event: str = "away"


@dataclass(frozen=True)
class Offence:
    """On a network, a peer received invalid data from another peer and dropped it."""

    peer: int  # the recipient
    round: int  # the recipient's round at that time
    time: float  # seconds since the recipient started
    sender: str  # the name in the certificate
    what: str  # what was wrong with the data
    event: str = "offence"


@dataclass(frozen=True)
class NotFinite:
    """A peer ended with a model that contains NaN or infinite numbers: training diverged."""

    peer: int  # its number
    round: int  # its last round
    time: float  # seconds at the end of its last round
    event: str = "not-finite"


Event = RunStarted | PeerRound | PeerAway | Offence | NotFinite
_KINDS: dict[str, type[Event]] = {
    "run": RunStarted, "round": PeerRound, "away": PeerAway, "offence": Offence, "not-finite": NotFinite,
}  # fmt: skip


class EventLog:
    """Appends records to a file; a run that resumes from a checkpoint first drops the records after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    def write(self, *events: Event) -> None:
        with _naming_file(self.path):
            if self._file is None:
                self._file = self.path.open("ab")
            self._file.write(b"".join(map(_line, events)))

    def flush(self) -> None:
        if self._file is not None:
            with _naming_file(self.path):
                self._file.flush()

    def sync(self) -> None:
        """Force to disk: everything flushed before survives a power cut."""
        if self._file is not None:
            with _naming_file(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with _naming_file(self.path):
                file.close()

    def keep_until(self, round: int) -> list[Event]:
        """Drop every record after this round, on disk too; returns the remaining ones."""
        kept = [e for e in read(self.path) if getattr(e, "round", 0) <= round]
        self.close()
        with _naming_file(self.path):
            for incomplete in leftovers(self.path.parent, self.path.name):
                incomplete.unlink(missing_ok=True)
            with replacing(self.path) as temporary, temporary.open("wb") as file:
                file.writelines(map(_line, kept))
        return kept


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Turn an OSError into a RunError that names the file."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"{path} could not be written ({reason}): free some disk space, then resume") from error


# Fields that are left out while they are empty.
_LEFT_OUT = frozenset(("metrics", "select", "task", "label_unit", "scores", "names"))
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE


def _line(event: Event) -> bytes:
    # Not `asdict`: it would copy every note, which is most of the cost, and records are plain values already.
    record = {key: value for key, value in vars(event).items() if value or key not in _LEFT_OUT}
    try:
        return orjson.dumps(record, option=_OPTIONS)
    except orjson.JSONEncodeError:  # a note has an integer above 64 bits, or an unpaired surrogate
        return (json.dumps(record, separators=(",", ":")) + "\n").encode()


def _decoded(line: str) -> Json:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:  # only the standard library reads NaN, which older versions wrote
        record = json.loads(line)
    if not isinstance(record, dict):
        raise TypeError("not a table")
    return record


def from_record(record: Mapping[str, Any]) -> Event:
    """The event in a parsed line of the log; raises KeyError or TypeError if it is not one."""
    return _KINDS[record["event"]](**record)


def read(path: Path) -> Iterator[Event]:
    """The records of a run; a last line that a crash truncated is left out."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            yield from_record(_decoded(line))
        except (ValueError, KeyError, TypeError) as error:
            if not any(lines[number:]):
                return
            raise RunError(f"{path}, line {number}: not a valid event record ({error})") from error


def of_kind(events: Iterable[Event], kind: type[Any]) -> list[Any]:
    return [e for e in events if isinstance(e, kind)]
