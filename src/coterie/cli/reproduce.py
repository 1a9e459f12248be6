"""`coterie reproduce`: rerun the tables of papers and print them beside the papers' figures."""

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
    from coterie.reproducing.papers import Table, TableColumn
    from coterie.reproducing.results import Results
    from coterie.reproducing.sections import Place
    from coterie.reproducing.states import State

LIST, ALL, MERGE = "list", "all", "merge"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="rerun a table of a paper and print it beside the paper's figures",
        description="Run the missing runs of a table on all cores, then print the table. The same command continues an "
        "interrupted one. Example: "
        "coterie reproduce mapl-table1/scenario1 --small",
    )
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="TABLE | key=value",
        help="TABLE or TABLE/COLUMN (`list` lists the tables, `all` means every table) and settings for every run, in "
        "any order; or: merge FILE FILE --record FILE, which merges files of records",
    )
    parser.add_argument(
        "--small", action="store_true", help="a smaller version of the table for a machine with two cores"
    )
    parser.add_argument("--only", default="", metavar="ROW,ROW", help="only these rows")
    parser.add_argument(
        "--page",
        type=Path,
        metavar="FILE",
        help="write all available results to this Markdown page, or update it",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="keep a record of each run in this file; recorded runs count as done even without their folders",
    )
    parser.add_argument(
        "--prune",
        action="store_true",
        help="with merge: also remove records of runs that no table needs any more",
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
        raise ConfigError("name a table: `coterie reproduce list` prints all tables")
    if words[0] == MERGE:
        return _merge([Path(word) for word in words[1:]], options)
    if options.prune:
        raise ConfigError("--prune only works with merge: coterie reproduce merge --record FILE --prune")
    options.table = only_one(words, "table")
    if options.table == LIST:
        print(_list(options))
        return 0
    if options.table == ALL and not options.print:
        raise ConfigError("running all tables would take weeks: name one, or print the existing results with --print")
    if options.page:
        page.check(options.page, options.record)
    maker = Maker(options.out or Path("runs") / "reproduce", options.record, options.print)
    shown: list[results.Results] = []
    on_page: list[tuple[results.Results, str]] = []
    failed: dict[str, str] = {}
    chosen = list(_chosen(options))
    for number, (table, column, small) in enumerate(chosen, 1):
        progress = f" (column {number} of {len(chosen)})" if len(chosen) > 1 else ""
        results_here = _column(table, column, small, maker, options, failed, f"{table.name}/{column.name}{progress}")
        shown += [results_here] if results_here.done else []
        if options.page:
            seeds = tuple(sorted({*options.seeds, *SEEDS}))
            complete = seeds == options.seeds and not options.only
            whole = results_here if complete else _whole(results_here, seeds, maker, options)
            on_page.append((whole, page.command(whole, seeds, options.settings)))
    _warn(shown)
    if maker.added:
        note([f"{count(maker.added, 'record')} of existing runs in {maker.out} added to {options.record}"])
    lines = records.lines(options.record) if options.record and options.table != ALL else {}
    for result in shown:
        head = [page.command(result, options.seeds, options.settings), *results.notes(result), ""]
        sources = [*results.behind(result), *_record_lines(result, lines)]
        print("\n".join([*head, aligned(results.rows(result)), "", *sources, ""]))
    if options.page:
        note(f"{options.page}: {line}" for line in page.write(options.page, on_page, options.record))
        print(f"written: {options.page}")
    return ending(failed, bool(shown), f"{maker.out} (with {options.record})" if options.record else maker.out)


def _whole(part: Results, seeds: tuple[int, ...], maker: Maker, options: argparse.Namespace) -> Results:
    """All existing results of a column, for the page, including rows and seeds that this command left out."""
    from coterie.reproducing import results

    jobs = part.table.jobs(part.column, part.small, seeds, options.settings, maker.out)
    return results.results(part.table, part.column, part.small, maker.placed(jobs), maker.kept)


def _record_lines(result: Results, lines: Mapping[str, int]) -> list[str]:
    """The line numbers of the runs behind a table in the file of records."""
    by_row: dict[str, list[str]] = {}
    for run in result.behind:
        if run.key in lines:
            by_row.setdefault(run.label, []).append(str(lines[run.key]))
    numbers = "; ".join(f"{label} {', '.join(of_row)}" for label, of_row in by_row.items())
    return [f"Line numbers of their records: {numbers}."] if numbers else []


def _merge(sources: list[Path], options: argparse.Namespace) -> int:
    from coterie.core.formatting import count
    from coterie.reproducing import records, runs

    if options.record is None or not (sources or options.prune) or options.settings:
        raise ConfigError(
            "name the files to merge and the target: coterie reproduce merge A.jsonl B.jsonl --record C.jsonl"
        )
    done = records.merge(sources, options.record, runs.asked_for() if options.prune else None)
    counts = [
        f"{count(done.before, 'record')} before",
        f"{done.added} added",
        f"{done.replaced} replaced by newer ones",
    ]
    counts += [f"{done.removed} removed, of runs that no table needs"] if done.removed else []
    if done.strange:
        counts.append(f"{done.strange} kept with settings that no longer exist (--prune removes them)")
    print(f"{options.record}: {', '.join(counts)}")
    return 0


def _warn(shown: list[Results]) -> None:
    """Warn of figures that are outdated, or whose sources are unknown."""
    note(f"OUTDATED: {r.table.name}/{r.column.name}: {line}" for r in shown for line in r.outdated)
    unknown, all_runs = sum(r.unknown for r in shown), sum(r.done for r in shown)
    if unknown:
        note([f"{unknown} of the {all_runs} runs shown were measured before sources were recorded"])


def _chosen(options: argparse.Namespace) -> Iterator[tuple[Table, TableColumn, bool]]:
    """The requested columns, and whether in their small form."""
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
    column: TableColumn,
    small: bool,
    maker: Maker,
    options: argparse.Namespace,
    failed: dict[str, str],
    title: str,
) -> Results:
    """Run the missing runs of a column, read its results, and record them if requested."""
    from coterie.config.loading import notices
    from coterie.reproducing import results

    only = [label for label in options.only.split(",") if label] if options.table != ALL else []
    jobs = maker.placed(table.jobs(column, small, options.seeds, options.settings, maker.out, only))
    if options.table != ALL:
        note(notices(job.experiment for job in jobs))
    if not options.print:
        lost = maker.make(jobs, options.jobs, options.plain, title)
        failed |= {f"{table.name}/{column.name}, {name}": reason for name, reason in lost.items()}
    maker.keep(jobs)
    return results.results(table, column, small, jobs, maker.kept)


def _list(options: argparse.Namespace) -> str:
    from coterie.core.formatting import count
    from coterie.reproducing import papers, records, states
    from coterie.reproducing.estimates import speeds_here

    seeds = len(options.seeds)
    existing = states.of_records(records.read(options.record)) if options.record else None
    print("coterie: measuring how fast this machine trains; this takes a few seconds", file=sys.stderr, flush=True)
    speeds = speeds_here()
    lines = []
    for paper, tables in groupby(papers.tables().values(), lambda table: table.paper):
        lines += [paper, *(line for table in tables for line in _described(table, seeds, speeds, existing)), ""]
    return "\n".join(
        [
            *lines,
            "Run coterie reproduce TABLE or TABLE/COLUMN, with --small on a machine with two cores. `list --record"
            " FILE` also shows which results exist.",
            f"Times are rough estimates for this machine with {count(seeds, 'seed')}: the training that a table needs,"
            " at the speed just measured with three networks. Other load makes it slower. `coterie plan` is more exact"
            " for a single run.",
        ]
    )


def _described(table: Table, seeds: int, speeds: Speeds, existing: Mapping[Place, State] | None) -> list[str]:
    from coterie.reproducing.estimates import about, seconds
    from coterie.reproducing.states import grouped

    times = {
        small: [seconds(table, c, small, seeds, speeds) for c in table.columns.values()] for small in (False, True)
    }
    lines = [f"columns: {', '.join(table.columns)}"]
    if existing is not None:
        lines += [f"{state}: {', '.join(columns)}" for state, columns in grouped(table, existing).items()]
    filled = "\n".join(textwrap.fill(line, 110, break_on_hyphens=False) for line in lines)
    times_text = f"time here: about {about(sum(times[False]))}; --small about {about(sum(times[True]))}"
    if len(table.columns) > 1:
        full, small = (dict.fromkeys([about(min(of_form)), about(max(of_form))]) for of_form in times.values())
        times_text += f". Per column: {' to '.join(full)}; --small {' to '.join(small)}"
    return [f"  {table.name}: {table.about}", textwrap.indent(filled, " " * 6), " " * 6 + times_text]
