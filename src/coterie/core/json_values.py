"""JSON as types, and checks for values read from files that may be old or damaged.

`table`, `sequence` and `finite` replace a value of another type. The others refuse it with a TypeError, and a missing
one with a KeyError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TypeAlias

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
Json: TypeAlias = dict[str, JsonValue]


def parsed(text: str | bytes) -> JsonValue:
    value: JsonValue = json.loads(text)
    return value


# -- tolerant ----------------------------------------------------------------------------------


def table(value: object) -> Json:
    """The value if it is a table; otherwise (in a damaged file) an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def finite(value: object) -> float | None:
    """The value if it is a finite number; otherwise None."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


# -- strict ------------------------------------------------------------------------------------


def text(content: Mapping[str, object], key: str) -> str:
    value = content[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not text")
    return value


def number(content: Mapping[str, object], key: str) -> float:
    value = content[key]
    if not isinstance(value, int | float):
        raise TypeError(f"{key} is not a number")
    return value


def whole(content: Mapping[str, object], key: str) -> int:
    return int(number(content, key))


def subtable(content: Mapping[str, object], key: str) -> Json:
    value = content[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} is not a table")
    return value


def items(content: Mapping[str, object], key: str) -> list[JsonValue]:
    value = content[key]
    if not isinstance(value, list):
        raise TypeError(f"{key} is not a list")
    return value
