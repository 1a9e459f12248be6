"""`coterie reproduce`: arguments to calls."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.comparing.command import FAILED, add_options
from coterie.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coterie.reproducing.papers import Column, Table
    from coterie.reproducing.results import Results

LIST, ALL = "list", "all"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="a table of a paper, run again, with the paper's figures beside ours",
        description="Run what is missing of a table, on all cores, and print it. Called again, it goes on. Example: "
        "coterie reproduce mapl-table1/scenario1 --small",
    )
    parser.add_argument("table", help="TABLE or TABLE/COLUMN; list: which there are; all: every one")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="for every run, such as rounds=30")
    parser.add_argument("--small", action="store_true", help="the form for a machine with two cores")
    parser.add_argument("--only", default="", metavar="ROW,ROW", help="these rows only")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write all that is there as a page (Markdown)")
    add_options(parser)
    parser.set_defaults(command=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from coterie.report.words import aligned
    from coterie.reproducing import results

    if options.table == LIST:
        print(_list())
        return 0
    if options.table == ALL and not options.print:
        raise ConfigError("all tables would take days: name one, or --print those that are there")
    out = options.out or Path("runs") / "reproduce"
    shown: list[tuple[results.Results, str]] = []
    failed: dict[str, str] = {}
    for table, column, small in _chosen(options):
        found = _column(table, column, small, out, options, failed)
        if found.done:
            shown.append((found, results.command(found, options.seeds, options.settings)))
    for found, line in shown:
        print("\n".join([line, *results.notes(found), "", aligned(results.rows(found)), found.made, ""]))
    if options.page and shown:
        options.page.write_text(results.page(shown), encoding="utf-8")
        print(f"written: {options.page}")
    for name, why in failed.items():
        print(f"coterie: {name} failed: {why}", file=sys.stderr)
    if not shown:
        print(f"coterie: {out} has no run of this yet", file=sys.stderr)
    return FAILED if failed or not shown else 0


def _chosen(options: argparse.Namespace) -> Iterator[tuple[Table, Column, bool]]:
    """The columns asked for, and whether in their small form."""
    from coterie.reproducing import papers

    if options.table != ALL:
        table, columns = papers.find(options.table)
        yield from ((table, column, options.small) for column in columns)
        return
    for table in papers.tables().values():
        for column in table.columns.values():
            yield table, column, False
            if column.has_small:
                yield table, column, True


def _column(
    table: Table, column: Column, small: bool, out: Path, options: argparse.Namespace, failed: dict[str, str]
) -> Results:
    """Run what is missing of it, and read what is there."""
    from coterie.comparing.carrying_out import carry_out
    from coterie.reproducing import results

    only = [label for label in options.only.split(",") if label]
    jobs = table.jobs(column, small, options.seeds, options.settings, out, only)
    if not options.print:
        failed |= carry_out(jobs, out, options.jobs, options.plain)
    return results.results(table, column, small, jobs)


def _list() -> str:
    from coterie.report.words import aligned
    from coterie.reproducing import papers

    rows = [("table", "columns (small: has a form for two cores)", "what")]
    rows += [
        (table.name, ", ".join(map(_told, table.columns.values())), _what(table)) for table in papers.tables().values()
    ]
    return aligned(rows)


def _told(column: Column) -> str:
    return f"{column.name} (small)" if column.has_small else column.name


def _what(table: Table) -> str:
    return f"{table.paper}. {table.about}"
