"""What settings and parameters allow is declared once: the checks, the errors and the help texts come from there."""

from __future__ import annotations

import copy
import dataclasses
import math
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from coterie.config import parsing
from coterie.config.loading import load
from coterie.config.sections import PLAIN, SECTIONS, Experiment
from coterie.core.errors import ConfigError
from coterie.core.settings import Allowed, check_values, described, setting
from coterie.methods import METHODS
from coterie.methods.components.distillation import KL
from coterie.methods.components.two_gaussians import EM
from coterie.methods.panm import SIMILARITY


@dataclass(frozen=True)
class Restricted:
    """A setting that does not allow every value of its type."""

    kind: type[Any]
    field: dataclasses.Field[Any]
    section: str

    @property
    def allowed(self) -> Allowed:
        return typing.cast(Allowed, self.field.metadata["allowed"])

    @property
    def key(self) -> str:
        section = "method" if self.kind in METHODS.values() else self.section
        return ".".join(filter(None, [section, self.field.name]))

    def value(self, one: Any) -> Any:
        """One number or word as a value of the field: a list has as many of them as its default, at least one."""
        default = parsing.default(self.field)
        if isinstance(default, tuple):
            return (self._typed(one),) * max(1, len(default))
        return self._typed(one)

    def _typed(self, one: Any) -> Any:
        return int(one) if self.whole and not isinstance(one, str) else one

    @property
    def whole(self) -> bool:
        return str(typing.get_type_hints(self.kind)[self.field.name]) in (str(int), "tuple[int, ...]")

    def inside(self) -> Iterator[Any]:
        """The bounds themselves, or the next number if a bound is exclusive; and every choice."""
        a = self.allowed
        if a.least is not None:
            yield a.least
        if a.most is not None:
            yield a.most
        if a.above is not None:
            yield a.above + 1 if self.whole else math.nextafter(a.above, math.inf)
        if a.below is not None:
            yield a.below - 1 if self.whole else math.nextafter(a.below, -math.inf)
        yield from a.choices

    def outside(self) -> Iterator[Any]:
        a = self.allowed
        if a.least is not None:
            yield a.least - 1 if self.whole else math.nextafter(a.least, -math.inf)
        if a.most is not None:
            yield a.most + 1 if self.whole else math.nextafter(a.most, math.inf)
        if a.above is not None:
            yield a.above
        if a.below is not None:
            yield a.below
        if a.bounds and not self.whole:
            yield from (math.nan, math.inf, -math.inf)
        if a.choices:
            yield "nonsense"


def restricted() -> Iterator[Restricted]:
    plain = [f for f in dataclasses.fields(Experiment) if f.name in PLAIN]
    kinds = [("", Experiment, plain), *((name, kind, dataclasses.fields(kind)) for name, kind in SECTIONS.items())]
    kinds += [(name, kind, dataclasses.fields(kind)) for name, kind in METHODS.items()]
    for section, kind, fields in kinds:
        yield from (Restricted(kind, f, section) for f in fields if "allowed" in f.metadata)


ALL = list(restricted())
EXPERIMENT = load("panm-digits")


def test_there_are_restricted_settings_everywhere() -> None:
    assert {"", "data", "model", "train", "engine", "clock", "graph", "evaluate", "network", "panm"} <= {
        one.section for one in ALL
    }


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.section}.{one.field.name}")
def test_bounds_and_choices_are_accepted_and_nothing_beyond(one: Restricted) -> None:
    """Beyond them, the error names the key and the allowed values."""
    part = one.kind() if one.kind in METHODS.values() else getattr(EXPERIMENT, one.section, EXPERIMENT)
    for number in one.inside():
        changed = copy.copy(part)
        object.__setattr__(changed, one.field.name, one.value(number))  # other settings may have to fit, in the end
        check_values(changed, "")
    method = [f"method.name={one.section}"] if one.section in METHODS else []
    for number in one.outside():
        with pytest.raises(ConfigError) as error:
            load("panm-digits", [*method, f"{one.key}={parsing.literal(one.value(number))}"])
        assert str(error.value).startswith(one.key)
        assert one.allowed.bounds in str(error.value)
        assert all(choice in str(error.value) for choice in one.allowed.choices)


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.section}.{one.field.name}")
def test_help_texts_show_the_allowed_values_once(one: Restricted) -> None:
    assert described(one.field) == f"{one.field.metadata['help']} [{one.allowed}]"
    assert " | " not in one.field.metadata["help"]
    assert one.allowed.accepts(parsing.default(one.field))


def test_choices_that_name_functions_are_all_there_are() -> None:
    choices = {(one.section, one.field.name): set(one.allowed.choices) for one in ALL}
    assert choices["panm", "similarity"] == set(SIMILARITY)
    assert choices["panm", "em"] == set(EM)
    assert choices["compfl", "kl"] == set(KL)


@dataclass(frozen=True)
class Mine:
    share: float = setting(0.5, "a share", least=0, below=1)
    many: tuple[int, ...] = setting((1,), "some numbers", above=0, most=9)
    size: float | str = setting("auto", "a size", choices={"auto": "fits"}, least=0, most=1)
    color: str = setting("red", "a colour", choices=("red", "green"))
    free: float = setting(0.0, "anything")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"share": 1.0}, "mine.share must be at least 0 and below 1, not 1.0"),
        ({"share": math.inf}, "mine.share must be at least 0 and below 1 and finite, not inf"),
        ({"many": (1, 10)}, "mine.many: each value must be above 0 and at most 9, not 10"),
        ({"size": 2.0}, "mine.size must be from 0 to 1 or auto, not 2.0"),
        ({"color": "grean"}, "mine.color must be one of red, green, not 'grean'. Did you mean 'green'?"),
    ],
)
def test_errors_name_key_value_and_what_is_allowed(change: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_values(Mine(**change), "mine.")
    assert str(raised.value) == error


def test_help_texts() -> None:
    texts = [described(f) for f in dataclasses.fields(Mine)]
    assert texts == [
        "a share [at least 0 and below 1]",
        "some numbers [above 0 and at most 9]",
        "a size [from 0 to 1 | auto (fits)]",
        "a colour [red | green]",
        "anything",
    ]
