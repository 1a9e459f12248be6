"""What a run measures: the metrics that `[evaluate]` asks for, checked against the classes of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coterie.core.errors import ConfigError
from coterie.core.formatting import short_name
from coterie.core.task import CLASSIFICATION, REGRESSION
from coterie.metrics.metric import Metric
from coterie.metrics.registry import METRICS, SETTING, find
from coterie.metrics.selection import ACCURACY, BY_ACCURACY, Selection

AUTO = "auto"
OF_TABLES = ("accuracy", "balanced_accuracy", "auroc")
OF_NUMBERS = ("rmse", "mae", "r2")


@dataclass(frozen=True)
class Evaluation:
    """What a run measures besides loss and accuracy, and by which metric it selects a round."""

    metrics: tuple[Metric, ...] = ()
    classes: int = 2  # how many; 0: numbers are predicted
    positive: int = 1  # the number of the positive class
    selection: Selection = BY_ACCURACY
    predictions: bool = False  # whether predictions are kept, to be saved

    @property
    def task(self) -> str:
        return CLASSIFICATION if self.classes else REGRESSION

    @property
    def needs_outputs(self) -> bool:
        """Whether loss and accuracy are not enough."""
        return bool(self.metrics) or self.predictions

    def described(self) -> dict[str, Any]:
        """For the first record of a run; empty if only accuracy is measured."""
        if not self.metrics:
            return {}
        keys = ("name", "label", "higher_is_better", "unit")
        chosen = "" if self.selection.metric == ACCURACY else self.selection.metric
        task = {} if self.task == CLASSIFICATION else {"task": self.task}
        return {"metrics": [{key: getattr(m, key) for key in keys} for m in self.metrics], "select": chosen, **task}


ACCURACY_ONLY = Evaluation()


def evaluation_of(
    names: Sequence[str],
    select: str,
    positive: str,
    classes: Sequence[str],
    *,
    table: bool = False,
    predictions: bool = False,
    task: str = CLASSIFICATION,
) -> Evaluation:
    """What a run with these settings measures.

    Args:
        names: evaluate.metrics; empty: OF_NUMBERS for regression, OF_TABLES for a table, else accuracy.
        select: evaluate.select.
        positive: evaluate.positive, a class; empty: the last of two.
        classes: of the data.
        table: whether the data are a table.
        predictions: whether predictions are saved.
        task: what the models are for.

    Raises:
        ConfigError: the settings do not fit the data; the message names the key.
    """
    if task == REGRESSION and positive:
        raise ConfigError("evaluate.positive names a class, but the labels are numbers: remove it")
    metrics = found(names or _by_default(task, table), task)
    if task == REGRESSION and select == AUTO:
        select = next(iter(metrics)) if "rmse" not in metrics else "rmse"
    for metric in metrics.values():
        if metric.task != task:
            raise ConfigError(
                f"{SETTING}: {metric.name} is for {metric.task}, but this is {task}: {_remedy(metric, task)}"
            )
    number = 0
    if task == CLASSIFICATION:
        number = _positive(positive, classes, [m.name for m in metrics.values() if m.needs_positive])
    others = tuple(metric for metric in metrics.values() if metric.name != ACCURACY)
    return Evaluation(others, len(classes), number, selection(select, metrics, task), predictions)


def _by_default(task: str, table: bool) -> tuple[str, ...]:
    if task == REGRESSION:
        return OF_NUMBERS
    return OF_TABLES if table else (ACCURACY,)


def found(names: Sequence[str], task: str = CLASSIFICATION) -> dict[str, Metric]:
    """The metrics of these names, by what [evaluate] calls them, for a run of this task."""
    metrics = {name: find(name, task) for name in names}
    taken: dict[str, str] = {}
    for name, metric in metrics.items():
        if metric.name in taken or names.count(name) > 1:
            both = f" ({taken[metric.name]} and {name})" if metric.name in taken else ""
            raise ConfigError(f"{SETTING} has '{metric.name}' twice{both}: remove one of them")
        taken[metric.name] = name
    return metrics


def selection(select: str, metrics: dict[str, Metric], task: str = CLASSIFICATION) -> Selection:
    """By which of the metrics a run selects."""
    always = (ACCURACY,) if task == CLASSIFICATION else ()  # what is always measured
    if select in always or (always and select == AUTO):
        return BY_ACCURACY
    for name, metric in metrics.items():
        if select in (name, metric.name):
            return Selection(metric.name, metric.higher_is_better)
    names = ", ".join(sorted({*always, *(metric.name for metric in metrics.values())}))
    raise ConfigError(f"evaluate.select = '{short_name(select)}' is not measured: add it to {SETTING} ({names})")


def _positive(positive: str, classes: Sequence[str], needed_by: Sequence[str]) -> int:
    if positive and positive not in classes:
        listed = ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")
        raise ConfigError(f"evaluate.positive = '{positive}' is not a class of the data: use one of {listed}")
    if not positive and len(classes) != 2 and needed_by:
        raise ConfigError(
            f"{SETTING}: {', '.join(needed_by)} needs a positive class, and the data have {len(classes)} classes: set "
            "evaluate.positive to one of them"
        )
    return classes.index(positive) if positive else len(classes) - 1


def _remedy(metric: Metric, task: str) -> str:
    valid = f"use some of {', '.join(m.name for m in METRICS.values() if m.task == task)}"
    return valid if metric.name in METRICS else f'declare it with Metric(..., task="{task}"), or {valid}'
