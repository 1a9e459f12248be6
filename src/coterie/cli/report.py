"""`coterie report` and `coterie figures`: the report of a run, and its figures as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from coterie.report.forms import WIDTH_MM


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="regenerate the report.html of a run",
        description="Write the figures and tables of a run as one HTML file. It needs only the events.jsonl of the run "
        "and of its baseline, so it also works for old runs and for simulations in progress. Example: coterie report "
        "runs/demo",
    )
    report.add_argument("where", type=Path, metavar="DIR", help="the folder of a run")
    report.add_argument("--out", type=Path, metavar="FILE", help="output file; default: report.html in that folder")
    report.set_defaults(command=_report)
    figures = commands.add_parser(
        "figures",
        help="save the figures of a run, a comparison or a sweep for a paper, as SVG, PDF or PNG",
        description="Save a report's figures as files, each with its legend, on white, as wide as a column of a paper. "
        "Example: coterie figures runs/demo --format pdf,png --only accuracy-test",
    )
    figures.add_argument("where", type=Path, metavar="DIR", help="the folder of a run, a comparison or a sweep")
    figures.add_argument(
        "--format", type=_words, default=["svg"], metavar="svg,pdf,png",
        help="one or more formats; default: svg. PDF and PNG (300 dpi) need pip install 'vl-convert-python>=1.7'",
    )  # fmt: skip
    figures.add_argument("--out", type=Path, metavar="DIR", help="output folder; default: figures in that folder")
    figures.add_argument(
        "--only",
        type=_words,
        action="extend",
        default=[],
        metavar="NAME",
        help="only these figures; repeatable, or separated by commas",
    )
    figures.add_argument(
        "--background", default="white", metavar="white|transparent", help="background of the figures; default: white"
    )
    figures.add_argument(
        "--width", type=float, default=WIDTH_MM, metavar="MM", help=f"width in millimetres; default: {WIDTH_MM:g}"
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
