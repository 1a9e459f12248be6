"""The state of every table and figure, in either form: complete, partial, without records, or only defined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path

from coterie.core.formatting import markdown
from coterie.reproducing import papers, runs
from coterie.reproducing.papers import Table
from coterie.reproducing.records import Records
from coterie.reproducing.results import of_all
from coterie.reproducing.sections import Place, Section

ONLY_DEFINED = "only defined: no run yet"


@dataclass(frozen=True)
class State:
    """The state of one column in one form."""

    done: int = 0
    wanted: int = 0
    recorded: bool = True
    earlier: bool = False  # there are figures of earlier runs that left no records

    def in_words(self, small: bool) -> str:
        """The state in words; empty if there are no figures."""
        form = "small form" if small else "full form"
        parts = []
        if self.done:
            runs = of_all(self.done, self.wanted)
            parts.append(runs if self.recorded else f"{runs}, without records")
        if self.earlier:
            parts.append("other rows without records" if self.done else "without records")
        return f"{form}: {'; '.join(parts)}" if parts else ""


def grouped(table: Table, states: Mapping[Place, State]) -> dict[str, list[str]]:
    """The columns of a table, by their state in words."""
    by_state: dict[str, list[str]] = {}
    for column in table.columns:
        both = [states.get(Place(table.name, column, small), State()).in_words(small) for small in (False, True)]
        by_state.setdefault("; ".join(filter(None, both)) or ONLY_DEFINED, []).append(column)
    return dict(sorted(by_state.items(), key=lambda entry: entry[0] == ONLY_DEFINED))  # columns with runs first


def of_page(sections: Iterable[Section]) -> dict[Place, State]:
    """The states that the sections of a page show."""
    states: dict[Place, State] = {}
    for section in sections:
        known = states.get(section.place, State())
        done, wanted = (known.done, known.wanted) if section.without else section.runs or (0, 0)
        recorded = known.recorded if section.without else section.recorded
        earlier = known.earlier or section.without or section.runs is None
        states[section.place] = State(done, wanted, recorded, earlier)
    return states


def of_records(kept: Records) -> dict[Place, State]:
    """The state of every column and form, by these records."""
    states = {}
    for table in papers.tables().values():
        for column, small in product(table.columns.values(), (False, True)):
            jobs = table.jobs(column, small, papers.SEEDS, (), Path())
            done = sum(runs.key(job) in kept for job in jobs)
            states[Place(table.name, column.name, small)] = State(done, len(jobs))
    return states


def index(sections: Sequence[Section]) -> str:
    """A list of every table and figure with its state, by paper, and what each paper leaves out."""
    states = of_page(sections)
    links = {section.place: section.anchor for section in reversed(sections)}  # the first section of a place wins
    parts = []
    for paper, tables in groupby(papers.tables().values(), lambda table: table.paper):
        rows = [line for table in tables for line in _lines(table, states, links)]
        parts += [f"### {paper}", "", markdown([["table", "columns", "state"], *rows]), ""]
        parts += [f"Left out: {papers.left_out()[paper]}", ""]
    return "\n".join(parts)


def _lines(table: Table, states: Mapping[Place, State], links: Mapping[Place, str]) -> list[list[str]]:
    """One line for each state among the table's columns; the first also describes the table."""
    by_state = grouped(table, states)
    lines = [
        ["", ", ".join(_linked(table, column, links) for column in by_state[state]), _marked(state)]
        for state in by_state
    ]
    lines[0][0] = f"`{table.name}`. {table.about}"
    return lines


def _marked(state: str) -> str:
    return f"*{state}*" if state == ONLY_DEFINED else state


def _linked(table: Table, column: str, links: Mapping[Place, str]) -> str:
    """A link to the column's section in the full form, or else in the small form."""
    places = (Place(table.name, column, small) for small in (False, True))
    anchor = next((links[place] for place in places if place in links), None)
    return f"`{column}`" if anchor is None else f"[`{column}`](#{anchor})"
