"""Write a comparison as text for the terminal, and as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.comparing.comparison import Block, Comparison
from coterie.comparing.statistics import Line
from coterie.core.errors import ConfigError, unknown
from coterie.core.formatting import NOTHING, aligned, count, duration, size
from coterie.core.formatting import markdown as markdown_table
from coterie.core.measured_metric import ACCURACY, MeasuredMetric, short_number
from coterie.report.interval import Estimate

CHANCE = 0.05  # differences with a larger p are marked: they may be chance
BOLD = "Bold: the best of each column, to the digits printed; it may be chance, and selects nothing."


@dataclass(frozen=True)
class ComparisonColumn:
    """One figure of every row: its heading, its text, and how to rank it. The metric is the main one."""

    heading: Callable[[Block], str]
    cell: Callable[[Line, MeasuredMetric], str]
    merit: Callable[[Line, MeasuredMetric], float | None]  # the largest is the best; None: this row is not ranked


def column(
    heading: str | Callable[[Block], str],
    cell: Callable[[Line, MeasuredMetric], str],
    merit: Callable[[Line, MeasuredMetric], float | None] = lambda _, __: None,
) -> ComparisonColumn:
    return ComparisonColumn(heading if callable(heading) else lambda _: heading, cell, merit)


def _least(value: float | None) -> float | None:
    return None if value is None else -value


def _least_but_nothing(value: float) -> float | None:
    """A method that exchanges nothing is not ranked by how little it exchanges."""
    return -value if value > 0 else None


COLUMNS: dict[str, ComparisonColumn] = {
    "last": column("last", lambda e, m: written(m, e.last), lambda e, m: m.merit(e.last.mean)),
    "selected": column("selected", lambda e, m: written(m, e.selected), lambda e, m: m.merit(e.selected.mean)),
    "spread": column("± peers", lambda e, m: _deviation(m, e.spread), lambda e, _: -e.spread),
    "worst": column("worst 10%", lambda e, m: m.text(e.worst_decile), lambda e, m: m.merit(e.worst_decile)),
    "hurt": column("hurt", lambda e, _: NOTHING if e.hurt is None else f"{e.hurt:.0%}", lambda e, _: _least(e.hurt)),
    "bytes": column("exchanged", lambda e, _: size(round(e.bytes)), lambda e, _: _least_but_nothing(e.bytes)),
    "messages": column("messages", lambda e, _: f"{e.messages:,.0f}", lambda e, _: _least_but_nothing(e.messages)),
    "time": column(
        lambda block: _time_to(block),
        lambda e, _: _time(e),
        lambda e, _: _least(e.time if e.reached == len(e.seeds) else None),
    ),
    "difference": column("against best", lambda e, m: _difference(m, e)),
    "p": column("p", lambda e, _: "" if e.against_best is None else _chance(e.against_best.p)),
}


def columns_of(metrics: Sequence[MeasuredMetric]) -> dict[str, ComparisonColumn]:
    """The columns by name: those of the main metric, which comes first, then one for each other metric."""
    others = {m.name if m.name not in COLUMNS else f"{m.name} (metric)": _metric_column(m) for m in metrics[1:]}
    return {**COLUMNS, **others}


def _metric_column(metric: MeasuredMetric) -> ComparisonColumn:
    def cell(entry: Line, _: MeasuredMetric) -> str:
        value = entry.scores.get(metric.name)
        return NOTHING if value is None else written(metric, value)

    def merit(entry: Line, _: MeasuredMetric) -> float | None:
        value = entry.scores.get(metric.name)
        return None if value is None else metric.merit(value.mean)

    return column(metric.label_with_unit, cell, merit)


def checked_columns(names: Sequence[str], metrics: Collection[str] = ()) -> tuple[str, ...]:
    """Names of columns without duplicates; empty: all. `metrics` may be columns, too."""
    for name in names:
        if name not in COLUMNS and name not in metrics:
            raise ConfigError(f"columns: {unknown('column', name, COLUMNS)}")
    return tuple(dict.fromkeys(names))


def text(comparison: Comparison) -> str:
    parts = []
    for block in comparison.blocks:
        parts += [block.title] if block.title else []
        parts.append(aligned([head(block), *(cells(entry, block.metrics) for entry in block.lines)]))
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
        {"data": block.title, "key": entry.key, **_named_metric(block.main), **_flat(_figures(entry)), **outdated}
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
    metrics = comparison.metrics
    whole = Block("", tuple(entry for block in comparison.blocks for entry in block.lines), metrics)
    return head(whole), [[entry.title or entry.label, *cells(entry, metrics)[1:]] for entry in whole.lines]


def head(block: Block, names: Sequence[str] = ()) -> list[str]:
    columns = columns_of(block.metrics)
    return ["", *(columns[name].heading(block) if name in columns else name for name in names or columns)]


def cells(entry: Line, metrics: Sequence[MeasuredMetric] = (ACCURACY,)) -> list[str]:
    return [entry.label, *(column.cell(entry, metrics[0]) for column in columns_of(metrics).values())]


NOT_MEASURED = column("", lambda _, __: NOTHING)  # a metric that none of the runs has


def best(block: Block, name: str) -> set[int]:
    """The indices of the best rows in this column: several if they are printed alike, none if fewer than two are
    ranked.
    """
    shown_in = columns_of(block.metrics).get(name, NOT_MEASURED)
    merits = [shown_in.merit(entry, block.main) for entry in block.lines]
    competing = {i: merit for i, merit in enumerate(merits) if merit is not None}
    if len(competing) < 2:
        return set()
    printed = {i: _value(shown_in.cell(block.lines[i], block.main)) for i in competing}
    return {i for i, shown in printed.items() if shown == printed[max(competing, key=competing.__getitem__)]}


def _marked(
    block: Block, names: Sequence[str], bold: str, written: Callable[[str], str] = lambda cell: cell
) -> list[list[str]]:
    """The cells of a block without the rows' names, with the best value of each column in bold (but not its
    interval)."""
    rows: list[list[str]] = [[] for _ in block.lines]
    columns = columns_of(block.metrics)
    for name in names or columns:
        winners = best(block, name)
        for i, entry in enumerate(block.lines):
            cell = columns.get(name, NOT_MEASURED).cell(entry, block.main)
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
    metric = comparison.metrics[0]
    unit = "%" if metric.is_share else metric.shown_unit
    sentences = [
        f"Test {metric.label}{f' in {unit}' if unit else ''}, mean over peers and {seeds}, "
        f"on the same splits for all{_splits_scope(comparison)}: "
        "after the last round, and at each peer's best validation round."
        + (" ±: 95% interval over seeds." if several else " More seeds give intervals."),
        f"Ordered by validation {metric.label}; nothing was selected by test {metric.label}.",
        "± peers: standard deviation over peers. Hurt: the share of peers that end worse than training alone.",
        f"Time to target: simulated, until the mean test {metric.label} reaches the final one of training alone, or "
        "--target.",
    ]
    if not metric.higher_is_better:
        sentences.insert(1, "Lower is better. Against best: how much better than the best; negative is worse.")
    if others := [other.label for other in comparison.metrics[1:]]:
        sentences.append(f"Further metrics ({', '.join(others)}): on test data, after the last round.")
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


def _named_metric(metric: MeasuredMetric) -> dict[str, str]:
    """The main metric, where it is not accuracy."""
    return {} if metric == ACCURACY else {"metric": metric.name}


def _difference(metric: MeasuredMetric, entry: Line) -> str:
    if entry.against_best is None:
        return "best by validation"
    return written(metric, entry.against_best.estimate, "+")


def written(metric: MeasuredMetric, value: Estimate, sign: str = "") -> str:
    """A mean with its interval, without a unit: a share in percent."""
    if metric.is_share:
        mean = format(round(100 * value.mean, 2) + 0.0, f"{sign}.2f")  # and not -0.00
        return mean if value.half is None else f"{mean} ±{100 * value.half:.2f}"
    mean = format(value.mean + 0.0, f"{sign}.4g")
    return mean if value.half is None else f"{mean} ±{value.half:.2g}"


def _deviation(metric: MeasuredMetric, value: float) -> str:
    return f"{100 * value:.1f}" if metric.is_share else short_number(value)


def _chance(p: float | None) -> str:
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _time_to(block: Block) -> str:
    targets = {entry.target for entry in block.lines}
    if len(targets) != 1 or targets == {None}:
        return "time to target"
    return f"time to {block.main.text(next(iter(targets)))}"


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
