"""What a run says of itself while it runs: `state.json` in its folder, and how to read it.

A run writes it twice a second from a thread, so that whoever looks at the files knows whether it is
alive, in which round it is, and what each participant is doing. How it ended is written last.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from coterie.core.errors import CoterieError, Interrupted
from coterie.core.files import write_whole

NAME = "state.json"
EVERY = 0.5  # seconds between two writings, if they are quick
SHARE = 1 / 200  # of the time that writing may take: with thousands of participants it is done less often
SELDOM = 5.0  # seconds between two at most
FRESH = 10.0  # seconds without one after which a process is said to give no sign of life
LONGEST_TRACE = 8_000  # characters of it, from its end

RUNNING, FINISHED, STOPPED, FAILED = "running", "finished", "stopped", "failed"
KILLED, SILENT = "killed", "silent"  # what only others can tell

Doings = Callable[[], list[dict[str, Any]]]


class RunState:
    """Writes the state of a run from its beginning to its end, whatever end that is."""

    def __init__(self, folder: Path, rounds: int, round: int = 0) -> None:
        self.path = folder / NAME
        self.doings: Doings = list  # what each participant is doing now; set when there are some
        self.facts: dict[str, Any] = {
            "state": RUNNING, "process": os.getpid(), "host": socket.gethostname(), "began": time.time(),
            "round": round, "rounds": rounds, "accuracy": None, "bytes": 0, "error": "", "traceback": "",
        }  # fmt: skip
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_writing, daemon=True, name="state.json")

    def __enter__(self) -> RunState:
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.facts.update(_ending(error))
        self._write()

    def tell(self, **facts: Any) -> None:
        self.facts.update(facts)

    def _keep_writing(self) -> None:
        pause = EVERY
        while not self._ended.wait(pause):
            began = time.perf_counter()
            self._write()
            pause = min(SELDOM, max(EVERY, (time.perf_counter() - began) / SHARE))

    def _write(self) -> None:
        # A full disk shows in the log of events; a set that just changed, next time.
        with suppress(OSError, RuntimeError):
            now = {**self.facts, "time": time.time(), "peers": self.doings()}
            write_whole(self.path, json.dumps(now, separators=(",", ":")))


def _ending(error: BaseException | None) -> dict[str, Any]:
    if error is None:
        return {"state": FINISHED}
    if isinstance(error, Interrupted | KeyboardInterrupt):
        return {"state": STOPPED, "error": str(error) or "stopped at once"}
    if isinstance(error, CoterieError):  # raised on purpose: the sentence says it all
        return {"state": FAILED, "error": str(error)}
    trace = "".join(traceback.format_exception(error))
    return {"state": FAILED, "error": f"{type(error).__name__}: {error}", "traceback": trace[-LONGEST_TRACE:]}


def read_state(folder: Path) -> dict[str, Any] | None:
    """What a run's folder says of its state, judged by whether its process is still there; None where nothing does."""
    try:
        state: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
        age = max(0.0, time.time() - float(state["time"]))
        if state["state"] == RUNNING:
            here = state["host"] == socket.gethostname()
            if here and not process_lives(int(state["process"])):
                state["state"] = KILLED
            elif age > FRESH:
                state["state"] = SILENT
        return {**state, "age": age}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def process_lives(number: int) -> bool:
    """Whether this machine has such a process; one that has ended and waits to be collected does not count."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    try:
        words = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return words[0] != "Z"
    except (OSError, IndexError):  # no such files here: the signal was the answer
        return True
