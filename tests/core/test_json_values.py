"""Values of JSON files that may be old or damaged."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from coterie.core import json_values
from coterie.core.json_values import Json


def test_tolerant_readers_replace_a_value_of_another_type() -> None:
    assert json_values.table({"a": 1}) == {"a": 1}
    assert json_values.table([1]) == {}
    assert json_values.sequence([1]) == [1]
    assert json_values.sequence("ab") == []  # text is not a list of letters
    assert json_values.finite(2) == 2
    assert [json_values.finite(v) for v in (math.nan, math.inf, "2", None)] == [None] * 4


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (json_values.text, "north", 3),
        (json_values.number, 0.5, "0.5"),
        (json_values.whole, 3, "3"),
        (json_values.subtable, {"a": 1}, [1]),
        (json_values.items, [1], {"a": 1}),
    ],
)
def test_strict_readers_name_the_key(read: Callable[[Json, str], object], good: object, bad: object) -> None:
    assert read({"key": good}, "key") == good  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="key is not"):
        read({"key": bad}, "key")  # type: ignore[dict-item]
    with pytest.raises(KeyError, match="key"):
        read({}, "key")
