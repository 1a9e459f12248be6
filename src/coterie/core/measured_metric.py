"""What is known of a metric that a run measured, and how its values are written and compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.core.formatting import NOTHING, percent

SHARE = "%"  # a share of 1, shown in percent
OF_LABEL = "label"  # the unit of the label


def short_number(value: float, sign: str = "") -> str:
    """Three digits, or a whole number."""
    return format(value, f"{sign},.0f" if 999.5 <= abs(value) < 1e9 else f"{sign}.3g")


@dataclass(frozen=True)
class MeasuredMetric:
    """What a report needs to know of a metric."""

    name: str
    label: str
    higher_is_better: bool
    unit: str  # "%" (a share of 1), "label" (that of the label), or none
    label_unit: str = ""  # where it is declared; for "label" alone

    @property
    def is_share(self) -> bool:
        return self.unit == SHARE

    @property
    def shown_unit(self) -> str:
        """The unit behind a number; a share is written in percent instead."""
        return self.label_unit if self.unit == OF_LABEL else ""

    @property
    def title(self) -> str:
        """The label as the first words of a heading."""
        return self.label[:1].upper() + self.label[1:]

    @property
    def label_with_unit(self) -> str:
        """For the head of a column or an axis whose numbers have no unit."""
        unit = SHARE if self.is_share else self.shown_unit
        return f"{self.label}, {unit}" if unit else self.label

    @property
    def axis_label(self) -> str:
        """For an axis; the ticks of a share are in percent."""
        return f"{self.label}, {self.shown_unit}" if self.shown_unit else self.label

    def text(self, value: float | None) -> str:
        """A value in its unit: 93.1%, 0.0125, or 3.07 kg."""
        if value is None:
            return NOTHING
        return percent(value) if self.is_share else f"{short_number(value)} {self.shown_unit}".rstrip()

    def on_validation(self, value: float) -> str:
        """For a line of progress; accuracy is not named."""
        return f"validation {'' if self == ACCURACY else f'{self.label} '}{self.text(value)}"

    # -- which is better -----------------------------------------------------------------------

    def merit(self, value: float) -> float:
        """The larger, the better."""
        return value if self.higher_is_better else -value

    def gain(self, value: float, reference: float) -> float:
        """How much better a value is than another one; negative if it is worse."""
        return self.merit(value - reference)

    def best(self, values: Iterable[float]) -> float:
        return max(values, key=self.merit)

    def worst(self, values: Iterable[float]) -> float:
        return min(values, key=self.merit)

    # -- differences ---------------------------------------------------------------------------

    @property
    def scale(self) -> float:
        """What a difference is multiplied by where it is written: shares differ by percentage points."""
        return 100.0 if self.is_share else 1.0

    @property
    def difference_unit(self) -> str:
        return "points" if self.is_share else self.shown_unit

    def difference(self, value: float) -> str:
        """A difference with its sign, without its unit."""
        return f"{100 * value:+.1f}" if self.is_share else short_number(value, "+")

    def deviation(self, value: float | None) -> str:
        """A standard deviation or a distance, with its unit."""
        if value is None:
            return NOTHING
        number = f"{100 * value:.1f}" if self.is_share else short_number(value)
        return f"{number} {self.difference_unit}".rstrip()


ACCURACY = MeasuredMetric("accuracy", "accuracy", higher_is_better=True, unit=SHARE)


def described(content: Mapping[str, Any]) -> MeasuredMetric:
    """The metric that a table of JSON describes; accuracy if it describes none."""
    name, label, unit, label_unit = (str(content.get(key) or "") for key in ("name", "label", "unit", "label_unit"))
    if not name:
        return ACCURACY
    return MeasuredMetric(name, label or name, content.get("higher_is_better") is not False, unit, label_unit)
