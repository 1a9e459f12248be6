"""`coterie compare` and `coterie sweep`: run several variants of an experiment and tabulate them."""

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
COLUMNS = "last,selected,spread,worst,hurt,bytes,messages,time,difference,p"  # as in tables.py (imports scipy)


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compare = commands.add_parser(
        "compare",
        help="compare methods on the same splits over several seeds, with table and figures",
        description="Run the missing runs on all cores, then print the table and write it to the folder as Markdown, "
        "CSV, LaTeX, JSON and report.html. The same command continues an interrupted comparison. Example: coterie "
        "compare panm gossip fedavg panm-digits rounds=40. Append a method's own parameters with commas: "
        "panm,metric=loss",
    )
    compare.add_argument(
        "settings",
        nargs="*",
        metavar=f"METHOD | {EXPERIMENT}",
        help="methods, a preset or .toml file (default: the demo) and settings, in any order",
    )
    compare.set_defaults(command=_compare)
    sweep = commands.add_parser(
        "sweep",
        help="run one experiment over a grid of settings",
        description="Like compare, for every combination of the given values. Example: "
        "coterie sweep panm-digits --over method.k=1,2,4 --over train.lr=0.01,0.1 rounds=40",
    )
    sweep.add_argument(
        "settings",
        nargs="*",
        metavar=EXPERIMENT,
        help="a preset or .toml file (default: the demo) and settings, in any order",
    )
    sweep.add_argument(
        "--over", action="append", default=[], metavar="key=value,value", help="a key and the values to try; repeatable"
    )
    sweep.set_defaults(command=_sweep)
    for parser in (compare, sweep):
        add_options(parser)
        parser.add_argument(
            "--target",
            type=float,
            help="report the time to reach this mean of the main metric, such as 0.85; default: the last of local",
        )
        parser.add_argument(
            "--no-local",
            action="store_true",
            help="do not add the baseline local, which shows which peers lose by taking part",
        )
        parser.add_argument(
            "--label",
            action="append",
            default=[],
            metavar="ROW=TEXT",
            help="rename a row in all tables and figures, such as panm='PANM (ours)'; repeatable",
        )
        parser.add_argument(
            "--columns",
            type=_columns,
            default=(),
            metavar="NAMES",
            help=f"columns of the LaTeX and Markdown tables, in this order: any of {COLUMNS}, and names of metrics; "
            "default: all",
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options shared by all commands that start several runs."""
    parser.add_argument("--seeds", type=seeds, default=(0, 1, 2), metavar="0,1,2", help="seeds to run; default: 0,1,2")
    parser.add_argument(
        "--out", type=Path, help="output folder; default: a folder in runs/ that depends only on the settings"
    )
    parser.add_argument("--jobs", type=int, default=0, help="number of runs in parallel; default: one per core")
    parser.add_argument("--print", action="store_true", help="run nothing; print the table of the runs that exist")
    parser.add_argument("--plain", action="store_true", help="plain lines instead of the live display")


def seeds(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of whole numbers such as 0,1,2") from None
    if any(seed < 0 for seed in numbers):
        raise argparse.ArgumentTypeError(f"'{text}': seeds must not be negative")
    return numbers


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(word.strip() for word in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of columns such as last,bytes")
    return names


def _compare(options: argparse.Namespace) -> int:
    from coterie.comparing import plan

    request = parse_words(options.settings, with_methods=True)
    return _run_all(options, "compare", request, plan.methods(request))


def _sweep(options: argparse.Namespace) -> int:
    from coterie.comparing import plan

    request = parse_words(options.settings, with_methods=True)
    if request.methods:
        raise ConfigError(f"sweep takes no methods: use --over method.name={','.join(request.methods)}")
    return _run_all(options, "sweep", request, plan.grid(options.over, plan.method_of(request)), options.over)


def _run_all(
    options: argparse.Namespace, kind: str, request: CommandWords, variants: Sequence[Variant], over: Sequence[str] = ()
) -> int:
    from coterie.comparing import execution, naming, plan, tables

    order = execution.ComparisonOrder(
        kind, request, tuple(variants), options.seeds, tuple(over), not options.no_local, options.target, options.out,
        naming.labels_given(options.label, variants if options.no_local else plan.with_local(variants)),
        tuple(options.columns),
    )  # fmt: skip
    results, failed = execution.run_comparison(order, options.jobs, not options.print, options.plain)
    if results.blocks:
        print(tables.text(results))
        written = execution.write(results, order.out, order.command)
        print(f"\n{order.out}: {', '.join(path.name for path in written)}")
    return ending(failed, bool(results.blocks), order.out)


def ending(failed: Mapping[str, str], any_done: bool, where: object) -> int:
    """Print the failures; returns the exit code."""
    for name, reason in failed.items():
        print(f"coterie: {name} failed: {reason}", file=sys.stderr)
    if not any_done and not failed:
        print(f"coterie: {where} has none of these runs yet; run them by leaving out --print", file=sys.stderr)
    return 0 if any_done and not failed else FAILED
