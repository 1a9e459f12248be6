"""Messages between processes through shared memory."""

from __future__ import annotations

import os
import threading
import time
from multiprocessing import Pipe
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import RunError
from coterie.core.weights import Layout, Weights
from coterie.simulation import shared_memory
from coterie.simulation.shared_memory import SharedBuffer, receive

VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.lists(st.floats(width=32, allow_nan=False)).map(torch.tensor),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(), inner, max_size=4),
    max_leaves=8,
)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return bool(one == other)


@given(st.lists(VALUES, max_size=5))
def test_what_one_puts_another_gets(messages: list[Any]) -> None:
    mine = SharedBuffer(3)
    theirs = SharedBuffer(3, os.dup(mine.file))
    try:
        locations = [mine.put(message) for message in messages]  # one after the other: none overwrites another
        assert all(location.buffer == 3 for location in locations)
        assert equal([theirs.get(location) for location in locations], messages)
    finally:
        mine.close()
        theirs.close()


def test_what_was_got_is_ones_own() -> None:
    buffer = SharedBuffer(0)
    first = buffer.get(buffer.put({"array": np.arange(5), "tensor": torch.arange(3.0)}))
    buffer.clear()
    buffer.put({"array": np.zeros(5, int), "tensor": torch.zeros(3)})  # in the same place
    assert first["array"].tolist() == [0, 1, 2, 3, 4]
    first["tensor"] += 1
    assert first["tensor"].tolist() == [1, 2, 3]
    buffer.close()


def test_what_stays_is_not_copied_and_cannot_be_written_to() -> None:
    buffer = SharedBuffer(0)
    array = buffer.get(buffer.put(np.arange(5)), in_place=True)
    assert not array.flags.writeable
    assert not array.flags.owndata
    buffer.close()
    assert array.tolist() == [0, 1, 2, 3, 4]  # as long as something refers to it


def test_arrays_are_not_in_the_pickle() -> None:
    buffer = SharedBuffer(0)
    model = Weights(Layout.of_shapes({"w": (1000, 1000)}), torch.ones(1_000_000))
    (start, stop), *arrays = buffer.put([model, model]).spans
    assert stop - start < 1000
    assert [stop - start for start, stop in arrays] == [4_000_000]  # once
    buffer.close()


def test_a_cleared_buffer_is_reused() -> None:
    buffer = SharedBuffer(0)
    sizes = []
    for _ in range(5):
        buffer.put(np.zeros(1_000_000))
        sizes.append(os.fstat(buffer.file).st_size)
        buffer.clear()
    assert len(set(sizes)) == 1
    buffer.close()


def test_a_layout_that_comes_back_is_the_one_that_is_here() -> None:
    """It is compared at every fetch; and a hash of texts is of one process."""
    buffer, layout = SharedBuffer(0), Layout.of_shapes({"w": (2, 3)})
    hash(layout)
    first, second = buffer.get(buffer.put(layout)), buffer.get(buffer.put(layout))
    assert first is second
    assert first == layout
    assert "_hash" not in vars(Layout(*layout.__reduce__()[1]))
    buffer.close()


def test_no_memory_is_an_error_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_memory, "_allocate", full)
    with pytest.raises(RunError, match=r"cannot allocate 8 MB of shared memory \(No space left on device\)"):
        SharedBuffer(0).put(np.zeros(1_000_000))


@pytest.mark.parametrize("spin", [0.0, 5.0])
def test_a_message_arrives_with_and_without_spinning(spin: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "SPIN", spin)
    ours, theirs = Pipe()
    speaker = threading.Thread(target=lambda: (time.sleep(0.05), theirs.send("word")))
    speaker.start()
    assert receive(ours) == "word"
    speaker.join()
    theirs.close()
    with pytest.raises(EOFError):
        receive(ours)
