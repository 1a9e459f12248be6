"""What a real peer has for others, and has received from them: its shelf and its mailbox."""

from __future__ import annotations

import asyncio
import time

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError
from coterie.core.run_folder import RunFolder
from coterie.engines.shelves import Shelves
from coterie.network.deadlines import Pace
from coterie.network.mailbox import Mailbox
from coterie.network.peer_run import PeerRun
from coterie.network.wire import WireError

VERSIONS = 4  # of an artifact kept on the shelf for slower peers


class Store:
    """The shelf and the mailbox of one peer. The node serves the requests of other peers from it."""

    def __init__(self, run: PeerRun) -> None:
        self.run = run
        self.shelves = Shelves(run.asynchronous, VERSIONS)
        self.mailbox = Mailbox(RunFolder(run.folder).letters)
        self.pace = Pace()
        self.round = 0  # the current one, or the next before it begins
        self.shelved = 0  # number of artifacts, so far
        self._bytes: dict[tuple[str, int], bytes] = {}  # encoded artifacts of the shelf, cached on the first request
        self._changed = asyncio.Event()  # set when something is shelved, a round ends, or a message arrives

    def shelve(self, artifact: Artifact) -> None:
        self.shelves.put(artifact, time.monotonic(), 0)
        self.shelved += 1
        self._bytes.pop((artifact.name, artifact.round), None)
        self._notify()

    def end_round(self) -> None:
        self.round += 1
        self._notify()

    # -- requests of other peers ---------------------------------------------------------------

    def may_exchange_with(self, number: int) -> bool:
        return self.run.me.may_exchange_with(number)

    async def find(self, name: str, round: int, wait: float) -> Artifact | None:
        """An artifact on the shelf; waits for it if it may still come.

        A peer that is too far behind to have it in time returns its latest version at once. Otherwise it would delay
        all peers in every round until it has caught up.
        """
        until, me = time.monotonic() + wait, self.run.me.id
        while True:
            version = self.shelves.find(me, name, round, time.monotonic())
            if version is not None:
                return version.artifact
            left = until - time.monotonic()
            if self.run.asynchronous or left <= 0 or 0 < round < self.round:
                return None
            if self.pace.of_rounds(round - self.round) > left:
                latest = self.shelves.latest(me, name)
                return latest.artifact if latest else None
            await self.until_changed(left)

    def bytes_of(self, artifact: Artifact) -> bytes:
        key = artifact.name, artifact.round
        if key not in self._bytes:
            on_shelf = {(v.artifact.name, v.artifact.round) for v in self.shelves.everything()}
            self._bytes = {k: data for k, data in self._bytes.items() if k in on_shelf}
            data = artifact.to_bytes()
            if key not in on_shelf:  # a message
                return data
            self._bytes[key] = data
        return self._bytes[key]

    def take(self, message: Artifact, data: bytes, sender: str, number: str) -> None:
        if not 0 <= message.round <= self.run.rounds:
            raise WireError(f"a message of round {message.round}, but there are only {self.run.rounds} rounds")
        if self.mailbox.is_full(sender):
            raise WireError(f"too many unread messages of '{sender}'")
        try:
            self.mailbox.put(message, data, sender, number)
        except ArtifactError as error:
            raise WireError(str(error)) from error
        self._notify()

    # -- changes -------------------------------------------------------------------------------

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until_changed(self, seconds: float) -> None:
        """Wait for the next change, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
