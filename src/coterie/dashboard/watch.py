"""Who looks at what: runs are read only while a page shows them, and once however many pages do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from coterie.dashboard.versions import Versions
from coterie.dashboard.view import RunView
from coterie.running.folders import RunEntry, find_runs

LIST_EVERY = 1.0  # seconds between two looks at the folders
VIEW_EVERY = 0.5  # and at a run that somebody watches
LARGE = 150  # peers; of such a run, pages are told half as often
READ_FOR = 0.25  # seconds at a time, of a file that is not read to its end yet
IDLE = 60.0  # seconds after which a run that nobody looks at is forgotten
ALIVE_EVERY = 10.0  # seconds between signs of life on a quiet stream
MOST_VIEWS = 16

RUNS = "runs"


class Watched:
    """A view and when it was last read and wanted."""

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
        self.more_rows: Any = None  # what else belongs into the list: runs that were just started
        self._lock = asyncio.Lock()
        self._looked = 0.0
        self._watched: dict[str, Watched] = {}

    async def list(self, at_once: bool = False) -> Versions:
        """The list of runs, not older than a second."""
        async with self._lock:
            if at_once or time.monotonic() - self._looked >= LIST_EVERY:
                await asyncio.to_thread(self._look)
                self._looked = time.monotonic()
                self._forget_the_idle()
        return self.listed

    def _look(self) -> None:
        self.runs = find_runs(self.top, self.runs)
        rows: dict[str, Any] = {id: run.listed() for id, run in self.runs.items()}
        if self.more_rows is not None:
            rows = self.more_rows(rows)
        vanished = self.listed.keys(RUNS) - rows.keys()
        self.listed.put({RUNS: {**rows, **dict.fromkeys(vanished)}})

    def _forget_the_idle(self) -> None:
        now = time.monotonic()
        by_use = sorted(self._watched, key=lambda id: self._watched[id].wanted)
        for id in by_use:
            idle = now - self._watched[id].wanted
            if id not in self.runs or idle > IDLE or (len(self._watched) > MOST_VIEWS and idle > 2 * VIEW_EVERY):
                del self._watched[id]

    async def view(self, id: str) -> Watched | None:
        """A run as it is now (or half a second ago); None if there is none of this id."""
        if id not in self.runs:
            return None
        run = self.runs[id]
        watched = self._watched.get(id)
        if watched is None or watched.view.run is not run:
            watched = self._watched[id] = Watched(run)
        watched.wanted = time.monotonic()
        async with watched.lock:
            if time.monotonic() - watched.read >= watched.pace:
                watched.behind = await asyncio.to_thread(_read_on, watched.view)
                watched.read = time.monotonic()
        return watched

    async def stream(self, id: str) -> AsyncIterator[bytes]:
        """What a page must be told, for as long as it listens: the list, and the run that it shows."""
        listed = seen = 0
        missing = False
        told = time.monotonic()
        yield b"retry: 2000\n\n"
        while not self.stopping:
            now = time.monotonic()
            versions = await self.list()
            if versions.version > listed:
                yield _message("runs", versions.after(listed))
                listed, told = versions.version, now
            watched = await self.view(id) if id else None
            if watched is not None and watched.view.versions.version > seen:
                changes = watched.view.versions.after(seen)
                yield _message("run", changes)
                seen, told = changes["version"], now
            elif id and watched is None and not missing:
                yield _message("missing", {"run": id})
                seen, told = 0, now
            missing = bool(id) and watched is None
            if now - told >= ALIVE_EVERY:
                yield b": still here\n\n"
                told = now
            await asyncio.sleep(max(0.02, watched.pace if watched else VIEW_EVERY))


def _read_on(view: RunView) -> bool:
    """Read for a moment; whether there is more."""
    until = time.monotonic() + READ_FOR
    while view.refresh():
        if time.monotonic() > until:
            return True
    return False


def _message(kind: str, value: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
