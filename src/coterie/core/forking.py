"""Starts processes of this package in milliseconds instead of the seconds that importing torch takes.

They are forks of multiprocessing's fork server, which has imported torch but never computes. (A fork of a process that
computes with torch may hang.) A system without fork servers starts a new Python for every process.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

# By name: only the server imports them. All that a run needs, and what torch.func imports when it is first called.
PRELOADED = ("coterie.running.simulated", "torch._dynamo")


def start(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a process that calls `target(*arguments)`, with the environment of this one. It ends with this one.

    Ctrl-C is blocked in it until it calls `allow_interrupts`.
    """
    context: Any
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
    else:
        context = multiprocessing.get_context("spawn")
    process: BaseProcess = context.Process(target=_run, args=(target, arguments, dict(os.environ)), daemon=True)
    with _without_main(), _interrupts_blocked():
        process.start()
    return process


def allow_interrupts() -> None:
    """For `target`, once it can handle Ctrl-C: until then it is blocked."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _run(target: Callable[..., None], arguments: tuple[Any, ...], environment: dict[str, str]) -> None:
    os.environ.clear()  # a fork has the environment in which the server was started
    os.environ.update(environment)
    # A worker of a comparison may itself start processes, which multiprocessing denies to daemons.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    target(*arguments)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in a process that starts here, and in the server that it is a fork of."""
    resource_tracker.ensure_running()  # otherwise it would start first and unblock interrupts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module: the new process would run it again, up to a guard that a user's script may not have."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
