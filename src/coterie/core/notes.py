"""The numbers of its own that a method notes, `me.note(loss_x=1.0)`: which they are, and under what name they go out.

Reports draw them over rounds; TensorBoard and Weights & Biases get them as curves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

MOST = 24  # different names that are shown: of a method that notes a number for each of its peers, the first ones
LONGEST = 60  # characters of a name
LARGEST, SMALLEST = 1e200, 1e-200  # in size: what is beyond cannot be drawn, or is zero

# What reports draw or tell already, of any method; and numbers that are names (of a cluster), whose mean says nothing.
KNOWN = frozenset(
    {
        "weights",
        "neighbours",
        "prototypes",
        "features",
        "front",
        "place",
        "place_alone",
        "members",
        "together",
        "alone",
        "beside",
    }
    | {"own_share", "helped", "trained", "experts", "declined", "waited", "stale", "cluster"}
)
KINDS = ("hop.", "found.")  # beginnings of such names


def numbers(notes: Mapping[str, Any]) -> dict[str, float | None]:
    """The notes of a round that are numbers of the method's own, yes and no as 1 and 0.

    None is what is not finite, or too large to be drawn; in events.jsonl a NaN is none, too.
    """
    return {
        name: _number(value)
        for name, value in notes.items()
        if (value is None or isinstance(value, bool | int | float)) and name not in KNOWN and not name.startswith(KINDS)
    }


def _number(value: float | None) -> float | None:
    if value is None or not abs(value) <= LARGEST:  # NaN compares as false
        return None
    return float(value) if abs(value) >= SMALLEST else 0.0


def shown(name: str) -> str:
    """A name as a page can show it: a method may choose any text."""
    clear = "".join(c if c.isprintable() else "?" for c in name).strip() or "(no name)"
    return clear if len(clear) <= LONGEST else f"{clear[: LONGEST - 1]}…"


class Tags:
    """The names of curves elsewhere: plain letters, and no two alike."""

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}

    def of(self, name: str) -> str | None:
        """None where there are MOST others already."""
        if name not in self._tags and len(self._tags) < MOST:
            self._tags[name] = self._new(name)
        return self._tags.get(name)

    def _new(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:LONGEST] or "_"
        tag, used = plain, set(self._tags.values())
        while tag in used:
            tag = f"{plain}_{len(used) + 1}" if tag == plain else f"{tag}_"
        return tag


def mean(values: list[float]) -> float:
    """Not by a sum of all, which may be too large."""
    return math.fsum(value / len(values) for value in values)
