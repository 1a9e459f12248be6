"""The sections of the results page, parsed from its text: each is one column of a table, in one form.

A section has notes, the commands, the table, and the runs behind it. Sections whose runs left no records are in a
separate part, without a command: today's command would run today's form of the method.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from coterie.reproducing.results import BEHIND

RECORDS = "Records:"
EARLIER = "with an earlier version of the method or its settings; no records were kept."
WITHOUT = ", without records"
HEADING = re.compile(rf"^###? ([\w+-]+)/([^\s,]+)(, small form)?({WITHOUT})?$", re.MULTILINE)
ANY_HEADING = re.compile(r"^##", re.MULTILINE)
RUNS = re.compile(rf"^{BEHIND} (?:all )?(\d+)(?: of (\d+))? runs?", re.MULTILINE)
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Place:
    """A column of a table, in full or in its small form."""

    table: str
    column: str
    small: bool

    @property
    def heading(self) -> str:
        return f"{self.table}/{self.column}{', small form' if self.small else ''}"


@dataclass(frozen=True)
class Section:
    """The page's text about a place. `without`: it is in the part without records."""

    place: Place
    text: str
    without: bool = False

    @property
    def heading(self) -> str:
        return f"{self.place.heading}{WITHOUT if self.without else ''}"

    @property
    def anchor(self) -> str:
        """The anchor that the usual renderers derive from the heading."""
        return re.sub(r"[^\w -]", "", self.heading.lower()).replace(" ", "-")

    @property
    def recorded(self) -> bool:
        return any(line.startswith(RECORDS) for line in self.text.splitlines())

    @property
    def runs(self) -> tuple[int, int] | None:
        """The number of runs behind it, and of all runs of the table; None if the text does not say."""
        match = RUNS.search(self.text)
        return None if match is None else (int(match[1]), int(match[2] or match[1]))

    @property
    def cells(self) -> dict[str, dict[str, str]]:
        """The table's cells, by row label and column name."""
        return cells(self.text)


Sections = dict[Place, Section]


def cells(text: str) -> dict[str, dict[str, str]]:
    """The cells of the table in a text, by the row's first cell and the column's name."""
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    if not rows:
        return {}
    head, _, *body = rows
    return {row[0]: dict(zip(head, row, strict=True)) for row in body}


def parsed(page: str) -> tuple[Sections, list[Section]]:
    """The sections that had runs when the page was written, and those without records."""
    recorded: Sections = {}
    without: list[Section] = []
    for heading in HEADING.finditer(page):
        following = ANY_HEADING.search(page, heading.end())
        text = page[heading.end() : following.start() if following else None].strip()
        table, column, small, apart = heading.groups()
        section = Section(Place(table, column, bool(small)), text, bool(apart))
        if apart:
            without.append(section)
        else:
            recorded[section.place] = section
    return recorded, without


def left_behind(section: Section, labels: Collection[str]) -> Section | None:
    """The section without the rows that have newer runs, for the part without records; None if no row is left."""
    lines = section.text.splitlines()
    table = [line for line in lines if line[:1] == "|"]
    rows = [line for line in table[2:] if line.strip("|").split(" | ")[0].strip() not in labels]
    if not rows:
        return None
    before = lines[: lines.index(table[0])]
    if not section.without:
        notes = re.sub(r"runs\s+are\s+there", "runs were made", "\n".join(before[: _first_comment(before)]))
        before = [f"Measured on {_days(section.text)} {EARLIER}", "", notes]
    text = "\n".join([*before, "", *table[:2], *rows])
    return replace(section, text=re.sub(r"\n{3,}", "\n\n", text).strip(), without=True)


def _first_comment(lines: list[str]) -> int:
    return next((number for number, line in enumerate(lines) if line.startswith("<!--")), len(lines))


def _days(text: str) -> str:
    """The dates in the text below a section's table."""
    days = sorted(DAY.findall(text.rpartition("\n|")[2]))
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else "an unknown date"
