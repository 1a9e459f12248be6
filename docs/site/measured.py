"""What was measured of a method, gathered from the pages that hold whole tables: the README and `reproduced.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.reproducing import papers
from coterie.reproducing.figures import LAST, SELECTED
from coterie.reproducing.papers import Row, Table
from coterie.reproducing.sections import Section, cells, parsed

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("local", "local-ensemble")
NO_RECORDS = "*Without records*: measured with an earlier form of the method or of its settings. Nobody can check it."
HEADS = ("where", "method", "accuracy", "training alone", "in the paper: accuracy", "training alone")

Line = tuple[str, ...]


def lines(method: str) -> Iterator[Line]:
    """Its place in the README's comparison, and in every table of accuracies that also has training alone."""
    yield from _side_by_side(method)
    there, without = parsed((ROOT / "docs/reproduced.md").read_text(encoding="utf-8"))
    for section in [*there.values(), *without]:
        table = papers.tables()[section.place.table]
        alone = next((row for row in table.rows if _method(row) in ALONE), None)
        if table.value in (LAST, SELECTED) and alone is not None and method not in ALONE:
            rest = there.get(section.place, section).cells  # a newer run of training alone is there
            yield from _in_table(method, table, alone, section, {**rest, **section.cells})


def columns(table: str, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of several columns of a table in their small form: ours of the last round, the paper's in brackets.

    A cell without a run is a dash.
    """
    there, _ = parsed((ROOT / "docs/reproduced.md").read_text(encoding="utf-8"))
    sections = {place.column: section.cells for place, section in there.items() if place.table == table and place.small}
    rows = []
    for row in papers.tables()[table].rows:
        found = [sections.get(name, {}).get(row.label, {}) for name in names]
        papers_own = [row.paper.get(name, "").split()[:1] for name in names]
        ours = [one.get("ours, last round", "–").split()[0] for one in found]
        pairs = zip(ours, papers_own, strict=True)
        rows.append([row.label, *(f"{own} ({paper[0]})" if paper else own for own, paper in pairs)])
    return ["", *names], rows


def _side_by_side(method: str) -> Iterator[Line]:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## The methods, side by side")[2]
    found = {re.sub(r"\[`(.*)`\].*", r"\1", name): row for name, row in cells(text.partition("\n## ")[0]).items()}
    if method in found:
        where = "digits, four angles ([README](../../README.md#the-methods-side-by-side))"
        alone = "" if method == "local" else found["local"]["accuracy"]
        yield where, f"`{method}`", found[method]["accuracy"], alone, "", ""


def _in_table(
    method: str, table: Table, alone: Row, section: Section, found: dict[str, dict[str, str]]
) -> Iterator[Line]:
    ours = f"ours, {'last round' if table.value == LAST else 'validation-selected'}"
    name = f"{section.place.table}/{section.place.column}"
    where = f"[{name}](../reproduced.md#{section.anchor}){section.heading.removeprefix(name)}"
    for row in table.rows:
        if _method(row) == method and row.label in section.cells and alone.label in found:
            mine, theirs = found[row.label], found[alone.label]
            yield where, row.label, mine[ours], theirs[ours], mine["paper"], theirs["paper"]


def _method(row: Row) -> str:
    return next((word.partition("=")[2] for word in row.words.full if word.startswith("method.name=")), "")


def rows(methods: Sequence[str]) -> list[Line]:
    """One for every run: some runs are in several tables."""
    found = [line for method in methods for line in lines(method)]
    return list({line[1:4]: line for line in reversed(found)}.values())[::-1]
