"""Run a benchmark driver in a separate process, measure its memory, and kill it after a time limit."""

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
EVERY = 0.2  # seconds between two memory samples
LONGEST_REASON = 200  # characters
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class DriverRun:
    """The measurements of one run of a driver."""

    version: str
    first: float  # seconds from the start of its process to the end of the first round
    seconds: tuple[float, ...]  # of each later round
    memory: int  # peak memory of all its processes together, in bytes; 0 where it cannot be measured

    @property
    def startup(self) -> float:
        return max(0.0, self.first - min(self.seconds))


def watched(command: Sequence[str], limit: float, environment: Mapping[str, str], output: Path) -> DriverRun:
    """Run a driver. Its output goes to `output`. Raises RunError with the reason if it gave no figures."""
    with output.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, start_new_session=True
        )
        tree = ProcessTree(process.pid)
        try:
            memory = _watch(process, tree, time.monotonic() + limit)
        except TimeoutError:
            raise RunError(f"not done after {limit:.0f} s") from None
        finally:
            tree.end()
            process.wait()
    lines = [
        line for line in COLOURS.sub("", output.read_text(encoding="utf-8", errors="replace")).splitlines() if line
    ]
    if process.returncode:
        raise RunError(_reason(lines) or f"it exited with code {process.returncode} and no output")
    return _figures(lines, memory)


def _watch(process: subprocess.Popen[bytes], tree: ProcessTree, until: float) -> int:
    most = 0
    while process.poll() is None:
        most = max(most, tree.memory())
        if time.monotonic() > until:
            raise TimeoutError
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(EVERY)
    return most


def _figures(lines: Sequence[str], memory: int) -> DriverRun:
    for line in reversed(lines):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            figures = json.loads(line)
            seconds = tuple(float(s) for s in figures["seconds"])
            if seconds and min(seconds) > 0:
                return DriverRun(str(figures["version"]), float(figures["first"]), seconds, memory)
    raise RunError("it exited without figures")


def _reason(lines: Sequence[str]) -> str:
    """The last line that names an error, or else the last line."""
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Exit)\b", line)]
    return "".join((named or lines)[-1:]).strip()[:LONGEST_REASON]


class ProcessTree:
    """A process and its descendants, including orphans that were seen before their parent ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._members: dict[int, str] = {}  # pid -> start time, because pids are reused

    def memory(self) -> int:
        """Bytes of all members together; shared memory counts once."""
        return sum(map(_memory_of, self._living()))

    def end(self) -> None:
        """Kill all members that are still alive."""
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
    """The parent and start time of every process, where the system shows them."""
    table = {}
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()  # names may contain anything
            table[int(folder.name)] = int(fields[1]), fields[19]
    return table


def _memory_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
