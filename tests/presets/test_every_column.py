"""Every column of every paper's table, whole and small, for one tiny round of one of its rows.

With stand-ins for the data, columns whose datasets have the same shape are the same run, and share it. All rows of
all columns: `scripts/test -m slow tests/presets`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny import run, sameness, tiny

from coterie.config.sections import Experiment
from coterie.reproducing import papers
from coterie.reproducing.papers import Table

FORMS = {"full": False, "small": True}


def cases() -> tuple[list[Any], list[Any]]:
    """One row of each column, all rows of a table among them if it has columns enough; and all the others."""
    chosen: list[Any] = []
    others: list[Any] = []
    run: set[str] = set()
    for table in papers.tables().values():
        for form, small in FORMS.items():
            tried: set[str] = set()
            for column in table.columns:
                rows = _rows(table, column, small)
                row = _row(rows, tried, run)
                tried.add(row)
                run.add(sameness(rows[row]))
                for label, e in rows.items():
                    case = pytest.param(e, id=f"{table.name}/{column}-{form}-{label}")
                    (chosen if label == row else others).append(case)
    return chosen, others


def _rows(table: Table, column: str, small: bool) -> dict[str, Experiment]:
    jobs = table.jobs(table.columns[column], small, (0,), [], Path("runs"))
    return {job.variant.label: tiny(job.experiment) for job in jobs}


def _row(rows: dict[str, Experiment], tried: set[str], run: set[str]) -> str:
    """One that no column before it had; if all had theirs, one that is run for another column anyway."""
    fresh = [label for label in rows if label not in tried]
    shared = [label for label, e in rows.items() if sameness(e) in run]
    return [*fresh, *shared, *rows][0]


CHOSEN, OTHERS = cases()


@pytest.fixture(scope="module")
def done() -> set[str]:
    """What has been run."""
    return set()


def run_once(e: Experiment, folder: Path, done: set[str]) -> None:
    if sameness(e) not in done:
        run(e, folder)
        done.add(sameness(e))


def test_there_is_a_case_for_every_column_in_both_forms() -> None:
    columns = [column for table in papers.tables().values() for column in table.columns]
    assert len(CHOSEN) == 2 * len(columns)


@pytest.mark.parametrize("e", CHOSEN)
def test_every_column_runs(e: Experiment, tmp_path: Path, done: set[str]) -> None:
    run_once(e, tmp_path / "run", done)


@pytest.mark.slow
@pytest.mark.parametrize("e", OTHERS)
def test_every_row_of_every_column_runs(e: Experiment, tmp_path: Path, done: set[str]) -> None:
    run_once(e, tmp_path / "run", done)
