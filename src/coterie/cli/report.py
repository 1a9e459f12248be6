"""`coterie report` and `coterie figures`: arguments to calls."""

from __future__ import annotations

import argparse
from pathlib import Path

from coterie.report.forms import WIDTH_MM


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="make report.html of a run again",
        description="The pictures and tables of a run as one HTML file, from its events.jsonl (and that of its "
        "baseline) alone: also of old runs, and of a simulation that is still going on. Example: coterie report "
        "runs/demo",
    )
    report.add_argument("where", type=Path, metavar="DIR", help="the folder of a run")
    report.add_argument("--out", type=Path, metavar="FILE", help="default: report.html in that folder")
    report.set_defaults(command=_report)
    figures = commands.add_parser(
        "figures",
        help="save the figures of a run, a comparison or a sweep for a paper: SVG, PDF, PNG",
        description="The figures of a report as files, each with its legend, on white, as wide as a column of a paper. "
        "Example: coterie figures runs/demo --format pdf,png --only accuracy-test",
    )
    figures.add_argument("where", type=Path, metavar="DIR", help="the folder of a run, a comparison or a sweep")
    figures.add_argument(
        "--format", type=_words, default=["svg"], metavar="svg,pdf,png",
        help="one or several; default: svg. PDF and PNG (300 dpi) need pip install 'vl-convert-python>=1.7'",
    )  # fmt: skip
    figures.add_argument("--out", type=Path, metavar="DIR", help="default: the folder figures in that folder")
    figures.add_argument(
        "--only",
        type=_words,
        action="extend",
        default=[],
        metavar="NAME",
        help="only these; repeatable, or with commas",
    )
    figures.add_argument("--background", default="white", metavar="white|transparent", help="default: white")
    figures.add_argument(
        "--width", type=float, default=WIDTH_MM, metavar="MM", help=f"in millimetres; default: {WIDTH_MM:g}"
    )
    figures.set_defaults(command=_figures)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _report(options: argparse.Namespace) -> None:
    from coterie.report.html import report_again

    print(f"written: {report_again(options.where, options.out)}")


def _figures(options: argparse.Namespace) -> None:
    from coterie.report.saving import figures

    written = figures(
        options.where, format=options.format, out=options.out, only=options.only, background=options.background,
        width=options.width,
    )  # fmt: skip
    for path in written:
        print(f"written: {path}")
