"""Collect the measured figures of a method from the pages with whole tables: the README and `reproduced.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.core.summary import LAST, SELECTED
from coterie.reproducing import papers
from coterie.reproducing.papers import Table, TableRow
from coterie.reproducing.sections import Section, cells, parsed

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("local", "local-ensemble")
NO_RECORDS = "*Without records*: measured with an earlier version of the method or its settings; it cannot be checked."
HEADS = ("where", "method", "accuracy", "training alone", "in the paper: accuracy", "training alone")

Line = tuple[str, ...]


def lines(method: str) -> Iterator[Line]:
    """A method's figures in the README's comparison, and in every accuracy table that also has training alone."""
    yield from _side_by_side(method)
    recorded, without = parsed((ROOT / "docs/reproduced.md").read_text(encoding="utf-8"))
    for section in [*recorded.values(), *without]:
        table = papers.tables()[section.place.table]
        alone = next((row for row in table.rows if _method(row) in ALONE), None)
        if table.value in (LAST, SELECTED) and alone is not None and method not in ALONE:
            rest = recorded.get(section.place, section).cells  # it has a newer run of training alone
            yield from _in_table(method, table, alone, section, {**rest, **section.cells})


def columns(table: str, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of several columns of a table in small form: ours in the last round, the paper's in brackets.

    A cell without a run is a dash.
    """
    recorded, _ = parsed((ROOT / "docs/reproduced.md").read_text(encoding="utf-8"))
    sections = {
        place.column: section.cells for place, section in recorded.items() if place.table == table and place.small
    }
    rows = []
    for row in papers.tables()[table].rows:
        row_cells = [sections.get(name, {}).get(row.label, {}) for name in names]
        printed = [row.paper.get(name, "").split()[:1] for name in names]
        ours = [one.get("ours, last round", "–").split()[0] for one in row_cells]
        pairs = zip(ours, printed, strict=True)
        rows.append([row.label, *(f"{own} ({paper[0]})" if paper else own for own, paper in pairs)])
    return ["", *names], rows


def _side_by_side(method: str) -> Iterator[Line]:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The methods, side by side")[2]
    rows_by_name = {
        re.sub(r"\[`(.*)`\].*", r"\1", name): row for name, row in cells(text.partition("\n## ")[0]).items()
    }
    if method in rows_by_name:
        where = "digits, four angles ([README](../../README.md#the-methods-side-by-side))"
        alone = "" if method == "local" else rows_by_name["local"]["accuracy"]
        yield where, f"`{method}`", rows_by_name[method]["accuracy"], alone, "", ""


def _in_table(
    method: str, table: Table, alone: TableRow, section: Section, cells_by_label: dict[str, dict[str, str]]
) -> Iterator[Line]:
    ours = f"ours, {'last round' if table.value == LAST else 'validation-selected'}"
    name = f"{section.place.table}/{section.place.column}"
    where = f"[{name}](../reproduced.md#{section.anchor}){section.heading.removeprefix(name)}"
    for row in table.rows:
        if _method(row) == method and row.label in section.cells and alone.label in cells_by_label:
            row_cells, alone_cells = cells_by_label[row.label], cells_by_label[alone.label]
            yield where, row.label, row_cells[ours], alone_cells[ours], row_cells["paper"], alone_cells["paper"]


def _method(row: TableRow) -> str:
    return next((word.partition("=")[2] for word in row.words.full if word.startswith("method.name=")), "")


def rows(methods: Sequence[str]) -> list[Line]:
    """One line per run, although some runs are in several tables."""
    every = [line for method in methods for line in lines(method)]
    return list({line[1:4]: line for line in reversed(every)}.values())[::-1]
