"""The page of the docs with every table: which are there, and those that have runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

from coterie.core.errors import ConfigError
from coterie.core.files import write_whole
from coterie.core.formatting import markdown
from coterie.reproducing import papers, states
from coterie.reproducing.results import Results, behind, notes, rows
from coterie.reproducing.sections import RECORDS, Place, Section, left_behind, parsed

HEAD = """# The papers' tables, run again

First every table and figure of the four papers that Coterie can run, with its state. Then each one that has been run,
with the paper's figures beside ours. Below a table stands which runs are behind it: how many, with which seeds, on
which days, with which version, and where their records are. [Run a paper's table again](reproducing.md) says how to add
yours. What the figures mean, and why some differ from the paper's, is on the methods' pages.

This page is written by `{command}`.

## What there is

*Full form*: the paper's settings. *Small form*: the form for a machine with two cores, whose figures are not to be
expected equal. *Without records*: measured once, but no record was kept, so nobody can check the figures. *Only
defined*: `coterie reproduce` can run it, but there is no run of it.
"""
PART_WITHOUT = """## Without records

Figures of runs of which neither the folders nor records are left. The methods or their settings have changed since, so
today's commands may give others. A row disappears from here as soon as there is a recorded run of it.
"""


def command(found: Results, seeds: Sequence[int], words: Sequence[str]) -> str:
    """The command line that makes these runs."""
    small = " --small" if found.small else ""
    more = "".join(f" {word}" for word in words)
    chosen = f" --seeds {','.join(map(str, seeds))}" if tuple(seeds) != papers.SEEDS else ""
    return f"coterie reproduce {found.table.name}/{found.column.name}{small}{chosen}{more}"


def check(path: Path, record: Path | None) -> None:
    """Before hours of runs: that the page can be written, and one whose tables have records not without them, for they
    would seem to be lost."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = _read(path)
        write_whole(path, before)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be written ({error}): choose another --page") from error
    if record is None and any(section.recorded for section in parsed(before)[0].values()):
        raise ConfigError(f"{path} has tables with records: say in which file they are, with --record FILE")


def write(path: Path, everything: Sequence[tuple[Results, str]], record: Path | None = None) -> list[str]:
    """A page that is there already keeps its sections of other columns. Returns what was left out of it, and why."""
    before = _read(path)
    write_whole(path, page(everything, before, path, record))
    there, without = parsed(before)
    gone = {section.place for section in [*there.values(), *without]} - set(_in_order())
    return [f"{place.heading} is no table any more: its section is left out" for place in sorted(gone, key=str)]


def page(
    everything: Sequence[tuple[Results, str]],
    before: str = "",
    path: Path = Path("page.md"),
    record: Path | None = None,
) -> str:
    """Every column that was looked at as it is now, all others as they were before, in the order of the papers' tables.

    What was on the page, and of which there is no run any more, goes to the part without records.
    """
    there, without = parsed(before)
    for found, line in everything:
        place = Place(found.table.name, found.column.name, found.small)
        labels = {run.label for run in found.behind}
        old = there.pop(place, None)
        if found.done:
            there[place] = Section(place, _text(found, line, path, record))
        left = None if old is None else left_behind(old, labels)
        newer = labels | (set() if left is None else left.cells.keys())
        kept = [left_behind(section, newer) if section.place == place else section for section in without]
        without = [section for section in [left, *kept] if section is not None]
    order = {place: number for number, place in enumerate(_in_order())}
    first, second = (
        sorted((section for section in sections if section.place in order), key=lambda section: order[section.place])
        for sections in (there.values(), without)
    )
    parts = [HEAD.format(command=_written_by(path, record)), states.index([*first, *second])]
    parts += [f"## {section.heading}\n\n{section.text}\n" for section in first]
    if second:
        parts += [PART_WITHOUT, *(f"### {section.heading}\n\n{section.text}\n" for section in second)]
    return "\n".join(parts)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _written_by(path: Path, record: Path | None) -> str:
    kept = f" --record {record}" if record is not None else ""
    return f"coterie reproduce all --print{kept} --page {path}"


def _text(found: Results, line: str, path: Path, record: Path | None) -> str:
    commands = [line]
    if record is not None and found.kept:
        commands += [f"{line} --print --record {record}   # prints this table from the records"]
        where = f"[{record}]({os.path.relpath(record, path.parent)})"
        few = f" of {found.kept} of these runs" if found.kept < found.done else ""
        records = f"{RECORDS} {where}{few}."
    else:
        records = "No records of these runs are kept: `--record FILE` keeps them."
    block = ["<!-- not run: takes hours -->", "```sh", *commands, "```"]
    return "\n".join([*notes(found), "", *block, "", markdown(rows(found)), "", *behind(found), records])


def _in_order() -> Iterator[Place]:
    for table in papers.tables().values():
        yield from (Place(table.name, column, small) for column, small in product(table.columns, (False, True)))
