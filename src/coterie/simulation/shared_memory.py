"""Memory that processes of one machine have in common, and what they say to each other through it.

A message is a pickle whose arrays are not copied into it (protocol 5): both are written into the sender's *room*, a
file without a name that lies in memory, and only where they are goes through a connection. So a sender never waits for
who reads, however much there is to say, and what is large is copied once by each.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import mmap
import os
import pickle
import select
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coterie.core.errors import RunError

ALIGNED = 64  # bytes: where an array may begin
SMALLEST = 1 << 20  # bytes of a room
AWAKE = 0.01  # seconds


class Location(NamedTuple):
    """Where a message is: in whose room, and from where to where its pickle and each of its arrays are."""

    room: int
    spans: list[tuple[int, int]]


class SharedBuffer:
    """What one process writes, and others read, from a file that all of them have open."""

    def __init__(self, number: int, file: int | None = None) -> None:
        self.number = number
        self.file = _nameless() if file is None else file
        self._used = 0
        self._memory: mmap.mmap | None = None

    def empty(self) -> None:
        """All that is in it has been read."""
        self._used = 0

    def put(self, message: Any) -> Location:
        pickled, arrays = _pickled(message)
        spans, at = [], self._used
        for part in (pickled, *arrays):
            spans.append((at, at + part.nbytes))
            at += -(-part.nbytes // ALIGNED) * ALIGNED
        memory = self._of_size(at)
        for part, (start, stop) in zip((pickled, *arrays), spans, strict=True):
            memory[start:stop] = part
        self._used = at
        return Location(self.number, spans)

    def get(self, parcel: Location, *, stays: bool = False) -> Any:
        """A message that somebody has put there; its arrays are copies, unless what is in the room `stays`."""
        whole = memoryview(self._of_size(max(stop for _, stop in parcel.spans)))
        pickled, *arrays = (whole[start:stop] for start, stop in parcel.spans)
        return pickle.loads(pickled, buffers=[a.toreadonly() if stays else bytearray(a) for a in arrays])

    def close(self) -> None:
        self._memory = None  # unmapped as soon as no array is in it any more
        with contextlib.suppress(OSError):
            os.close(self.file)

    def _of_size(self, size: int) -> mmap.mmap:
        """At least so large. Pages are asked for beforehand: to find out while writing that there are none is fatal."""
        if self._memory is None or len(self._memory) < size:
            there = os.fstat(self.file).st_size
            if there < size:
                try:
                    _allocate(self.file, max(size + size // 4 if there else size, SMALLEST))
                except OSError as error:
                    raise RunError(
                        f"no room for {size / 1e6:.0f} MB of memory that processes share ({error.strerror}): use fewer "
                        "peers or smaller models, or engine.name = simulation, which needs none"
                    ) from error
            self._memory = mmap.mmap(self.file, 0)
        return self._memory


def _allocate(file: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:  # as on macOS
        os.ftruncate(file, size)


def _nameless() -> int:
    """A file that nobody else can open, and that is gone with those who have it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("coterie")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def heard(connection: Connection[Any, Any]) -> Any:
    """The next word through a connection. It is waited for awake at first: to be woken takes longer than most waits."""
    ready = select.poll()
    ready.register(connection.fileno(), select.POLLIN)
    until = time.perf_counter() + AWAKE
    while not ready.poll(0) and time.perf_counter() < until:
        time.sleep(0)  # who has something to do on this core goes first
    return connection.recv()


# -- pickling --------------------------------------------------------------------------------------


def _pickled(message: Any) -> tuple[memoryview, Sequence[memoryview]]:
    arrays: list[pickle.PickleBuffer] = []
    into = io.BytesIO()
    pickler = pickle.Pickler(into, 5, buffer_callback=arrays.append)
    pickler.dispatch_table = _REDUCED
    pickler.dump(message)
    return into.getbuffer(), [array.raw() for array in arrays]


def _reduced(tensor: Tensor) -> Any:
    if tensor.device.type == "cpu" and tensor.dtype != torch.bfloat16 and not tensor.requires_grad:
        return torch.from_numpy, (tensor.contiguous().numpy(),)
    return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]


_REDUCED = {**copyreg.dispatch_table, Tensor: _reduced}
