"""The figures that a table may have beside the paper's: each from the summary of a run, None where it has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Summary = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """How to find a number, and how it is written."""

    find: Callable[[Summary], float | None]
    form: str


def _beside(name: str, *path: str) -> Callable[[Summary], float | None]:
    def find(summary: Summary) -> float | None:
        found: Any = summary.get("beside", {}).get(name)
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, int | float) else None

    return find


def _percent(find: Callable[[Summary], float | None]) -> Callable[[Summary], float | None]:
    def found(summary: Summary) -> float | None:
        value = find(summary)
        return None if value is None else 100 * value

    return found


def _neighbours(name: str) -> Callable[[Summary], float | None]:
    return lambda summary: summary.get("neighbours", {}).get(name)


def _accuracy(kind: str) -> Callable[[Summary], float | None]:
    return lambda summary: summary["accuracy"][kind]["mean"]


LAST, SELECTED = "last", "selected"
FIGURES: dict[str, Figure] = {
    LAST: Figure(_percent(_accuracy("last")), "{:.2f}"),
    SELECTED: Figure(_percent(_accuracy("selected")), "{:.2f}"),
    "± peers": Figure(lambda s: 100 * s["accuracy"]["last"]["std"], "{:.1f}"),
    "precision": Figure(_percent(_neighbours("precision")), "{:.1f}"),
    "recall": Figure(_percent(_neighbours("recall")), "{:.1f}"),
    "mass": Figure(_neighbours("mass"), "{:.3f}"),
    "own share": Figure(_percent(_beside("own_share")), "{:.0f}"),
    "least change": Figure(_percent(_beside("alone", "change", "least")), "{:+.1f}"),
    "most change": Figure(_percent(_beside("alone", "change", "most")), "{:+.1f}"),
    "mixture": Figure(_percent(_beside("mixture", "mean")), "{:.2f}"),
    "helped": Figure(_percent(lambda s: s.get("helped")), "{:.0f}"),
    "idle": Figure(_percent(lambda s: s.get("idle", {}).get("mean")), "{:.0f}"),
    "messages": Figure(lambda s: float(s["messages"]["total"]), "{:,.0f}"),
    "MB per peer": Figure(lambda s: s["bytes"]["total"] / s["peers"] / 1e6, "{:.1f}"),
    "seconds": Figure(lambda s: s["seconds"], "{:.0f}"),
}
