"""A comparison as text for the terminal, as Markdown, LaTeX and CSV, and as JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from typing import Any

from coterie.comparing.comparison import Block, Comparison
from coterie.comparing.statistics import Line
from coterie.report.interval import Estimate
from coterie.report.words import NOTHING, aligned, count, duration, percent, size
from coterie.report.words import markdown as markdown_table

CHANCE = 0.05  # differences with a larger p are marked: they may be chance


def text(found: Comparison) -> str:
    parts = []
    for block in found.blocks:
        parts += [block.title] if block.title else []
        parts.append(aligned([head(block), *map(cells, block.lines)]))
    return "\n".join([*parts, "", *notes(found)])


def markdown(found: Comparison, command: str) -> str:
    parts = [f"    {command}\n"]
    for block in found.blocks:
        parts += [f"**{block.title}**\n"] if block.title else []
        parts.append(markdown_table([head(block), *map(cells, block.lines)]) + "\n")
    return "\n".join([*parts, *(f"- {note}" for note in notes(found))]) + "\n"


def latex(found: Comparison, command: str) -> str:
    """Ready for `\\input`; needs the package booktabs."""
    lines = [f"% {command}"]
    for block in found.blocks:
        width = len(head(block))
        lines += [f"% {block.title}"] if block.title else []
        lines += [f"\\begin{{tabular}}{{l{'r' * (width - 1)}}}", "\\toprule"]
        lines += [" & ".join(map(_escaped, head(block))) + " \\\\", "\\midrule"]
        lines += [" & ".join(map(_escaped, cells(entry))) + " \\\\" for entry in block.lines]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join([*lines, *(f"% {note}" for note in notes(found))]) + "\n"


def values(found: Comparison) -> str:
    """Everything as plain numbers, for a spreadsheet or a program: a row a variant."""
    rows = [{"data": block.title, **_flat(_figures(entry))} for block in found.blocks for entry in block.lines]
    names = list(dict.fromkeys(name for row in rows for name in row))
    into = io.StringIO()
    writer = csv.DictWriter(into, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return into.getvalue()


def all_rows(found: Comparison) -> tuple[list[str], list[list[str]]]:
    """One table of all blocks; the targets of several data settings differ."""
    whole = Block("", tuple(entry for block in found.blocks for entry in block.lines))
    return head(whole), [cells(entry) for entry in whole.lines]


def head(block: Block) -> list[str]:
    targets = {entry.target for entry in block.lines}
    to = f"time to {percent(next(iter(targets)))}" if len(targets) == 1 and targets != {None} else "time to target"
    figures = ["last", "selected", "± peers", "worst 10%", "hurt", "exchanged", "messages", to, "against best", "p"]
    return ["", *figures]


def cells(entry: Line) -> list[str]:
    against, p = "best by validation", ""
    if entry.against_best is not None:
        against = _points(entry.against_best.estimate, signed=True)
        p = _chance(entry.against_best.p)
    return [
        entry.label, _points(entry.last), _points(entry.selected), f"{100 * entry.spread:.1f}",
        percent(entry.worst_decile), NOTHING if entry.hurt is None else f"{entry.hurt:.0%}", size(round(entry.bytes)),
        f"{entry.messages:,.0f}", _time(entry), against, p,
    ]  # fmt: skip


def notes(found: Comparison) -> list[str]:
    """How to read the table, in sentences."""
    several = len(found.seeds) > 1
    how = f"{count(len(found.seeds), 'seed')} ({', '.join(map(str, found.seeds))})"
    said = [
        f"Test accuracy in %, mean over peers and {how}, on the same splits for all{_whose_splits(found)}: after the "
        "last round, and at each peer's best validation round."
        + (" ±: 95% interval over seeds." if several else " More seeds give intervals."),
        "Ordered by validation accuracy; nothing was selected by test accuracy.",
        "± peers: standard deviation over peers. Hurt: the share of peers that end worse than training alone.",
        "Time to target: simulated, until the mean test accuracy is that of training alone at its end, or --target.",
    ]
    if several:
        said.append(
            f"p: paired t-test over seeds against the best, after Holm; above {CHANCE:.2f} it may be chance. Few seeds "
            "detect large differences only."
        )
    if found.outdated:
        said.append(f"OUTDATED: {'. '.join(found.outdated)}. The same command without --print runs these again.")
    if found.missing:
        said.append(
            f"MISSING: {'; '.join(found.missing)}. The mean of a row that lacks a seed is over fewer splits; "
            "what stands under 'against best' is seed by seed."
        )
    return said


def _whose_splits(found: Comparison) -> str:
    return " rows with the same data" if len(found.blocks) > 1 else ""


def _points(value: Estimate, signed: bool = False) -> str:
    mean = f"{100 * value.mean:+.2f}" if signed else f"{100 * value.mean:.2f}"
    return mean if value.half is None else f"{mean} ±{100 * value.half:.2f}"


def _chance(p: float | None) -> str:
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _time(entry: Line) -> str:
    if entry.target is None:
        return NOTHING
    if entry.time is None:
        return "never"
    some = f" ({entry.reached} of {len(entry.seeds)})" if entry.reached < len(entry.seeds) else ""
    return duration(entry.time) + some


def _figures(entry: Line) -> dict[str, Any]:
    """All of a line; the best one has no difference from itself, and no column of that name."""
    found = dataclasses.asdict(entry)
    return found if entry.against_best is not None else {k: v for k, v in found.items() if k != "against_best"}


def _escaped(cell: str) -> str:
    cell = re.sub(r"^-(?=\d)", "$-$", cell)
    for plain, written in (
        ("\\", "\\textbackslash "),
        ("%", "\\%"),
        ("_", "\\_"),
        ("&", "\\&"),
        ("#", "\\#"),
        ("±", "$\\pm$"),
        ("<", "$<$"),  # in text it would be set as another sign
    ):
        cell = cell.replace(plain, written)
    return cell.replace(NOTHING, "--")


def _flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested figures as columns: last.mean, last.half, ..."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = " ".join(map(str, value)) if isinstance(value, tuple) else value
    return flat
