"""The page of the docs with every table that has runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from coterie.files import write_whole
from coterie.report.words import markdown
from coterie.reproducing import papers
from coterie.reproducing.results import Results, notes, rows

HEAD = """# The papers' tables, run again

Made by `coterie reproduce all --print --record docs/measured.jsonl --page docs/reproduced.md`. Under each heading
stands the command that makes its runs. What the figures mean, and why some differ from the paper's, is on the methods'
pages.
"""
SECTION = re.compile(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
PARTIAL = re.compile(r"^(\d+) of \d+ runs are there\.$", re.MULTILINE)


def command(found: Results, seeds: Sequence[int], words: Sequence[str]) -> str:
    """The command line that makes these runs."""
    small = " --small" if found.small else ""
    more = "".join(f" {word}" for word in words)
    chosen = f" --seeds {','.join(map(str, seeds))}" if tuple(seeds) != (0, 1, 2) else ""
    return f"coterie reproduce {found.table.name}/{found.column.name}{small}{chosen}{more}"


def write(path: Path, everything: Sequence[tuple[Results, str]]) -> None:
    """A page that is there already keeps its sections of runs that are not at hand any more."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    write_whole(path, page(everything, before))


def page(everything: Sequence[tuple[Results, str]], before: str = "") -> str:
    """Every table with its command, the version and the days, in the order of the papers' tables."""
    sections = {heading: (f"{text.rstrip()}\n", _runs_in(text)) for heading, text in SECTION.findall(before)}
    for found, line in everything:
        heading = _heading(found.table.name, found.column.name, found.small)
        if found.done >= sections.get(heading, ("", 0.0))[1] or found.done == found.wanted:
            sections[heading] = _section(found, line), found.done
    shown = [f"## {heading}\n{sections[heading][0]}" for heading in _in_order() if heading in sections]
    return "\n".join([HEAD, *shown])


def _section(found: Results, line: str) -> str:
    parts = ["", *notes(found), "", "<!-- not run: takes hours -->", "```sh", line, "```", ""]
    return "\n".join([*parts, markdown(rows(found)), "", f"Made with {found.made}.", ""])


def _heading(table: str, column: str, small: bool) -> str:
    return f"{table}/{column}{', small form' if small else ''}"


def _in_order() -> Iterator[str]:
    for table in papers.tables().values():
        yield from (_heading(table.name, column, small) for column, small in product(table.columns, (False, True)))


def _runs_in(section: str) -> float:
    """How many runs a section was made of, as its notes say; one that does not say so has all."""
    said = PARTIAL.search(section)
    return int(said[1]) if said else math.inf
