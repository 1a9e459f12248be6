"""The audit log: what it says, what its chain shows, and what crashes and full disks leave of it."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coterie.cli.audit import add_commands
from coterie.network.audit import (
    MAX_LINE,
    NOTHING_BEFORE,
    ArtifactVersions,
    AuditError,
    AuditLog,
    ReleasedTraffic,
    verify,
)

ODD = 'a "name",\n\u2028\x1b[31m\ud800 \\ ü"previous":"'
DIGEST = "ab" * 32


def opened(path: Path, who: str = "ann", serial: str = "1f", method: str = "mapl") -> AuditLog:
    return AuditLog(path, who, serial, method)


def fill(log: AuditLog, rounds: int = 3) -> None:
    for t in range(rounds):
        log.record(to="bob", how="fetch", name="model", round=t, bytes=100 + t, digest=DIGEST, encoding="zstd")
    log.record(to=ODD, how="push", name=ODD, round=7, bytes=5, digest=DIGEST)


def written(path: Path) -> list[bytes]:
    log = opened(path)
    fill(log)
    log.close()
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return written(tmp_path_factory.mktemp("intact") / "audit.jsonl")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], object]:
    """Verify these bytes as a log; one file serves all, for property tests have no folder for each example."""
    path = tmp_path_factory.mktemp("changed") / "audit.jsonl"

    def verified(data: bytes) -> object:
        path.write_bytes(data)
        return verify(path)

    return verified


# -- what it says ------------------------------------------------------------------------------


def test_a_record_for_all_that_left(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    records = [json.loads(line) for line in written(path)]
    first, second = records[0], records[1]
    assert {key: first[key] for key in ("event", "who", "serial", "method", "previous")} == {
        "event": "begin", "who": "ann", "serial": "1f", "method": "mapl", "previous": NOTHING_BEFORE,
    }  # fmt: skip
    assert {key: value for key, value in second.items() if key not in ("time", "hash", "previous")} == {
        "event": "artifact", "to": "bob", "how": "fetch", "name": "model", "round": 0, "bytes": 100,
        "digest": DIGEST, "encoding": "zstd",
    }  # fmt: skip
    assert second["time"].endswith("+00:00")
    assert records[-1]["name"] == ODD
    assert records[-1]["encoding"] == "none"


def test_the_chain_as_anybody_can_check_it(lines: list[bytes]) -> None:
    previous = NOTHING_BEFORE
    for line in lines:
        record = json.loads(line)
        hash = record.pop("hash")
        canonical = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
        assert record["previous"] == previous
        assert hash == hashlib.sha256(canonical).hexdigest()
        previous = hash


def test_the_summary_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = opened(path)
    fill(log)
    summary = verify(path)
    assert (summary.who, summary.serials, summary.methods) == ("ann", ["1f"], ["mapl"])
    assert (summary.records, summary.head, summary.cut) == (5, log.head, 0) == (log.count, log.head, 0)
    assert summary.recipients == {"bob": ReleasedTraffic(3, 303), ODD: ReleasedTraffic(1, 5)}
    assert summary.artifacts == {"model": ArtifactVersions(0, 2, 3, 303), ODD: ArtifactVersions(7, 7, 1, 5)}
    assert summary.first <= summary.last
    log.close()


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = opened(path)
    fill(log)
    head, count = log.head, log.count
    log.close()
    log = opened(path)
    assert (log.head, log.count) == (head, count)
    fill(log)
    log.sync()
    log.close()
    assert verify(path).records == 9


def test_a_new_certificate_or_method_is_recorded_and_another_name_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for serial, method in (("1f", "mapl"), ("2e", "mapl"), ("2e", "mapl"), ("2e", "panm")):
        opened(path, "ann", serial, method).close()
    before = path.read_bytes()
    with pytest.raises(AuditError, match="belongs to 'ann', not to 'bob': move it away"):
        opened(path, "bob")
    assert path.read_bytes() == before
    summary = verify(path)
    assert (summary.records, summary.serials, summary.methods) == (3, ["1f", "2e"], ["mapl", "panm"])


def test_threads_record_into_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = opened(path)
    threads = [threading.Thread(target=fill, args=(log, 50)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify(path).records == 1 + 4 * 51 == log.count
    log.close()


def test_what_is_no_record_is_refused_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = opened(path)
    good: dict[str, Any] = {"to": "bob", "how": "fetch", "name": "m", "round": 1, "bytes": 1, "digest": DIGEST}
    for wrong, culprit in (
        ({"how": "pull"}, "not by 'pull'"),
        ({"digest": "AB" * 32}, "digest of 'm'"),
        ({"digest": DIGEST + "\n"}, "digest of 'm'"),
        ({"name": "m" * MAX_LINE}, "too long"),
    ):
        with pytest.raises(AuditError, match=culprit):
            log.record(**{**good, **wrong})
    assert verify(path).records == log.count == 1
    log.close()
    with pytest.raises(AuditError, match="closed"):
        log.record(**good)
    with pytest.raises(AuditError, match="closed"):
        log.sync()
    log.close()


def test_two_processes_cannot_have_one_log(tmp_path: Path) -> None:
    log = opened(tmp_path / "audit.jsonl")
    with pytest.raises(AuditError, match="in use by another process"):
        opened(tmp_path / "audit.jsonl")
    log.close()
    opened(tmp_path / "audit.jsonl").close()


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    for path in (tmp_path / "absent" / "audit.jsonl", tmp_path):
        with pytest.raises(AuditError, match="cannot be opened"):
            opened(path)
        with pytest.raises(AuditError, match="cannot be read"):
            verify(path)


# -- what the chain shows -----------------------------------------------------------------------


def test_every_flipped_bit_is_found(lines: list[bytes], check: Callable[[bytes], object]) -> None:
    whole = b"".join(lines)
    check(whole)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        with pytest.raises(AuditError):
            check(bytes(changed))


@settings(max_examples=300)
@given(st.data())
def test_every_changed_removed_or_inserted_byte_is_found(
    lines: list[bytes], check: Callable[[bytes], object], data: st.DataObject
) -> None:
    whole = b"".join(lines)
    start = data.draw(st.integers(0, len(whole)))
    stop = start + data.draw(st.integers(0, 1))
    changed = whole[:start] + data.draw(st.binary(max_size=2)) + whole[stop:]
    assume(changed != whole)
    with pytest.raises(AuditError):
        check(changed)


@pytest.mark.parametrize("removed", range(4))
def test_a_removed_line_is_found(lines: list[bytes], check: Callable[[bytes], object], removed: int) -> None:
    with pytest.raises(AuditError, match=f"line {removed + 1}:"):
        check(b"".join(lines[:removed] + lines[removed + 1 :]))


@given(st.permutations(range(5)))
def test_every_other_order_is_found(lines: list[bytes], check: Callable[[bytes], object], order: list[int]) -> None:
    assume(order != sorted(order))
    moved = next(place for place, line in enumerate(order) if place != line)
    with pytest.raises(AuditError, match=f"line {moved + 1}:"):
        check(b"".join(lines[line] for line in order))


@given(st.integers(0, 5), st.integers(0, 4))
def test_an_inserted_line_is_found(
    lines: list[bytes], check: Callable[[bytes], object], place: int, copied: int
) -> None:
    with pytest.raises(AuditError):
        check(b"".join([*lines[:place], lines[copied], *lines[place:]]))


def test_a_line_of_another_log_is_found(lines: list[bytes], check: Callable[[bytes], object], tmp_path: Path) -> None:
    other = written(tmp_path / "other.jsonl")
    with pytest.raises(AuditError, match="line 3: it does not follow"):
        check(b"".join([*lines[:2], other[2], *lines[3:]]))


def test_a_shorter_log_is_intact_but_has_another_head(lines: list[bytes], check: Callable[[bytes], Any]) -> None:
    """What the chain cannot show: see docs/audit.md."""
    assert check(b"".join(lines[:-1])).head != check(b"".join(lines)).head
    assert check(b"".join(lines[:-1])).head == json.loads(lines[-1])["previous"]


def sealed(body: bytes) -> bytes:
    return body[:-1] + b',"hash":"%s"}\n' % hashlib.sha256(body).hexdigest().encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{"event":"begin","method":"m","previous":"%s","serial":"1","time":"t","who":7}',
        b'{"event":"begin","method":"m","previous":"%s","serial":"1","time":"t"}',
        b'{"event":"begin","method":"m","previous":"%s","serial":"1","time":"t","who":"w","x":1}',
        b'{"event":"begin","method":"m","previous":"%s","serial":"1","time":"t","who":"v","who":"w"}',
        b'{"event":"begin", "method":"m","previous":"%s","serial":"1","time":"t","who":"w"}',
        b'{"event":"begin","method":"\\u0041","previous":"%s","serial":"1","time":"t","who":"w"}',
        b'{"event":"begin"\xff,"previous":"%s"}',
        b'{"event":"begin","previous":"%s"',
        b'{"event":"begin","previous":"%s","x":' + b"[" * 20_000 + b"}",
        b'{"event":"begun","previous":"%s"}',
        b'["previous":"%s"}',
        b"hello, %s}",
    ],
)
def test_forms_that_no_log_has_are_refused_even_with_a_fitting_hash(
    body: bytes, check: Callable[[bytes], object], tmp_path: Path
) -> None:
    line = sealed(body % NOTHING_BEFORE.encode())
    with pytest.raises(AuditError, match="line 1:"):
        check(line)
    path = tmp_path / "audit.jsonl"
    path.write_bytes(line)
    with pytest.raises(AuditError, match=r"line 1:.*Keep the file: move it away"):
        opened(path)


def test_another_writer_within_a_log_is_found(lines: list[bytes], check: Callable[[bytes], object]) -> None:
    head = json.loads(lines[-1])["hash"]
    intruder = f'{{"event":"begin","method":"m","previous":"{head}","serial":"1","time":"t","who":"eve"}}'
    with pytest.raises(AuditError, match=r"line 6: the log belongs to 'ann', but this record to 'eve'"):
        check(b"".join([*lines, sealed(intruder.encode())]))


@pytest.mark.parametrize("data", [b"", b"\n", b"no log", b"x" * (MAX_LINE + 1), b'{"event":"begin"' + b"x" * MAX_LINE])
def test_what_is_no_log_is_refused(check: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(AuditError):
        check(data)


def test_a_broken_log_is_kept_and_not_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = written(path)
    for changed in (b"".join(lines).replace(b'"round":1', b'"round":9'), b"".join(lines[:2] + lines[3:]), b"my notes"):
        path.write_bytes(changed)
        with pytest.raises(AuditError, match=r"line \d.*Keep the file: move it away, and a new log is started"):
            opened(path)
        assert path.read_bytes() == changed


# -- crashes and full disks ----------------------------------------------------------------------


def test_a_line_cut_off_at_any_place_is_dropped_and_that_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    lines = written(path)
    for length in range(1, len(lines[-1])):
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:length])
        with pytest.raises(AuditError, match="line 5: it is incomplete"):
            verify(path)
        log = opened(path)
        fill(log)
        log.close()
        summary = verify(path)
        assert (summary.cut, summary.records) == (1, 4 + 1 + 4)
    assert path.read_bytes().splitlines(keepends=True)[:4] == lines[:4]
    cut = json.loads(path.read_bytes().splitlines()[4])
    assert (cut["bytes"], cut["text"]) == (len(lines[-1]) - 1, lines[-1][:-1].decode())


def test_a_first_line_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b'{"event":"beg')
    opened(path).close()
    summary = verify(path)
    assert (summary.records, summary.cut, summary.who) == (2, 1, "ann")


def test_zeros_at_the_end_as_a_power_cut_leaves_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    whole = b"".join(written(path))
    path.write_bytes(whole + bytes(30_000))
    opened(path).close()
    assert (verify(path).records, verify(path).cut) == (6, 1)


def in_another_process(code: str, path: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True, env=environment)


RECORDING = """
import sys
from pathlib import Path
from coterie.network.audit import AuditLog
log = AuditLog(Path(sys.argv[1]), "ann", "1f", "mapl")
for t in range(10**9):
    log.record(to="bob", how="fetch", name="model", round=t, bytes=1, digest="ab" * 32)
    print(t, flush=True)
"""


def test_kill_9_leaves_all_that_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with in_another_process(RECORDING, path) as child:
        assert child.stdout is not None
        for _ in range(200):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        returned = 200 + sum(line.endswith("\n") for line in child.stdout)
    opened(path).close()  # the very last line may be half there: it was never said to be recorded
    summary = verify(path)
    assert summary.artifacts["model"].count in (returned, returned + 1)


FULL = """
import resource, sys
from pathlib import Path
from coterie.network.audit import AuditError, AuditLog, verify
path = Path(sys.argv[1])
log = AuditLog(path, "ann", "1f", "mapl")
record = dict(to="bob", how="fetch", name="model", round=1, bytes=1, digest="ab" * 32)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
try:
    while True:
        log.record(**record)
except AuditError as error:
    print(error)
try:
    log.record(**record)
except AuditError as error:
    print("still full")
print(log.count, verify(path).records)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.record(**record)
log.close()
print(log.count, verify(path).records, verify(path).cut)
"""


def test_a_full_disk_is_an_error_and_leaves_the_log_intact(tmp_path: Path) -> None:
    with in_another_process(FULL, tmp_path / "audit.jsonl") as child:
        said = child.communicate()[0].splitlines()
    assert "could not be written (File too large), and nothing is sent without a record" in said[0]
    assert said[1:3] == ["still full", "5 5"]
    assert said[3] == "6 6 0"


# -- the command --------------------------------------------------------------------------------


def command(*words: str) -> None:
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers(required=True))
    options = parser.parse_args(["audit", *words])
    assert not options.command(options)


def test_the_command_says_what_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    command(str(path))
    said = capsys.readouterr().out
    summary = verify(path)
    assert said.startswith(f"intact: 5 records from {summary.first} to {summary.last}, head {summary.head}\n")
    assert "peer ann (certificate 1f), method mapl" in said
    assert "\x1b" not in said
    rows = [line.split() for line in said.splitlines()]
    assert ["bob", "3", "303", "B"] in rows
    assert ["model", "3", "303", "B", "0-2"] in rows


def test_the_command_says_when_nothing_left_and_when_something_was_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"{")
    opened(path).close()
    command(str(path))
    said = capsys.readouterr().out
    assert "repaired: 1 incomplete line left by a crash" in said
    assert "this peer sent nothing" in said


def test_the_command_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.jsonl"
    written(path)
    command(str(path), "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["head"] == verify(path).head
    assert said["recipients"]["bob"] == {"artifacts": 3, "bytes": 303}
    assert said["artifacts"]["model"] == {"first_round": 0, "last_round": 2, "count": 3, "bytes": 303}


def test_the_command_refuses_a_broken_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(b"".join(written(path)).replace(b"bob", b"eve", 1))
    with pytest.raises(AuditError, match="line 2: its hash does not match its content"):
        command(str(path))
