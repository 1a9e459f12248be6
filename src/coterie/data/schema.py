"""A declared schema, which the peers of a circle share: the columns of their tables, and how untidy cells are read.

Everything that models see follows from the schema and from a peer's own training rows. So peers with different files
have the same features in the same order, and no value of a cell is needed to agree on them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Any

from coterie.core.errors import DataError, unknown
from coterie.core.task import CLASSIFICATION, REGRESSION

NUMBER, CATEGORY, ORDERED, DATE, TEXT, IGNORE = "number", "category", "ordered", "date", "text", "ignore"
TYPES = {
    NUMBER: "a measurement",
    CATEGORY: "one of `values`; each becomes a 0/1 feature, and so does any other value",
    ORDERED: "one of `values`, from low to high; becomes its rank",
    DATE: "a date such as 2024-03-31; becomes years since `origin`",
    TEXT: "free text; its words are hashed to `features` numbers",
    IGNORE: "left out",
}
MEDIAN, MEAN, MOST_FREQUENT, INDICATOR = "median", "mean", "most frequent", "indicator"
FILLS = {NUMBER: (MEDIAN, MEAN), ORDERED: (MEDIAN, MEAN), DATE: (MEDIAN, MEAN), CATEGORY: (INDICATOR, MOST_FREQUENT)}
HASHED, MOST_HASHED = 64, 2**16  # features of a text: by default, and at most
MARKERS = ("", "?", "NA", "N/A", "NaN", "nan", "null", "None")  # of missing values, unless the schema lists others
NUMBER_KEYS = ("least", "most", "mean", "deviation")
Blocks = tuple[tuple[int, int], ...]
"""Of each category: where its 0/1 features begin among the features of a row, and where they end."""
COMMAND = "coterie data schema FILE --out schema.toml"


@dataclass(frozen=True)
class Column:
    """One declared column."""

    name: str
    type: str = NUMBER
    values: tuple[str, ...] = ()  # of a category
    synonyms: Mapping[str, str] = field(default_factory=dict)  # other spellings of these, at some sites
    missing: tuple[str, ...] = ()  # markers of missing values in this column, besides those of the whole schema
    fill: str = ""  # what a missing value becomes, from the peer's own training rows; empty: the first of FILLS
    indicator: bool = False  # whether a number has a 0/1 feature that says that it was missing
    optional: bool = False  # whether a site may lack the column; all its values are then missing
    unit: str = ""  # for people
    least: float | None = None  # the plausible range: values outside count as missing
    most: float | None = None
    mean: float | None = None  # agreed constants, for data.scale = "schema"
    deviation: float | None = None
    origin: date = date(2000, 1, 1)  # of a date
    features: int = 0  # of a text: to how many numbers its words are hashed

    @property
    def filled_by(self) -> str:
        return self.fill or FILLS[self.type][0]

    @property
    def spellings(self) -> frozenset[str]:
        """Every text that stands for a declared value."""
        return frozenset((*self.values, *self.synonyms))

    @property
    def is_category(self) -> bool:
        return self.type == CATEGORY

    @property
    def is_text(self) -> bool:
        return self.type == TEXT

    @property
    def is_measured(self) -> bool:
        """Whether it is a measurement, which may be scaled; indicators and hashed words are not."""
        return not (self.is_category or self.is_text)

    @property
    def codes(self) -> int:
        """How many numbers a cell is read as: one, or the features of a text."""
        return self.features if self.is_text else 1

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that models see. A measurement comes before its indicator."""
        if self.is_text:
            return tuple(f"{self.name} hash {i}" for i in range(self.features))
        if self.is_measured:
            return (self.name, *((f"{self.name} missing",) if self.indicator else ()))
        missing = (f"{self.name} missing",) if self.filled_by == INDICATOR else ()
        return (*(f"{self.name} = {value}" for value in self.values), f"{self.name} unknown", *missing)


@dataclass(frozen=True)
class Label:
    """The label column: its classes and their other spellings, or the range of the numbers to predict."""

    column: str
    classes: tuple[str, ...] = ()  # empty: numbers
    synonyms: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""  # of numbers
    least: float | None = None  # the plausible range of numbers: rows outside are left out
    most: float | None = None
    mean: float | None = None  # agreed constants of numbers, for data.scale = "schema"
    deviation: float | None = None

    @property
    def task(self) -> str:
        return CLASSIFICATION if self.classes else REGRESSION

    @property
    def as_number(self) -> Column:
        """The declaration of its numbers."""
        return Column(
            self.column, NUMBER, unit=self.unit, least=self.least, most=self.most, mean=self.mean,
            deviation=self.deviation,
        )  # fmt: skip


@dataclass(frozen=True)
class Schema:
    """The declared columns, in the order of the features."""

    label: Label
    columns: tuple[Column, ...]  # without the ignored ones
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = MARKERS

    @property
    def features(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def measured(self) -> tuple[Column | None, ...]:
        """The column of each feature that is a measurement; None for indicators and hashed words."""
        return tuple(c if c.is_measured and i == 0 else None for c in self.columns for i in range(len(c.feature_names)))

    @property
    def blocks(self) -> Blocks:
        ends = list(itertools.accumulate(len(column.feature_names) for column in self.columns))
        spans = zip(self.columns, [0, *ends], ends, strict=False)
        return tuple((start, stop) for column, start, stop in spans if column.is_category)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of free text."""
        return tuple(column.name for column in self.columns if column.is_text)

    def markers(self, column: Column) -> frozenset[str]:
        """The texts that mean a missing value. A declared value is none, also if it is one of `MARKERS`."""
        return frozenset((*self.missing, *column.missing)) - column.spellings

    def digests(self) -> dict[str, str]:
        """What peers compare: a digest of each column's declaration by its declared name, and one of the label."""
        of_columns = {f"column '{c.name}'": _digest([*_plain(c), list(self.missing)]) for c in self.columns}
        order = _digest([c.name for c in self.columns])
        return {**of_columns, "order of the columns": order, "label": _digest(_plain(self.label))}

    def tree(self) -> dict[str, Any]:
        """As JSON, for the manifest of a model."""
        columns = [{**asdict(c), "origin": c.origin.isoformat()} for c in self.columns]
        return {
            "label": asdict(self.label), "columns": columns, "ignored": list(self.ignored),
            "missing": list(self.missing),
        }  # fmt: skip

    @classmethod
    def of_tree(cls, tree: Any) -> Schema:
        """From `tree`; raises KeyError, TypeError or ValueError if it is not one."""
        columns = tuple(
            Column(**{**_tuples(c, "values", "missing"), "origin": date.fromisoformat(c["origin"])})
            for c in tree["columns"]
        )
        return cls(Label(**_tuples(tree["label"], "classes")), columns, tuple(tree["ignored"]), tuple(tree["missing"]))


def _tuples(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: tuple(value) if key in keys else value for key, value in table.items()}


def _plain(declared: Column | Label) -> list[Any]:
    return [[key, str(value) if isinstance(value, date) else value] for key, value in asdict(declared).items()]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


# -- reading the file ----------------------------------------------------------------------------


def read_schema(path: Path) -> Schema:
    """The schema in a TOML file. Raises DataError that names the table and key, and says what is valid."""
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise DataError(f"data.schema: there is no file {path}: draft one with `{COMMAND}`") from error
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{path}: cannot be read as TOML ({error})") from error
    return _Reader(path).schema(tree)


def declared_schema(path: str, labels: Sequence[str], categories: Mapping[str, Sequence[str]] | None) -> Schema | None:
    """The schema that data.schema names; None without one."""
    if path and (labels or categories):
        raise DataError("data.schema declares labels and categories: remove data.labels and data.categories")
    return read_schema(Path(path).expanduser()) if path else None


class _Reader:
    """Builds a schema from TOML tables, with errors that name the file and the table."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def schema(self, tree: dict[str, Any]) -> Schema:
        self._known("", tree, ("missing", "label", "columns"))
        for key in ("label", "columns"):
            if not isinstance(tree.get(key), dict):
                raise self._error("", f"has no table [{key}]: draft a schema with `{COMMAND}`")
        declared = [self._column(name, table) for name, table in tree["columns"].items()]
        used = tuple(column for column in declared if column.type != IGNORE)
        if not used:
            raise self._error("columns", "declares no column that is not ignored")
        label = self._label(tree["label"])
        if label.column in tree["columns"]:
            raise self._error(f"columns.{label.column}", "is the label column: declare it in [label] alone")
        missing = self._texts("", tree, "missing")
        for column in used:
            self._refuse_markers(column, missing)
        ignored = tuple(column.name for column in declared if column.type == IGNORE)
        markers = missing if "missing" in tree else MARKERS
        return Schema(label, used, ignored, tuple(dict.fromkeys(("", *markers))))

    def _refuse_markers(self, c: Column, missing: tuple[str, ...]) -> None:
        """Raise DataError for a declared value that is empty, or that the file also lists as a marker."""
        where = f"columns.{c.name}"
        if "" in c.spellings:
            raise self._error(where, "an empty cell is always missing: remove it from `values` and `synonyms`")
        if doubled := sorted(c.spellings.intersection((*missing, *c.missing))):
            raise self._error(
                where,
                f"'{doubled[0]}' is a declared value and a marker of missing values: remove it from `missing`, of this "
                "column or of the whole schema",
            )

    def _label(self, table: dict[str, Any]) -> Label:
        column, kind = table.get("column"), table.get("type", CATEGORY)
        if not isinstance(column, str):
            raise self._error("label", "needs `column`, the name of the label column")
        if kind == NUMBER:
            self._known("label", table, ("column", "type", "unit", *NUMBER_KEYS))
            least, most, mean, deviation = (self._number("label", table, key) for key in NUMBER_KEYS)
            label = Label(column, (), {}, str(table.get("unit", "")), least, most, mean, deviation)
            self._checked("label", label.as_number)
            return label
        if kind != CATEGORY:
            raise self._error("label", str(unknown("type", str(kind), (CATEGORY, NUMBER))))
        self._known("label", table, ("column", "type", "classes", "synonyms"))
        classes = self._texts("label", table, "classes")
        if len(classes) < 2 or len(set(classes)) < len(classes):
            raise self._error(
                "label", f'needs `classes`, a list of two or more different names; or type = "{NUMBER}" for regression'
            )
        return Label(column, classes, self._synonyms("label", table, classes))

    def _column(self, name: str, table: Any) -> Column:
        where = f"columns.{name}"
        if not isinstance(table, dict):
            raise self._error(where, f'must be a table, such as type = "{NUMBER}"')
        self._known(where, table, [f.name for f in fields(Column) if f.name != "name"])
        kind = table.get("type", NUMBER)
        if not isinstance(kind, str) or kind not in TYPES:
            raise self._error(where, str(unknown("type", str(kind), TYPES)))
        if kind == IGNORE:
            return Column(name, IGNORE)
        values = self._texts(where, table, "values")
        if (kind in (CATEGORY, ORDERED)) != bool(values) or len(set(values)) < len(values):
            raise self._error(where, f'`values` must list the different values of a "{CATEGORY}" or "{ORDERED}" column')
        fill = table.get("fill", "")
        if fill and kind != TEXT and fill not in FILLS[kind]:
            raise self._error(where, str(unknown("fill", str(fill), FILLS[kind])))
        least, most, mean, deviation = (self._number(where, table, k) for k in NUMBER_KEYS)
        column = Column(
            name, kind, values, self._synonyms(where, table, values), self._texts(where, table, "missing"), fill,
            self._flag(where, table, "indicator"), self._flag(where, table, "optional"), str(table.get("unit", "")),
            least, most, mean, deviation, self._date(where, table.get("origin", Column.origin)),
            self._features(where, table, kind),
        )  # fmt: skip
        return self._checked(where, column)

    def _checked(self, where: str, c: Column) -> Column:
        measured = c.indicator or any(value is not None for value in (c.least, c.most, c.mean, c.deviation))
        if c.is_category and measured:
            raise self._error(where, "a category has no indicator, range, mean or deviation")
        if c.is_text and (measured or c.fill):
            raise self._error(where, "a text has no fill, indicator, range, mean or deviation: if missing, it is all 0")
        if c.least is not None and c.most is not None and c.least >= c.most:
            raise self._error(where, f"`least` must be below `most`, not {c.least:g} and {c.most:g}")
        if (c.mean is None) != (c.deviation is None) or (c.deviation is not None and c.deviation <= 0):
            raise self._error(where, "give both `mean` and `deviation` (above 0), or neither")
        return c

    def _known(self, where: str, table: Mapping[str, Any], keys: Any) -> None:
        for key in table:
            if key not in keys:
                raise self._error(where, str(unknown("key", key, keys)))

    def _texts(self, where: str, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
        """A list of texts; numbers are taken as they are written."""
        values = table.get(key, [])
        if not isinstance(values, list) or not all(isinstance(v, str | int | float) for v in values):
            raise self._error(where, f"`{key}` must be a list of texts")
        return tuple(tidy(str(value)) for value in values)

    def _synonyms(self, where: str, table: Mapping[str, Any], values: tuple[str, ...]) -> dict[str, str]:
        synonyms = table.get("synonyms", {})
        if not isinstance(synonyms, dict):
            raise self._error(where, '`synonyms` must be a table, such as { "M" = "malignant" }')
        for spelling, value in synonyms.items():
            if tidy(str(value)) not in values:
                raise self._error(where, f"`synonyms`: '{spelling}' stands for '{value}', which is not declared")
            if tidy(spelling) in values and tidy(spelling) != tidy(str(value)):
                raise self._error(where, f"`synonyms`: '{spelling}' is declared itself: it cannot stand for '{value}'")
        return {tidy(spelling): tidy(str(value)) for spelling, value in synonyms.items()}

    def _flag(self, where: str, table: Mapping[str, Any], key: str) -> bool:
        if not isinstance(table.get(key, False), bool):
            raise self._error(where, f"`{key}` must be true or false")
        return bool(table.get(key, False))

    def _number(self, where: str, table: Mapping[str, Any], key: str) -> float | None:
        value = table.get(key)
        if value is None:
            return None
        # nan compares as false; a whole number of TOML may be too large for a float
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise self._error(where, f"`{key}` must be a finite number")
        return float(value)

    def _features(self, where: str, table: Mapping[str, Any], kind: str) -> int:
        if kind != TEXT and "features" in table:
            raise self._error(where, f'`features` is for a "{TEXT}" column: remove it')
        count = table.get("features", HASHED if kind == TEXT else 0)
        if type(count) is not int or (kind == TEXT and not 1 <= count <= MOST_HASHED):
            raise self._error(where, f"`features` must be a whole number from 1 to {MOST_HASHED:,}")
        return count

    def _date(self, where: str, value: Any) -> date:
        try:
            return date.fromisoformat(str(value)[:10])
        except ValueError as error:
            raise self._error(where, "`origin` must be a date such as 2000-01-01") from error

    def _error(self, where: str, what: str) -> DataError:
        return DataError(f"{self.path}{f', [{where}]' if where else ''}: {what}")


def tidy(text: str) -> str:
    """The text without surrounding blanks; 1.0 is 1, as some programs write whole numbers with a fraction."""
    text = text.strip()
    whole, point, fraction = text.partition(".")
    return whole if point and not fraction.strip("0") and whole.lstrip("+-").isdecimal() else text
