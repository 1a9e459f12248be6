"""`coterie peer`, `coterie up` and `coterie status`: run real peers and look at them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from coterie.config.command_words import EXPERIMENT, names_and_settings, note, only_one, parse_words
from coterie.core.errors import ConfigError, CoterieError, Interrupted

if TYPE_CHECKING:
    from coterie.config.sections import Experiment
    from coterie.core.events import PeerRound
    from coterie.core.measured_metric import MeasuredMetric

LINE_EVERY = 2.0  # minimum seconds between two lines of progress
STOPPED = 130


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    peer = commands.add_parser(
        "peer",
        help="join a circle as one real peer",
        description="Run one peer from its TOML file: an experiment (usually on a shared base) and a [peer] section "
        "with its keys, address and seeds. The same command resumes it after a stop or crash.",
    )
    peer.add_argument(
        "settings",
        nargs="*",
        metavar="FILE | key=value",
        help="the peer's .toml file, and settings such as network.compress=zstd, in any order",
    )
    peer.add_argument("--fresh", action="store_true", help="start over and discard the state of an earlier run")
    peer.set_defaults(command=_peer)

    up = commands.add_parser(
        "up",
        help="run a whole circle on this machine, one process per peer",
        description="Start COUNT real peers on this machine, over mutual TLS with throwaway keys; without COUNT, one "
        "for each site of the data (data.partition = column or files). Example: "
        "coterie up 4 panm-digits method.l=2 method.k=1",
    )
    up.add_argument(
        "settings",
        nargs="*",
        metavar=f"COUNT | {EXPERIMENT}",
        help="the number of peers, a preset or .toml file (default: the demo) and settings, in any order",
    )
    up.add_argument("--out", type=Path, help="the run's folder; default: runs/up-<name>-<time>")
    up.add_argument("--overwrite", action="store_true", help="replace an existing run in the folder")
    up.add_argument("--resume", type=Path, metavar="DIR", help="resume a circle that was stopped")
    up.add_argument("--plain", action="store_true", help="plain lines instead of the live display")
    up.set_defaults(command=_up)

    status = commands.add_parser(
        "status",
        help="show which peers are up, their rounds and their traffic",
        description="Show a running peer's view of its circle: give its file, its folder, or that of `coterie up`.",
    )
    status.add_argument("where", nargs="?", type=Path, default=Path(), help="a peer's .toml file, its folder, or a run")
    status.add_argument("--json", action="store_true", help="print everything as JSON")
    status.set_defaults(command=_status)


def _peer(options: argparse.Namespace) -> int:
    from coterie.config.loading import notices
    from coterie.running import real_peer

    files, words = names_and_settings(options.settings)
    if not files:
        raise ConfigError("name the peer's .toml file, such as coterie peer north.toml")
    file = real_peer.read_file(Path(only_one(files, "peer")), words)
    note(notices([file.experiment]))
    last_line = 0.0

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)

    def on_round(record: PeerRound, metric: MeasuredMetric) -> None:
        nonlocal last_line
        now = time.monotonic()
        if now - last_line >= LINE_EVERY or record.round == file.experiment.rounds:
            last_line = now
            waited = float(record.notes.get("waited", 0.0))
            value = record.value(metric.name, "validation")
            shown = "" if value is None else f", {metric.on_validation(value)}"
            say(f"round {record.round}/{file.experiment.rounds}{shown}, waited {waited:.1f} s for others")

    try:
        summary = real_peer.run(file, fresh=options.fresh, say=say, on_round=on_round)
    except Interrupted as stop:
        say(f"{stop}. Run the same command to resume")
        sys.stdout.flush()
        os._exit(STOPPED)  # a thread may still train for minutes; everything worth keeping is on disk
    last, metric = summary.test.last, summary.main_metric
    shown = "" if last is None else f", test {metric.label} {metric.text(last)}"
    say(f"finished{shown}; received {summary.bytes:,} bytes in {summary.messages:,} messages. See {file.out}")
    return 0


def _up(options: argparse.Namespace) -> int:
    from coterie.config.loading import notices
    from coterie.running.local_circle import LocalCircle, resumable
    from coterie.terminal.display import Display, results

    experiment = None
    if options.resume:
        if options.settings or options.out:
            raise CoterieError(
                "--resume takes no number, experiment, settings or --out: it continues the circle as it was set up"
            )
        out = options.resume
    else:
        out, experiment = _circle_of(options)
        note(notices([experiment]))
    with Display("up", options.plain) as display:
        try:
            if experiment is None:
                circle = resumable(out, on_round=display.round, say=display.say)
            else:
                circle = LocalCircle(experiment, out, on_round=display.round, say=display.say)
                circle.prepare(options.overwrite)
            summary = circle.run()
        except Interrupted as stop:
            display.say(f"{stop}. Resume with: coterie up --resume {out}")
            return STOPPED
    print(results(summary, out))
    return 0


def _circle_of(options: argparse.Namespace) -> tuple[Path, Experiment]:
    from coterie.config.loading import load
    from coterie.data import SITES
    from coterie.running.simulated import new_folder

    counts = [word for word in options.settings if word.removeprefix("-").isdecimal()]
    request = parse_words(word for word in options.settings if word not in counts)
    how = CoterieError("give the number of peers on its own, without peers=: coterie up 4 panm-digits rounds=20")
    if any(int(word) < 1 for word in counts) or any(word.startswith("peers=") for word in request.settings):
        raise how
    number = [f"peers={only_one(counts, 'number of peers')}"] if counts else []
    experiment = load(request.experiment, [*request.settings, *number])
    if not counts and experiment.data.partition not in SITES:  # the number of sites is that of the data
        raise how
    return options.out or new_folder(f"up-{request.stem}"), experiment


def _status(options: argparse.Namespace) -> None:
    from coterie.running import peer_status

    print(peer_status.text(options.where, as_json=options.json), file=sys.stdout)
