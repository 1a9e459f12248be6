"""The process of one shard: started by `simulation.processes`, it serves calls until the connection closes."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from coterie.core import forking, memory
from coterie.simulation.shards import Shard
from coterie.simulation.shared_memory import SharedBuffer, receive


def serve_shard(number: int, director: Connection[Any, Any], buffers: Sequence[SharedBuffer]) -> None:
    """Make the shard, tell the director, and serve its calls until the connection closes."""
    os.setsid()  # Ctrl-C is for the director, which may continue up to a checkpoint
    forking.allow_interrupts()
    with director, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        shard = _make_shard(number, director, buffers[-1])
        if shard is None:
            return
        with memory.infrequent_gc():
            _serve(shard, director, buffers)


def _make_shard(number: int, director: Connection[Any, Any], common: SharedBuffer) -> Shard | None:
    location, members, sys.path[:] = director.recv()
    try:
        arguments = common.get(location, in_place=True)
        shard = Shard(number, arguments.pop("make")(members, **arguments))
    except Exception as error:
        director.send(_sendable(error))
        return None
    director.send(None)
    return shard


def _serve(shard: Shard, director: Connection[Any, Any], buffers: Sequence[SharedBuffer]) -> None:
    own, last = buffers[shard.number], 0
    while True:
        epoch, location, elsewhere = receive(director)
        if epoch != last:  # all earlier answers have been read
            own.clear()
            last = epoch
        try:
            orders, call, arguments, lent = buffers[location.buffer].get(location)
            lent += [_lent(buffers, one) for one in elsewhere]
            result = False, shard.run(orders, call, arguments, lent)
            answer = own.put(result)
        except Exception as error:
            answer = own.put((True, (_sendable(error), traceback.format_exc())))
        director.send(answer)


def _lent(buffers: Sequence[SharedBuffer], location: Any) -> Any:
    failed, result = buffers[location.buffer].get(location)
    if failed:
        raise result[0]
    return result


def _sendable(error: Exception) -> Exception:
    """The error itself if it can be pickled, else a RuntimeError with its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
