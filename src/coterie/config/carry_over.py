"""Decides which parameters an experiment keeps when its method is replaced by another.

The same name is not enough: PANM's `tau` is a number of rounds, MAPL's a temperature. A value carries over if both
methods declare the same `common` meaning for the parameter, or if both inherit it from one class that declares it.
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
    """Which parameters a method takes over from the method it replaces, and which it does not."""

    method: str  # the new method, as the user named it
    source: str  # the method it replaces
    taken: Mapping[str, Any]
    left: Mapping[str, Any]
    other_meaning: frozenset[str] = frozenset()  # of `left`: the new method has the name, too
    has_parameters: bool = True  # whether the new method has any

    def __str__(self) -> str:
        left = ", ".join(map(self._describe_left, self.left))
        if not self.taken:
            return f"{short_name(self.method)} takes none of {short_name(self.source)}'s parameters: {left}"
        taken = ", ".join(f"{key}={_text(value)}" for key, value in self.taken.items())
        rest = f"; not taken: {left}" if left else ""
        return f"{short_name(self.method)} takes {taken} from {short_name(self.source)}'s parameters{rest}"

    def _describe_left(self, key: str) -> str:
        return f"{key}={_text(self.left[key])}{' (not declared to mean the same)' if key in self.other_meaning else ''}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else parsing.literal(value)


def carry_over(table: Mapping[str, Any], source: str, method: str, given: Iterable[str] = ()) -> CarriedOver:
    """What `method` takes over from `table`, the parameters of `source`, except for those in `given`, which are new.

    A method that cannot be found takes nothing. Running it raises the error that says why.
    """
    old, new = _find_or_none(source), _find_or_none(method)
    values = {key: value for key, value in table.items() if key not in ("name", *given)}
    names = _names(new)
    taken = {
        key: value for key, value in values.items() if key in names and old and new and same_meaning(old, new, key)
    }
    left = {key: value for key, value in values.items() if key not in taken}
    return CarriedOver(method, source, taken, left, frozenset(left.keys() & names if old else ()), bool(names))


def describe_changes(changes: Iterable[CarriedOver]) -> list[str]:
    """One line per distinct change; methods that have no parameter name in common with the old one share a line."""
    lines: list[str] = []
    nothing_common: dict[tuple[str, str], list[str]] = {}
    for change in changes:
        if not change.left and not change.taken:
            continue
        if change.taken or change.other_meaning:
            lines.append(str(change))
        elif change.has_parameters:  # a method without parameters needs no line
            values = ", ".join(f"{key}={_text(value)}" for key, value in change.left.items())
            nothing_common.setdefault((change.source, values), []).append(short_name(change.method))
    for (source, values), methods in nothing_common.items():
        names = ", ".join(dict.fromkeys(methods))
        lines.append(f"{names} take{'' if ',' in names else 's'} none of {short_name(source)}'s parameters: {values}")
    return list(dict.fromkeys(lines))


def same_meaning(one: type[Method], other: type[Method], name: str) -> bool:
    """Whether both methods have a parameter of this name with the same meaning."""
    return name in _names(one) and name in _names(other) and _meaning(one, name) == _meaning(other, name)


def shared_with(kind: type[Method], name: str) -> list[str]:
    """The other named methods that this parameter carries over to."""
    return [method for method, other in METHODS.items() if other is not kind and same_meaning(kind, other, name)]


def _find_or_none(name: str) -> type[Method] | None:
    try:
        return find(name)
    except Exception:  # the user's own file may raise anything, and the method may never be run
        return None


def _names(kind: type[Method] | None) -> set[str]:
    return set() if kind is None else {f.name for f in dataclasses.fields(kind)}


def _meaning(kind: type[Method], name: str) -> tuple[str, ...]:
    """The declared meaning; else the class that declares it, which all subclasses that inherit it share."""
    (declared,) = (f for f in dataclasses.fields(kind) if f.name == name)
    if common := declared.metadata.get("common"):
        return (str(common),)
    owner = next(c for c in kind.__mro__ if name in inspect.get_annotations(c))
    try:
        place = inspect.getfile(owner)  # not the class: a file that is loaded twice gives two classes
    except (OSError, TypeError):
        place = owner.__module__
    return place, owner.__qualname__
