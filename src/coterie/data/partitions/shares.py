"""Defines what one peer gets: rows of the pool, and a transform of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from coterie.data.dataset import Array


@dataclass(frozen=True)
class Transform:
    """How a peer transforms its rows of the pool."""

    rotate: int = 0
    """Degrees counter-clockwise, a multiple of 90: a true rotation, not a flip."""
    relabel: tuple[int, ...] | None = None
    """The new label of each class, or None."""

    def apply(self, x: Array, y: Array) -> tuple[Array, Array]:
        """The rows `x`, `y` as this peer sees them."""
        if self.rotate % 360:
            # Contiguous: a rotated view has negative strides, which torch does not accept.
            x = np.ascontiguousarray(np.rot90(x, k=self.rotate // 90, axes=(-2, -1)))
        if self.relabel is not None:
            y = np.asarray(self.relabel, dtype=y.dtype)[y]
        return x, y

    def renamed(self, names: Sequence[int]) -> Transform:
        """The same transform followed by a renaming of the labels."""
        before = self.relabel or range(len(names))
        return replace(self, relabel=tuple(int(names[label]) for label in before))

    def __str__(self) -> str:
        parts = [f"rotated {self.rotate}"] if self.rotate % 360 else []
        if self.relabel is not None:
            parts.append(_describe_relabel(self.relabel))
        return ", ".join(parts) or "as is"


def _describe_relabel(relabel: tuple[int, ...]) -> str:
    moved = [(old, new) for old, new in enumerate(relabel) if old != new]
    if len(moved) == 2:
        return f"{moved[0][0]}<->{moved[1][0]}"
    return "relabelled" if moved else "as is"


@dataclass(frozen=True)
class Share:
    """One peer's part: int64 row numbers of the pool, sorted."""

    train: Array
    validation: Array
    test: Array
    transform: Transform = Transform()
    cluster: int | None = None
    """The true cluster, if there is one."""


Shares = list[Share]
