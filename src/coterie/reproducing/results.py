"""What is there of a table: ours beside the paper's, with the difference; and the page of all that is there."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.comparing.plan import Job
from coterie.comparing.statistics import Estimate, estimate
from coterie.errors import RunError
from coterie.reproducing.figures import FIGURES, LAST, SELECTED, Figure
from coterie.reproducing.papers import Column, Table

NUMBER = re.compile(r"[-+]?\d+(?:,\d{3})*(?:\.\d+)?")


@dataclass(frozen=True)
class Results:
    """The runs of one column that are whole, by label."""

    table: Table
    column: Column
    small: bool
    runs: dict[str, list[dict[str, Any]]]
    made: str  # with which version, and when
    wanted: int

    @property
    def done(self) -> int:
        return sum(len(runs) for runs in self.runs.values())


def results(table: Table, column: Column, small: bool, jobs: Sequence[Job]) -> Results:
    runs: dict[str, list[dict[str, Any]]] = {row.label: [] for row in table.rows}
    versions, days = set(), set()
    for job in jobs:
        path = job.folder / "summary.json"
        if not path.exists():
            continue
        try:
            runs[job.variant.label].append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise RunError(f"{path} cannot be read ({error}): delete it, and run this again") from error
        versions.add(_version(job.folder / "events.jsonl"))
        days.add(time.strftime("%Y-%m-%d", time.localtime(path.stat().st_mtime)))
    span = " to ".join(sorted({min(days), max(days)})) if days else ""
    made = f"coterie {', '.join(sorted(versions))}; {span}" if days else ""
    return Results(table, column, small, runs, made, len(jobs))


def _version(events: Path) -> str:
    try:
        with events.open(encoding="utf-8") as lines:
            return str(json.loads(lines.readline()).get("version") or "?")
    except (OSError, ValueError, AttributeError):
        return "?"


def rows(found: Results) -> list[list[str]]:
    """The table as cells, its head first; only with columns that have something to say."""
    value = found.table.value
    main = [value, *([SELECTED] if value == LAST else [])]
    everything = [run for runs in found.runs.values() for run in runs]
    more = [
        name for name, figure in FIGURES.items() if name not in (LAST, SELECTED, value) and _any(figure, everything)
    ]
    lines = [["", "paper", *(_heading(name) for name in main), "difference", *more, "seeds"]]
    for row in found.table.rows:
        runs = found.runs[row.label]
        if not runs:
            continue
        paper = row.paper.get(found.column.name, "")
        ours = [_estimate(FIGURES[name], runs) for name in main]
        cells = [_shown(FIGURES[name], ours_) for name, ours_ in zip(main, ours, strict=True)]
        extra = [_shown(FIGURES[name], _estimate(FIGURES[name], runs), with_interval=False) for name in more]
        lines.append([row.label, paper, *cells, _difference(paper, ours[0]), *extra, str(len(runs))])
    return lines


def _any(figure: Figure, runs: Sequence[dict[str, Any]]) -> bool:
    return any(figure.find(run) for run in runs)


def _heading(name: str) -> str:
    return {LAST: "ours, last round", SELECTED: "ours, validation-selected"}.get(name, f"ours, {name}")


def _estimate(figure: Figure, runs: Sequence[dict[str, Any]]) -> Estimate | None:
    values = [value for run in runs if (value := figure.find(run)) is not None]
    return estimate(values) if values else None


def _shown(figure: Figure, found: Estimate | None, with_interval: bool = True) -> str:
    if found is None:
        return ""
    mean = figure.form.format(found.mean)
    return mean if found.half is None or not with_interval else f"{mean} ±{figure.form.format(found.half).lstrip('+')}"


def _difference(paper: str, ours: Estimate | None) -> str:
    number = NUMBER.match(paper)
    if number is None or ours is None:
        return ""
    return f"{ours.mean - float(number.group().replace(',', '')):+.2f}"


def command(found: Results, seeds: Sequence[int], words: Sequence[str]) -> str:
    small = " --small" if found.small else ""
    more = "".join(f" {word}" for word in words)
    chosen = f" --seeds {','.join(map(str, seeds))}" if tuple(seeds) != (0, 1, 2) else ""
    return f"coterie reproduce {found.table.name}/{found.column.name}{small}{chosen}{more}"


def markdown(found: Results) -> str:
    head, *body = rows(found)
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def notes(found: Results) -> list[str]:
    said = [f"{found.table.paper}. {found.table.about}", "Ours: mean over seeds ±95% interval (Student's t)."]
    said += [found.table.remark] if found.table.remark else []
    if found.small:
        preset, words = found.column.experiment(True)
        said.append(f"A small form, {' '.join([preset, *words])}: its figures are not to be expected equal.")
    if found.done < found.wanted:
        said.append(f"{found.done} of {found.wanted} runs are there.")
    return said


def page(everything: Sequence[tuple[Results, str]]) -> str:
    """A page of the docs: every table that has runs, with the command, the version and the days."""
    parts = [
        "# The papers' tables, run again",
        "",
        "Made by `coterie reproduce all --print --page docs/reproduced.md` from the runs that were there. Under each",
        "heading stands the command that makes its runs. What the figures mean, and why some differ from the paper's,",
        "is on the methods' pages.",
    ]
    for found, line in everything:
        form = ", small form" if found.small else ""
        parts += ["", f"## {found.table.name}/{found.column.name}{form}", "", *notes(found), ""]
        parts += [
            "<!-- not run: takes hours -->",
            "```sh",
            line,
            "```",
            "",
            markdown(found),
            "",
            f"Made with {found.made}.",
        ]
    return "\n".join(parts) + "\n"
