"""Declares settings and parameters: fields of a dataclass, each with its default, help text and allowed values.

The checks, the error texts, `coterie list` and the tables of the documentation all come from these declarations. Checks
that relate several settings are code (`config.checks`, `Method.check`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.core.errors import ConfigError

UNSET: Any = object()


@dataclass(frozen=True)
class Allowed:
    """The allowed values: one of the choices, or a finite number within the bounds. For a list: those of each item."""

    choices: Mapping[str, str] = field(default_factory=dict)  # with explanations, which may be empty
    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def accepts(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return all(map(self.accepts, value))
        if isinstance(value, str):
            return value in self.choices
        return bool(self.bounds) and self._contains(value)

    def _contains(self, number: float) -> bool:
        return (
            math.isfinite(number)
            and (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )

    @property
    def bounds(self) -> str:
        """The bounds in words; empty if there are none."""
        if self.least is not None and self.most is not None:
            return f"from {_number(self.least)} to {_number(self.most)}"
        words = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{word} {_number(bound)}" for word, bound in words.items() if bound is not None)

    def __str__(self) -> str:
        """The allowed values for help texts: `from 0 to 1`, `sgd | adam`, `mean (over peers) | sum`."""
        choices = [f"{choice} ({why})" if why else choice for choice, why in self.choices.items()]
        return " | ".join([*filter(None, [self.bounds]), *choices])

    def refusal(self, key: str, value: Any) -> str:
        """The error text for a value that is not allowed; of a list, it names the first such item."""
        if isinstance(value, list | tuple):
            wrong = next(item for item in value if not self.accepts(item))
            return self.refusal(f"{key}: each value", wrong)
        names = ", ".join(self.choices)
        allowed = " or ".join(filter(None, [self.bounds, f"one of {names}" if len(self.choices) > 1 else names]))
        finite = " and finite" if value in (math.inf, -math.inf) else ""
        near = difflib.get_close_matches(value, self.choices, n=1) if isinstance(value, str) else []
        hint = f". Did you mean '{near[0]}'?" if near else ""
        return f"{key} must be {allowed}{finite}, not {value!r}{hint}"


def _number(bound: float) -> str:
    return f"{bound:,.12g}"  # no exponent for a thousand million


def properties(help: str, choices: Iterable[str], **bounds: float | None) -> dict[str, Any]:
    """The metadata of a field: its help text and, if it is restricted, the allowed values."""
    explained = dict(choices) if isinstance(choices, Mapping) else dict.fromkeys(choices, "")
    restricted = explained or any(bound is not None for bound in bounds.values())
    return {"help": help, **({"allowed": Allowed(explained, **bounds)} if restricted else {})}


def setting(
    default: Any,
    help: str,
    *,
    choices: Iterable[str] = (),
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    effect: bool = True,
    fingerprint: Any = UNSET,
) -> Any:
    """Declare a setting: a field of the dataclass of its section.

    Args:
        default: its default value, or a function that makes it, for values that can be changed in place.
        help: what the reference and `coterie list` say of it, besides the allowed values.
        choices: the words that it allows, or a mapping from these to explanations.
        least: the smallest number that it allows. Bounds of a list apply to its items.
        above: the bound that numbers must exceed.
        most: the largest number that it allows.
        below: the bound that numbers must not reach.
        effect: whether it affects the results of a run; without effect are, say, the number of workers or what else is
            written. Runs that differ only in settings without effect count as the same run.
        fingerprint: for a setting without effect, the value that stands for all others in the fingerprint of a run; by
            default the default. It must never change: records of earlier runs are found by their fingerprints.

    Returns:
        A dataclass field.
    """
    metadata = properties(help, choices, least=least, above=above, most=most, below=below)
    if not effect:
        metadata["fingerprint"] = default if fingerprint is UNSET else fingerprint
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


def without_effect(kind: type[Any]) -> dict[str, Any]:
    """The settings of a section that do not affect results, each with its value in fingerprints."""
    fields = dataclasses.fields(kind)
    return {f.name: f.metadata["fingerprint"] for f in fields if "fingerprint" in f.metadata}


def check_values(settings: Any, prefix: str, *names: str) -> None:
    """Raise ConfigError for the first value that is not allowed, of these settings or of all."""
    for f in dataclasses.fields(settings):
        allowed: Allowed | None = f.metadata.get("allowed")
        value = getattr(settings, f.name)
        if allowed and (not names or f.name in names) and not allowed.accepts(value):
            raise ConfigError(allowed.refusal(f"{prefix}{f.name}", value))


def described(f: dataclasses.Field[Any]) -> str:
    """The help text of a setting, with its allowed values."""
    allowed = f.metadata.get("allowed")
    return f"{f.metadata.get('help', '')}{f' [{allowed}]' if allowed else ''}"
