"""Runs side by side, each in a process: what fails or is killed takes nobody else along, and can be gone on with."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from coterie.comparing.plan import Job
from coterie.core.errors import CoterieError, Interrupted

if TYPE_CHECKING:
    from coterie.running.progress import RoundProgress
    from coterie.simulation.director import Simulation

SECONDS_BETWEEN_WORDS = 0.25  # of a worker, about a run's progress
SECONDS_TO_END = 10.0  # for a process that has nothing more to do


class RunObserver(Protocol):
    """Who is told how the runs go."""

    def begun(self, job: Job) -> None: ...
    def progress(self, job: Job, round: int, text: str) -> None: ...
    def ended(self, job: Job, error: str | None) -> None: ...


@dataclass(frozen=True)
class Told:
    """What a worker says of its run."""

    kind: str  # "round", "done", "failed" or "stopped"
    round: int = 0
    text: str = ""


class Crew:
    """So many processes that carry out jobs until none is left."""

    def __init__(self, jobs: Sequence[Job], at_once: int, watcher: RunObserver) -> None:
        self.waiting = deque(jobs)
        self.at_once = at_once
        self.watcher = watcher
        self.workers: list[_Worker] = []
        self.failed: dict[str, str] = {}
        self.stopping = False

    def run(self) -> dict[str, str]:
        """Returns what became of the jobs that failed, by name.

        Ctrl-C asks the runs under way to stop at a checkpoint, and Interrupted is raised when they have; a second
        Ctrl-C ends them at once.
        """
        try:
            with _on_interrupt(self._stop):
                while self._hand_out():
                    for worker in self._speaking():
                        self._hear(worker)
        finally:
            for worker in self.workers:
                worker.dismiss()
        if self.stopping:
            raise Interrupted("stopped; what is done is kept, and the same command goes on from there")
        return self.failed

    def _hand_out(self) -> bool:
        """Give everybody work, as long as there is some; False when nobody is at work any more."""
        while self.waiting and not self.stopping:
            free = next((worker for worker in self.workers if worker.job is None), None)
            if free is None:
                if len(self.workers) == self.at_once:
                    break
                free = _Worker()
                self.workers.append(free)
            job = self.waiting.popleft()
            free.give(job)
            self.watcher.begun(job)
        return any(worker.job for worker in self.workers)

    def _speaking(self) -> list[_Worker]:
        busy = {worker.connection: worker for worker in self.workers if worker.job}
        return [busy[connection] for connection in wait(list(busy)) if isinstance(connection, Connection)]

    def _hear(self, worker: _Worker) -> None:
        told, job = worker.hear(), worker.job
        assert job is not None
        if told.kind == "round":
            self.watcher.progress(job, told.round, told.text)
            return
        worker.job = None
        if told.kind == "failed":
            self.failed[job.name] = told.text
        if not worker.there:
            self.workers.remove(worker)
            worker.dismiss()
        if told.kind != "stopped":
            self.watcher.ended(job, told.text or None)

    def _stop(self) -> None:
        self.stopping = True
        for worker in self.workers:
            worker.interrupt()


class _Worker:
    """One process, which carries out one run after another."""

    def __init__(self) -> None:
        # spawn: a forked torch may hang, and a process begins the same way on every system
        context = multiprocessing.get_context("spawn")
        self.connection, its = context.Pipe()
        self.process = context.Process(target=_work, args=(its,), daemon=True)
        with _interrupts_held_back():
            self.process.start()
        its.close()  # so that the connection ends with the process
        self.job: Job | None = None
        self.there = True

    def give(self, job: Job) -> None:
        self.job = job
        with suppress(BrokenPipeError):  # it is gone: `hear` says so
            self.connection.send((job.experiment.tables(), job.folder, job.anew))

    def hear(self) -> Told:
        """The next thing it says; a process that is gone has failed."""
        try:
            told: Told = self.connection.recv()
        except (EOFError, OSError):
            self.there = False
            self.process.join(SECONDS_TO_END)
            return Told("failed", text=_ending(self.process.exitcode))
        return told

    def interrupt(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGINT)

    def dismiss(self) -> None:
        """Let it go; one that is still at work is ended."""
        if self.job is None:
            with suppress(OSError):
                self.connection.send(None)
            self.process.join(SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()


def _ending(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process ended by itself (exit code {code})"
    hint = ": if memory ran out, try fewer --jobs" if code == -signal.SIGKILL else ""
    return f"its process was ended by signal {-code}{hint}"


@contextmanager
def _on_interrupt(call: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C calls, the second one raises KeyboardInterrupt."""

    def first(number: int, frame: object) -> None:  # noqa: ARG001
        signal.signal(signal.SIGINT, signal.default_int_handler)
        call()

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process that starts here learns of Ctrl-C when it can take it: not in the middle of its imports."""
    resource_tracker.ensure_running()  # it would be started first, and let interrupts through again
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


# -- in the worker's process -----------------------------------------------------------------------


def _work(connection: Connection) -> None:
    """Carry out what comes through the connection, until None does, or its other end is gone."""
    run = _WorkerRun(connection)
    signal.signal(signal.SIGINT, run.interrupted)  # the terminal's Ctrl-C reaches this process as well
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    with suppress(EOFError, BrokenPipeError):
        while (given := connection.recv()) is not None:
            connection.send(run.outcome(*given))


class _WorkerRun:
    """The run that a worker has under way."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.simulation: Simulation | None = None
        self.stopped = False
        self.said = 0.0

    def interrupted(self, number: int, frame: object) -> None:  # noqa: ARG002
        self.stopped = True
        if self.simulation is not None:
            self.simulation.stop()

    def outcome(self, tables: dict[str, Any], folder: Path, anew: bool) -> Told:
        from coterie.config import loading
        from coterie.running import simulated

        try:
            if anew:  # at once: nothing of what is outdated may stay, whatever becomes of the run
                shutil.rmtree(folder)
            if (folder / "config.toml").exists():
                simulated.resume(folder, on_round=self._tell, on_start=self._started)
            else:
                simulated.run(loading.from_tables(tables), folder, on_round=self._tell, on_start=self._started)
        except Interrupted:
            return Told("stopped")
        except CoterieError as error:
            return Told("failed", text=str(error))
        except BrokenPipeError:  # nobody listens any more
            raise
        except Exception as error:
            return Told("failed", text=_written(folder, error))
        finally:
            self.simulation = None
        return Told("done")

    def _started(self, simulation: Simulation) -> None:
        self.simulation = simulation
        if self.stopped:
            simulation.stop()

    def _tell(self, progress: RoundProgress) -> None:
        from coterie.terminal.display import progress_text

        now = time.monotonic()
        if now - self.said >= SECONDS_BETWEEN_WORDS:
            self.said = now
            self.connection.send(Told("round", progress.round, progress_text(progress)))


def _written(folder: Path, error: Exception) -> str:
    """What nobody foresaw, such as a mistake in a method of one's own: the whole of it beside the run."""
    place = folder / "error.txt"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {error} (see {place})"
