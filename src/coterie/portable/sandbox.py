"""Runs untrusted models in a child process, which may crash, hang or run out of memory without harm to the peer."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from coterie.core.errors import PortableError, SandboxError
from coterie.core.formatting import plain
from coterie.core.task import REGRESSION, task_of
from coterie.portable.worker import Header, receive, send

MEMORY = 4 * 2**30  # bytes of address space; the child itself needs 0.2 of the 4 GiB
TIMEOUT_FACTOR = 10  # timeout of a call, as a multiple of its limit of CPU time
START_TIMEOUT = 60  # seconds
_MOST_CLASSES = 100_000
_FLOATS_AT_ONCE = 2**17  # of inputs, such as 42 images of CIFAR-10: the slowest model of the zoo takes 2 s for them
_ROWS_AT_ONCE = 1024
_ROUNDING = 1e-3  # how far a row's sum may be from 1, and a probability below 0
_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH")

Answer = TypeVar("Answer")


class Sandbox:
    """Runs portable models, one at a time, in one child process that starts when it is first needed.

    A call may use `seconds` of CPU time to load a model, and the same again for each batch of rows. The child may use
    `memory` bytes. A model that ended the child is not tried again.
    """

    def __init__(self, seconds: float = 60, memory: int = MEMORY) -> None:
        self._seconds = seconds
        self._memory = memory
        self._child: _Child | None = None
        self._refused: dict[str, str] = {}
        self._lock = threading.Lock()
        self._closing = False

    def answers(self, content: bytes, digest: str, x: np.ndarray, classes: int = 0) -> np.ndarray:
        """The model's probabilities for each row of `x`: float32 (rows, classes); or its numbers, (rows, 1).

        `digest` identifies the content. If `classes` is given, another number of outputs is an error.
        """
        rows = np.ascontiguousarray(x, dtype=np.float32)
        if len(rows) == 0:
            return np.zeros((0, classes), np.float32)
        with self._lock:
            answer = self._run_guarded(digest, lambda child: _compute(child, content, digest, rows))
        return _checked(answer, classes)

    def check(self, content: bytes, digest: str, input_shape: tuple[int, ...], classes: int, largest: int) -> str:
        """`coterie.portable.checks.check` for received models: even parsing them is unsafe."""
        if len(content) > largest:
            return f"it has {len(content):,} bytes; at most {largest:,} are accepted"
        request = {"do": "check", "input_shape": input_shape, "classes": classes, "largest": largest}
        try:
            with self._lock:
                return str(
                    self._run_guarded(digest, lambda child: child.ask(request, content)[0].get("reason", "no answer"))
                )
        except PortableError as error:
            return str(error)

    def close(self) -> None:
        """End the child, even during a call, which then fails. The next call starts another child."""
        self._closing = True
        child = self._child
        if child:
            child.kill()
        with self._lock:
            self._end()
            self._closing = False

    @property
    def pid(self) -> int | None:
        """The process id of the child, if it runs."""
        child = self._child
        return child.pid if child and child.alive else None

    def _run_guarded(self, digest: str, work: Callable[[_Child], Answer]) -> Answer:
        """The result of `work`; if it ends the child or runs out of memory, PortableError says so."""
        if digest in self._refused:
            raise PortableError(f"{self._refused[digest]} (earlier; it is not tried again)")
        try:
            try:
                return work(self._ready())
            except _OutOfMemory:  # other loaded models may have used some: retry in a new child
                self._end()
                return work(self._ready())
        except _OutOfMemory:
            self._end()
            raise PortableError(f"it needs more than {self._memory // 2**20:,} MiB of memory") from None
        except _ChildEnded as end:
            self._end()
            if self._closing:
                raise PortableError("the sandbox was closed") from None
            self._refused[digest] = str(end)
            raise PortableError(str(end)) from None

    def _ready(self) -> _Child:
        if self._child and not self._child.alive:  # killed from outside, between two calls
            self._end()
        if not self._child:
            self._child = _Child(self._seconds, self._memory)
        return self._child

    def _end(self) -> None:
        if self._child:
            self._child.end()
        self._child = None


class _ChildEnded(Exception):  # noqa: N818
    """The child has exited; the text says why."""


class _OutOfMemory(Exception):  # noqa: N818
    """The child still runs, but ran out of memory."""


class _Child:
    """One process, which answers one request at a time. Its answers are as untrusted as the model it runs."""

    def __init__(self, seconds: float, memory: int) -> None:
        command = [sys.executable, "-P", "-m", "coterie.portable.worker", str(seconds), str(memory)]
        self._seconds = seconds
        self._timed_out = False
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            start_new_session=True,  # Ctrl-C must only reach the parent, which may continue to a checkpoint
        )
        self.end = weakref.finalize(self, _end, self._process)  # also at exit
        self._wait_until_ready(" ".join(command))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, header: Header, body: bytes = b"", longest_answer: int = 0) -> tuple[Header, bytes]:
        """The child's answer to a request: a header and raw bytes."""
        answer, data = self._exchange(self._seconds * TIMEOUT_FACTOR, longest_answer, (header, body))
        if answer.get("memory"):
            raise _OutOfMemory
        if "error" in answer:
            raise PortableError(_one_line(str(answer["error"])))
        return answer, data

    def _wait_until_ready(self, command: str) -> None:
        try:
            answer, _ = self._exchange(START_TIMEOUT, 0)
            reason = "" if answer.get("ready") else str(answer.get("error"))
        except _ChildEnded as end:
            reason = str(end)
        if reason:
            self.end()
            raise SandboxError(
                f"the sandbox for models does not start: {_one_line(reason)}; to see why, run '{command}'"
            )

    def _exchange(
        self, timeout: float, longest_answer: int, request: tuple[Header, bytes] | None = None
    ) -> tuple[Header, bytes]:
        assert self._process.stdin
        assert self._process.stdout
        watchdog = threading.Timer(timeout, self._time_out)
        watchdog.daemon = True
        watchdog.start()
        try:
            if request:
                send(self._process.stdin, *request)
            return receive(self._process.stdout, longest_answer)
        except (OSError, EOFError):
            raise _ChildEnded(self._describe_exit(timeout)) from None
        except (ValueError, RecursionError):
            raise _ChildEnded("it made the sandbox return an invalid answer") from None
        finally:
            watchdog.cancel()

    def _time_out(self) -> None:
        self._timed_out = True
        self.kill()

    def kill(self) -> None:
        """Kill the process, which ends every blocked read or write."""
        self._process.kill()

    def _describe_exit(self, timeout: float) -> str:
        code = self._process.wait()
        if self._timed_out:
            return f"it gave no answer for {timeout:g} s"
        if code == -signal.SIGPROF:
            return f"it used more than {self._seconds:g} s of CPU time"
        if code < 0:
            return f"it ended the sandbox with {signal.Signals(-code).name}"
        return f"it ended the sandbox with code {code}"


def _compute(child: _Child, content: bytes, digest: str, rows: np.ndarray) -> np.ndarray:
    """The model's answers, batch by batch, with shapes checked but not values."""
    if not child.ask({"do": "find", "digest": digest})[0].get("found"):
        child.ask({"do": "load", "digest": digest}, content)
    step = max(1, min(_ROWS_AT_ONCE, _FLOATS_AT_ONCE // max(1, rows[0].size)))
    answers = [_ask_batch(child, digest, rows[start : start + step]) for start in range(0, len(rows), step)]
    if len({answer.shape[1] for answer in answers}) > 1:
        raise PortableError("its answers have different numbers of classes")
    return np.concatenate(answers)


def _ask_batch(child: _Child, digest: str, batch: np.ndarray) -> np.ndarray:
    request = {"do": "run", "digest": digest, "shape": batch.shape}
    answer, data = child.ask(request, batch.tobytes(), 4 * len(batch) * _MOST_CLASSES)
    shape = answer.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or shape[0] != len(batch):
        raise PortableError(f"its answer for {len(batch)} rows has shape {shape!s:.100}; expected is (rows, classes)")
    if len(data) != 4 * len(batch) * shape[1]:
        raise PortableError("its answer does not have the stated shape")
    return np.frombuffer(data, np.float32).reshape(shape)


def _checked(answer: np.ndarray, classes: int) -> np.ndarray:
    """The answer if it is one finite number per row, or probabilities, clipped to 0 to 1; else PortableError."""
    if classes and answer.shape[1] != classes:
        raise PortableError(f"its answer has {answer.shape[1]} outputs per row; expected are {classes}")
    _need(np.isfinite(answer), "numbers that are not finite")
    if task_of(answer.shape[1]) == REGRESSION:
        return answer
    _need(np.greater_equal(answer, -_ROUNDING), "negative numbers, not probabilities")
    off = np.abs(answer.sum(1, keepdims=True, dtype=np.float64) - 1)
    _need(np.less_equal(off, _ROUNDING), "numbers whose sum is not 1, not probabilities")
    return answer.clip(0, 1)


def _need(good: np.ndarray, what: str) -> None:
    """Raise PortableError if a row is not all good; `what` describes the bad rows."""
    bad = np.count_nonzero(~good.all(1))
    if bad:
        raise PortableError(f"its answer has {bad:,} of {len(good):,} rows with {what}")


def _environment() -> dict[str, str]:
    """What Python needs to find the same packages, without secrets of the parent."""
    here = str(Path(__file__).parents[2])
    packages = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    return {**kept, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # a pending write may fail
            if stream:
                stream.close()


def _one_line(text: str) -> str:
    """An untrusted message, made safe for one line of a log."""
    return plain(" ".join(text.split())) or "it failed without a message"
