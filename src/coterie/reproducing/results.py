"""What is there of a table: ours beside the paper's, with the difference."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.comparing import plan
from coterie.comparing.plan import Job
from coterie.report.interval import Estimate, estimate
from coterie.reproducing import records, runs
from coterie.reproducing.figures import FIGURES, LAST, SELECTED, Figure, Summary, change
from coterie.reproducing.papers import Column, Table
from coterie.reproducing.records import Record, Records

BEHIND, SOURCES = "Behind it:", "Versions and own files:"  # how these sentences begin, for whoever reads a page again
NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class TableRun:
    """One run behind a column's figures."""

    label: str
    seed: int
    key: str  # by which its record is known
    record: Record
    kept: bool  # whether it is in the file of records, and not in its folder alone


@dataclass(frozen=True)
class Results:
    """The runs of one column that are whole, by label."""

    table: Table
    column: Column
    small: bool
    runs: Mapping[str, Sequence[Summary]]
    behind: tuple[TableRun, ...]
    wanted: int
    outdated: tuple[str, ...] = ()  # which runs were computed with something else than there is now, and what changed

    @property
    def done(self) -> int:
        return len(self.behind)

    @property
    def kept(self) -> int:
        """Of how many runs there are records."""
        return sum(run.kept for run in self.behind)

    @property
    def unknown(self) -> int:
        """Of how many runs nobody recorded with what they were computed."""
        return sum(run.record.made_with is None for run in self.behind)


def results(table: Table, column: Column, small: bool, jobs: Sequence[Job], kept: Records) -> Results:
    """What there is of a column: in the folders of its jobs, or among the records kept of earlier ones."""
    by_label: dict[str, list[dict[str, Any]]] = {row.label: [] for row in table.rows}
    found = [(job, record, why) for job in jobs for record, why in record_of(job, kept)]
    for job, record, _ in found:
        by_label[job.variant.label].append({**record.summary, "seed": job.seed})
    if table.against:
        _measure_changes(by_label, table.against)
    behind = []
    for job, record, _ in found:
        key = runs.key(job)
        behind.append(TableRun(job.variant.label, job.seed, key, record, kept.get(key) == record))
    outdated = plan.why_again({job.name: why for job, _, why in found if why})
    return Results(table, column, small, by_label, tuple(behind), len(jobs), tuple(outdated))


def record_of(job: Job, kept: Records) -> list[tuple[Record, str]]:
    """Of this very run, and why it is outdated if it is; none if it was never done. A current one wins."""
    found = []
    if (record := kept.get(runs.key(job))) is not None:
        found.append((record, record.outdated(job.experiment)))
    if not found or found[0][1]:
        how = plan.standing(job)
        found += [(records.of_run(job.folder), how.outdated)] if how.done else []
    return sorted(found, key=lambda one: bool(one[1]))[:1]


def outdated_record(job: Job, kept: Records) -> list[str]:
    """Why the record that is kept of this run is outdated, where there is one and no folder of the run either."""
    record = kept.get(runs.key(job))
    return [] if record is None or plan.standing(job).begun else [record.outdated(job.experiment)]


def is_current(job: Job, kept: Records) -> bool:
    """Whether there is a record of this very run, computed with what there is now."""
    return any(not why for _, why in record_of(job, kept))


def _measure_changes(runs: Mapping[str, Sequence[dict[str, Any]]], against: str) -> None:
    """Every run gets its `change` from that row's run of the same seed, where there is one."""
    alone = {run["seed"]: run for run in runs[against]}
    for run in (run for of_row in runs.values() for run in of_row):
        if run["seed"] in alone:
            run["change"] = change(run, alone[run["seed"]])


def rows(found: Results) -> list[list[str]]:
    """The table as cells, its head first; only with columns that have something to say."""
    value = found.table.value
    main = [LAST, SELECTED] if value in (LAST, SELECTED) else [value]
    more = [name for name, figure in FIGURES.items() if name not in (LAST, SELECTED, value) and _tells(figure, found)]
    lines = [["", "paper", *(_heading(name) for name in main), "difference", *more, "seeds"]]
    for row in found.table.rows:
        runs = found.runs[row.label]
        if not runs:
            continue
        paper = row.paper.get(found.column.name, "")
        cells = [_cell(FIGURES[name], runs) for name in main]
        extra = [_cell(FIGURES[name], runs, with_interval=False) for name in more]
        lines.append([row.label, paper, *cells, _difference(paper, FIGURES[value], runs), *extra, str(len(runs))])
    return lines


def _tells(figure: Figure, found: Results) -> bool:
    return figure.beside and any(figure.find(run) for runs in found.runs.values() for run in runs)


def _heading(name: str) -> str:
    return {LAST: "ours, last round", SELECTED: "ours, validation-selected"}.get(name, f"ours, {name}")


def _estimate(figure: Figure, runs: Sequence[Summary]) -> Estimate | None:
    values = [value for run in runs if (value := figure.find(run)) is not None]
    return estimate(values) if values else None


def _cell(figure: Figure, runs: Sequence[Summary], with_interval: bool = True) -> str:
    found = _estimate(figure, runs)
    if found is None:
        return ""
    mean = figure.written(found.mean)
    return mean if found.half is None or not with_interval else f"{mean} ±{figure.written(found.half, signed=False)}"


def number(paper: str) -> float | None:
    """The figure that a paper prints, without what stands behind it."""
    found = NUMBER.match(paper)
    return None if found is None else float(found.group().replace(",", ""))


def _difference(paper: str, figure: Figure, runs: Sequence[Summary]) -> str:
    printed, ours = number(paper), _estimate(figure, runs)
    return "" if printed is None or ours is None else figure.written(ours.mean - printed, signed=True)


def notes(found: Results) -> list[str]:
    """How to read it, in sentences."""
    table = found.table
    said = [f"{table.paper}. {table.about}", "Ours: mean over seeds, ± the 95% interval over them (Student's t)."]
    if any("±" in row.paper.get(found.column.name, "") for row in table.rows):
        said.append(f"The paper's ±: {table.spread}.")
    said += [table.remark] if table.remark else []
    if found.small:
        preset, words = found.column.experiment(True)
        said.append(f"Small form, {' '.join([preset, *words])}: do not expect its figures to equal the paper's.")
    return said


def behind(found: Results) -> list[str]:
    """Which runs are behind the figures, when and with what they were made, in sentences."""
    which = _seeds({run.seed for run in found.behind}) if found.done == found.wanted else _rows_and_seeds(found)
    days, versions = (sorted({getattr(run.record, key) for run in found.behind}) for key in ("day", "version"))
    made = f"made on {' to '.join(dict.fromkeys((days[0], days[-1])))} with coterie {' and '.join(versions)}"
    return [f"{BEHIND} {of_all(found.done, found.wanted)} ({which}), {made}.", *_sources(found)]


def of_all(done: int, wanted: int) -> str:
    """How many runs of how many, in words."""
    if done == wanted:
        return "1 run" if wanted == 1 else f"all {wanted} runs"
    return f"{done} of {wanted} runs"


def _rows_and_seeds(found: Results) -> str:
    """Which rows have which seeds, rows with the same seeds together."""
    seeds: dict[str, set[int]] = {}
    for run in found.behind:
        seeds.setdefault(run.label, set()).add(run.seed)
    labels: dict[str, list[str]] = {}
    for label, of_label in seeds.items():
        labels.setdefault(_seeds(of_label), []).append(label)
    return "; ".join(f"{', '.join(of_seeds)} with {named}" for named, of_seeds in labels.items())


def _seeds(found: Iterable[int]) -> str:
    *first, last = map(str, sorted(found))
    return f"seeds {', '.join(first)} and {last}" if first else f"seed {last}"


def _sources(found: Results) -> list[str]:
    """Whether what the runs were computed with has changed since: as far as it was recorded, and as of now."""
    said = [f"OUTDATED, {line}" for line in found.outdated]
    if found.unknown:
        whose = "these runs" if found.unknown == found.done else f"{found.unknown} of these runs"
        said.append(f"not recorded for {whose}, so it is not known whether they changed since")
    return [f"{SOURCES} {line}." for line in said or ["unchanged when this was written"]]
