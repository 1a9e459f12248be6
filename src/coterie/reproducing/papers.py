"""What the papers say, and which runs say it again: the tables of `papers/*.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from coterie.comparing.plan import Job, Variant, folder_name
from coterie.errors import ConfigError, unknown
from coterie.experiment import load


@dataclass(frozen=True)
class Column:
    """One setting of a table: an experiment, and its form for a machine with two cores."""

    name: str
    preset: str
    words: tuple[str, ...] = ()
    small: str = ""  # the preset of that form, where it is another one
    small_words: tuple[str, ...] = ()  # and what it changes

    @property
    def has_small(self) -> bool:
        return bool(self.small or self.small_words)

    def experiment(self, small: bool) -> tuple[str, tuple[str, ...]]:
        if not small:
            return self.preset, self.words
        if not self.has_small:
            raise ConfigError(f"{self.name} has no small form: leave out --small")
        return self.small or self.preset, (*self.words, *self.small_words)


@dataclass(frozen=True)
class Row:
    """One line: what to run, and the paper's figure for each column as it is printed there."""

    label: str
    words: tuple[str, ...]
    paper: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A table, or a figure's numbers, of a paper."""

    name: str
    paper: str
    about: str
    value: str  # what its figures are: one of the names in `reproducing.figures`
    columns: Mapping[str, Column]
    rows: tuple[Row, ...]
    remark: str = ""  # what one must know to compare

    def jobs(
        self,
        column: Column,
        small: bool,
        seeds: Sequence[int],
        words: Sequence[str],
        out: Path,
        only: Sequence[str] = (),
    ) -> list[Job]:
        """The runs of one column, seed by seed."""
        for label in only:
            if label not in {row.label for row in self.rows}:
                raise ConfigError(f"--only: {unknown('row', label, [row.label for row in self.rows])}")
        preset, common = column.experiment(small)
        found = []
        for seed in seeds:
            for row in self.rows:
                if only and row.label not in only:
                    continue
                wanted = load(preset, ["baseline=", *common, *row.words, f"seed={seed}", *words])
                name = f"{self.name}-{column.name}{'-small' if small else ''}-{row.label}"
                found.append(Job(Variant(row.label, row.words), seed, wanted, out / folder_name(name, seed)))
        return found


@cache
def tables() -> dict[str, Table]:
    """All tables of all papers, by name."""
    found: dict[str, Table] = {}
    for file in sorted((resources.files("coterie") / "papers").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            read = tomllib.loads(file.read_text(encoding="utf-8"))
            found |= {name: _table(name, read["paper"], given) for name, given in read["tables"].items()}
    return found


def find(word: str) -> tuple[Table, list[Column]]:
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


def _table(name: str, paper: str, given: dict[str, Any]) -> Table:
    columns = {key: _column(key, of) for key, of in given["columns"].items()}
    rows = [Row(row["label"], _words(row), {c: str(row[c]) for c in columns if c in row}) for row in given["rows"]]
    value, remark = given.get("value", "last"), given.get("remark", "")
    return Table(name, paper, given["about"], value, columns, tuple(rows), remark)


def _column(name: str, given: dict[str, Any]) -> Column:
    words, small_words = _words(given), tuple(given.get("small_words", "").split())
    return Column(name, given["preset"], words, given.get("small", ""), small_words)


def _words(given: dict[str, Any]) -> tuple[str, ...]:
    return tuple(given.get("words", "").split())
