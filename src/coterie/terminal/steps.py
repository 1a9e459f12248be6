"""Shows the progress of long work that consists of steps: which steps are running, how far they are, the time left.

On a terminal there is one bar for the whole work and one for each running step. Elsewhere there are plain lines on
stderr: one for each finished step, and one every so often in between.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from coterie.core.formatting import duration

SILENCE = 15.0  # seconds without output before a status line is printed
LEAST_SHARE = 0.02  # of the work: below this, the time left is not estimated


@dataclass
class _Step:
    weight: float
    began: float
    share: float = 0.0  # done, from 0 to 1
    text: str = ""
    bar: TaskID | None = None


class Steps:
    """Steps by name. `weights` are their rough durations in any unit. Several may run at once."""

    def __init__(
        self,
        what: str,
        weights: Mapping[str, float],
        *,
        done: int = 0,
        plain: bool = False,
        clock: Callable[[], float] = time.monotonic,
        silence: float = SILENCE,
    ) -> None:
        self.what, self.weights, self.clock, self.silence = what, dict(weights), clock, silence
        self.total, self.finished = len(self.weights) + done, done  # `done` steps were finished earlier
        self.began = self.last_line = clock()
        self.done_weight = 0.0  # of the steps finished here
        self.running: dict[str, _Step] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._status_thread = threading.Thread(target=self._keep_showing, daemon=True, name="progress")
        console = Console(stderr=True)
        self._bars: Progress | None = None
        if console.is_terminal and not plain:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            # Twice a second: more often would disturb measurements.
            self._bars = Progress(*columns, console=console, refresh_per_second=2, redirect_stdout=False)
            self._all = self._bars.add_task(what, total=1.0, text=self.so_far())

    def __enter__(self) -> Steps:
        if self._bars:
            self._bars.start()
        self._status_thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._ended.set()
        self._status_thread.join()
        if self._bars:
            self._bars.stop()

    def begin(self, name: str, text: str = "") -> None:
        with self._lock:
            step = _Step(self.weights.get(name, 1.0), self.clock(), text=text)
            if self._bars:
                step.bar = self._bars.add_task(name, total=1.0, text=text)
            self.running[name] = step

    def update(self, name: str, share: float, text: str) -> None:
        """Set the share that is done, from 0 to 1."""
        with self._lock:
            step = self.running[name]
            step.share, step.text = min(1.0, share), text
            self._draw()

    def end(self, name: str, result: str = "", *, always: bool = False) -> None:
        """A step finished or failed. The result is printed where there are no bars, or with `always`."""
        with self._lock:
            step = self.running.pop(name)
            self.done_weight += step.weight
            self.finished += 1
            if self._bars and step.bar is not None:
                self._bars.remove_task(step.bar)
            self._draw()
            if result and (always or not self._bars):
                self.say(f"{name}: {result} ({self.so_far()})")

    def drop(self, name: str) -> None:
        """Cancel a step that has not begun."""
        with self._lock:
            self.total -= self.weights.pop(name, None) is not None
            self._draw()

    def say(self, line: str) -> None:
        with self._lock:
            self.last_line = self.clock()
            if self._bars:
                self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)
            else:
                print(line, file=sys.stderr, flush=True)

    def out(self, text: object) -> None:
        """Print a result to stdout unchanged: stdout may be a file, while rich writes wrapped text to the terminal."""
        with self._lock:
            if self._bars:
                self._bars.stop()
            print(text, flush=True)
            if self._bars:
                self._bars.start()

    def share(self) -> float:
        """The share of the work that is done, from 0 to 1."""
        whole = sum(self.weights.values())
        parts = sum(step.weight * step.share for step in self.running.values())
        return min(1.0, (self.done_weight + parts) / whole) if whole else 1.0

    def left(self) -> float | None:
        """Estimated seconds left at the pace so far; None while it is too early to tell."""
        share = self.share()
        return (self.clock() - self.began) / share * (1 - share) if share >= LEAST_SHARE else None

    def so_far(self) -> str:
        left = self.left()
        if self.finished == self.total:
            return f"{self.finished} of {self.total}, {self._elapsed()} in all"
        rest = f", {duration(_rounded(left))} left" if left is not None else ""
        return f"{self.finished} of {self.total}{rest}"

    def _keep_showing(self) -> None:
        while not self._ended.wait(min(1.0, self.silence)):
            with self._lock:
                self._draw()
                if not self._bars and self.running and self.clock() - self.last_line >= self.silence:
                    self.say(self.status())

    def status(self) -> str:
        """The running steps, in one line."""
        now = self.clock()
        steps = (
            f"{name} ({', '.join(filter(None, [step.text, f'for {duration(_rounded(now - step.began))}']))})"
            for name, step in self.running.items()
        )
        return f"{self.what}: {'; '.join(steps)}; {self.so_far()}"

    def _draw(self) -> None:
        if not self._bars:
            return
        self._bars.update(self._all, completed=self.share(), text=self.so_far())
        for step in self.running.values():
            if step.bar is not None:
                self._bars.update(step.bar, completed=step.share, text=step.text)

    def _elapsed(self) -> str:
        return duration(_rounded(self.clock() - self.began))


def _rounded(seconds: float) -> float:
    """Whole seconds, because these are estimates; tenths below one second."""
    return float(round(seconds)) if seconds >= 1 else round(seconds, 1)
