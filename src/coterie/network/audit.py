"""The audit log: what a peer sent, to whom and when. Append-only JSON lines, each hash-chained to the previous one.

The chain reveals later changes. It cannot reveal that the end was cut off or rewritten: for that, compare the head
hash with one noted elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from coterie.core.errors import CoterieError, RunError
from coterie.core.files import lock
from coterie.core.json_values import Json, parsed, table, text, whole

NOTHING_BEFORE = "0" * 64  # `previous` of the first record
MAX_LINE = 65_536  # bytes; a typical record has 400
HOW = ("fetch", "push")
_BEGIN, _ARTIFACT, _CUT = "begin", "artifact", "cut"
_FIELDS: dict[str, dict[str, type]] = {  # required fields of each kind of record, except its hash
    _BEGIN: {"event": str, "time": str, "previous": str, "who": str, "serial": str, "method": str},
    _ARTIFACT: {
        "event": str, "time": str, "previous": str, "to": str, "how": str, "name": str, "round": int, "bytes": int,
        "digest": str, "encoding": str,
    },
    _CUT: {"event": str, "time": str, "previous": str, "bytes": int, "text": str},
}  # fmt: skip
_to_json = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BEGIN_LINE = b'{"event":"begin"'  # keys are sorted, and in no other kind of record is `event` the first
_SEAL = len(b',"hash":""}\n') + 64  # bytes at the end of each line that are not hashed
_KEPT_OF_A_CUT = 2_000  # characters of a dropped line: usually all of it


class AuditError(CoterieError):
    """An audit log is damaged or cannot be written; nothing may then be sent."""


@dataclass
class ReleasedTraffic:
    """The artifacts sent to one recipient."""

    artifacts: int = 0
    bytes: int = 0


@dataclass
class ArtifactVersions:
    """The artifacts of one name that were sent."""

    first_round: int
    last_round: int
    count: int = 0
    bytes: int = 0


@dataclass
class Summary:
    """The content of an intact log."""

    who: str
    first: str  # time of the first record
    last: str = ""
    head: str = NOTHING_BEFORE
    records: int = 0
    cut: int = 0  # incomplete lines left by crashes
    serials: list[str] = field(default_factory=list)  # of the certificates, in order of appearance
    methods: list[str] = field(default_factory=list)
    recipients: dict[str, ReleasedTraffic] = field(default_factory=dict)
    artifacts: dict[str, ArtifactVersions] = field(default_factory=dict)


@dataclass(frozen=True)
class _Owner:
    """The peer that a log belongs to, as the records of kind `begin` name it."""

    who: str
    serial: str  # of its certificate
    method: str

    @classmethod
    def of(cls, record: Json) -> _Owner:
        return cls(text(record, "who"), text(record, "serial"), text(record, "method"))


class AuditLog:
    """One peer's log, verified when opened, then appended to. For one process at a time; thread-safe."""

    def __init__(self, path: Path, who: str, serial: str, method: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._head, self._count, self._size = NOTHING_BEFORE, 0, 0
        self._file = _opened(path)
        try:
            before, dropped = self._resume()
            self._identify(before, _Owner(who, serial, method))
            if dropped:
                kept = dropped.decode("ascii", "backslashreplace")[:_KEPT_OF_A_CUT]
                self._append({"event": _CUT, "bytes": len(dropped), "text": kept})
        except BaseException:
            self.close()
            raise

    @property
    def head(self) -> str:
        """The hash of the last record: noted elsewhere, it later proves that the log up to here is unchanged."""
        return self._head

    @property
    def count(self) -> int:
        """The number of records."""
        return self._count

    def record(
        self, *, to: str, how: str, name: str, round: int, bytes: int, digest: str, encoding: str = "none"
    ) -> None:
        """Record that an artifact is sent. On return the operating system has the record; if it raises, do not send."""
        if how not in HOW:
            raise AuditError(f"an artifact is sent by {' or '.join(HOW)}, not by '{how}'")
        if not _DIGEST.fullmatch(digest):
            raise AuditError(f"the digest of '{name}' must be a SHA-256 in lower-case hexadecimal, not '{digest}'")
        self._append(
            {
                "event": _ARTIFACT, "to": to, "how": how, "name": name, "round": round, "bytes": bytes,
                "digest": digest, "encoding": encoding,
            }
        )  # fmt: skip

    def sync(self) -> None:
        """Flush to disk: all records so far survive a power cut."""
        with self._lock:
            try:
                os.fsync(self._open_file())
            except OSError as error:
                raise AuditError(
                    f"the audit log {self.path} could not be flushed to disk ({error.strerror})"
                ) from error

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _resume(self) -> tuple[_Owner | None, bytes]:
        """Verify the existing log; returns the last record of its owner, and an incomplete line that a crash left."""
        before: _Owner | None = None
        try:
            with os.fdopen(self._file, "rb", closefd=False) as file:
                for body, head, end in _chained(file, self.path):
                    self._head, self._count, self._size = head, self._count + 1, end
                    if body.startswith(_BEGIN_LINE):
                        before = _Owner.of(_parsed(body, self.path, self._count))
        except _CutOffError as cut:
            return before, cut.rest
        except AuditError as error:
            raise AuditError(f"{error}. Keep the file: move it away, and a new log is started") from error
        except OSError as error:
            raise AuditError(f"the audit log {self.path} cannot be read ({error.strerror})") from error
        return before, b""

    def _identify(self, before: _Owner | None, now: _Owner) -> None:
        """Record the owner at the start, and whenever its certificate or method changes."""
        if before and before.who != now.who:
            raise AuditError(f"the audit log {self.path} belongs to '{before.who}', not to '{now.who}': move it away")
        if before != now:
            self._append({"event": _BEGIN, **asdict(now)})

    def _append(self, record: Mapping[str, str | int]) -> None:
        with self._lock:
            file = self._open_file()
            time = datetime.now(UTC).isoformat(timespec="milliseconds")
            body = _canonical({**record, "time": time, "previous": self._head})
            hash = sha256(body).hexdigest()
            line = body[:-1] + b',"hash":"' + hash.encode() + b'"}\n'
            if len(line) > MAX_LINE:
                raise AuditError(f"a record of {len(line)} bytes is too long for the audit log: choose shorter names")
            self._write(file, line)
            self._head, self._count, self._size = hash, self._count + 1, self._size + len(line)

    def _write(self, file: int, line: bytes) -> None:
        """Append the whole line or nothing. An incomplete line after the end is overwritten, then truncated."""
        old_size, end = os.fstat(file).st_size, self._size + len(line)
        try:
            done = 0
            while done < len(line):  # a disk that fills up accepts part of a write
                done += os.pwrite(file, line[done:], self._size + done)
            if old_size > end:
                os.ftruncate(file, end)
        except OSError as error:
            with suppress(OSError):  # if this fails, the next record or the next start overwrites the part
                os.ftruncate(file, old_size)
            raise AuditError(
                f"the audit log {self.path} could not be written ({error.strerror}), and nothing is sent without a "
                "record: free some disk space"
            ) from error

    def _open_file(self) -> int:
        if self._file < 0:
            raise AuditError(f"the audit log {self.path} is closed")
        return self._file


def verify(path: Path) -> Summary:
    """Read and verify a whole log; raises AuditError unless it is an intact chain of well-formed records."""
    try:
        with path.open("rb") as file:
            return _summed_up(file, path)
    except OSError as error:
        raise AuditError(f"the audit log {path} cannot be read ({error.strerror})") from error


def _summed_up(file: BinaryIO, path: Path) -> Summary:
    summary: Summary | None = None
    for number, (body, head, _) in enumerate(_chained(file, path), 1):
        record = _parsed(body, path, number)
        if summary is None:
            summary = Summary(text(record, "who"), text(record, "time"))
        if record["event"] == _BEGIN and record["who"] != summary.who:
            raise _broken(path, number, f"the log belongs to '{summary.who}', but this record to '{record['who']}'")
        summary.records, summary.last, summary.head = number, text(record, "time"), head
        _add(summary, record)
    if summary is None:
        raise AuditError(f"{path} is empty: it is not an audit log")
    return summary


def _add(summary: Summary, record: Json) -> None:
    if record["event"] == _CUT:
        summary.cut += 1
    elif record["event"] == _BEGIN:
        owner = _Owner.of(record)
        for values, value in ((summary.serials, owner.serial), (summary.methods, owner.method)):
            if value not in values:
                values.append(value)
    else:
        round, size = whole(record, "round"), whole(record, "bytes")
        traffic = summary.recipients.setdefault(text(record, "to"), ReleasedTraffic())
        traffic.artifacts += 1
        traffic.bytes += size
        versions = summary.artifacts.setdefault(text(record, "name"), ArtifactVersions(round, round))
        versions.first_round, versions.last_round = min(versions.first_round, round), max(versions.last_round, round)
        versions.count += 1
        versions.bytes += size


# -- lines -------------------------------------------------------------------------------------


class _CutOffError(AuditError):
    """The last line is incomplete."""

    def __init__(self, message: str, rest: bytes) -> None:
        super().__init__(message)
        self.rest = rest


def _chained(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, str, int]]:
    """For each line: the hashed bytes, the hash, and the offset of its end. Raises where the chain breaks.

    Works on bytes, for speed: a restart must not parse millions of lines of JSON.
    """
    head, end, number = NOTHING_BEFORE, 0, 0
    while line := file.readline(MAX_LINE):
        number += 1
        if number == 1 and line[: len(_BEGIN_LINE)] != _BEGIN_LINE[: len(line)]:
            raise _broken(path, number, "an audit log begins with a record of its owner, but this does not")
        if not line.endswith(b"\n"):
            if len(line) == MAX_LINE:
                raise _broken(path, number, "it is longer than any record can be")
            raise _CutOffError(str(_broken(path, number, "it is incomplete; the peer drops it when it resumes")), line)
        body = line[:-_SEAL] + b"}"
        hash = sha256(body).hexdigest()
        if line[-_SEAL:] != b',"hash":"%s"}\n' % hash.encode():
            raise _broken(path, number, "its hash does not match its content: it was changed")
        # Safe: no value inside a record can contain this text, because quotes are escaped.
        if b'"previous":"%s"' % head.encode() not in body:
            raise _broken(path, number, "it does not follow the previous line: a line was removed, inserted or moved")
        head, end = hash, end + len(line)
        yield body, head, end


def _parsed(body: bytes, path: Path, number: int) -> Json:
    try:
        record = table(parsed(body.decode("ascii")))
        fields = {key: type(value) for key, value in record.items()}
        if fields == _FIELDS[text(record, "event")] and _canonical(record) == body:
            return record
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise _broken(path, number, "it is not a record of an audit log")


def _canonical(record: Mapping[str, object]) -> bytes:
    """The only valid form of a record: sorted keys, no spaces, ASCII. Contains no line breaks or control characters."""
    return _to_json(record).encode()


def _broken(path: Path, number: int, what: str) -> AuditError:
    return AuditError(f"the audit log {path} is broken at line {number}: {what}")


def _opened(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise AuditError(f"the audit log {path} cannot be opened ({error.strerror})") from error
    try:
        lock(file, f"the audit log {path}", "stop that one first")
    except RunError as error:
        os.close(file)
        raise AuditError(str(error)) from error
    return file
