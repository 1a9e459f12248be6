"""How the runs of a comparison go, for who waits for them."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from coterie.comparing.plan import Job
from coterie.report.words import duration


class Board:
    """A bar for all, and one for each run under way; where there is no terminal, a line at each run's end."""

    def __init__(self, total: int, done: int, plain: bool) -> None:
        self.total, self.done, self.before = total, done, done
        self.began = time.monotonic()
        console = Console(stderr=True)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        if console.is_terminal and not plain:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            self._bars = Progress(*columns, TimeRemainingColumn(), console=console)
            self._all = self._bars.add_task("all runs", total=total, completed=done, text=self._so_far())

    def __enter__(self) -> Board:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._bars:
            self._bars.stop()

    def begun(self, job: Job) -> None:
        if self._bars:
            self._tasks[job.name] = self._bars.add_task(job.name, total=job.experiment.rounds, text="preparing")

    def progress(self, job: Job, round: int, text: str) -> None:
        if self._bars:
            self._bars.update(self._tasks[job.name], completed=round, text=text)

    def ended(self, job: Job, error: str | None) -> None:
        self.done += 1
        if self._bars:
            self._bars.remove_task(self._tasks.pop(job.name))
            self._bars.update(self._all, completed=self.done, text=self._so_far())
        if error:
            self._say(f"{job.name} FAILED: {error}")
        elif not self._bars:
            new = self.done - self.before
            left = (time.monotonic() - self.began) / new * (self.total - self.done)
            self._say(f"{job.name}: done ({self._so_far()}, {duration(left)} left)")

    def _so_far(self) -> str:
        return f"{self.done} of {self.total}"

    def _say(self, line: str) -> None:
        if self._bars:
            self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr, flush=True)
