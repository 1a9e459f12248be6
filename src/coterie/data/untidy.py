"""Reads an untidy table by a declared schema, and reports what was done to its rows, without any value of a cell."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError, first_line
from coterie.core.formatting import count
from coterie.data.dataset import Array
from coterie.data.labels import which_rows
from coterie.data.row_columns import ONLY_FEATURES, RowColumns
from coterie.data.schema import DATE, NUMBER, ORDERED, Column, Schema, tidy
from coterie.data.texts import hashed

SEPARATORS = ",;\t|"
DAYS_OF_A_YEAR = 365.25


@dataclass(frozen=True)
class Fault:
    """Cells that do not fit the schema: where they are, never what they hold."""

    column: str
    what: str
    rows: tuple[int, ...]  # counted from 0, without the header, but with blank lines

    def __str__(self) -> str:
        first = ", ".join(map(str, self.rows[:3])) + (", ..." if len(self.rows) > 3 else "")
        return f"column '{self.column}': {self.what} in {count(len(self.rows), 'row')} (counted from 0: {first})"


@dataclass(frozen=True)
class Reading:
    """What was done to the rows of one file."""

    rows: int = 0
    separator: str = ","
    reordered: bool = False
    extra: tuple[str, ...] = ()  # columns that the schema does not declare
    absent: tuple[str, ...] = ()  # optional columns that the file lacks
    missing: Mapping[str, int] = field(default_factory=dict)  # cells without a value, by column
    missing_texts: Mapping[str, int] = field(default_factory=dict)  # the same of free text
    unlikely: Mapping[str, int] = field(default_factory=dict)  # cells outside of the plausible range
    unknown: Mapping[str, int] = field(default_factory=dict)  # cells of no declared category
    respelled: Mapping[str, int] = field(default_factory=dict)  # cells with another spelling of a declared value
    unlabelled: int = 0  # rows without a label, which are left out
    unlikely_labels: int = 0  # rows whose label is outside of its plausible range, which are left out, too
    faults: tuple[Fault, ...] = ()  # what cannot be read

    def lines(self) -> list[str]:
        """What was done, one line a fact."""
        separator = {"\t": "a tab", ",": ""}.get(self.separator, f"'{self.separator}'")
        facts = [
            separator and f"cells are separated by {separator}",
            self.reordered and "columns are in another order than in the schema: matched by name",
            self.extra and f"columns that the schema does not declare are left out: {_listed(self.extra)}",
            self.absent and f"optional columns that the file lacks count as missing: {_listed(self.absent)}",
            self.unlabelled and f"{count(self.unlabelled, 'row')} without a label left out",
            self.unlikely_labels
            and f"{count(self.unlikely_labels, 'row')} with a label outside of its plausible range left out",
        ]
        by_column = (
            ("missing values", self.missing, "filled from the training rows"),
            ("missing texts", self.missing_texts, "their features are 0"),
            ("values outside of the plausible range", self.unlikely, "they count as missing"),
            ("values of no declared category", self.unknown, "they count as unknown"),
            ("values in another spelling", self.respelled, "replaced by their synonym"),
        )
        shown = [f"{what}: {_counts(counts)}; {done}" for what, counts, done in by_column if counts]
        return [str(fact) for fact in facts if fact] + shown


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items())


@dataclass(frozen=True)
class Coded:
    """The columns of a schema as numbers: a measurement, or the number of a category; NaN where missing.

    A text is as many numbers as it has features, all 0 where it is missing.
    """

    x: Array  # (rows, codes of all columns); a value of no declared category has the number after the last
    y: Array | None  # class numbers, or numbers; None: the file has no label column, or it was not asked for
    kept: Array  # the row numbers of the file that are in x
    reading: Reading
    row_fields: dict[str, Any] = field(default_factory=dict)  # of a Dataset: sites, groups and times of the rows


def read_by_schema(path: Path, schema: Schema, *, labelled: bool = True, rows: RowColumns = ONLY_FEATURES) -> Coded:
    """The table of a file; `rows` names columns that describe rows, which are no features. Raises DataError if it
    cannot be read, or lacks a column; faults are in the reading."""
    table, separator = read_texts(path)
    names = [str(name).strip() for name in table.columns]
    table.columns = names
    _refuse_columns(path, names, schema, labelled)
    rows.check(path, schema.label.column, [column.name for column in schema.columns], "the columns of data.schema")
    _refuse_row_columns(path, table, rows)
    numbers = table.index.to_numpy()
    coder = _Coder(schema, numbers, decimal_comma=separator != "," and _has_decimal_comma(table, schema))
    columns = [
        coder.coded(column, table[column.name]) if column.name in names else _absent(column, len(table))
        for column in schema.columns
    ]
    x = np.concatenate(columns, axis=1)
    y = coder.labels(table[schema.label.column]) if labelled else None
    kept = np.arange(len(table)) if y is None else np.flatnonzero(np.isfinite(y))
    declared = [*(c.name for c in schema.columns), *schema.ignored, schema.label.column, *rows.by_key.values()]
    order = [name for name in names if name in {c.name for c in schema.columns}]
    reading = Reading(
        len(table), separator, order != [c.name for c in schema.columns if c.name in names],
        tuple(name for name in names if name not in declared),
        tuple(c.name for c in schema.columns if c.name not in names),
        coder.missing, coder.missing_texts, coder.unlikely, coder.unknown, coder.respelled,
        coder.unlabelled, coder.unlikely_labels, tuple(coder.faults),
    )  # fmt: skip
    fields = rows.read(path, table.iloc[kept], numbers[kept]) if rows.by_key else {}
    return Coded(x[kept], None if y is None else _labels_of(schema, y[kept]), numbers[kept], reading, fields)


def _labels_of(schema: Schema, y: Array) -> Array:
    return y.astype(np.int64) if schema.label.classes else y


def _absent(column: Column, rows: int) -> Array:
    return np.full((rows, column.codes), 0.0 if column.is_text else np.nan)


def useless(coded: Coded, schema: Schema) -> list[str]:
    """The columns of a file that have cells, but none that models can use."""
    reading, found = coded.reading, []
    for name in (column.name for column in schema.columns if column.name not in coded.reading.absent):
        cells = reading.rows - reading.missing.get(name, 0)
        if 0 < cells <= reading.unlikely.get(name, 0) + reading.unknown.get(name, 0):
            found.append(f"column '{name}': no cell is usable. Is it in other units, or spelled differently?")
    return found


def read_texts(path: Path) -> tuple[Any, str]:
    """The table with every cell as text, its rows numbered as in the file, and the separator of the file."""
    import pandas

    try:
        if path.suffix == ".parquet":
            table = pandas.read_parquet(path).reset_index(drop=True)
            return table.map(
                lambda cell: "" if pandas.api.types.is_scalar(cell) and pandas.isna(cell) else str(cell)
            ), ","
        with path.open(encoding="utf-8-sig", newline="") as file:
            separator = _separator(file.readline())
            file.seek(0)
            lines = [(i, row) for i, row in enumerate(csv.reader(file, delimiter=separator)) if row] or [(0, [])]
    except (OSError, ValueError, csv.Error) as error:  # pandas' parser errors and encoding errors are ValueErrors
        if isinstance(error, UnicodeError):
            raise DataError(f"{path}: is not in UTF-8: save it as CSV in UTF-8") from error
        raise DataError(f"{path}: cannot be read as a table ({first_line(error)})") from error
    (first, header), *below = lines
    numbers = np.array([i - first - 1 for i, _ in below], dtype=np.int64)  # a blank line is no row, but counts as one
    rows = [row for _, row in below]
    _refuse_rows(path, header, rows, numbers)
    table = pandas.DataFrame(rows, index=numbers, columns=[name.strip() for name in header], dtype=object)
    return table, separator


def _text_of(cell: Any) -> str:
    import pandas

    missing = pandas.api.types.is_scalar(cell) and pandas.isna(cell)  # a list is not: its column may be undeclared
    return "" if missing else str(cell)


def _refuse_rows(path: Path, header: list[str], rows: list[list[str]], numbers: Array) -> None:
    """Raise DataError for columns of the same name, and for rows of another length: their cells would shift."""
    names = [name.strip() for name in header]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}: has the column '{doubled[0]}' twice: rename or remove one")
    wrong = np.array([len(row) != len(header) for row in rows], dtype=bool)
    if wrong.any():
        raise DataError(
            f"{path}: the header has {count(len(header), 'cell')}, but there are more or fewer "
            f"{which_rows(wrong, numbers)}: correct these rows, and quote cells that contain the separator"
        )


def _separator(header: str) -> str:
    """The separator that a header has most of."""
    return max(SEPARATORS, key=header.count)  # the first of equally frequent ones: the comma


def _refuse_columns(path: Path, names: list[str], schema: Schema, labelled: bool) -> None:
    needed = [c.name for c in schema.columns if not c.optional] + ([schema.label.column] if labelled else [])
    lacking = [name for name in needed if name not in names]
    if lacking:
        raise DataError(
            f"{path}: lacks the {'columns' if len(lacking) > 1 else 'column'} {_listed(map(repr, lacking))} of the "
            "schema. Add it, or declare it with optional = true in the schema that all peers share"
        )


def _has_decimal_comma(table: Any, schema: Schema) -> bool:
    """Whether commas in numbers are decimal marks: no number has a point, and some comma cannot separate thousands."""
    numbers = [column.name for column in schema.columns if column.type == NUMBER]
    numbers += [] if schema.label.classes else [schema.label.column]
    names = [name for name in numbers if name in table.columns]
    cells = [str(cell).strip() for name in names for cell in table[name]]
    commas = [cell for cell in cells if re.fullmatch(r"[+-]?\d+,\d+", cell)]
    points = any(re.fullmatch(r"[+-]?\d*\.\d+", cell) for cell in cells)
    return not points and any(not re.fullmatch(r"[+-]?\d{1,3},\d{3}", cell) for cell in commas)


def _refuse_row_columns(path: Path, table: Any, rows: RowColumns) -> None:
    for key, name in rows.by_key.items():
        if name not in table.columns:
            raise DataError(f"{path}: has no column '{name}' ({key}): name one of {_listed(table.columns)}")
        empty = np.array([not str(cell).strip() for cell in table[name]], dtype=bool)
        if empty.any():
            where = which_rows(empty, table.index.to_numpy())
            raise DataError(f"{path}: column '{name}' ({key}) is empty {where}: fill it in")


class _Coder:
    """Turns texts into numbers by the schema, and counts what was unusual."""

    def __init__(self, schema: Schema, numbers: Array, *, decimal_comma: bool) -> None:
        self.schema, self.numbers, self.decimal_comma = schema, numbers, decimal_comma  # numbers of the rows
        self.missing: dict[str, int] = {}
        self.missing_texts: dict[str, int] = {}
        self.unlikely: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.respelled: dict[str, int] = {}
        self.unlabelled = self.unlikely_labels = 0
        self.faults: list[Fault] = []

    def coded(self, column: Column, cells: Any) -> Array:
        """The codes of a column, (rows, codes)."""
        return self._hashed(column, cells) if column.is_text else self._numbered(column, cells)[:, None]

    def _hashed(self, column: Column, cells: Any) -> Array:
        texts, markers = [str(cell).strip() for cell in cells], self.schema.markers(column)
        absent = np.array([text in markers for text in texts], dtype=bool)
        self._count(self.missing_texts, column.name, absent)
        return hashed(["" if missing else text for text, missing in zip(texts, absent, strict=True)], column.features)

    def _numbered(self, column: Column, cells: Any) -> Array:
        texts, place = np.unique([tidy(cell) for cell in cells], return_inverse=True)
        absent = np.isin(texts, list(self.schema.markers(column)))
        values = self._values(column, texts, absent, place)[place]
        self._count(self.missing, column.name, absent[place])
        if column.least is not None or column.most is not None:
            low, high = (bound if bound is not None else np.nan for bound in (column.least, column.most))
            outside = (values < low) | (values > high)
            self._count(self.unlikely, column.name, outside & np.isfinite(values))
            values = np.where(outside & np.isfinite(values), np.nan, values)
        self._fault(column.name, "no number" if column.type == NUMBER else "no date", np.isinf(values))
        return values

    def _values(self, column: Column, texts: Array, absent: Array, place: Array) -> Array:
        """Of each different text: its number, NaN where it is missing, infinite where it cannot be read."""
        if not column.values:
            numbers = self._dates(column, texts) if column.type == DATE else self._numbers(texts)
            return np.where(absent, np.nan, np.where(np.isfinite(numbers), numbers, np.inf))
        number = {value: i for i, value in enumerate(column.values)}
        found = [number.get(column.synonyms.get(text, text), len(number)) for text in texts.tolist()]
        codes = np.where(absent, np.nan, np.array(found, dtype=np.float64))
        unknown, spelled = codes == len(number), np.isin(texts, list(column.synonyms)) & ~absent
        self._count(self.unknown, column.name, unknown[place])
        self._count(self.respelled, column.name, spelled[place])
        return np.where(unknown & (column.type == ORDERED), np.nan, codes)  # no rank

    def labels(self, cells: Any) -> Array:
        """Class numbers, or the numbers to predict; NaN for a row without a label."""
        label = self.schema.label
        if not label.classes:
            numbers = self.coded(label.as_number, cells)[:, 0]
            self.unlabelled = self.missing.pop(label.column, 0)
            self.unlikely_labels = self.unlikely.pop(label.column, 0)
            return numbers
        texts, place = np.unique([tidy(cell) for cell in cells], return_inverse=True)
        number = {name: i for i, name in enumerate(label.classes)}
        found = np.array([number.get(label.synonyms.get(text, text), np.inf) for text in texts.tolist()], dtype=float)
        found[np.isinf(found) & np.isin(texts, self.schema.missing)] = np.nan
        self.unlabelled = int(np.isnan(found)[place].sum())
        spelled = np.array([text in label.synonyms for text in texts.tolist()], dtype=bool)
        self._count(self.respelled, label.column, spelled[place])
        self._fault(label.column, "a label that is neither a class nor a synonym", np.isinf(found)[place])
        return found[place]

    def _numbers(self, texts: Array) -> Array:
        import pandas

        given = [text.replace(",", ".") if self.decimal_comma else text for text in texts.tolist()]
        numbers: Array = pandas.to_numeric(pandas.Series(given, dtype=object), errors="coerce").to_numpy(np.float64)
        return numbers

    def _dates(self, column: Column, texts: Array) -> Array:
        import pandas

        dates = pandas.to_datetime(pandas.Series(texts, dtype=object), errors="coerce", format="ISO8601", utc=True)
        seconds = (dates - pandas.Timestamp(column.origin, tz="UTC")).dt.total_seconds()
        years: Array = seconds.to_numpy(np.float64) / (86_400 * DAYS_OF_A_YEAR)
        return years

    def _count(self, counts: dict[str, int], name: str, cells: Array) -> None:
        if cells.any():
            counts[name] = int(cells.sum())

    def _fault(self, name: str, what: str, cells: Array) -> None:
        if cells.any():
            self.faults.append(Fault(name, what, tuple(self.numbers[cells].tolist())))
