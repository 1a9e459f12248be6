"""Every table of the papers, for one tiny round.

By default one cell of each table runs, in its small form (full forms are presets, which all run);
`scripts/test -m slow tests/presets` runs every row of every column in both forms. With stand-ins for the data, cells
whose datasets have the same shape are the same run, and share it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from tiny import run, sameness, tiny

from coterie.reproducing import papers


class Cell(NamedTuple):
    """One figure of a table. Experiments are built when they run: building all of them takes half a minute."""

    table: str
    column: str
    row: str
    form: str

    def __str__(self) -> str:
        return f"{self.table}/{self.column}-{self.form}-{self.row}"


TABLES = papers.tables()
CELLS = [
    Cell(table.name, column, row.label, form)
    for table in TABLES.values()
    for form in ("full", "small")
    for column in table.columns
    for row in table.rows
]


def chosen() -> list[Cell]:
    """One cell of each table: from the first to the last column and row, so that none is always left out."""
    cells = []
    for number, table in enumerate(TABLES.values()):
        columns, rows = list(table.columns), table.rows
        cells.append(Cell(table.name, columns[number % len(columns)], rows[number % len(rows)].label, "small"))
    return cells


@pytest.fixture(scope="module")
def done() -> set[str]:
    """What has been run."""
    return set()


def run_once(cell: Cell, folder: Path, done: set[str]) -> None:
    table = TABLES[cell.table]
    jobs = table.jobs(table.columns[cell.column], cell.form == "small", (0,), [], Path("runs"), (cell.row,))
    [job] = [job for job in jobs if job.variant.label == cell.row]
    e = tiny(job.experiment)
    if sameness(e) not in done:
        run(e, folder)
        done.add(sameness(e))


def test_there_is_a_case_for_every_table() -> None:
    assert {cell.table for cell in chosen()} == set(TABLES)


@pytest.mark.parametrize("cell", chosen(), ids=str)
def test_every_table_runs(cell: Cell, tmp_path: Path, done: set[str]) -> None:
    run_once(cell, tmp_path / "run", done)


@pytest.mark.slow
@pytest.mark.parametrize("cell", sorted({*CELLS} - {*chosen()}), ids=str)
def test_every_row_of_every_column_runs(cell: Cell, tmp_path: Path, done: set[str]) -> None:
    run_once(cell, tmp_path / "run", done)
