"""What is measured besides the loss: metrics by name, what a run measures, and which round it selects.

A metric is declared in one file of `catalog`, or in a file of the user's own: `file.py:name` or `module:name`.
"""

from coterie.metrics.evaluation import ACCURACY_ONLY, Evaluation, evaluation_of
from coterie.metrics.metric import Metric, Scores
from coterie.metrics.registry import METRICS, find
from coterie.metrics.selection import Selection, selected_round, selection_of

__all__ = [
    "ACCURACY_ONLY",
    "METRICS",
    "Evaluation",
    "Metric",
    "Scores",
    "Selection",
    "evaluation_of",
    "find",
    "selected_round",
    "selection_of",
]
