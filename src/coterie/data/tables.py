"""Reads tables (.csv, .parquet) of numbers and declared categories. Any other column is an error."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.core.task import AUTO
from coterie.data.dataset import Array, Dataset, FeatureColumn
from coterie.data.labels import read_labels_as, which_rows
from coterie.data.row_columns import ONLY_FEATURES, RowColumns
from coterie.data.untidy import read_texts

Categories = Mapping[str, Sequence[str]]

SUFFIXES = (".csv", ".parquet")
MOST_NAMED = 20  # columns listed in an error


def load_table(
    path: Path,
    label: str,
    labels: Sequence[str],
    categories: Categories,
    rows: RowColumns = ONLY_FEATURES,
    task: str = AUTO,
) -> Dataset:
    """The dataset of a table; `label` is its label column, `labels` lists all classes if it may lack some. The columns
    `rows` describe the rows and are not features."""
    table = read_table(path, [*categories, *rows.texts])
    table.columns = [str(name) for name in table.columns]
    for what, name in {"label column": label, **rows.by_key}.items():
        if name not in table.columns:
            known = f"label column '{name}' (data.label)" if what == "label column" else f"column '{name}' ({what})"
            raise DataError(f"{path}: has no {known}; {_columns_of(table)}")
    apart = [label, *rows.by_key.values()]
    if len(table) == 0 or len(table.columns) <= len(set(apart)):
        besides = ", ".join(f"'{name}'" for name in dict.fromkeys(apart))
        raise DataError(f"{path}: needs at least one row, and a column besides {besides}")
    rows.check(path, label, categories, "data.categories")
    _check_categories(path, table, label, categories)
    refuse_missing(path, table)
    y, classes = read_labels_as(task, path, f"column '{label}'", table[label].to_numpy(), labels)
    columns = tuple(_describe(path, table[name], categories) for name in table.columns if name not in apart)
    x = np.concatenate([encode(path, table[column.name], column) for column in columns], axis=1)
    return Dataset(path.stem, x, y, classes, columns, **rows.read(path, table))


def read_table(path: Path, texts: Collection[str] = ()) -> Any:
    """A pandas table; the columns named in `texts` are texts even if they look like numbers."""
    import pandas

    try:
        if path.suffix == ".parquet":
            return pandas.read_parquet(path)
        return pandas.read_csv(path, dtype=dict.fromkeys(texts, str))
    except (OSError, ValueError) as error:  # pandas' parser errors and pyarrow's are ValueErrors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: cannot be read as a table ({reason})") from error


def read_column(path: Path, name: str, key: str, *, text: bool = False, untidy: bool = False) -> Any:
    """One column of a table; `key` is the setting that names it. With `text`, 007 is not 7. An untidy table may have
    any separator."""
    table = read_texts(path)[0] if untidy else read_table(path, [name] if text else ())
    table.columns = [str(name) for name in table.columns]
    if name not in table.columns:
        raise DataError(f"{path}: has no column '{name}' ({key}); {_columns_of(table)}")
    return table[name]


def refuse_missing(path: Path, table: Any) -> None:
    """Raise DataError for missing or infinite values: what to do with them is the user's decision."""
    missing = table.isna().sum()
    numbers = table.select_dtypes("number")
    infinite = np.isinf(numbers.to_numpy(dtype=np.float64, na_value=0.0)).sum(axis=0)
    for counts in (missing, dict(zip(numbers.columns, infinite, strict=True))):
        for name, count in counts.items():
            if count:
                raise DataError(
                    f"{path}: column '{name}' has missing or infinite values in {count} rows: fill them in or drop "
                    f"them; or declare a schema (`coterie data schema {path.name} --out schema.toml`) as data.schema"
                )


def encode(path: Path, values: Any, column: FeatureColumn) -> Array:
    """A pandas column's features, (N, F): numbers unchanged, a category as one 0/1 indicator per declared value."""
    if not column.texts:
        if not _is_numeric(values):
            raise DataError(f"{path}: column '{column.name}' must contain numbers, but does not {_not_numbers(values)}")
        numbers: Array = values.to_numpy(dtype=np.float64)[:, None]
        return numbers
    place = {text: number for number, text in enumerate(column.texts)}
    texts, rows = np.unique(values.astype(str).to_numpy(dtype=str), return_inverse=True)
    categories = np.array([place.get(text, place.get(_tidy(text), -1)) for text in texts.tolist()])[rows]
    if (categories < 0).any():
        raise DataError(
            f"{path}: column '{column.name}' has a value that is not one of its categories ({', '.join(column.texts)}) "
            f"{which_rows(categories < 0)}: correct these rows, or add the category to data.categories and train again"
        )
    indicators: Array = (categories[:, None] == np.arange(len(column.texts))).astype(np.float64)
    return indicators


def _check_categories(path: Path, table: Any, label: str, categories: Categories) -> None:
    for name in categories:
        if name == label:
            raise DataError(f"data.categories: '{label}' is the label column: list its classes in data.labels")
        if name not in table.columns:
            raise DataError(f"{path}: has no column '{name}' of data.categories; {_columns_of(table)}")


def _describe(path: Path, column: Any, categories: Categories) -> FeatureColumn:
    """Describes a column. Categories are declared, never read from the cells, as peers exchange descriptions."""
    name = str(column.name)
    if name in categories:
        return FeatureColumn(name, tuple(categories[name]))
    if _is_numeric(column):
        return FeatureColumn(name)
    from pandas.api import types

    if types.is_datetime64_any_dtype(column) or types.is_timedelta64_dtype(column):
        raise DataError(
            f"{path}: column '{name}' contains dates or times: drop it, or convert it to a number (such as days)"
        )
    numbers = _as_numbers(column)
    if 2 * np.isnan(numbers).sum() < len(numbers):
        where = _not_numbers(column)
        raise DataError(
            f"{path}: column '{name}' has no number {where}: correct or drop these rows, or drop the column"
        )
    raise DataError(
        f"{path}: column '{name}' contains texts or dates, not numbers: drop it or convert it; or, if it has a few "
        f"categories, list them in the file that all peers share: [data] categories = {{ '{name}' = ['...', '...'] }}"
    )


def _columns_of(table: Any) -> str:
    """The column names, unless the header looks like a row of data, which must not be shown."""
    names = [str(name) for name in table.columns]
    if names != [str(i) for i in range(len(names))] and not np.isnan(_as_numbers(np.array(names, object))).all():
        return "its first line must be a header with the column names, but looks like a row of data"
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"its columns: {', '.join(names[:MOST_NAMED])}{more}"


def _is_numeric(column: Any) -> bool:
    from pandas.api import types

    return bool(types.is_numeric_dtype(column))  # includes booleans


def _as_numbers(values: Any) -> Array:
    """The values as numbers; NaN for anything else."""
    import pandas

    numbers: Array = pandas.to_numeric(pandas.Series(values).astype(str), errors="coerce").to_numpy(np.float64)
    return numbers


def _not_numbers(values: Any) -> str:
    return which_rows(np.isnan(_as_numbers(values)))


def _tidy(text: str) -> str:
    """The text without surrounding blanks. 1.0 is category 1: some formats store integers as floats."""
    try:
        number = float(text)
    except ValueError:
        return text.strip()
    return str(int(number)) if number.is_integer() else text.strip()
