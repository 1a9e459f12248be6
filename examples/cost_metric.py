"""A metric of one's own: the mean cost of decisions in which a missed positive sample costs five false alarms.

coterie run FILE.toml evaluate.metrics=examples/cost_metric.py:COST
"""

from coterie.metrics import Metric

MISSED = 5.0  # the cost of a missed positive sample; a false alarm costs 1


def cost(scores, labels):
    positive = labels == scores.positive
    missed = positive & ~scores.predicted_positive
    alarms = ~positive & scores.predicted_positive
    return (MISSED * missed + alarms).mean()


COST = Metric("cost", "cost of decisions", higher_is_better=False, unit="", of=cost, needs_positive=True)
