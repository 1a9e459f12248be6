"""The figures that a table may show beside the paper's, each read from a run's summary (None if absent)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coterie.core.summary import LAST, SELECTED, Spread, Summary, Totals


@dataclass(frozen=True)
class RowRun:
    """One run behind a row of a table."""

    summary: Summary
    seed: int
    change: Mapping[str, float] = field(default_factory=dict)  # relative to the row that the table names


Find = Callable[[RowRun], float | None]


@dataclass(frozen=True)
class TableFigure:
    """How to find a number of a run, and how to format it."""

    find: Find
    form: str  # a format specification without a sign
    signed: bool = False
    beside: bool = True  # worth an extra column in tables about another figure

    def written(self, value: float, signed: bool | None = None) -> str:
        return format(value, ("+" if (self.signed if signed is None else signed) else "") + self.form)


def finite(value: float | None) -> float | None:
    """The value as a float; None if it is not a finite number."""
    return None if value is None or not math.isfinite(value) else float(value)


def change(run: Summary, alone: Summary) -> dict[str, float]:
    """The relative improvement per peer over another run on the same splits: least and most."""
    both = zip(_per_peer(run), _per_peer(alone), strict=False)
    changes = [own / other - 1 for own, other in both if own is not None and other]
    return {"least": min(changes), "most": max(changes)} if changes else {}


def _per_peer(run: Summary) -> list[float | None]:
    return [finite(value) for value in run.accuracy.selected.per_peer]


def _number(find: Callable[[Summary], float | None]) -> Find:
    return lambda run: finite(find(run.summary))


def _percent(find: Callable[[Summary], float | None]) -> Find:
    return lambda run: None if (found := finite(find(run.summary))) is None else 100 * found


def _beside(name: str) -> Find:
    return _percent(lambda s: s.beside.spreads.get(name, Spread()).mean)


def _noted(summary: Summary, name: str) -> float | None:
    value = summary.noted.get(name)
    return None if isinstance(value, Mapping) else value


def _change(which: str) -> Find:
    """Relative to the row that the table names; otherwise to what the run itself measured."""

    def find(run: RowRun) -> float | None:
        measured = run.summary.beside.spreads.get("alone", Spread()).change or {}
        found = finite(run.change.get(which, measured.get(which)))
        return None if found is None else 100 * found

    return find


def _per_peer_in(totals: Callable[[Summary], Totals], unit: float) -> Find:
    """A total divided by the peers, in units of `unit`."""

    def find(run: RowRun) -> float | None:
        return totals(run.summary).total / run.summary.peers / unit if run.summary.peers else None

    return find


FIGURES: dict[str, TableFigure] = {
    LAST: TableFigure(_percent(lambda s: s.accuracy.last.mean), ".2f"),
    SELECTED: TableFigure(_percent(lambda s: s.accuracy.selected.mean), ".2f"),
    "± peers": TableFigure(_percent(lambda s: s.accuracy.last.std), ".1f"),
    "precision": TableFigure(_percent(lambda s: s.neighbours.precision), ".1f"),
    "recall": TableFigure(_percent(lambda s: s.neighbours.recall), ".1f"),
    "mass": TableFigure(_number(lambda s: s.neighbours.mass), ".3f"),
    "alone": TableFigure(_beside("alone"), ".2f"),  # a peer's own models, in the last round
    "own share": TableFigure(_percent(lambda s: s.beside.noted.get("own_share")), ".0f"),
    "least change": TableFigure(_change("least"), ".1f", signed=True),
    "most change": TableFigure(_change("most"), ".1f", signed=True),
    "mixture": TableFigure(_beside("mixture"), ".2f"),
    "helped": TableFigure(_percent(lambda s: _noted(s, "helped")), ".0f"),
    "idle": TableFigure(_percent(lambda s: s.idle.mean if s.idle else None), ".0f"),
    "messages of prototypes": TableFigure(
        _number(lambda s: s.messages.by_artifact.get("prototypes")), ",.0f", beside=False
    ),
    "messages per peer": TableFigure(_per_peer_in(lambda s: s.messages, 1), ",.0f"),
    "MB per peer": TableFigure(_per_peer_in(lambda s: s.bytes, 1e6), ".1f"),
    # Of parallel runs, so they say little about a method.
    "seconds": TableFigure(_number(lambda s: s.seconds), ".0f", beside=False),
}
