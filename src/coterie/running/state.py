"""The live status of a run: writes and reads `state.json` in its folder.

A run writes it twice a second from a thread: whether it is alive, its round, and what each participant is doing. The
last write says how the run ended.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TypedDict

from coterie.core.errors import CoterieError, Interrupted, RunError
from coterie.core.files import write_whole
from coterie.core.json_values import Json, finite, number, parsed, sequence, table, whole
from coterie.core.measured_metric import ACCURACY, MeasuredMetric, described
from coterie.core.run_folder import RunFolder
from coterie.running.progress import RoundProgress
from coterie.simulation.participants import Activity

EVERY = 0.5  # seconds between two writes, if they are fast
SHARE = 1 / 200  # maximum share of time spent writing: thousands of participants mean fewer writes
SELDOM = 5.0  # maximum seconds between two writes
FRESH = 10.0  # seconds without a write after which a process counts as silent
LONGEST_TRACE = 8_000  # characters, from the end of the traceback

RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"
KILLED, SILENT = "killed", "silent"  # determined by the reader

Activities = Callable[[], Sequence[Activity]]


class RunFacts(TypedDict):
    """The content of state.json, except its time and the participants."""

    state: str
    process: int
    host: str
    began: float
    round: int
    rounds: int
    validation: float | None  # the mean of the main metric over peers
    metric: Json  # the main one
    bytes: int
    error: str
    traceback: str


@dataclass(frozen=True)
class SavedState:
    """What a state.json says. If the file does not say it, a figure is None and a text is empty."""

    state: str
    age: float = 0.0  # seconds since it was written
    round: float | None = None
    rounds: float | None = None
    validation: float | None = None  # the mean of the main metric over peers
    metric: MeasuredMetric = ACCURACY  # the main one
    bytes: float | None = None
    error: str = ""
    traceback: str = ""
    peers: Sequence[Json] = ()  # what each participant is doing


class RunState:
    """Writes the state of a run from its start to its end, even if it fails."""

    def __init__(self, folder: Path, rounds: int, round: int = 0) -> None:
        self.path = RunFolder(folder).state
        self.activities: Activities = list  # what each participant is doing; set once they exist
        self.facts: RunFacts = {
            "state": RUNNING, "process": os.getpid(), "host": socket.gethostname(), "began": time.time(),
            "round": round, "rounds": rounds, "validation": None, "metric": {}, "bytes": 0, "error": "",
            "traceback": "",
        }  # fmt: skip
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, daemon=True, name=self.path.name)

    def __enter__(self) -> RunState:
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.facts["state"], self.facts["error"], self.facts["traceback"] = _ending(error)
        self._write()

    def update(self, p: RoundProgress) -> None:
        self.facts["round"], self.facts["validation"], self.facts["bytes"] = p.round, p.validation, p.bytes
        self.facts["metric"] = asdict(p.metric)

    def _keep_writing(self) -> None:
        pause = EVERY
        while not self._ended.wait(pause):
            began = time.perf_counter()
            self._write()
            pause = min(SELDOM, max(EVERY, (time.perf_counter() - began) / SHARE))

    def _write(self) -> None:
        # A full disk shows in the event log; a collection that changes during iteration is written next time.
        with suppress(OSError, RuntimeError):
            now = {**self.facts, "time": time.time(), "peers": self.activities()}
            write_whole(self.path, json.dumps(now, separators=(",", ":")), sync=False)


def _ending(error: BaseException | None) -> tuple[str, str, str]:
    """The state after the run, the error and its traceback."""
    if error is None:
        return FINISHED, "", ""
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return STOPPED, str(error) or "stopped at once", ""
    if isinstance(error, CoterieError):  # raised on purpose: the message is enough
        return FAILED, str(error), ""
    trace = "".join(traceback.format_exception(error))
    return FAILED, f"{type(error).__name__}: {error}", trace[-LONGEST_TRACE:]


def read_state(folder: Path) -> SavedState | None:
    """The state in a run's folder, corrected if the process is gone; None if there is no readable state."""
    try:
        content = table(parsed(RunFolder(folder).state.read_text(encoding="utf-8")))
        age = max(0.0, time.time() - number(content, "time"))
        state = str(content["state"] or "")
        if state == RUNNING:
            here = content["host"] == socket.gethostname()
            if here and not process_lives(whole(content, "process")):
                state = KILLED
            elif age > FRESH:
                state = SILENT
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    mean = content.get("validation", content.get("accuracy"))  # older versions measured accuracy alone
    return SavedState(
        state, age, finite(content.get("round")), finite(content.get("rounds")), finite(mean),
        described(table(content.get("metric"))), finite(content.get("bytes")), str(content.get("error") or ""),
        str(content.get("traceback", "")),
        [table(peer) for peer in sequence(content.get("peers"))],
    )  # fmt: skip


def refuse_if_running(folder: Path) -> None:
    """Raise RunError if another process of this machine is still running the run in this folder."""
    state = read_state(folder)
    if state is None or state.state not in (RUNNING, SILENT):
        return
    content = table(parsed(RunFolder(folder).state.read_text(encoding="utf-8")))
    process = whole(content, "process")
    if content["host"] == socket.gethostname() and process != os.getpid():
        raise RunError(f"{folder} is still running (process {process}): stop that process first")


def process_lives(number: int) -> bool:
    """Whether this process is running on this machine; a zombie does not count."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    try:
        words = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return words[0] != "Z"
    except (OSError, IndexError):  # no /proc on this system: rely on the signal
        return True
