"""Finds metrics: those of `catalog` by name, and the user's own by path."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pkgutil import iter_modules

from coterie.core.errors import ConfigError, MetricError
from coterie.core.named_code import Function, call, find_named, require_arguments
from coterie.core.task import CLASSIFICATION
from coterie.metrics import catalog
from coterie.metrics.metric import Array, Metric, Scores

SETTING = "evaluate.metrics"


def _declared() -> Iterator[Metric]:
    for module in iter_modules(catalog.__path__):
        yield from import_module(f"{catalog.__name__}.{module.name}").METRICS


METRICS: dict[str, Metric] = {metric.name: metric for metric in _declared()}


def find(name: str, task: str = CLASSIFICATION) -> Metric:
    """The metric of this name, or of the user's own `module:name` or `file.py:name`.

    A function of the user's does not say what it is for: it is for `task`.
    """
    if ":" not in name and name in METRICS:
        return METRICS[name]
    found = find_named(SETTING, name, METRICS, "metric")
    if isinstance(found, Metric):
        metric = _guarded(name, found)
    elif callable(found):
        require_arguments(SETTING, name, found, "scores, labels")
        short = name.rpartition(":")[2]
        metric = Metric(short, short, True, "", partial(_of_arrays, name, found), task=task)
    else:
        raise ConfigError(
            f"{SETTING} = '{name}' is a {type(found).__name__}, but must be a coterie.metrics.Metric or a function of "
            "(scores, labels)"
        )
    if metric.name in METRICS:
        raise ConfigError(f"{SETTING} = '{name}': '{metric.name}' is a metric of Coterie: give yours another name")
    return metric


def _of_arrays(name: str, function: Function, scores: Scores, labels: Array) -> float | None:
    return _number(name, call(SETTING, name, function, scores.values, labels, error=MetricError))


def _of_scores(name: str, function: Function, scores: Scores, labels: Array) -> float | None:
    return _number(name, call(SETTING, name, function, scores, labels, error=MetricError))


def _guarded(name: str, metric: Metric) -> Metric:
    """The user's metric: errors in it name the file and line."""
    tune = metric.tune and partial(_of_scores, name, metric.tune)
    stacked = metric.stacked and partial(call, SETTING, name, metric.stacked, error=MetricError)
    return replace(metric, of=partial(_of_scores, name, metric.of), tune=tune, stacked=stacked)


def _number(name: str, value: object) -> float | None:
    if value is not None and not isinstance(value, numbers.Real):
        raise MetricError(
            f"{SETTING} = '{name}' returned a {type(value).__name__}: a metric returns one number, or None where it is "
            "undefined"
        )
    return None if value is None else float(value)
