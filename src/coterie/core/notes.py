"""Values that a method records with `me.note(loss_x=1.0)`: their JSON form, and which are curves, with what names.

Reports plot them over rounds; TensorBoard and Weights & Biases get them as curves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from coterie.core.errors import ConfigError
from coterie.core.formatting import plain

MOST = 24  # names that are shown; a method may note a number for each of its peers
LONGEST = 60  # characters of a name
_JSON_VALUES = frozenset((str, int, float, bool, type(None)))
LARGEST, SMALLEST = 1e200, 1e-200  # in magnitude: larger numbers cannot be plotted, smaller ones count as zero

# What an engine notes, and what `me.note` gives a meaning of its own. A method declares its own notes (`Method.notes`).
OF_ENGINE = frozenset({"weights", "neighbours", "beside", "declined", "waited", "stale"})


def names_like(name: str, notes: Mapping[str, Any]) -> list[str]:
    """The notes of a round that a declared name stands for: a name that ends in a dot, for all that begin with it."""
    if name.endswith("."):
        return [noted for noted in notes if noted.startswith(name)]
    return [name] if name in notes else []


def numbers(notes: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, float | None]:
    """The custom metrics among the notes of a round; booleans become 1 and 0. `without` are declared names to omit.

    None stands for a number that is not finite or too large to plot; events.jsonl stores NaN as null, too.
    """
    omitted = OF_ENGINE.union(*(names_like(name, notes) for name in without))
    return {
        name: number(value)
        for name, value in notes.items()
        if (value is None or isinstance(value, bool | int | float)) and name not in omitted
    }


def number(value: object) -> float | None:
    """A noted value as a number; None if it is none that can be plotted."""
    if not isinstance(value, bool | int | float) or not abs(value) <= LARGEST:  # NaN compares as false
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


def json_value(value: Any, key: str) -> Any:
    """A deep copy of a noted value, in JSON types."""
    kind = type(value)
    if kind in _JSON_VALUES:  # the most frequent case
        return value
    if kind is not dict and isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if kind is dict or isinstance(value, Mapping):
        return {
            k.item() if isinstance(k, np.generic) else k: v if type(v) in _JSON_VALUES else json_value(v, key)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [v if type(v) in _JSON_VALUES else json_value(v, key) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ConfigError(f"me.note({key}=...): a {type(value).__name__} cannot be written to the events")
