"""Statistics over the runs of several variants. Nothing here is ever chosen by test data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import stats

from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.summary import Summary
from coterie.report.gains import gains
from coterie.report.interval import Estimate, estimate
from coterie.report.timing import time_to


@dataclass(frozen=True)
class Difference:
    """The mean gain against the best variant on the same seeds, and whether it may be chance."""

    estimate: Estimate
    p: float | None  # of a paired t-test over seeds, Holm-corrected; None with one seed


@dataclass(frozen=True)
class Line:
    """The figures of one variant over its seeds: of the main metric on test data, where nothing else is said."""

    label: str
    seeds: tuple[int, ...]
    last: Estimate
    selected: Estimate
    validation: float  # in the last measured round; variants are ordered by it
    spread: float  # standard deviation over peers in the last round, mean over seeds
    worst_decile: float
    hurt: float | None  # share of peers worse than training alone, under the same seed
    bytes: float
    messages: float
    target: float | None  # the mean to reach: given, or the final one of training alone
    time: float | None  # simulated seconds until then, mean over the seeds that reached it
    reached: int  # number of seeds that reached it
    against_best: Difference | None = None  # None for the best itself
    key: str = ""  # as the user gave it, such as panm,k=3; `label` is the name shown
    title: str = ""  # the name in LaTeX and on pages
    scores: Mapping[str, Estimate] = field(default_factory=dict)  # of the other metrics, in the last round


def paired_p(differences: Sequence[float]) -> float | None:
    """The probability of a mean this far from zero if the signs were chance (two-sided paired t-test)."""
    n = len(differences)
    if n < 2:
        return None
    deviation = float(np.std(differences, ddof=1))
    mean = float(np.mean(differences))
    if deviation == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stats.t.sf(abs(mean) / deviation * math.sqrt(n), n - 1))


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's correction for multiple tests; None stays None."""
    tested = sorted((p, i) for i, p in enumerate(ps) if p is not None)
    corrected: list[float | None] = [None] * len(ps)
    least = 0.0
    for rank, (p, i) in enumerate(tested):
        least = max(least, min(1.0, (len(tested) - rank) * p))
        corrected[i] = least
    return corrected


def hurt(run: Summary, alone: Summary) -> list[bool]:
    """For each peer measured in both runs, whether it ends worse than alone."""
    return [gain < 0 for gain in gains(run, alone).values()]


def line(
    label: str,
    runs: Mapping[int, Summary],
    alone: Mapping[int, Summary],
    target: float | None = None,
    is_alone: bool = False,
) -> Line:
    """The figures of one variant from its `runs` by seed, and the runs that train `alone` (possibly the same)."""
    done = [runs[seed] for seed in sorted(runs)]
    worse = [flag for seed in sorted(runs) if seed in alone for flag in hurt(runs[seed], alone[seed])]
    goals = {seed: target if target is not None else _final(alone.get(seed)) for seed in sorted(runs)}
    metric = done[0].main_metric
    times = [time_to(runs[seed].over_time, goal, metric) for seed, goal in goals.items() if goal is not None]
    reached = [time for time in times if time is not None]
    known_goals = [goal for goal in goals.values() if goal is not None]
    return Line(
        label,
        tuple(sorted(runs)),
        estimate([_measured(r.test.last) for r in done]),
        estimate([_measured(r.test.selected) for r in done]),
        _mean(r.validation.last for r in done),
        _mean(r.main_spread.last.std for r in done),
        _mean(r.main_spread.last.worst_decile for r in done),
        float(np.mean(worse)) if worse and not is_alone else None,
        _mean(r.bytes.total for r in done),
        _mean(r.messages.total for r in done),
        float(np.mean(known_goals)) if known_goals else None,
        float(np.mean(reached)) if reached else None,
        len(reached),
        scores=_other_metrics(done),
    )


def _other_metrics(runs: Sequence[Summary]) -> dict[str, Estimate]:
    """The mean of each further metric in the last round, for those with a value under every seed."""
    values = {m.name: [run.of(m.name).last.mean for run in runs if run.measures(m.name)] for m in runs[0].metrics[1:]}
    whole = {name: [v for v in means if v is not None] for name, means in values.items()}
    return {name: estimate(means) for name, means in whole.items() if len(means) == len(runs)}


def _final(alone: Summary | None) -> float | None:
    return None if alone is None else alone.test.last


def _measured(figure: float | None) -> float:
    assert figure is not None  # a run without a measured peer is not compared
    return figure


def _mean(figures: Iterable[float | None]) -> float:
    return float(np.mean([_measured(figure) for figure in figures]))


def ranked(
    lines: Sequence[Line], runs: Mapping[str, Mapping[int, Summary]], metric: MeasuredMetric = ACCURACY
) -> list[Line]:
    """The lines sorted by the metric on validation data, best first; the others with their gain against it, seed by
    seed."""
    best, *others = sorted(lines, key=lambda entry: (-metric.merit(entry.validation), entry.label))
    pairs = [_differences(runs[entry.label], runs[best.label], metric) for entry in others]
    ps = holm([paired_p(pair) for pair in pairs])
    compared = [
        replace(entry, against_best=Difference(estimate(pair), p) if pair else None)
        for entry, pair, p in zip(others, pairs, ps, strict=True)
    ]
    return [best, *compared]


def _differences(one: Mapping[int, Summary], best: Mapping[int, Summary], metric: MeasuredMetric) -> list[float]:
    seeds = sorted(set(one) & set(best))
    return [metric.gain(_measured(one[s].test.last), _measured(best[s].test.last)) for s in seeds]
