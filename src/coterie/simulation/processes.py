"""The simulation's participants in several processes of this machine: Python acts for more than one of them at a time.

This process directs, and has the first shard itself, so that no core waits. What processes say to each other lies in
memory that they have in common (`engines.rooms`); a model that somebody elsewhere fetched is copied there and from
there, and never pickled.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from coterie.core.errors import RunError, StageLost
from coterie.core.peer import Peer
from coterie.simulation.shards import Order, Shard, Sharded
from coterie.simulation.shared_memory import Location, SharedBuffer, heard
from coterie.simulation.stage import Stage

MODULE = "coterie.simulation.shard_process"
SECONDS_TO_END = 5.0  # for a process that does not answer
MINE = 0  # the shard of this process, which directs as well

Make = Callable[..., Stage]  # a shard's stage, from its members and what all have in common


class Processes(Sharded):
    """The shards of a run: the first here, each of the others in a process of its own."""

    def __init__(
        self,
        stage: Stage,
        participants: Sequence[Peer],
        members: list[list[int]],
        make: Make,
        common: Mapping[str, Any],
    ) -> None:
        """`stage` has the first shard's members; the others' are made by `make(members, **common)`, where they are."""
        super().__init__(stage.method, [], stage.rounds, stage.trainer, stage.evaluate_every)
        self.peers = {peer.id: peer for peer in participants}
        self._begin_sharding(members)
        self._mine = Shard(MINE, stage)
        self._room = SharedBuffer(MINE)
        others = range(1, len(members))
        rooms = [self._room, *(SharedBuffer(shard) for shard in others), SharedBuffer(len(members))]
        self._rooms = {room.number: room for room in rooms}
        self._processes: list[ShardProcess] = []
        self._epoch = 0  # a process may write over what it said in one before this
        self._all_heard = True  # what was said up to now
        try:
            self._processes += [ShardProcess(shard, [room.file for room in rooms]) for shard in others]
            parcel = rooms[-1].put({"make": make, **common})  # what is there stays there: all have it in common
            for process in self._processes:
                process.tell((parcel, members[process.shard], sys.path))
            for process in self._processes:
                process.begin()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the processes of all shards but the first."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        super().close()
        for process in self._processes:
            process.end()
        for room in self._rooms.values():
            room.close()

    # -- how wishes cross ------------------------------------------------------------------------

    def _send(self, shard: int, orders: Sequence[Order], wish: str, given: tuple[Any, ...], lent: Sequence[Any]) -> Any:
        if shard == MINE:
            mine = _Mine(orders, wish, given, lent)
            if wish == "lend":  # else when others have been asked, too
                self._carry_out(mine)
            return mine
        if self._all_heard:
            self._all_heard = False
            self._epoch += 1
            self._room.empty()
        here = [one.answer for one in lent if isinstance(one, _Mine)]
        elsewhere = [one.parcel() for one in lent if not isinstance(one, _Mine)]
        parcel = self._room.put((orders, wish, given, here))
        return self._processes[shard - 1].ask((self._epoch, parcel, elsewhere))

    def _answers(self, wishes: Sequence[Any]) -> list[Any]:
        for wish in wishes:
            if isinstance(wish, _Mine):
                self._carry_out(wish)
        answers = [self._answer(wish) for wish in wishes]
        self._all_heard = not any(process.asked for process in self._processes)
        return answers

    def _carry_out(self, wish: _Mine) -> None:
        if not wish.done:
            wish.answer = self._mine.do(wish.orders, wish.wish, wish.given, [self._answer(one) for one in wish.lent])
            wish.done = True

    def _answer(self, wish: _Mine | _Asked) -> Any:
        if isinstance(wish, _Mine):
            return wish.answer
        parcel = wish.parcel()
        failed, found = self._rooms[parcel.room].get(parcel)
        if failed:
            error, told = found
            error.add_note(f"in the process of shard {parcel.room}:\n{told}")
            raise error
        return found


@dataclass
class _Mine:
    """What the shard of this process is asked for: it is done when the others have been asked."""

    orders: Sequence[Order]
    wish: str
    given: tuple[Any, ...]
    lent: Sequence[Any]
    done: bool = False
    answer: Any = None


class _Asked:
    """What the shard of another process was asked for."""

    def __init__(self, process: ShardProcess) -> None:
        self.process = process
        self.found: Location | None = None

    def parcel(self) -> Location:
        """Where the answer is; processes answer in the order in which they were asked."""
        while self.found is None:
            self.process.hear()
        return self.found


class ShardProcess:
    """A process with a shard, as this one sees it."""

    def __init__(self, shard: int, rooms: Sequence[int]) -> None:
        self.shard = shard
        self.asked: deque[_Asked] = deque()
        ours, its = socket.socketpair()
        with ours, its:
            words = [str(shard), str(its.fileno()), *map(str, rooms)]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", MODULE, *words],
                pass_fds=[its.fileno(), *rooms],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the director, which may want to go on to a checkpoint
            )
            self._connection: Connection[Any, Any] = Connection(ours.detach())

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, what: Any) -> _Asked:
        self.asked.append(_Asked(self))
        self.tell(what)
        return self.asked[-1]

    def tell(self, what: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone: `hear` says so
            self._connection.send(what)

    def hear(self) -> None:
        try:
            parcel = heard(self._connection)
        except (EOFError, OSError):
            raise StageLost(f"the process of shard {self.shard} {self._ending()}") from None
        self.asked.popleft().found = parcel

    def begin(self) -> None:
        """Wait until it has what it needs."""
        try:
            failed = self._connection.recv()
        except (EOFError, OSError):
            raise RunError(
                f"a process for a part of the peers {self._ending()} before it began: does `{sys.executable} -c "
                "'import coterie'` work? engine.name = simulation needs no more than one process"
            ) from None
        if failed is not None:
            raise failed

    def end(self) -> None:
        """At once, whatever it does: nothing that it has is needed any more."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(SECONDS_TO_END)
        code = self._process.returncode
        if code is None:
            return "does not answer any more"
        if code >= 0:
            return f"ended by itself (exit code {code})"
        hint = ": perhaps memory ran out" if code == -signal.SIGKILL else ""
        return f"was ended by {signal.Signals(-code).name}{hint}"
