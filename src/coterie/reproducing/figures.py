"""The figures that a table may show beside the paper's, each read from a run's summary (None if absent)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class TableFigure:
    """How to find a number in a summary, and how to format it."""

    find: Callable[[Summary], float | None]
    form: str  # a format specification without a sign
    signed: bool = False
    beside: bool = True  # worth an extra column in tables about another figure

    def written(self, value: float, signed: bool | None = None) -> str:
        return format(value, ("+" if (self.signed if signed is None else signed) else "") + self.form)


def at(summary: Any, *path: str) -> float | None:
    """The number at this path; None if there is no finite number."""
    for key in path:
        summary = summary.get(key) if isinstance(summary, Mapping) else None
    is_number = isinstance(summary, int | float) and not isinstance(summary, bool) and math.isfinite(summary)
    return float(summary) if is_number else None


def change(run: Summary, alone: Summary) -> dict[str, float]:
    """The relative improvement per peer over another run on the same splits: least and most."""
    both = zip(_per_peer(run), _per_peer(alone), strict=False)
    changes = [own / other - 1 for own, other in both if own is not None and other]
    return {"least": min(changes), "most": max(changes)} if changes else {}


def _per_peer(run: Summary) -> list[float | None]:
    spread: Any = run["accuracy"].get(SELECTED)
    values = spread.get("per_peer") if isinstance(spread, Mapping) else None
    return [at(value) for value in values] if isinstance(values, list) else []


def _number(*path: str) -> Callable[[Summary], float | None]:
    return lambda summary: at(summary, *path)


def _percent(*path: str) -> Callable[[Summary], float | None]:
    return lambda summary: None if (found := at(summary, *path)) is None else 100 * found


def _change(which: str) -> Callable[[Summary], float | None]:
    """Relative to the row that the table names; otherwise to what the run itself measured."""
    against, beside = _percent("change", which), _percent("beside", "alone", "change", which)
    return lambda summary: beside(summary) if (found := against(summary)) is None else found


def _per_one(path: tuple[str, ...], unit: float) -> Callable[[Summary], float | None]:
    """A total divided by the peers, in units of `unit`."""

    def find(summary: Summary) -> float | None:
        total, peers = at(summary, *path), at(summary, "peers")
        return None if total is None or not peers else total / peers / unit

    return find


LAST, SELECTED = "last", "selected"
FIGURES: dict[str, TableFigure] = {
    LAST: TableFigure(_percent("accuracy", LAST, "mean"), ".2f"),
    SELECTED: TableFigure(_percent("accuracy", SELECTED, "mean"), ".2f"),
    "± peers": TableFigure(_percent("accuracy", LAST, "std"), ".1f"),
    "precision": TableFigure(_percent("neighbours", "precision"), ".1f"),
    "recall": TableFigure(_percent("neighbours", "recall"), ".1f"),
    "mass": TableFigure(_number("neighbours", "mass"), ".3f"),
    "alone": TableFigure(_percent("beside", "alone", "mean"), ".2f"),  # a peer's own models, in the last round
    "own share": TableFigure(_percent("beside", "own_share"), ".0f"),
    "least change": TableFigure(_change("least"), ".1f", signed=True),
    "most change": TableFigure(_change("most"), ".1f", signed=True),
    "mixture": TableFigure(_percent("beside", "mixture", "mean"), ".2f"),
    "helped": TableFigure(_percent("helped"), ".0f"),
    "idle": TableFigure(_percent("idle", "mean"), ".0f"),
    "messages of prototypes": TableFigure(_number("messages", "by_artifact", "prototypes"), ",.0f", beside=False),
    "messages per peer": TableFigure(_per_one(("messages", "total"), 1), ",.0f"),
    "MB per peer": TableFigure(_per_one(("bytes", "total"), 1e6), ".1f"),
    # Of parallel runs, so they say little about a method.
    "seconds": TableFigure(_number("seconds"), ".0f", beside=False),
}
