"""Tables, figures and pages from a run's events.

In a notebook:

    import coterie.report

    run = coterie.report.open("runs/demo")
    run.accuracy()                           # shown by the notebook
    run.graph(round=20).save("graph.svg")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coterie.report.figure import Figure, NothingToDraw

if TYPE_CHECKING:
    from coterie.report.run import Run

__all__ = ["Figure", "NothingToDraw", "open"]


def open(folder: str | Path) -> Run:
    """The run in a folder, finished or not: `accuracy()`, `bytes()`, `time()`, `neighbours()`, `graph(round=)`,
    `matrix(round=)`, `classes()`, `embedding()`, `front()` and `walks()` draw its figures."""
    from coterie.report.run import open_run

    return open_run(folder)
