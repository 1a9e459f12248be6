"""Reads a label column as classes or, for regression, as numbers. Which of the two is said, or clear, or an error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core.errors import DataError
from coterie.core.task import AUTO, REGRESSION
from coterie.data.dataset import Array

FEW_CLASSES = 10  # plausible in a table of any size
ROWS_PER_CLASS = 10  # required on average if there are more than FEW_CLASSES
MOST_CLASSES = 1000


def read_labels_as(
    task: str, where: object, what: str, labels: Array, declared: Sequence[str] = ()
) -> tuple[Array, tuple[str, ...]]:
    """Labels by their task: numbers (float64) without classes for regression, else class numbers and names.

    Without a declared task or classes (AUTO), a column of many different numbers with fractions is a regression, and a
    column that could be either is an error. Raises DataError, beginning with `where`.
    """
    if task == REGRESSION and declared:
        raise DataError("data.labels lists classes, but data.task = regression has none: remove one of the two")
    if not len(labels):
        raise DataError(f"{where}: no row has a label ({what}): fill it in, or name another column in data.label")
    if task == REGRESSION or (task == AUTO and not declared and _are_measurements(labels)):
        return _numbers(where, what, labels), ()
    return encode_labels(where, what, labels, declared)


def _are_measurements(labels: Array) -> bool:
    return _has_fractions(labels) and len(np.unique(labels)) > FEW_CLASSES


def _has_fractions(labels: Array) -> bool:
    return labels.dtype.kind == "f" and bool((labels != np.floor(labels)).any())


def _numbers(where: object, what: str, labels: Array) -> Array:
    try:
        numbers = np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: {what} has labels that are not numbers, which data.task = regression needs: correct them, or "
            "name another column in data.label"
        ) from error
    if not np.isfinite(numbers).all():
        raise DataError(f"{where}: {what} has missing or infinite numbers {which_rows(~np.isfinite(numbers))}")
    return numbers


def encode_labels(
    where: object, what: str, labels: Array, declared: Sequence[str] = ()
) -> tuple[Array, tuple[str, ...]]:
    """Labels of any type as class numbers and names; numbers sort as numbers, everything else as text.

    `declared` lists all classes, in the same order for all peers; then labels are not tested for being measurements.
    Raises DataError, beginning with `where`, if `what` (the label column) does not contain classes.
    """
    if labels.dtype.kind not in "iufb":
        labels = np.asarray([str(label) for label in labels])
    values, numbers = np.unique(labels, return_inverse=True)
    names = tuple(name_of(value) for value in values)
    if not declared:
        _refuse_measurement(where, what, values, len(labels))
        return numbers.astype(np.int64), names
    number_of = {name: number for number, name in enumerate(declared)}
    known = np.array([name in number_of for name in names])
    if not known.all():
        raise DataError(
            f"{where}: {what} has labels that are not in data.labels ({', '.join(declared)}) "
            f"{which_rows(~known[numbers])}: correct these rows, or add their labels to data.labels"
        )
    return np.array([number_of[name] for name in names], dtype=np.int64)[numbers], tuple(declared)


def which_rows(wrong: Array, numbers: Array | None = None) -> str:
    """Where a problem is, without the value: others than the owner of the data may read the error.

    `numbers` are the row numbers in the file; None: they count up from 0.
    """
    rows = np.flatnonzero(wrong) if numbers is None else numbers[wrong]
    return f"in {len(rows)} row{'s' if len(rows) > 1 else ''}, the first is row {rows[0]} (counted from 0)"


def name_of(value: object) -> str:
    """The name of a class or site. 1.0 is class 1: some formats store integers as floats."""
    return str(int(value)) if isinstance(value, np.floating) and value == np.floor(value) else str(value)


def _refuse_measurement(where: object, what: str, values: Array, rows: int) -> None:
    """Raise DataError for values that look like measurements. Classes are few, and each has several rows."""
    if _has_fractions(values):
        raise DataError(
            f"{where}: {what} contains fractions, so it is a measurement and not a class. Set data.task = regression, "
            "bin the values into classes (pandas.cut), or name another column in data.label"
        )
    count = len(values)
    too_many = count > FEW_CLASSES and (rows < ROWS_PER_CLASS * count or count > MOST_CLASSES)
    if too_many or count > max(2, rows // 2):
        raise DataError(
            f"{where}: {what} has {count} distinct values in {rows} rows, too many for classes. If they are numbers "
            "to predict, set data.task = regression; if they are classes, list them in data.labels; or name another "
            "column in data.label"
        )
