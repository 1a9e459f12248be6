"""What is there of a table: ours beside the paper's, with the difference."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.comparing import plan
from coterie.comparing.plan import Job
from coterie.errors import RunError
from coterie.report.interval import Estimate, estimate
from coterie.report.summary import read_summary
from coterie.reproducing.figures import FIGURES, LAST, SELECTED, Figure, Summary, at, change
from coterie.reproducing.papers import Column, Table

NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class Results:
    """The runs of one column that are whole, by label."""

    table: Table
    column: Column
    small: bool
    runs: Mapping[str, Sequence[Summary]]
    made: str  # with which version, and when
    wanted: int

    @property
    def done(self) -> int:
        return sum(len(runs) for runs in self.runs.values())


def results(table: Table, column: Column, small: bool, jobs: Sequence[Job]) -> Results:
    runs: dict[str, list[dict[str, Any]]] = {row.label: [] for row in table.rows}
    done = [job for job in jobs if plan.is_done(job)]
    for job in done:
        runs[job.variant.label].append({**_summary(job.folder), "seed": job.seed})
    if table.against:
        _measure_changes(runs, table.against)
    return Results(table, column, small, runs, _made([job.folder for job in done]), len(jobs))


def _summary(folder: Path) -> Summary:
    found = read_summary(folder)
    if at(found, "accuracy", LAST, "mean") is None:
        raise RunError(f"{folder / 'summary.json'} has no accuracy: delete its folder, and run this again")
    return found


def _measure_changes(runs: Mapping[str, Sequence[dict[str, Any]]], against: str) -> None:
    """Every run gets its `change` from that row's run of the same seed, where there is one."""
    alone = {run["seed"]: run for run in runs[against]}
    for run in (run for of_row in runs.values() for run in of_row):
        if run["seed"] in alone:
            run["change"] = change(run, alone[run["seed"]])


def _made(folders: Sequence[Path]) -> str:
    if not folders:
        return ""
    versions = sorted({_version(folder / "events.jsonl") for folder in folders})
    days = sorted(_day(folder / "summary.json") for folder in folders)
    return f"coterie {', '.join(versions)}; {' to '.join(dict.fromkeys((days[0], days[-1])))}"


def _day(path: Path) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(path.stat().st_mtime))


def _version(events: Path) -> str:
    try:
        with events.open(encoding="utf-8") as lines:
            return str(json.loads(lines.readline()).get("version") or "?")
    except (OSError, ValueError, AttributeError):
        return "?"


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
        said.append(f"A small form, {' '.join([preset, *words])}: its figures are not to be expected equal.")
    if found.done < found.wanted:
        said.append(f"{found.done} of {found.wanted} runs are there.")
    return said
