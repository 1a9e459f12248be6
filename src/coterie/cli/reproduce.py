"""`coterie reproduce`: arguments to calls."""

from __future__ import annotations

import argparse
import sys
import textwrap
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.cli.compare import add_options, ending
from coterie.config.command_words import names_and_settings, note, only_one
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coterie.reproducing.estimates import Speeds
    from coterie.reproducing.making import Maker
    from coterie.reproducing.papers import Column, Table
    from coterie.reproducing.results import Results
    from coterie.reproducing.sections import Place
    from coterie.reproducing.states import State

LIST, ALL, MERGE = "list", "all", "merge"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="a table of a paper, run again, with the paper's figures beside ours",
        description="Run what is missing of a table, on all cores, and print it. Called again, it goes on. Example: "
        "coterie reproduce mapl-table1/scenario1 --small",
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="TABLE | key=value",
        help="TABLE or TABLE/COLUMN (list: which there are; all: every one), and settings for every run, in any order; "
        "or: merge FILE FILE --record FILE, to put several files of records into one",
    )
    parser.add_argument("--small", action="store_true", help="the form for a machine with two cores")
    parser.add_argument("--only", default="", metavar="ROW,ROW", help="these rows only")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write all that is there as a page (Markdown), or into it",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="keep what came out of each run in this file; what is in it counts as done, without its folder",
    )
    parser.add_argument(
        "--prune",
        action="store_true",
        help="with merge: also remove the records of runs that no table asks for any more",
    )
    add_options(parser)
    parser.set_defaults(command=_reproduce)


def _reproduce(options: argparse.Namespace) -> int:
    from coterie.core.formatting import aligned, count
    from coterie.reproducing import page, records, results
    from coterie.reproducing.making import Maker
    from coterie.reproducing.papers import SEEDS

    words, options.settings = names_and_settings(options.settings)
    if not words:
        raise ConfigError("say which table: `coterie reproduce list` prints which there are")
    if words[0] == MERGE:
        return _merge([Path(word) for word in words[1:]], options)
    if options.prune:
        raise ConfigError("--prune goes with merge: coterie reproduce merge --record FILE --prune")
    options.table = only_one(words, "table")
    if options.table == LIST:
        print(_list(options))
        return 0
    if options.table == ALL and not options.print:
        raise ConfigError("all tables would take weeks: name one, or --print those that are there")
    if options.page:
        page.check(options.page, options.record)
    maker = Maker(options.out or Path("runs") / "reproduce", options.record, options.print)
    shown: list[results.Results] = []
    on_page: list[tuple[results.Results, str]] = []
    failed: dict[str, str] = {}
    chosen = list(_chosen(options))
    for number, (table, column, small) in enumerate(chosen, 1):
        which = f" (column {number} of {len(chosen)})" if len(chosen) > 1 else ""
        found = _column(table, column, small, maker, options, failed, f"{table.name}/{column.name}{which}")
        shown += [found] if found.done else []
        if options.page:
            seeds = tuple(sorted({*options.seeds, *SEEDS}))
            whole = found if seeds == options.seeds and not options.only else _whole(found, seeds, maker, options)
            on_page.append((whole, page.command(whole, seeds, options.settings)))
    _warn(shown)
    if maker.added:
        note([f"{count(maker.added, 'record')} of runs that are in {maker.out} added to {options.record}"])
    lines = records.lines(options.record) if options.record and options.table != ALL else {}
    for found in shown:
        head = [page.command(found, options.seeds, options.settings), *results.notes(found), ""]
        print("\n".join([*head, aligned(results.rows(found)), "", *results.behind(found), *_where(found, lines), ""]))
    if options.page:
        note(f"{options.page}: {line}" for line in page.write(options.page, on_page, options.record))
        print(f"written: {options.page}")
    return ending(failed, bool(shown), f"{maker.out} (with {options.record})" if options.record else maker.out)


def _whole(found: Results, seeds: tuple[int, ...], maker: Maker, options: argparse.Namespace) -> Results:
    """All that is there of a column, for the page, whatever part of it was asked for just now."""
    from coterie.reproducing import results

    jobs = found.table.jobs(found.column, found.small, seeds, options.settings, maker.out)
    return results.results(found.table, found.column, found.small, maker.placed(jobs), maker.kept)


def _where(found: Results, lines: Mapping[str, int]) -> list[str]:
    """In which lines of the file of records the runs behind a table are."""
    by_row: dict[str, list[str]] = {}
    for run in found.behind:
        if run.key in lines:
            by_row.setdefault(run.label, []).append(str(lines[run.key]))
    told = "; ".join(f"{label} {', '.join(of_row)}" for label, of_row in by_row.items())
    return [f"Lines of their records: {told}."] if told else []


def _merge(sources: list[Path], options: argparse.Namespace) -> int:
    from coterie.core.formatting import count
    from coterie.reproducing import records, runs

    if options.record is None or not (sources or options.prune) or options.settings:
        raise ConfigError(
            "say which files, and into which one: coterie reproduce merge A.jsonl B.jsonl --record C.jsonl"
        )
    done = records.merge(sources, options.record, runs.asked_for() if options.prune else None)
    said = [f"{count(done.before, 'record')} before", f"{done.added} added", f"{done.replaced} replaced by newer ones"]
    said += [f"{done.removed} removed, of runs that no table asks for"] if done.removed else []
    said += [f"{done.strange} more have settings that there are no more (--prune removes them)"] if done.strange else []
    print(f"{options.record}: {', '.join(said)}")
    return 0


def _warn(shown: list[Results]) -> None:
    """What is not current among the figures, or not known to be."""
    note(f"OUTDATED: {found.table.name}/{found.column.name}: {line}" for found in shown for line in found.outdated)
    unknown, all_runs = sum(found.unknown for found in shown), sum(found.done for found in shown)
    if unknown:
        note([f"{unknown} of the {all_runs} runs shown were measured before sources were recorded"])


def _chosen(options: argparse.Namespace) -> Iterator[tuple[Table, Column, bool]]:
    """The columns asked for, and whether in their small form."""
    from coterie.reproducing import papers

    if options.table != ALL:
        table, columns = papers.find(options.table)
        yield from ((table, column, options.small) for column in columns)
        return
    for table in papers.tables().values():
        for column in table.columns.values():
            yield from ((table, column, small) for small in (False, True))


def _column(
    table: Table,
    column: Column,
    small: bool,
    maker: Maker,
    options: argparse.Namespace,
    failed: dict[str, str],
    title: str,
) -> Results:
    """Run what is missing of it, read what is there, and keep a record of it where that is asked for."""
    from coterie.config.loading import notices
    from coterie.reproducing import results

    only = [label for label in options.only.split(",") if label] if options.table != ALL else []
    jobs = maker.placed(table.jobs(column, small, options.seeds, options.settings, maker.out, only))
    if options.table != ALL:
        note(notices(job.experiment for job in jobs))
    if not options.print:
        lost = maker.make(jobs, options.jobs, options.plain, title)
        failed |= {f"{table.name}/{column.name}, {name}": why for name, why in lost.items()}
    maker.keep(jobs)
    return results.results(table, column, small, jobs, maker.kept)


def _list(options: argparse.Namespace) -> str:
    from coterie.core.formatting import count
    from coterie.reproducing import papers, records, states
    from coterie.reproducing.estimates import speeds_here

    seeds = len(options.seeds)
    there = states.of_records(records.read(options.record)) if options.record else None
    print("coterie: measuring how fast this machine trains; this takes some seconds", file=sys.stderr, flush=True)
    speeds = speeds_here()
    lines = []
    for paper, tables in groupby(papers.tables().values(), lambda table: table.paper):
        lines += [paper, *(line for table in tables for line in _told(table, seeds, speeds, there)), ""]
    return "\n".join(
        [
            *lines,
            "coterie reproduce TABLE or TABLE/COLUMN; --small for a machine with two cores. `list --record FILE` also"
            " says what is there of each.",
            f"Times are rough estimates for this machine, with {count(seeds, 'seed')}: the training that a table asks"
            " for, at the speed with which three networks were trained here just now. Where other things run, it takes"
            " longer; `coterie plan` is more exact about a single run.",
        ]
    )


def _told(table: Table, seeds: int, speeds: Speeds, there: Mapping[Place, State] | None) -> list[str]:
    from coterie.reproducing.estimates import about, seconds
    from coterie.reproducing.states import grouped

    times = {
        small: [seconds(table, c, small, seeds, speeds) for c in table.columns.values()] for small in (False, True)
    }
    said = [f"columns: {', '.join(table.columns)}"]
    if there is not None:
        said += [f"{state}: {', '.join(columns)}" for state, columns in grouped(table, there).items()]
    filled = "\n".join(textwrap.fill(line, 110, break_on_hyphens=False) for line in said)
    whole = f"time here: about {about(sum(times[False]))}; --small about {about(sum(times[True]))}"
    if len(table.columns) > 1:
        full, small = (dict.fromkeys([about(min(of_form)), about(max(of_form))]) for of_form in times.values())
        whole += f". A column: {' to '.join(full)}; --small {' to '.join(small)}"
    return [f"  {table.name}: {table.about}", textwrap.indent(filled, " " * 6), " " * 6 + whole]
