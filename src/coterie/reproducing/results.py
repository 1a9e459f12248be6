"""Tabulate the available runs of a table: our figures beside the paper's, with the difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from coterie.comparing import plan
from coterie.comparing.plan import Job
from coterie.core.summary import LAST, SELECTED
from coterie.report.interval import Estimate, estimate
from coterie.reproducing import records, runs
from coterie.reproducing.figures import FIGURES, RowRun, TableFigure, change
from coterie.reproducing.papers import Table, TableColumn
from coterie.reproducing.records import Record, Records

BEHIND, SOURCES = "Behind it:", "Versions and own files:"  # how these sentences begin; the page is parsed again
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class TableRun:
    """One run behind a column's figures."""

    label: str
    seed: int
    key: str  # of its record
    record: Record
    kept: bool  # whether it is in the file of records, not only in its folder


@dataclass(frozen=True)
class Results:
    """The finished runs of one column, by label."""

    table: Table
    column: TableColumn
    small: bool
    runs: Mapping[str, Sequence[RowRun]]
    behind: tuple[TableRun, ...]
    wanted: int
    outdated: tuple[str, ...] = ()  # runs whose inputs have changed since, and what changed

    @property
    def done(self) -> int:
        return len(self.behind)

    @property
    def kept(self) -> int:
        """The number of runs with records."""
        return sum(run.kept for run in self.behind)

    @property
    def unknown(self) -> int:
        """The number of runs whose sources were not recorded."""
        return sum(run.record.made_with is None for run in self.behind)


def results(table: Table, column: TableColumn, small: bool, jobs: Sequence[Job], kept: Records) -> Results:
    """The available results of a column: from its jobs' folders, or from records of earlier runs."""
    by_label: dict[str, list[RowRun]] = {row.label: [] for row in table.rows}
    available = [(job, record, why) for job in jobs for record, why in record_of(job, kept)]
    for job, record, _ in available:
        by_label[job.variant.label].append(RowRun(record.summary, job.seed))
    if table.against:
        by_label = _with_changes(by_label, table.against)
    behind = []
    for job, record, _ in available:
        key = runs.key(job)
        behind.append(TableRun(job.variant.label, job.seed, key, record, kept.get(key) == record))
    outdated = plan.rerun_reasons({job.name: why for job, _, why in available if why})
    return Results(table, column, small, by_label, tuple(behind), len(jobs), tuple(outdated))


def record_of(job: Job, kept: Records) -> list[tuple[Record, str]]:
    """The record of this run and why it is outdated (if so); empty if it was never done. A current record wins."""
    candidates = []
    if (record := kept.get(runs.key(job))) is not None:
        candidates.append((record, record.outdated(job.experiment)))
    if not candidates or candidates[0][1]:
        status = plan.run_status(job)
        candidates += [(records.of_run(job.folder), status.outdated)] if status.done else []
    return sorted(candidates, key=lambda one: bool(one[1]))[:1]


def outdated_record(job: Job, kept: Records) -> list[str]:
    """Why the kept record of this run is outdated, if there is a record but no folder of the run."""
    record = kept.get(runs.key(job))
    return [] if record is None or plan.run_status(job).started else [record.outdated(job.experiment)]


def is_current(job: Job, kept: Records) -> bool:
    """Whether there is a current record of this run."""
    return any(not why for _, why in record_of(job, kept))


def _with_changes(runs: Mapping[str, Sequence[RowRun]], against: str) -> dict[str, list[RowRun]]:
    """Every run with its `change` relative to that row's run under the same seed, if there is one."""
    alone = {run.seed: run.summary for run in runs[against]}
    return {
        label: [replace(r, change=change(r.summary, alone[r.seed])) if r.seed in alone else r for r in of_row]
        for label, of_row in runs.items()
    }


def rows(results: Results) -> list[list[str]]:
    """The table's cells, header first, without empty columns."""
    value = results.table.value
    main = [LAST, SELECTED] if value in (LAST, SELECTED) else [value]
    more = [
        name for name, figure in FIGURES.items() if name not in (LAST, SELECTED, value) and _has_values(figure, results)
    ]
    lines = [["", "paper", *(_heading(name) for name in main), "difference", *more, "seeds"]]
    for row in results.table.rows:
        runs = results.runs[row.label]
        if not runs:
            continue
        paper = row.paper.get(results.column.name, "")
        cells = [_cell(FIGURES[name], runs) for name in main]
        extra = [_cell(FIGURES[name], runs, with_interval=False) for name in more]
        lines.append([row.label, paper, *cells, _difference(paper, FIGURES[value], runs), *extra, str(len(runs))])
    return lines


def _has_values(figure: TableFigure, results: Results) -> bool:
    return figure.beside and any(figure.find(run) for runs in results.runs.values() for run in runs)


def _heading(name: str) -> str:
    return {LAST: "ours, last round", SELECTED: "ours, validation-selected"}.get(name, f"ours, {name}")


def _estimate(figure: TableFigure, runs: Sequence[RowRun]) -> Estimate | None:
    values = [value for run in runs if (value := figure.find(run)) is not None]
    return estimate(values) if values else None


def _cell(figure: TableFigure, runs: Sequence[RowRun], with_interval: bool = True) -> str:
    estimated = _estimate(figure, runs)
    if estimated is None:
        return ""
    mean = figure.written(estimated.mean)
    return (
        mean
        if estimated.half is None or not with_interval
        else f"{mean} ±{figure.written(estimated.half, signed=False)}"
    )


def number(paper: str) -> float | None:
    """The figure that a paper prints, without what follows it."""
    match = NUMBER.match(paper)
    return None if match is None else float(match.group().replace(",", ""))


def _difference(paper: str, figure: TableFigure, runs: Sequence[RowRun]) -> str:
    printed, ours = number(paper), _estimate(figure, runs)
    return "" if printed is None or ours is None else figure.written(ours.mean - printed, signed=True)


def notes(results: Results) -> list[str]:
    """How to read the table, in sentences."""
    table = results.table
    sentences = [f"{table.paper}. {table.about}", "Ours: mean over seeds, ± the 95% interval over them (Student's t)."]
    if any("±" in row.paper.get(results.column.name, "") for row in table.rows):
        sentences.append(f"The paper's ±: {table.spread}.")
    sentences += [table.remark] if table.remark else []
    if results.small:
        preset, words = results.column.experiment(True)
        sentences.append(f"Small form, {' '.join([preset, *words])}: do not expect its figures to equal the paper's.")
    return sentences


def behind(results: Results) -> list[str]:
    """The runs behind the figures, when they were made and with which version, in sentences."""
    which = _seeds({run.seed for run in results.behind}) if results.done == results.wanted else _rows_and_seeds(results)
    days, versions = (sorted({getattr(run.record, key) for run in results.behind}) for key in ("day", "version"))
    made = f"made on {' to '.join(dict.fromkeys((days[0], days[-1])))} with coterie {' and '.join(versions)}"
    return [f"{BEHIND} {of_all(results.done, results.wanted)} ({which}), {made}.", *_sources(results)]


def of_all(done: int, wanted: int) -> str:
    """The number of runs done and wanted, in words."""
    if done == wanted:
        return "1 run" if wanted == 1 else f"all {wanted} runs"
    return f"{done} of {wanted} runs"


def _rows_and_seeds(results: Results) -> str:
    """Which rows have which seeds, rows with the same seeds together."""
    seeds: dict[str, set[int]] = {}
    for run in results.behind:
        seeds.setdefault(run.label, set()).add(run.seed)
    labels: dict[str, list[str]] = {}
    for label, of_label in seeds.items():
        labels.setdefault(_seeds(of_label), []).append(label)
    return "; ".join(f"{', '.join(of_seeds)} with {named}" for named, of_seeds in labels.items())


def _seeds(seeds: Iterable[int]) -> str:
    *first, last = map(str, sorted(seeds))
    return f"seeds {', '.join(first)} and {last}" if first else f"seed {last}"


def _sources(results: Results) -> list[str]:
    """Whether the inputs of the runs have changed since, as far as they were recorded."""
    statements = [f"OUTDATED, {line}" for line in results.outdated]
    if results.unknown:
        whose = "these runs" if results.unknown == results.done else f"{results.unknown} of these runs"
        statements.append(f"not recorded for {whose}, so it is not known whether they changed since")
    return [f"{SOURCES} {line}." for line in statements or ["unchanged when this was written"]]
