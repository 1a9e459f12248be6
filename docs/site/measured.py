"""What was measured of a method, gathered from the pages that hold whole tables: the README and `reproduced.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from coterie.reproducing import papers
from coterie.reproducing.figures import LAST, SELECTED
from coterie.reproducing.papers import Row, Table

ROOT = Path(__file__).resolve().parents[2]
ALONE = ("local", "local-ensemble")
SECTION = re.compile(r"^## ([\w-]+)/(\S+?)(, small form)?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
HEADS = ("where", "method", "accuracy", "training alone", "in the paper: accuracy", "training alone")

Line = tuple[str, ...]


def lines(method: str) -> Iterator[Line]:
    """Its place in the README's comparison, and in every table of accuracies that also has training alone."""
    yield from _side_by_side(method)
    text = (ROOT / "docs/reproduced.md").read_text(encoding="utf-8")
    for name, column, small, section in SECTION.findall(text):
        table = papers.tables()[name]
        alone = next((row for row in table.rows if _method(row) in ALONE), None)
        if table.value in (LAST, SELECTED) and alone is not None and method not in ALONE:
            yield from _in_table(method, table, alone, f"{name}/{column}", small, cells(section))


def cells(text: str) -> dict[str, dict[str, str]]:
    """Of the table in a text: a row's cells by their column's name, by the row's first cell."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    head, _, *body = rows
    return {row[0].strip(): dict(zip(head, row, strict=True)) for row in body}


def columns(table: str, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of several columns of a table in their small form: ours of the last round, the paper's in brackets.

    A cell without a run is a dash.
    """
    text = (ROOT / "docs/reproduced.md").read_text(encoding="utf-8")
    sections = {column: cells(section) for name, column, _, section in SECTION.findall(text) if name == table}
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
    method: str, table: Table, alone: Row, name: str, small: str, found: dict[str, dict[str, str]]
) -> Iterator[Line]:
    ours = f"ours, {'last round' if table.value == LAST else 'validation-selected'}"
    where = f"[{name}](../reproduced.md#{re.sub('[^a-z0-9-]', '', name)}{'-small-form' if small else ''}){small}"
    for row in table.rows:
        if _method(row) == method and {row.label, alone.label} <= found.keys():
            mine, theirs = found[row.label], found[alone.label]
            yield where, row.label, mine[ours], theirs[ours], mine["paper"], theirs["paper"]


def _method(row: Row) -> str:
    return next((word.partition("=")[2] for word in row.words.full if word.startswith("method.name=")), "")


def rows(methods: Sequence[str]) -> list[Line]:
    """One for every run: some runs are in several tables."""
    found = [line for method in methods for line in lines(method)]
    return list({line[1:4]: line for line in reversed(found)}.values())[::-1]
