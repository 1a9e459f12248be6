"""What processes say to each other through memory that they have in common."""

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
from coterie.simulation.shared_memory import SharedBuffer, heard

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
        parcels = [mine.put(message) for message in messages]  # one after the other: none overwrites another
        assert all(parcel.room == 3 for parcel in parcels)
        assert equal([theirs.get(parcel) for parcel in parcels], messages)
    finally:
        mine.close()
        theirs.close()


def test_what_was_got_is_ones_own() -> None:
    room = SharedBuffer(0)
    first = room.get(room.put({"array": np.arange(5), "tensor": torch.arange(3.0)}))
    room.empty()
    room.put({"array": np.zeros(5, int), "tensor": torch.zeros(3)})  # in the same place
    assert first["array"].tolist() == [0, 1, 2, 3, 4]
    first["tensor"] += 1
    assert first["tensor"].tolist() == [1, 2, 3]
    room.close()


def test_what_stays_is_not_copied_and_cannot_be_written_to() -> None:
    room = SharedBuffer(0)
    array = room.get(room.put(np.arange(5)), stays=True)
    assert not array.flags.writeable
    assert not array.flags.owndata
    room.close()
    assert array.tolist() == [0, 1, 2, 3, 4]  # as long as somebody has it


def test_arrays_are_not_in_the_pickle() -> None:
    room = SharedBuffer(0)
    model = Weights(Layout.of_shapes({"w": (1000, 1000)}), torch.ones(1_000_000))
    (start, stop), *arrays = room.put([model, model]).spans
    assert stop - start < 1000
    assert [stop - start for start, stop in arrays] == [4_000_000]  # once
    room.close()


def test_a_room_is_used_again_when_it_is_empty() -> None:
    room = SharedBuffer(0)
    sizes = []
    for _ in range(5):
        room.put(np.zeros(1_000_000))
        sizes.append(os.fstat(room.file).st_size)
        room.empty()
    assert len(set(sizes)) == 1
    room.close()


def test_a_layout_that_comes_back_is_the_one_that_is_here() -> None:
    """It is compared at every fetch; and a hash of texts is of one process."""
    room, layout = SharedBuffer(0), Layout.of_shapes({"w": (2, 3)})
    hash(layout)
    first, second = room.get(room.put(layout)), room.get(room.put(layout))
    assert first is second
    assert first == layout
    assert "_hash" not in vars(Layout(*layout.__reduce__()[1]))
    room.close()


def test_no_memory_is_an_error_and_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_memory, "_allocate", full)
    with pytest.raises(RunError, match=r"no room for 8 MB of memory that processes share \(No space left on device\)"):
        SharedBuffer(0).put(np.zeros(1_000_000))


@pytest.mark.parametrize("awake", [0.0, 5.0])
def test_a_word_is_heard_whether_one_is_awake_or_not(awake: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "AWAKE", awake)
    ours, theirs = Pipe()
    speaker = threading.Thread(target=lambda: (time.sleep(0.05), theirs.send("word")))
    speaker.start()
    assert heard(ours) == "word"
    speaker.join()
    theirs.close()
    with pytest.raises(EOFError):
        heard(ours)
