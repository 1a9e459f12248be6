"""Draw figures, tables and HTML reports from the events of a run.

In a notebook:

    import coterie.report

    run = coterie.report.open("runs/demo")
    run.accuracy()                           # shown by the notebook
    run.graph(round=20).save("graph.pdf")
    coterie.report.figures("runs/compared")  # by name: from a run, a comparison or a sweep
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coterie.report.figure import Figure, NothingToDraw

if TYPE_CHECKING:
    from coterie.report.run import Run

__all__ = ["Figure", "NothingToDraw", "figures", "open"]


def open(folder: str | Path) -> Run:
    """Open the run in a folder, finished or not. `metric()`, `accuracy()`, `gains()`, `bytes()`, `time()`,
    `neighbours()`, `graph(round=)`, `matrix(round=)`, `classes()`, `notes()`, `embedding()`, `front()` and `walks()`
    draw its figures. `baseline` is the baseline's run, if there is one."""
    from coterie.report.run import open_run

    return open_run(folder)


def figures(folder: str | Path) -> dict[str, Figure]:
    """The figures in the report of a run, a comparison or a sweep, by name; `coterie.figures` saves them."""
    from coterie.report.saving import figures_by_name

    return figures_by_name(folder)
