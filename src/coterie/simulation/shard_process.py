"""The process of one shard: started by `engines.processes`, it does what it is asked until nobody asks any more."""

from __future__ import annotations

import pickle
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from coterie.core import memory
from coterie.simulation.shards import Shard
from coterie.simulation.shared_memory import SharedBuffer, heard


def main(number: int, connection: int, *files: int) -> None:
    rooms = [SharedBuffer(of, file) for of, file in enumerate(files)]
    with Connection(connection) as director, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        shard = _begun(number, director, rooms[-1])
        if shard is None:
            return
        with memory.seldom_searched():
            _serve(shard, director, rooms)


def _begun(number: int, director: Connection[Any, Any], common: SharedBuffer) -> Shard | None:
    parcel, members, sys.path[:] = director.recv()
    try:
        given = common.get(parcel, stays=True)
        shard = Shard(number, given.pop("make")(members, **given))
    except Exception as error:
        director.send(_sendable(error))
        return None
    director.send(None)
    return shard


def _serve(shard: Shard, director: Connection[Any, Any], rooms: list[SharedBuffer]) -> None:
    mine, last = rooms[shard.number], 0
    while True:
        epoch, parcel, elsewhere = heard(director)
        if epoch != last:  # what was said before has been heard
            mine.empty()
            last = epoch
        try:
            orders, wish, given, lent = rooms[parcel.room].get(parcel)
            lent += [_lent(rooms, one) for one in elsewhere]
            said = False, shard.do(orders, wish, given, lent)
            answer = mine.put(said)
        except Exception as error:
            answer = mine.put((True, (_sendable(error), traceback.format_exc())))
        director.send(answer)


def _lent(rooms: list[SharedBuffer], parcel: Any) -> Any:
    failed, found = rooms[parcel.room].get(parcel)
    if failed:
        raise found[0]
    return found


def _sendable(error: Exception) -> Exception:
    """As it is, if it can cross; else what it says."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
