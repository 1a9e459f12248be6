"""Tables, figures and pages from a run's events.

In a notebook:

    import coterie.report

    run = coterie.report.open("runs/demo")
    run.accuracy()                           # shown by the notebook
    run.graph(round=20).save("graph.svg")
"""

from coterie.report.figure import Figure, NothingToDraw
from coterie.report.run import Run
from coterie.report.run import open_run as open

__all__ = ["Figure", "NothingToDraw", "Run", "open"]
