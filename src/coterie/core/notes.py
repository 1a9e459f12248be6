"""Custom metrics that a method records with `me.note(loss_x=1.0)`: selecting them, and naming their curves.

Reports plot them over rounds; TensorBoard and Weights & Biases get them as curves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from coterie.core.formatting import plain

MOST = 24  # names that are shown; a method may note a number for each of its peers
LONGEST = 60  # characters of a name
LARGEST, SMALLEST = 1e200, 1e-200  # in magnitude: larger numbers cannot be plotted, smaller ones count as zero

# Notes that reports show elsewhere, and numbers that are identifiers (of a cluster), whose mean is meaningless.
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
KINDS = ("hop.", "found.")  # prefixes of such names


def numbers(notes: Mapping[str, Any]) -> dict[str, float | None]:
    """The custom metrics among the notes of a round; booleans become 1 and 0.

    None stands for a number that is not finite or too large to plot; events.jsonl stores NaN as null, too.
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
    """A name made safe to display: a method may choose any text."""
    return plain(name.strip(), LONGEST) or "(no name)"


class Tags:
    """Unique names of curves for external tools, in plain characters."""

    def __init__(self) -> None:
        self._tags: dict[str, str] = {}

    def of(self, name: str) -> str | None:
        """The tag of a name; None beyond the first MOST names."""
        if name not in self._tags and len(self._tags) < MOST:
            self._tags[name] = self._new(name)
        return self._tags.get(name)

    def _new(self, name: str) -> str:
        short = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:LONGEST] or "_"
        tag, used = short, set(self._tags.values())
        while tag in used:
            tag = f"{short}_{len(used) + 1}" if tag == short else f"{tag}_"
        return tag


def mean(values: list[float]) -> float:
    """The mean, without a sum of all values, which may overflow."""
    return math.fsum(value / len(values) for value in values)
