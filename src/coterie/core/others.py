"""The other peers of a run, as a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np


class Others(Sequence[int]):
    """All peers but one, without a list: for ten thousand peers, lists would have a hundred million entries."""

    def __init__(self, count: int, but: int) -> None:
        self._count, self._but = count, but

    def __len__(self) -> int:
        return self._count - (self._but < self._count)

    def __contains__(self, peer: object) -> bool:
        return isinstance(peer, int | np.integer) and 0 <= int(peer) < self._count and int(peer) != self._but

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < self._count - 1:
            index = range(len(self))[index]
        return index + (index >= self._but)
