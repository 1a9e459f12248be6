"""`coterie report`: arguments to calls."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = commands.add_parser(
        "report",
        help="make report.html of a run again",
        description="The pictures and tables of a run as one HTML file, from its events.jsonl alone: also of old runs, "
        "and of a simulation that is still going on. Example: coterie report runs/demo",
    )
    report.add_argument("where", type=Path, metavar="DIR", help="the folder of a run")
    report.add_argument("--out", type=Path, metavar="FILE", help="default: report.html in that folder")
    report.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> None:
    from coterie.report.html import write_report
    from coterie.report.run import open_run

    run = open_run(options.where)
    out = options.out or options.where / "report.html"
    write_report(run.events, run.summary, out)
    print(f"written: {out}")
