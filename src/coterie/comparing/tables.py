"""Write a comparison as text for the terminal, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.comparing.comparison import Block, Comparison
from coterie.comparing.statistics import Line
from coterie.core.errors import ConfigError, unknown
from coterie.core.formatting import NOTHING, aligned, count, duration, percent, size
from coterie.core.formatting import markdown as markdown_table
from coterie.report.interval import Estimate

CHANCE = 0.05  # differences with a larger p are marked: they may be chance
BOLD = "Bold: the best of each column, to the digits printed; it may be chance, and selects nothing."


@dataclass(frozen=True)
class ComparisonColumn:
    """One figure of every row: its heading, its text, and how to rank it."""

    heading: Callable[[Block], str]
    cell: Callable[[Line], str]
    merit: Callable[[Line], float | None]  # the largest is the best; None: this row is not ranked


def column(
    heading: str | Callable[[Block], str],
    cell: Callable[[Line], str],
    merit: Callable[[Line], float | None] = lambda _: None,
) -> ComparisonColumn:
    return ComparisonColumn(heading if callable(heading) else lambda _: heading, cell, merit)


def _least(value: float | None) -> float | None:
    return None if value is None else -value


def _least_but_nothing(value: float) -> float | None:
    """A method that exchanges nothing is not ranked by how little it exchanges."""
    return -value if value > 0 else None


COLUMNS: dict[str, ComparisonColumn] = {
    "last": column("last", lambda e: _points(e.last), lambda e: e.last.mean),
    "selected": column("selected", lambda e: _points(e.selected), lambda e: e.selected.mean),
    "spread": column("± peers", lambda e: f"{100 * e.spread:.1f}", lambda e: -e.spread),
    "worst": column("worst 10%", lambda e: percent(e.worst_decile), lambda e: e.worst_decile),
    "hurt": column("hurt", lambda e: NOTHING if e.hurt is None else f"{e.hurt:.0%}", lambda e: _least(e.hurt)),
    "bytes": column("exchanged", lambda e: size(round(e.bytes)), lambda e: _least_but_nothing(e.bytes)),
    "messages": column("messages", lambda e: f"{e.messages:,.0f}", lambda e: _least_but_nothing(e.messages)),
    "time": column(
        lambda block: _time_to(block),
        lambda e: _time(e),
        lambda e: _least(e.time if e.reached == len(e.seeds) else None),
    ),
    "difference": column("against best", lambda e: _difference(e)),
    "p": column("p", lambda e: "" if e.against_best is None else _chance(e.against_best.p)),
}


def checked_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns without duplicates; empty: all."""
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"columns: {unknown('column', name, COLUMNS)}")
    return tuple(dict.fromkeys(names))


def text(comparison: Comparison) -> str:
    parts = []
    for block in comparison.blocks:
        parts += [block.title] if block.title else []
        parts.append(aligned([head(block), *map(cells, block.lines)]))
    return "\n".join([*parts, "", *notes(comparison)])


def markdown(comparison: Comparison, command: str = "") -> str:
    parts = [f"    {command}\n"] if command else []
    names = comparison.presentation.columns
    for block in comparison.blocks:
        parts += [f"**{block.title}**\n"] if block.title else []
        rows = [[entry.label, *row] for entry, row in zip(block.lines, _marked(block, names, "**{}**"), strict=True)]
        parts.append(markdown_table([head(block, names), *rows]) + "\n")
    return "\n".join([*parts, *(f"- {note}" for note in [*notes(comparison), BOLD])]) + "\n"


def latex(comparison: Comparison, command: str = "") -> str:
    """Ready for `\\input`; needs the package booktabs."""
    lines = [f"% {command}"] if command else []
    names = comparison.presentation.columns
    for block in comparison.blocks:
        top = head(block, names)
        rows = _marked(block, names, "\\textbf{{{}}}", _escaped)
        lines += [f"% {block.title}"] if block.title else []
        lines += [f"\\begin{{tabular}}{{l{'r' * (len(top) - 1)}}}", "\\toprule"]
        lines += [" & ".join(map(_escaped, top)) + " \\\\", "\\midrule"]
        for entry, row in zip(block.lines, rows, strict=True):
            lines.append(" & ".join([_escaped(entry.title or entry.label), *row]) + " \\\\")
        lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join([*lines, *(f"% {note}" for note in [*notes(comparison), BOLD])]) + "\n"


def values(comparison: Comparison) -> str:
    """All figures as plain numbers in CSV, one row per variant."""
    outdated = {"OUTDATED": "; ".join(comparison.outdated)} if comparison.outdated else {}
    rows = [
        {"data": block.title, "key": entry.key, **_flat(_figures(entry)), **outdated}
        for block in comparison.blocks
        for entry in block.lines
    ]
    names = list(dict.fromkeys(name for row in rows for name in row))
    into = io.StringIO()
    writer = csv.DictWriter(into, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return into.getvalue()


def all_rows(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """One table of all blocks, for a page. Blocks with different data have different targets."""
    whole = Block("", tuple(entry for block in comparison.blocks for entry in block.lines))
    return head(whole), [[entry.title or entry.label, *cells(entry)[1:]] for entry in whole.lines]


def head(block: Block, names: Sequence[str] = ()) -> list[str]:
    return ["", *(COLUMNS[name].heading(block) for name in names or COLUMNS)]


def cells(entry: Line) -> list[str]:
    return [entry.label, *(column.cell(entry) for column in COLUMNS.values())]


def best(block: Block, name: str) -> set[int]:
    """The indices of the best rows in this column: several if they are printed alike, none if fewer than two are
    ranked.
    """
    merits = [COLUMNS[name].merit(entry) for entry in block.lines]
    competing = {i: merit for i, merit in enumerate(merits) if merit is not None}
    if len(competing) < 2:
        return set()
    printed = {i: _value(COLUMNS[name].cell(block.lines[i])) for i in competing}
    return {i for i, shown in printed.items() if shown == printed[max(competing, key=competing.__getitem__)]}


def _marked(
    block: Block, names: Sequence[str], bold: str, written: Callable[[str], str] = lambda cell: cell
) -> list[list[str]]:
    """The cells of a block without the rows' names, with the best value of each column in bold (but not its
    interval)."""
    rows: list[list[str]] = [[] for _ in block.lines]
    for name in names or COLUMNS:
        winners = best(block, name)
        for i, entry in enumerate(block.lines):
            cell = COLUMNS[name].cell(entry)
            value = _value(cell)
            rest = written(cell[len(value) :])
            rows[i].append((bold.format(written(value)) if i in winners else written(value)) + rest)
    return rows


def _value(cell: str) -> str:
    """The part of a cell before the interval."""
    return cell.split(" ±", 1)[0]


def notes(comparison: Comparison) -> list[str]:
    """How to read the table, in sentences."""
    several = len(comparison.seeds) > 1
    seeds = f"{count(len(comparison.seeds), 'seed')} ({', '.join(map(str, comparison.seeds))})"
    sentences = [
        f"Test accuracy in %, mean over peers and {seeds}, on the same splits for all{_splits_scope(comparison)}: "
        "after the last round, and at each peer's best validation round."
        + (" ±: 95% interval over seeds." if several else " More seeds give intervals."),
        "Ordered by validation accuracy; nothing was selected by test accuracy.",
        "± peers: standard deviation over peers. Hurt: the share of peers that end worse than training alone.",
        "Time to target: simulated, until the mean test accuracy reaches the final one of training alone, or --target.",
    ]
    if several:
        sentences.append(
            f"p: paired t-test over seeds against the best, Holm-corrected; above {CHANCE:.2f} it may be chance. "
            "Few seeds detect only large differences."
        )
    if comparison.outdated:
        sentences.append(f"OUTDATED: {'. '.join(comparison.outdated)}.")
    if comparison.missing:
        sentences.append(
            f"MISSING: {'; '.join(comparison.missing)}. The mean of a row that lacks a seed is over fewer splits; "
            "the column 'against best' is seed by seed."
        )
    return sentences


def _splits_scope(comparison: Comparison) -> str:
    return " rows with the same data" if len(comparison.blocks) > 1 else ""


def _difference(entry: Line) -> str:
    return "best by validation" if entry.against_best is None else _points(entry.against_best.estimate, signed=True)


def _points(value: Estimate, signed: bool = False) -> str:
    points = round(100 * value.mean, 2) + 0.0  # and not -0.00
    mean = f"{points:+.2f}" if signed else f"{points:.2f}"
    return mean if value.half is None else f"{mean} ±{100 * value.half:.2f}"


def _chance(p: float | None) -> str:
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _time_to(block: Block) -> str:
    targets = {entry.target for entry in block.lines}
    return f"time to {percent(next(iter(targets)))}" if len(targets) == 1 and targets != {None} else "time to target"


def _time(entry: Line) -> str:
    if entry.target is None:
        return NOTHING
    if entry.time is None:
        return "never"
    some = f" ({entry.reached} of {len(entry.seeds)})" if entry.reached < len(entry.seeds) else ""
    return duration(entry.time) + some


def _figures(entry: Line) -> dict[str, Any]:
    """All figures of a line; the best line lacks the difference from itself."""
    figures = dataclasses.asdict(entry)
    return figures if entry.against_best is not None else {k: v for k, v in figures.items() if k != "against_best"}


LATEX = str.maketrans(
    {
        "\\": "\\textbackslash{}", "%": "\\%", "_": "\\_", "&": "\\&", "#": "\\#", "$": "\\$", "{": "\\{", "}": "\\}",
        "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", NOTHING: "--",
        "<": "$<$", ">": "$>$",  # text mode would print other characters
    }
)  # fmt: skip


def _escaped(cell: str) -> str:
    """Escaped for LaTeX, with a minus sign instead of a hyphen."""
    return re.sub(r"^-(?=\d)", "$-$", cell.translate(LATEX))


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested figures as columns: last.mean, last.half, ..."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = " ".join(map(str, value)) if isinstance(value, tuple) else value
    return flat
