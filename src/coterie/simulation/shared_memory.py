"""Messages between processes of one machine through shared memory.

A message is a pickle with out-of-band arrays (protocol 5). Both are written into the sender's *buffer*, an anonymous
file in memory, and only their location goes through a connection. So a sender never blocks on a reader, however large
the message, and each side copies large arrays only once.
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
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coterie.core.errors import RunError

ALIGNED = 64  # bytes: alignment of arrays
SMALLEST = 1 << 20  # bytes of a buffer
SPIN = 0.01  # seconds that a receiver spins before it blocks


class Location(NamedTuple):
    """Where a message is: the number of its buffer, and the spans of its pickle and of each array."""

    buffer: int
    spans: list[tuple[int, int]]


class SharedBuffer:
    """A file that one process writes to, and others, which have it open, read from."""

    def __init__(self, number: int, file: int | None = None) -> None:
        self.number = number
        self.file = _anonymous() if file is None else file
        self._used = 0
        self._memory: mmap.mmap | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """To a process that is being started: it gets the same file under a number of its own."""
        return _received_buffer, (self.number, DupFd(self.file))

    def clear(self) -> None:
        """Discard all messages, which must have been read."""
        self._used = 0

    def put(self, message: Any) -> Location:
        pickled, arrays = _pickled(message)
        spans, at = [], self._used
        for part in (pickled, *arrays):
            spans.append((at, at + part.nbytes))
            at += -(-part.nbytes // ALIGNED) * ALIGNED
        memory = self._mapped(at)
        for part, (start, stop) in zip((pickled, *arrays), spans, strict=True):
            memory[start:stop] = part
        self._used = at
        return Location(self.number, spans)

    def get(self, location: Location, *, in_place: bool = False) -> Any:
        """The message at this location. Its arrays are copies or, with `in_place`, read-only views of the buffer."""
        memory = memoryview(self._mapped(max(stop for _, stop in location.spans)))
        pickled, *arrays = (memory[start:stop] for start, stop in location.spans)
        return pickle.loads(pickled, buffers=[a.toreadonly() if in_place else bytearray(a) for a in arrays])

    def close(self) -> None:
        self._memory = None  # unmapped as soon as no array refers to it
        with contextlib.suppress(OSError):
            os.close(self.file)

    def _mapped(self, size: int) -> mmap.mmap:
        """At least `size` bytes. Pages are allocated beforehand: running out of memory while writing is fatal."""
        if self._memory is None or len(self._memory) < size:
            allocated = os.fstat(self.file).st_size
            if allocated < size:
                try:
                    _allocate(self.file, max(size + size // 4 if allocated else size, SMALLEST))
                except OSError as error:
                    raise RunError(
                        f"cannot allocate {size / 1e6:.0f} MB of shared memory ({error.strerror}): use fewer "
                        "peers or smaller models, or engine.name = simulation, which needs none"
                    ) from error
            self._memory = mmap.mmap(self.file, 0)
        return self._memory


def _allocate(file: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:  # such as on macOS
        os.ftruncate(file, size)


def _received_buffer(number: int, file: Any) -> SharedBuffer:
    return SharedBuffer(number, file.detach())


def _anonymous() -> int:
    """A file without a name: no other process can open it, and it vanishes with the last one that has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("coterie")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def receive(connection: Connection[Any, Any]) -> Any:
    """The next message of a connection. Spins before it blocks: waking up takes longer than most waits."""
    ready = select.poll()
    ready.register(connection.fileno(), select.POLLIN)
    until = time.perf_counter() + SPIN
    while not ready.poll(0) and time.perf_counter() < until:
        time.sleep(0)  # yield to other processes on this core
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
