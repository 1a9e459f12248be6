"""Run jobs in parallel, each in a separate process: a crash affects one run only, and every run can be resumed."""

from __future__ import annotations

import os
import shutil
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from coterie.comparing.plan import Job
from coterie.core import forking
from coterie.core.cores import give_cores, machine_cores
from coterie.core.errors import CoterieError, Interrupted
from coterie.core.run_folder import RunFolder

if TYPE_CHECKING:
    from coterie.running.progress import RoundProgress
    from coterie.simulation.director import Simulation

SECONDS_BETWEEN_REPORTS = 0.25  # of a run's progress
SECONDS_TO_END = 10.0  # for an idle process


class RunObserver(Protocol):
    """Receives the progress of the runs."""

    def started(self, job: Job) -> None: ...
    def progress(self, job: Job, round: int, text: str) -> None: ...
    def ended(self, job: Job, error: str | None) -> None: ...


@dataclass(frozen=True)
class WorkerMessage:
    """A message from a worker about its run."""

    kind: str  # "round", "done", "failed" or "stopped"
    round: int = 0
    text: str = ""


class WorkerPool:
    """A pool of processes that run jobs until none is left."""

    def __init__(self, jobs: Sequence[Job], at_once: int, observer: RunObserver) -> None:
        self.waiting = deque(jobs)
        self.at_once = at_once
        self.cores = max(1, machine_cores() // at_once)  # of each run, so that they do not compete for cores
        self.observer = observer
        self.workers: list[_Worker] = []
        self.failed: dict[str, str] = {}
        self.stopping = False

    def run(self) -> dict[str, str]:
        """Run all jobs. Returns the errors of those that failed, by name.

        Ctrl-C asks running jobs to stop at a checkpoint, and raises Interrupted once they have. A second Ctrl-C kills
        them.
        """
        try:
            with _on_interrupt(self._stop):
                while self._assign_jobs():
                    for worker in self._with_messages():
                        self._receive(worker)
        finally:
            for worker in self.workers:
                worker.shut_down()
        if self.stopping:
            raise Interrupted("stopped; finished work is kept, and the same command continues from there")
        return self.failed

    def _assign_jobs(self) -> bool:
        """Give a job to each idle worker. Returns False when no worker is busy any more."""
        while self.waiting and not self.stopping:
            free = next((worker for worker in self.workers if worker.job is None), None)
            if free is None:
                if len(self.workers) == self.at_once:
                    break
                free = _Worker(self.cores)
                self.workers.append(free)
            job = self.waiting.popleft()
            free.assign(job)
            self.observer.started(job)
        return any(worker.job for worker in self.workers)

    def _with_messages(self) -> list[_Worker]:
        busy = {worker.connection: worker for worker in self.workers if worker.job}
        return [busy[connection] for connection in wait(list(busy)) if isinstance(connection, Connection)]

    def _receive(self, worker: _Worker) -> None:
        message, job = worker.receive(), worker.job
        assert job is not None
        if message.kind == "round":
            self.observer.progress(job, message.round, message.text)
            return
        worker.job = None
        if message.kind == "failed":
            self.failed[job.name] = message.text
        if not worker.alive:
            self.workers.remove(worker)
            worker.shut_down()
        if message.kind != "stopped":
            self.observer.ended(job, message.text or None)

    def _stop(self) -> None:
        self.stopping = True
        for worker in self.workers:
            worker.interrupt()


class _Worker:
    """A process that runs one job after another."""

    def __init__(self, cores: int) -> None:
        self.connection, child_end = Pipe()
        self.process = forking.start(_work, child_end, cores)
        child_end.close()  # so that the connection closes with the process
        self.job: Job | None = None
        self.alive = True

    def assign(self, job: Job) -> None:
        self.job = job
        with suppress(BrokenPipeError):  # the process is gone: `receive` reports it
            self.connection.send((job.experiment.tables(), job.folder, job.overwrite))

    def receive(self) -> WorkerMessage:
        """The next message; a process that is gone has failed."""
        try:
            message: WorkerMessage = self.connection.recv()
        except (EOFError, OSError):
            self.alive = False
            self.process.join(SECONDS_TO_END)
            return WorkerMessage("failed", text=_exit_reason(self.process.exitcode))
        return message

    def interrupt(self) -> None:
        if self.process.pid is not None and self.process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGINT)

    def shut_down(self) -> None:
        """End the process, by force if it is still working."""
        if self.job is None:
            with suppress(OSError):
                self.connection.send(None)
            self.process.join(SECONDS_TO_END)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()


def _exit_reason(code: int | None) -> str:
    if code is None or code >= 0:
        return f"its process exited unexpectedly (exit code {code})"
    hint = ": if memory ran out, try fewer --jobs" if code == -signal.SIGKILL else ""
    return f"its process was killed by signal {-code}{hint}"


@contextmanager
def _on_interrupt(call: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C calls `call`; the second raises KeyboardInterrupt."""

    def first(number: int, frame: object) -> None:  # noqa: ARG001
        signal.signal(signal.SIGINT, signal.default_int_handler)
        call()

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# -- in the worker's process -----------------------------------------------------------------------


def _work(connection: Connection, cores: int) -> None:
    """Run the jobs that arrive through the connection, until None arrives or the other end closes."""
    give_cores(cores)
    run = _WorkerRun(connection)
    signal.signal(signal.SIGINT, run.interrupted)  # the terminal's Ctrl-C also reaches this process
    forking.allow_interrupts()
    with suppress(EOFError, BrokenPipeError):
        while (given := connection.recv()) is not None:
            connection.send(run.outcome(*given))


class _WorkerRun:
    """A worker's current run."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.simulation: Simulation | None = None
        self.stopped = False
        self.reported = 0.0

    def interrupted(self, number: int, frame: object) -> None:  # noqa: ARG002
        self.stopped = True
        if self.simulation is not None:
            self.simulation.stop()

    def outcome(self, tables: dict[str, Any], folder: Path, overwrite: bool) -> WorkerMessage:
        from coterie.config import loading
        from coterie.running import simulated

        try:
            if overwrite:  # first: no outdated file may remain, whatever happens to the run
                shutil.rmtree(folder)
            if RunFolder(folder).is_started():
                simulated.resume(folder, on_round=self._report_round, on_start=self._started)
            else:
                simulated.run(loading.from_tables(tables), folder, on_round=self._report_round, on_start=self._started)
        except Interrupted:
            return WorkerMessage("stopped")
        except CoterieError as error:
            return WorkerMessage("failed", text=str(error))
        except BrokenPipeError:  # the parent process is gone
            raise
        except Exception as error:
            return WorkerMessage("failed", text=_save_traceback(folder, error))
        finally:
            self.simulation = None
        return WorkerMessage("done")

    def _started(self, simulation: Simulation) -> None:
        self.simulation = simulation
        if self.stopped:
            simulation.stop()

    def _report_round(self, progress: RoundProgress) -> None:
        from coterie.terminal.display import progress_text

        now = time.monotonic()
        if now - self.reported >= SECONDS_BETWEEN_REPORTS:
            self.reported = now
            self.connection.send(WorkerMessage("round", progress.round, progress_text(progress)))


def _save_traceback(folder: Path, error: Exception) -> str:
    """Save the traceback of an unexpected error, such as a bug in a user's method, in the run's folder."""
    place = RunFolder(folder).error
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {error} (see {place})"
