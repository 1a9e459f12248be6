"""The papers' tables: their figures, and the runs that reproduce them, from `papers/*.toml`.

A file has `paper`, `spread` (the meaning of the paper's ±), `left_out` (the tables that are not included, and why),
`[rows]` (what to run for each label) and its tables. In a table, `[columns]` are its settings (or the name of the table
that has them), and each `[[figures]]` names some columns and has the paper's figures for them, label by label, as
printed. A row with `printed = "LABEL"` has the figures that the paper prints under that label; with `printed = ""` it
has none.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from coterie.comparing.plan import Job, Variant, folder_name
from coterie.config.loading import over, read_tables, with_changes
from coterie.config.parsing import overrides
from coterie.config.sections import Experiment
from coterie.core.errors import ConfigError, unknown

SEEDS = (0, 1, 2)  # the default seeds of a table
RESERVED_KEYS = ("seed", "baseline", "method.name")  # keys set by rows and --seeds


@dataclass(frozen=True)
class Words:
    """Settings as `key=value` words. The small form, for a machine with two cores, has additional words, which win."""

    full: tuple[str, ...] = ()
    more_if_small: tuple[str, ...] = ()

    def of(self, small: bool) -> tuple[str, ...]:
        words = (*self.full, *self.more_if_small) if small else self.full
        return tuple({word.partition("=")[0]: word for word in words}.values())

    def __add__(self, other: Words) -> Words:
        return Words(self.full + other.full, self.more_if_small + other.more_if_small)


@dataclass(frozen=True)
class TableColumn:
    """One column of a table: an experiment, and its small form for a machine with two cores."""

    name: str
    preset: str
    small: str  # the preset of the small form, if different
    words: Words

    def experiment(self, small: bool) -> tuple[str, tuple[str, ...]]:
        return (self.small or self.preset) if small else self.preset, self.words.of(small)


@dataclass(frozen=True)
class TableRow:
    """One row: what to run, and the paper's figure for each column, as printed."""

    label: str
    words: Words
    paper: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A table of a paper, or the numbers of a figure."""

    name: str
    paper: str
    about: str
    columns: Mapping[str, TableColumn]
    rows: tuple[TableRow, ...]
    value: str = "last"  # the kind of its figures: a name in `reproducing.figures`
    spread: str = ""  # the meaning of the paper's ±
    remark: str = ""  # what a reader must know to compare
    against: str = ""  # the row relative to which changes are measured, peer by peer

    def jobs(
        self,
        column: TableColumn,
        small: bool,
        seeds: Sequence[int],
        words: Sequence[str],
        out: Path,
        only: Sequence[str] = (),
    ) -> list[Job]:
        """The runs of one column, seed by seed."""
        for word in words:
            if word.partition("=")[0] in RESERVED_KEYS:
                raise ConfigError(f"{word}: choose methods with --only and seeds with --seeds")
        preset, common = column.experiment(small)
        name = f"{self.name}-{column.name}{'-small' if small else ''}{_mark(words)}"
        planned = []
        for seed in seeds:
            for row in self._chosen(only):
                resolved = _experiment(preset, tuple(common), tuple(row.words.of(small)), tuple(words), seed)
                folder = out / folder_name(f"{name}-{row.label}", seed)
                planned.append(Job(Variant(row.label, row.words.of(small)), seed, resolved, folder))
        return planned

    def _chosen(self, only: Sequence[str]) -> list[TableRow]:
        labels = [row.label for row in self.rows]
        for label in only:
            if label not in labels:
                raise ConfigError(f"--only: {unknown('row', label, labels)}")
        return [row for row in self.rows if not only or row.label in (*only, self.against)]


@cache  # a page and its index ask for the same thousands of experiments again and again
def _experiment(
    preset: str, column: tuple[str, ...], row: tuple[str, ...], words: tuple[str, ...], seed: int
) -> Experiment:
    """The settings of a run. A row's words override the user's words about its method; the user's other words override
    the row's.

    A row with a different method keeps those parameters of the column's method that mean the same there.
    """
    general = [word for word in words if not word.startswith("method.")]
    return with_changes(_column_tables(preset, column, words), overrides([*row, *general, "baseline=", f"seed={seed}"]))


@cache
def _column_tables(preset: str, column: tuple[str, ...], words: tuple[str, ...]) -> dict[str, Any]:
    return over(read_tables(preset), overrides([*column, *words]))


def _mark(words: Sequence[str]) -> str:
    """A suffix that gives runs with user settings separate folders."""
    return f"-{hashlib.sha256(' '.join(words).encode()).hexdigest()[:8]}" if words else ""


@cache
def tables() -> dict[str, Table]:
    """All tables of all papers, by name."""
    return {name: _table(name, content) for content in _files() for name in content["tables"]}


def left_out() -> dict[str, str]:
    """By paper: what is not included here, and why."""
    return {content["paper"]: content["left_out"] for content in _files()}


@cache
def _files() -> list[dict[str, Any]]:
    files = sorted((resources.files("coterie") / "papers").iterdir(), key=lambda f: f.name)
    return [tomllib.loads(file.read_text(encoding="utf-8")) for file in files if file.name.endswith(".toml")]


def find(word: str) -> tuple[Table, list[TableColumn]]:
    """`TABLE` with all its columns, or `TABLE/COLUMN`."""
    name, slash, column = word.partition("/")
    if name not in tables():
        raise ConfigError(f"{unknown('table', name, tables())}. See `coterie reproduce list`")
    table = tables()[name]
    if not slash:
        return table, list(table.columns.values())
    if column not in table.columns:
        raise ConfigError(f"{name}: {unknown('column', column, table.columns)}")
    return table, [table.columns[column]]


def _table(name: str, content: Mapping[str, Any]) -> Table:
    given = content["tables"][name]
    columns = given["columns"]
    if isinstance(columns, str):
        columns = content["tables"][columns]["columns"]
    return Table(
        name,
        content["paper"],
        given["about"],
        {key: _column(key, of, given) for key, of in columns.items()},
        tuple(_rows(given, content.get("rows", {}))),
        spread=given.get("spread", content["spread"]),
        **{key: given[key] for key in ("value", "remark", "against") if key in given},
    )


def _column(name: str, given: Mapping[str, Any] | str, table: Mapping[str, Any]) -> TableColumn:
    """A column inherits its table's presets; its words are added to the table's."""
    presets = {**table, **({} if isinstance(given, str) else given)}
    return TableColumn(name, presets["preset"], presets.get("small", ""), _words(given) + _words(table))


def _rows(given: Mapping[str, Any], shared: Mapping[str, Any]) -> list[TableRow]:
    """`rows` are labels, or labels with words; the default are the labels of the figures."""
    figures = given.get("figures", [])
    paper: dict[str, dict[str, str]] = {}
    for block in figures:
        for label, cells in block.items():
            if label != "columns":
                paper.setdefault(label, {}).update(zip(block["columns"], cells, strict=True))
    rows = given.get("rows", list(paper))
    known = {**shared, **(rows if isinstance(rows, Mapping) else {})}
    return [TableRow(label, _words(known[label]), paper.get(_printed(label, known[label]), {})) for label in rows]


def _printed(label: str, row: Mapping[str, Any] | str) -> str:
    """The label under which the paper prints a row's figures."""
    return label if isinstance(row, str) else str(row.get("printed", label))


def _words(given: Mapping[str, Any] | str) -> Words:
    """The `words` and `small_words` of a column, row or table, which may also be just a string of words."""
    if isinstance(given, str):
        return Words(tuple(given.split()))
    return Words(tuple(given.get("words", "").split()), tuple(given.get("small_words", "").split()))
