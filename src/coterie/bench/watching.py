"""A program that is run in a process of its own and watched: its figures, its memory, and an end if it has none."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie.core.errors import RunError

PROC = Path("/proc")
EVERY = 0.2  # seconds between two looks at its memory
LONGEST_REASON = 200  # characters
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class DriverRun:
    """What one run of a driver measured."""

    version: str
    first: float  # seconds from the start of its process to the end of the first round
    seconds: tuple[float, ...]  # of each later round
    memory: int  # the most that its processes had together, in bytes; 0 where that cannot be seen

    @property
    def startup(self) -> float:
        return max(0.0, self.first - min(self.seconds))


def watched(command: Sequence[str], limit: float, environment: Mapping[str, str], output: Path) -> DriverRun:
    """Run a driver; RunError says in a line why it gave no figures. All that it printed is in `output`."""
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        family = Family(process.pid)
        try:
            memory = _watch(process, family, time.monotonic() + limit)
        except TimeoutError:
            raise RunError(f"not done after {limit:.0f} s") from None
        finally:
            family.end()
            process.wait()
    lines = [
        line for line in COLOURS.sub("", output.read_text(encoding="utf-8", errors="replace")).splitlines() if line
    ]
    if process.returncode:
        raise RunError(_reason(lines) or f"it ended with {process.returncode} and without a word")
    return _figures(lines, memory)


def _watch(process: subprocess.Popen[bytes], family: Family, until: float) -> int:
    most = 0
    while process.poll() is None:
        most = max(most, family.memory())
        if time.monotonic() > until:
            raise TimeoutError
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EVERY)
    return most


def _figures(lines: Sequence[str], memory: int) -> DriverRun:
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            said = json.loads(line)
            seconds = tuple(float(s) for s in said["seconds"])
            if seconds and min(seconds) > 0:
                return DriverRun(str(said["version"]), float(said["first"]), seconds, memory)
    raise RunError("it ended without figures")


def _reason(lines: Sequence[str]) -> str:
    """The last line that names an error; else the last line."""
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    return "".join((named or lines)[-1:]).strip()[:LONGEST_REASON]


class Family:
    """A process and all that it started, also those whose parents are gone, as far as they were seen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._members: dict[int, str] = {}  # and when each began: a number may be given to another process later

    def memory(self) -> int:
        """Bytes, of all members together; what several share is counted once."""
        return sum(map(_memory_of, self._living()))

    def end(self) -> None:
        """Kill whoever still lives."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        for pid in self._living():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _living(self) -> list[int]:
        table = _processes()
        if not self._members and self.pid in table:
            self._members[self.pid] = table[self.pid][1]
        living = {pid for pid, began in self._members.items() if pid in table and table[pid][1] == began}
        while newer := {pid for pid, (parent, _) in table.items() if parent in living} - living:
            living |= newer
        self._members |= {pid: table[pid][1] for pid in living}
        return sorted(living)


def _processes() -> dict[int, tuple[int, str]]:
    """Of every process its parent and when it began, where the system shows them."""
    found = {}
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()  # names may hold anything
            found[int(folder.name)] = int(fields[1]), fields[19]
    return found


def _memory_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
