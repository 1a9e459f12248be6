"""Which parameters go over from one method to another when the method of an experiment is changed.

A name is not enough: PANM's `tau` is a number of rounds, MAPL's a temperature. A value carries over where both methods
declare the same `common` meaning for the parameter, or where both inherit it from one class that declares it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.config import parsing
from coterie.core.formatting import short_name
from coterie.methods import METHODS, Method, find


@dataclass(frozen=True)
class CarriedOver:
    """What a method takes over from the parameters of the one it replaces, and what it does not."""

    method: str  # the new one, as it was named
    source: str  # the old one
    taken: Mapping[str, Any]
    left: Mapping[str, Any]
    other_meaning: frozenset[str] = frozenset()  # those left although the new method has a parameter of that name
    has_parameters: bool = True  # whether the new one has any

    def __str__(self) -> str:
        left = ", ".join(map(self._left, self.left))
        if not self.taken:
            return f"{short_name(self.method)} takes none of {short_name(self.source)}'s parameters: {left}"
        taken = ", ".join(f"{key}={_text(value)}" for key, value in self.taken.items())
        rest = f"; not taken: {left}" if left else ""
        return f"{short_name(self.method)} takes {taken} from {short_name(self.source)}'s parameters{rest}"

    def _left(self, key: str) -> str:
        return f"{key}={_text(self.left[key])}{' (not declared to mean the same)' if key in self.other_meaning else ''}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else parsing.literal(value)


def carry_over(table: Mapping[str, Any], source: str, method: str, given: Iterable[str] = ()) -> CarriedOver:
    """What `method` takes over of `table`, the parameters of `source`, where those `given` are set anew.

    A method that cannot be found takes nothing: who runs it says why it cannot be found.
    """
    old, new = _found(source), _found(method)
    values = {key: value for key, value in table.items() if key not in ("name", *given)}
    names = _names(new)
    taken = {key: value for key, value in values.items() if key in names and old and new and same(old, new, key)}
    left = {key: value for key, value in values.items() if key not in taken}
    return CarriedOver(method, source, taken, left, frozenset(left.keys() & names if old else ()), bool(names))


def told(changes: Iterable[CarriedOver]) -> list[str]:
    """Each change as a line, once; methods that could take nothing, as no name is in both, share one line."""
    lines: list[str] = []
    unlike: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        if not change.left and not change.taken:
            continue
        if change.taken or change.other_meaning:
            lines.append(str(change))
        elif change.has_parameters:  # of one without parameters there is nothing to say
            values = ", ".join(f"{key}={_text(value)}" for key, value in change.left.items())
            unlike.setdefault((change.source, values), []).append(short_name(change.method))
    for (source, values), methods in unlike.items():
        names = ", ".join(dict.fromkeys(methods))
        lines.append(f"{names} take{'' if ',' in names else 's'} none of {short_name(source)}'s parameters: {values}")
    return list(dict.fromkeys(lines))


def same(one: type[Method], other: type[Method], name: str) -> bool:
    """Whether both methods have a parameter of this name, and mean the same by it."""
    return name in _names(one) and name in _names(other) and _meaning(one, name) == _meaning(other, name)


def shared_with(kind: type[Method], name: str) -> list[str]:
    """The other named methods that this parameter of a method carries over to."""
    return [method for method, other in METHODS.items() if other is not kind and same(kind, other, name)]


def _found(name: str) -> type[Method] | None:
    try:
        return find(name)
    except Exception:  # a file of the user's own may raise anything; that method may not even be run
        return None


def _names(kind: type[Method] | None) -> set[str]:
    return set() if kind is None else {f.name for f in dataclasses.fields(kind)}


def _meaning(kind: type[Method], name: str) -> tuple[str, ...]:
    """The declared meaning; else where it is declared, which for an inherited parameter is the same for all heirs."""
    (declared,) = (f for f in dataclasses.fields(kind) if f.name == name)
    if common := declared.metadata.get("common"):
        return (str(common),)
    owner = next(c for c in kind.__mro__ if name in inspect.get_annotations(c))
    try:
        place = inspect.getfile(owner)  # a file that is loaded twice gives two classes
    except (OSError, TypeError):
        place = owner.__module__
    return place, owner.__qualname__
