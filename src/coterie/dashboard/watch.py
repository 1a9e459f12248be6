"""Watch run folders and stream changes to pages. A run is read only while a page shows it, once for all pages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from coterie.dashboard.versions import Versions
from coterie.dashboard.view import RunView
from coterie.running.folders import ListedRun, RunEntry, find_runs

LIST_EVERY = 1.0  # seconds between two scans of the folders
VIEW_EVERY = 0.5  # seconds between two reads of a run that a page shows
LARGE = 150  # peers; runs with more are updated half as often
READ_FOR = 0.25  # seconds per turn while a file is not read to its end yet
IDLE = 60.0  # seconds after which a run that no page shows is dropped
ALIVE_EVERY = 10.0  # seconds between keep-alives on a quiet stream
MOST_VIEWS = 16

RUNS = "runs"
MoreRows = Callable[[dict[str, ListedRun]], dict[str, ListedRun]]


class Watched:
    """A view, with the times when it was last read and last requested."""

    def __init__(self, run: RunEntry) -> None:
        self.view = RunView(run)
        self.lock = asyncio.Lock()
        self.read = self.wanted = 0.0
        self.behind = True

    @property
    def pace(self) -> float:
        if self.behind:
            return 0.0
        return VIEW_EVERY * (2 if self.view.history.peers > LARGE else 1)


class RunWatcher:
    """The runs below one folder."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.runs: dict[str, RunEntry] = {}
        self.listed = Versions()
        self.stopping = False
        self.more_rows: Callable[[dict[str, ListedRun]], dict[str, ListedRun]] | None = (
            None  # adds rows to the list: runs that were just started
        )
        self._lock = asyncio.Lock()
        self._looked = 0.0
        self._watched: dict[str, Watched] = {}

    async def list(self, at_once: bool = False) -> Versions:
        """The list of runs, at most a second old."""
        async with self._lock:
            if at_once or time.monotonic() - self._looked >= LIST_EVERY:
                await asyncio.to_thread(self._look)
                self._looked = time.monotonic()
                self._drop_idle()
        return self.listed

    def _look(self) -> None:
        self.runs = find_runs(self.top, self.runs)
        rows = {id: run.listed() for id, run in self.runs.items()}
        if self.more_rows is not None:
            rows = self.more_rows(rows)
        vanished = self.listed.keys(RUNS) - rows.keys()
        self.listed.put({RUNS: {**rows, **dict.fromkeys(vanished)}})

    def _drop_idle(self) -> None:
        now = time.monotonic()
        by_use = sorted(self._watched, key=lambda id: self._watched[id].wanted)
        for id in by_use:
            idle = now - self._watched[id].wanted
            if id not in self.runs or idle > IDLE or (len(self._watched) > MOST_VIEWS and idle > 2 * VIEW_EVERY):
                del self._watched[id]

    async def view(self, id: str) -> Watched | None:
        """The current state of a run (at most half a second old); None if there is no run with this id."""
        if id not in self.runs:
            return None
        run = self.runs[id]
        watched = self._watched.get(id)
        if watched is None or watched.view.run is not run:
            watched = self._watched[id] = Watched(run)
        watched.wanted = time.monotonic()
        async with watched.lock:
            if time.monotonic() - watched.read >= watched.pace:
                watched.behind = await asyncio.to_thread(_read_more, watched.view)
                watched.read = time.monotonic()
        return watched

    async def stream(self, id: str) -> AsyncIterator[bytes]:
        """The changes to send to a page while it is connected: the list of runs, and the run that it shows."""
        listed = version = 0
        missing = False
        sent = time.monotonic()
        yield b"retry: 2000\n\n"
        while not self.stopping:
            now = time.monotonic()
            versions = await self.list()
            if versions.version > listed:
                yield _message("runs", versions.after(listed))
                listed, sent = versions.version, now
            watched = await self.view(id) if id else None
            if watched is not None and watched.view.versions.version > version:
                changes = watched.view.versions.after(version)
                yield _message("run", changes)
                version, sent = changes["version"], now
            elif id and watched is None and not missing:
                yield _message("missing", {"run": id})
                version, sent = 0, now
            missing = bool(id) and watched is None
            if now - sent >= ALIVE_EVERY:
                yield b": still here\n\n"
                sent = now
            await asyncio.sleep(max(0.02, watched.pace if watched else VIEW_EVERY))


def _read_more(view: RunView) -> bool:
    """Read for a moment. Returns whether there is more."""
    until = time.monotonic() + READ_FOR
    while view.refresh():
        if time.monotonic() > until:
            return True
    return False


def _message(kind: str, value: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
