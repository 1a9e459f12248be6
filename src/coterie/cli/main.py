"""The entry point of `coterie`. Each command imports what it needs, so that help and errors are fast."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coterie.cli import audit, keys, peer
from coterie.cli import bench as bench_command
from coterie.cli import compare as comparing_command
from coterie.cli import dashboard as dashboard_command
from coterie.cli import data as data_command
from coterie.cli import export as using_command
from coterie.cli import plan as planning_command
from coterie.cli import report as report_command
from coterie.cli import reproduce as reproducing_command
from coterie.config.command_words import EXPERIMENT, SETTINGS, note, parse_words
from coterie.core.errors import CoterieError, DivergedError, Interrupted
from coterie.core.run_folder import RunFolder
from coterie.core.summary import Summary

OK, FAILED, STOPPED = 0, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; an error that Coterie raises on purpose becomes one line on standard error.

    Ctrl-C outside a run stays a KeyboardInterrupt, which `__main__` turns into a line.
    """
    parser = _parser()
    options, more = parser.parse_known_args(arguments)
    if more:  # words may also follow options
        if not hasattr(options, "settings") or any(word.startswith("-") for word in more):
            hint = f"; {SETTINGS}" if hasattr(options, "settings") else ""
            parser.error(f"unrecognized arguments: {' '.join(more)}{hint}")
        options.settings += more
    try:
        return int(options.command(options) or OK)
    except Interrupted as stop:
        print(f"coterie: {stop}", file=sys.stderr)
        return STOPPED
    except CoterieError as error:
        print(f"coterie: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return OK
    except FileExistsError as error:
        print(f"coterie: {error.filename} already exists and is not a folder", file=sys.stderr)
        return FAILED
    except OSError as error:
        print(f"coterie: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
        return FAILED


class _Version(argparse.Action):
    """Print the version, which is looked up only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from coterie.core.version import version

        print(f"coterie {version()}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coterie", description="Peer-to-peer personalized federated learning with heterogeneous models."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run an experiment (default: the demo)",
        description="Run a preset or a TOML file; key=value words override its settings. Example: "
        "coterie run panm-fashion-mnist method.name=oracle rounds=50",
    )
    run.add_argument(
        "settings",
        nargs="*",
        metavar=EXPERIMENT,
        help="a preset (`coterie list presets`) or a .toml file, and settings, in any order; default: the demo",
    )
    run.add_argument("--out", type=Path, help="the run's folder; default: runs/<name>-<time>")
    run.add_argument("--overwrite", action="store_true", help="replace an existing run in the folder")
    run.add_argument("--resume", type=Path, metavar="DIR", help="resume a run that was stopped or killed")
    run.add_argument("--plain", action="store_true", help="plain lines instead of the live display")
    run.set_defaults(command=_run)

    listing = commands.add_parser("list", help="list methods, models, data or presets")
    listing.add_argument(
        "what",
        nargs="?",
        choices=["methods", "models", "data", "presets"],
        help="what to list; default: how many there are of each",
    )
    listing.add_argument("name", nargs="?", help="show one of them with its parameters")
    listing.set_defaults(command=_list)

    data_command.add_commands(commands)
    bench_command.add_commands(commands)
    for module in (planning_command, comparing_command, reproducing_command, report_command, dashboard_command):
        module.add_commands(commands)
    for module in (using_command, peer, keys, audit):
        module.add_commands(commands)
    return parser


# -- run ---------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    from coterie.config.loading import load, notices
    from coterie.core.formatting import short_name
    from coterie.report.html import report_again
    from coterie.running import simulated
    from coterie.terminal.display import comparison, results

    if options.resume:
        if options.settings or options.out or options.overwrite:
            raise CoterieError(
                "--resume takes no experiment, settings, --out or --overwrite: it continues the run as it was set up"
            )
        out, experiment = options.resume, simulated.of_folder(options.resume)
    else:
        request = parse_words(options.settings)
        experiment = load(request.experiment, request.settings)
        out = options.out or simulated.new_folder(request.stem)
    baseline = simulated.baseline_of(experiment)  # now: an invalid baseline must fail before the run
    note(notices([experiment, *([baseline] if baseline else [])]))
    go = simulated.resume if options.resume else partial(simulated.run, experiment, overwrite=options.overwrite)
    summaries = [_watched(partial(go, out), short_name(experiment.method_name), out, options.plain)]
    diverged: DivergedError | None = None
    if baseline is not None and summaries[0] is not None:
        name = short_name(baseline.method_name)
        beside = RunFolder(out).baseline(name)
        folder = beside.path
        go = simulated.resume if beside.is_started() else partial(simulated.run, baseline)
        try:
            summaries.append(_watched(partial(go, folder), name, out, options.plain))
        except DivergedError as error:  # the run itself is complete, so show it first
            diverged = error
    done = [summary for summary in summaries if summary is not None]
    if len(done) < len(summaries):
        return STOPPED
    print(results(done[0], out))
    if experiment.method.learns_weights:
        _print_heat_map(out)
    if len(done) > 1:
        report_again(out)  # again, now with the baseline
        print(comparison(done))
    if diverged is not None:
        raise diverged
    return OK


def _watched(go: Callable[..., dict[str, Any]], title: str, folder: Path, plain: bool) -> Summary | None:
    """Run with a progress display; Ctrl-C stops at a checkpoint, a second Ctrl-C at once."""
    from coterie.terminal.display import Display

    with Display(title, plain) as display:
        try:
            return Summary.from_json(go(on_round=display.round, on_start=display.stop_on_interrupt))
        except (Interrupted, KeyboardInterrupt) as stop:
            how, started = str(stop) or "stopped at once", RunFolder(folder).is_started()
            display.say(
                f"{how}. Resume with: coterie run --resume {folder}" if started else "stopped before the run started"
            )
            return None


def _print_heat_map(folder: Path) -> None:
    from coterie.core.events import read
    from coterie.report.heatmap import heat_map

    drawn = heat_map(list(read(RunFolder(folder).events)), sys.stdout.encoding)
    if drawn:
        print(f"\n{drawn}")


# -- list --------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> None:
    from coterie.cli import listing

    print(listing.text(options.what, options.name))
