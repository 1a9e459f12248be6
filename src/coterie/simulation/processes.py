"""Spreads the simulation's participants over several processes of this machine, so that they act in parallel.

This process is the director, and also has the first shard, so that no core idles. Processes exchange messages through
shared memory (`simulation.shared_memory`): a model that a peer of another process fetches is copied into it and out of
it, and never pickled.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any

from coterie.core import forking
from coterie.core.errors import RunError, StageLost
from coterie.core.peer import Peer
from coterie.simulation.local_stage import LocalStage
from coterie.simulation.shard_process import serve_shard
from coterie.simulation.shards import Make, Order, Shard, Sharded
from coterie.simulation.shared_memory import Location, SharedBuffer, receive

SECONDS_TO_END = 5.0  # grace period for a process that does not answer
LOCAL = 0  # the shard of this process, the director


class Processes(Sharded):
    """The shards of a run: the first in this process, each of the others in its own."""

    def __init__(
        self,
        stage: LocalStage,
        participants: Sequence[Peer],
        members: list[list[int]],
        make: Make,
        common: Mapping[str, Any],
    ) -> None:
        """`stage` has the first shard's members; each other process makes its own with `make(members, **common)`."""
        super().__init__(stage.method, participants, stage.rounds, members)
        self._shard = Shard(LOCAL, stage)
        self._buffer = SharedBuffer(LOCAL)
        others = range(1, len(members))
        buffers = [self._buffer, *(SharedBuffer(shard) for shard in others), SharedBuffer(len(members))]
        self._buffers = {buffer.number: buffer for buffer in buffers}
        self._processes: list[ShardProcess] = []
        self._epoch = 0  # a process may overwrite its answers of earlier epochs
        self._all_read = True  # whether all answers up to now have been read
        try:
            self._processes += [ShardProcess(shard, buffers) for shard in others]
            location = buffers[-1].put({"make": make, **common})  # never cleared: all processes refer to it
            for process in self._processes:
                process.send((location, members[process.shard], sys.path))
            for process in self._processes:
                process.wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """The ids of the processes of all shards but the first."""
        return [process.pid for process in self._processes]

    def close(self) -> None:
        self._shard.stage.close()
        for process in self._processes:
            process.kill()
        for buffer in self._buffers.values():
            buffer.close()

    # -- calls -----------------------------------------------------------------------------------

    def _send(
        self, shard: int, orders: Sequence[Order], call: str, arguments: tuple[Any, ...], lent: Sequence[Any]
    ) -> Any:
        if shard == LOCAL:
            local = _LocalCall(orders, call, arguments, lent)
            if call == "lend":  # other calls run after those of the other processes have been sent
                self._run(local)
            return local
        if self._all_read:
            self._all_read = False
            self._epoch += 1
            self._buffer.clear()
        here = [one.result for one in lent if isinstance(one, _LocalCall)]
        elsewhere = [one.location() for one in lent if not isinstance(one, _LocalCall)]
        location = self._buffer.put((orders, call, arguments, here))
        return self._processes[shard - 1].call((self._epoch, location, elsewhere))

    def _results(self, calls: Sequence[Any]) -> list[Any]:
        for call in calls:
            if isinstance(call, _LocalCall):
                self._run(call)
        results = [self._result(call) for call in calls]
        self._all_read = not any(process.pending for process in self._processes)
        return results

    def _run(self, call: _LocalCall) -> None:
        if not call.done:
            lent = [self._result(one) for one in call.lent]
            call.result = self._shard.run(call.orders, call.call, call.arguments, lent)
            call.done = True

    def _result(self, call: _LocalCall | _RemoteCall) -> Any:
        if isinstance(call, _LocalCall):
            return call.result
        location = call.location()
        failed, result = self._buffers[location.buffer].get(location)
        if failed:
            error, trace = result
            error.add_note(f"in the process of shard {location.buffer}:\n{trace}")
            raise error
        return result


@dataclass
class _LocalCall:
    """A call of the shard of this process: it runs after the calls of other processes have been sent."""

    orders: Sequence[Order]
    call: str
    arguments: tuple[Any, ...]
    lent: Sequence[Any]
    done: bool = False
    result: Any = None


class _RemoteCall:
    """A call of the shard of another process."""

    def __init__(self, process: ShardProcess) -> None:
        self.process = process
        self.answer: Location | None = None

    def location(self) -> Location:
        """Where the answer is; processes answer calls in order."""
        while self.answer is None:
            self.process.receive()
        return self.answer


class ShardProcess:
    """The director's handle of a process with a shard."""

    def __init__(self, shard: int, buffers: Sequence[SharedBuffer]) -> None:
        self.shard = shard
        self.pending: deque[_RemoteCall] = deque()
        self._connection: Connection[Any, Any]
        self._connection, its = Pipe()
        with its:
            self._process = forking.start(serve_shard, shard, its, buffers)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def call(self, message: Any) -> _RemoteCall:
        self.pending.append(_RemoteCall(self))
        self.send(message)
        return self.pending[-1]

    def send(self, message: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the process died: `receive` reports it
            self._connection.send(message)

    def receive(self) -> None:
        try:
            location = receive(self._connection)
        except (EOFError, OSError):
            raise StageLost(f"the process of shard {self.shard} {self._ending()}") from None
        self.pending.popleft().answer = location

    def wait_until_ready(self) -> None:
        """Wait until the process has made its shard."""
        try:
            failed = self._connection.recv()
        except (EOFError, OSError):
            raise RunError(
                f"a process for a part of the peers {self._ending()} before it was ready: does `{sys.executable} -c "
                "'import coterie'` work? engine.name = simulation needs only one process"
            ) from None
        if failed is not None:
            raise failed

    def kill(self) -> None:
        """End the process immediately: nothing that it has is needed any more."""
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _ending(self) -> str:
        self._process.join(SECONDS_TO_END)
        code = self._process.exitcode
        if code is None:
            return "does not answer any more"
        if code >= 0:
            return f"exited by itself (exit code {code})"
        hint = ": perhaps memory ran out" if code == -signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{hint}"
