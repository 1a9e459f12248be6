"""Start, pause, resume and stop runs from the page. Each run is a separate `coterie run` process.

Pausing stops a run at a checkpoint (as Ctrl-C does) and resuming is `coterie run --resume`: nothing is kept in memory,
and a run continues when the dashboard ends.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

from coterie.core.errors import CoterieError, unknown
from coterie.core.measured_metric import ACCURACY
from coterie.core.run_folder import RunFolder
from coterie.running.folders import OWN, Actions, ListedRun

MOST_AT_ONCE = 8  # runs
LONGEST = 2_000  # characters of settings
_WORD = re.compile(r"[A-Za-z_][\w.]*=.*", re.DOTALL)


class ControlError(CoterieError):
    """A request cannot be fulfilled; the message says why."""


@dataclass
class Started:
    """A run that this dashboard started."""

    folder: Path
    title: str
    output: Path
    process: subprocess.Popen[bytes]
    asked: str = ""  # the pending request: pause or stop

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def last_output(self) -> str:
        try:
            lines = self.output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].removeprefix("coterie: ") if lines else ""


def presets() -> list[str]:
    folder = resources.files("coterie") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


class Control:
    """Starts runs below one folder and controls the runs that it started."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.started: dict[str, Started] = {}

    def start(self, experiment: str, words: str) -> str:
        """Start a run and return its id. Errors in the settings show in the list once the run reports them."""
        if sum(s.is_running for s in self.started.values()) >= MOST_AT_ONCE:
            raise ControlError(f"{MOST_AT_ONCE} runs started here are still running: wait, or stop one.")
        name, settings = _experiment(experiment), _settings(words)
        stem = f"{Path(name).stem}-{time.strftime('%Y%m%d-%H%M%S')}"
        id = next(i for i in (stem, *(f"{stem}-{n}" for n in range(2, 1000))) if not self._is_taken(i))
        self._begin(id, " ".join([name, *settings]), ["run", name, *settings, "--plain", "--out", str(self.top / id)])
        return id

    def resume(self, id: str) -> None:
        run = self._of(id)
        if run.is_running:
            raise ControlError(f"{id} is already running.")
        if not RunFolder(run.folder).is_started():
            raise ControlError(f"{id} ended before it wrote its config: start it again.")
        self._begin(id, run.title, ["run", "--resume", str(run.folder), "--plain"])

    def pause(self, id: str) -> None:
        """Ask the run to stop at the next checkpoint that all its peers can reach."""
        run = self._alive(id)
        if not run.asked:
            run.asked = "pause"
            run.process.send_signal(signal.SIGINT)

    def stop(self, id: str) -> None:
        """End the run now, as pressing Ctrl-C twice does. Progress since its last checkpoint is lost."""
        run = self._alive(id)
        if run.asked != "stop":
            run.asked = "stop"
            threading.Thread(target=_end, args=(run.process,), daemon=True).start()

    def rows(self, rows: dict[str, ListedRun]) -> dict[str, ListedRun]:
        """The list of runs with their available actions, including runs that have no folder yet."""
        rows = dict(rows)
        for id, run in self.started.items():
            code = run.process.poll()
            row = rows.get(id) or _row_without_folder(id, run)
            state, error = _after_a_stop(row, run, code)
            rows[id] = {**row, "state": state, "error": error, "control": _buttons(run, code)}
        return rows

    def _begin(self, id: str, title: str, arguments: list[str]) -> None:
        folder = self.top / OWN
        try:
            folder.mkdir(parents=True, exist_ok=True)
            output = folder / f"{id}.txt"
            with output.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-m", "coterie", *arguments],
                    stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C ends the dashboard, not the runs
                )  # fmt: skip
        except OSError as error:
            raise ControlError(f"The run could not be started: {error.strerror}.") from error
        self.started[id] = Started(self.top / id, title, output, process)

    def _is_taken(self, id: str) -> bool:
        return id in self.started or (self.top / id).exists()

    def _of(self, id: str) -> Started:
        if id not in self.started:
            raise ControlError(f"{id[:100]} was not started by this dashboard: control it from its terminal.")
        return self.started[id]

    def _alive(self, id: str) -> Started:
        run = self._of(id)
        if not run.is_running:
            raise ControlError(f"{id} has already ended.")
        return run


def _end(process: subprocess.Popen[bytes]) -> None:
    for kind, timeout in ((signal.SIGINT, 0.5), (signal.SIGINT, 5.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
        process.send_signal(kind)  # does nothing if the process has ended
        try:
            process.wait(timeout)
            return
        except subprocess.TimeoutExpired:
            continue


def _experiment(name: str) -> str:
    """A preset, or a .toml file below the folder that the dashboard was started in."""
    if name in presets():
        return name
    if name.endswith(".toml"):
        path, here = Path(name), Path.cwd()
        if not path.resolve().is_relative_to(here) or name.startswith("-"):
            raise ControlError(f"{name[:100]} is not below {here}, where the dashboard was started.")
        if not path.is_file():
            raise ControlError(f"There is no file {name[:100]} in {here}.")
        return name
    raise ControlError(f"{unknown('preset', name[:100], presets())}, or a .toml file.")


def _settings(words: str) -> list[str]:
    if len(words) > LONGEST:
        raise ControlError(f"The settings are longer than {LONGEST} characters: use a .toml file instead.")
    try:
        settings = shlex.split(words)
    except ValueError as error:
        raise ControlError(f"The settings cannot be read: {error}.") from error
    for word in settings:
        if not _WORD.fullmatch(word):
            raise ControlError(f"'{word[:100]}' is not key=value, such as rounds=20 or method.k=3.")
    return settings


def _row_without_folder(id: str, run: Started) -> ListedRun:
    state = "starting" if run.is_running else "failed"
    error = "" if run.is_running else run.last_output() or "It ended without output."
    return {
        "id": id, "kind": "", "state": state, "method": run.title, "error": error, "time": run.output.stat().st_mtime,
        "report": False, "round": None, "rounds": None, "peers": None, "seed": None, "data": None, "partition": None,
        "validation": None, "test": None, "metric": asdict(ACCURACY), "bytes": None,
    }  # fmt: skip


def _after_a_stop(row: ListedRun, run: Started, code: int | None) -> tuple[str, str]:
    """The corrected state and error: a run that was asked to end has not crashed."""
    state, error = row["state"], row["error"]
    if code is None:
        return "starting" if state in ("stopped", "killed", "failed") else state, error
    if run.asked == "pause" and state == "stopped":
        return "paused", ""
    if run.asked == "stop" and state == "killed":
        return "stopped", ""
    return state, error or run.last_output() if code > 0 and state != "stopped" else error


def _buttons(run: Started, code: int | None) -> Actions:
    running = code is None
    can_resume = not running and code != 0 and RunFolder(run.folder).is_started()
    return {
        "pause": running and not run.asked,
        "stop": running,
        "resume": can_resume,
        "asked": run.asked if running else "",
    }
