"""`coterie compare` and `coterie sweep`: arguments to calls."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.config.command_words import EXPERIMENT, parse_words
from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coterie.comparing.plan import Variant
    from coterie.config.command_words import CommandWords

FAILED = 2
COLUMNS = "last,selected,spread,worst,hurt,bytes,messages,time,difference,p"  # as in tables.py, which loads scipy


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compare = commands.add_parser(
        "compare",
        help="several methods on the same splits, over several seeds: the table and the figures",
        description="Run what is missing, on all cores, and make the table: in the terminal, and in the folder as "
        "Markdown, CSV, LaTeX, JSON and report.html. Called again, it goes on. Example: coterie compare panm gossip "
        "fedavg panm-digits rounds=40. A method's own parameters follow after commas: panm,metric=loss",
    )
    compare.add_argument(
        "settings", nargs="*", metavar=f"METHOD | {EXPERIMENT}", help="in any order; default: the demo"
    )
    compare.set_defaults(command=_compare)
    sweep = commands.add_parser(
        "sweep",
        help="one experiment over a grid of any keys",
        description="As compare, for every combination of the values given. Example: "
        "coterie sweep panm-digits --over method.k=1,2,4 --over train.lr=0.01,0.1 rounds=40",
    )
    sweep.add_argument("settings", nargs="*", metavar=EXPERIMENT, help="in any order; default: the demo")
    sweep.add_argument(
        "--over", action="append", default=[], metavar="key=value,value", help="what to vary; repeatable"
    )
    sweep.set_defaults(command=_sweep)
    for parser in (compare, sweep):
        add_options(parser)
        parser.add_argument("--target", type=float, help="accuracy (0 to 1) for the time to it; default: Local's last")
        parser.add_argument("--no-local", action="store_true", help="do not run Local beside, to see who is hurt")
        parser.add_argument(
            "--label",
            action="append",
            default=[],
            metavar="ROW=TEXT",
            help="what to call a row in all tables and figures, such as panm='PANM (ours)'; repeatable",
        )
        parser.add_argument(
            "--columns",
            type=_columns,
            default=(),
            metavar="NAMES",
            help=f"of the LaTeX and Markdown tables, in this order: some of {COLUMNS}; default: all",
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """What all commands that run several things have in common."""
    parser.add_argument("--seeds", type=seeds, default=(0, 1, 2), metavar="0,1,2", help="default: 0,1,2")
    parser.add_argument("--out", type=Path, help="the folder; default: one in runs/, the same for the same settings")
    parser.add_argument("--jobs", type=int, default=0, help="runs at once; default: one a core")
    parser.add_argument("--print", action="store_true", help="run nothing: the table of what is there")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of the live display")


def seeds(text: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of whole numbers such as 0,1,2") from None
    if any(seed < 0 for seed in found):
        raise argparse.ArgumentTypeError(f"'{text}': seeds are not negative")
    return found


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of columns such as last,bytes")
    return names


def _compare(options: argparse.Namespace) -> int:
    from coterie.comparing import plan

    request = parse_words(options.settings, with_methods=True)
    return _all(options, "compare", request, plan.methods(request))


def _sweep(options: argparse.Namespace) -> int:
    from coterie.comparing import plan

    request = parse_words(options.settings, with_methods=True)
    if request.methods:
        raise ConfigError(f"sweep varies keys: say --over method.name={','.join(request.methods)}")
    return _all(options, "sweep", request, plan.grid(options.over, plan.method_of(request)), options.over)


def _all(
    options: argparse.Namespace, kind: str, request: CommandWords, variants: Sequence[Variant], over: Sequence[str] = ()
) -> int:
    from coterie.comparing import execution, naming, plan, tables

    order = execution.ComparisonOrder(
        kind, request, tuple(variants), options.seeds, tuple(over), not options.no_local, options.target, options.out,
        naming.labels_given(options.label, variants if options.no_local else plan.with_local(variants)),
        tuple(options.columns),
    )  # fmt: skip
    found, failed = execution.carried_out(order, options.jobs, not options.print, options.plain)
    if found.blocks:
        print(tables.text(found))
        written = execution.write(found, order.out, order.command)
        print(f"\n{order.out}: {', '.join(path.name for path in written)}")
    return ending(failed, bool(found.blocks), order.out)


def ending(failed: Mapping[str, str], any_done: bool, where: object) -> int:
    """Say what could not be had; the exit code."""
    for name, why in failed.items():
        print(f"coterie: {name} failed: {why}", file=sys.stderr)
    if not any_done and not failed:
        print(f"coterie: {where} has no run of this yet; without --print they are made", file=sys.stderr)
    return 0 if any_done and not failed else FAILED
