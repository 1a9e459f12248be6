"""`coterie plan`: estimate what a run takes, and print the plan."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from coterie.config.command_words import EXPERIMENT, parse_words
from coterie.core.errors import ConfigError, RunError
from coterie.core.formatting import NOTHING, aligned, count, duration, short_name, size
from coterie.core.run_folder import RunFolder

if TYPE_CHECKING:
    from coterie.config.sections import Experiment
    from coterie.core.summary import Summary
    from coterie.planning.plan import Plan

T = TypeVar("T", int, float)
DELAY = 1.0  # seconds before a note explains why it takes long


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    plan = commands.add_parser(
        "plan",
        help="estimate the time, memory and traffic of a run on this machine",
        description="Rehearse an experiment for some seconds, without most of its computing, and estimate the time, "
        "memory and traffic of the run on this machine. Example: coterie plan panm-digits peers=100 rounds=300",
    )
    plan.add_argument(
        "settings",
        nargs="*",
        metavar=EXPERIMENT,
        help="a preset or .toml file (default: the demo) and settings, in any order",
    )
    plan.add_argument(
        "--all-rounds", action="store_true", help="rehearse every round even of a long run: slower, but exact counts"
    )
    plan.add_argument("--check", type=Path, metavar="DIR", help="plan a finished run and compare the plan with it")
    plan.set_defaults(command=_plan)


def _plan(options: argparse.Namespace) -> None:
    if options.check:
        if options.settings:
            raise ConfigError("--check takes no experiment or settings: it plans the run as it was set up")
        print(_checked(options.check, options.all_rounds))
        return
    from coterie.config.loading import load
    from coterie.running import simulated

    request = parse_words(options.settings)
    experiment = load(request.experiment, request.settings)
    baseline = simulated.baseline_of(experiment)
    experiments = [experiment] if baseline is None else [experiment, baseline]
    print("\n\n".join(text(plan) for plan in _plans(experiments, options.all_rounds)))


def _checked(folder: Path, all_rounds: bool) -> str:
    from coterie.report.summary import read_summary
    from coterie.running import simulated

    experiment = simulated.of_folder(folder)
    if not RunFolder(folder).is_finished():
        raise RunError(f"{folder} has not finished: a plan can only be compared with a finished run")
    summary = read_summary(folder)
    return compared(_plans([experiment], all_rounds)[0], summary)


def _plans(experiments: Sequence[Experiment], all_rounds: bool) -> list[Plan]:
    from coterie.planning.plan import plan

    with _note_if_slow():
        return [plan(experiment, all_rounds) for experiment in experiments]


@contextmanager
def _note_if_slow() -> Iterator[None]:
    note = "coterie: rehearsing; this takes at most about twenty seconds"
    timer = threading.Timer(DELAY, lambda: print(note, file=sys.stderr, flush=True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def text(plan: Plan) -> str:
    """The plan as text."""
    total, messages = sum(plan.bytes.values()), sum(plan.messages.values())
    parts = [f"{what} {duration(seconds)}" for what, seconds in plan.parts.items() if seconds >= plan.seconds / 100]
    rows = [
        ("time", f"{duration(plan.seconds)}, {duration(plan.seconds / plan.rounds)} per round"),
        ("  of it", ", ".join(parts)),
        ("  plus", f"{duration(plan.around)} to read the data and write the report"),
        ("memory", f"{size(plan.memory)} at peak"),
        ("exchanged", f"{size(total)} in {count(messages, 'message')}"),
        ("  per round", _exchange(total / plan.rounds, messages / plan.rounds)),
        ("  per peer", f"{_exchange(total / plan.peers, messages / plan.peers)}; busiest peer {size(plan.busiest)}"),
        *((f"  {name}", _exchange(plan.bytes[name], plan.messages[name])) for name in plan.bytes),
    ]
    head = f"{short_name(plan.method)}: {count(plan.peers, 'peer')}, {count(plan.rounds, 'round')}"
    return "\n".join([head, *("  " + line for line in aligned(rows).splitlines()), *_cautions(plan)])


def _exchange(bytes: float, messages: float) -> str:
    return f"{size(round(bytes))} in {count(round(messages), 'message')}"


def _cautions(plan: Plan) -> list[str]:
    lines = []
    if plan.rehearsed < plan.rounds:
        lines.append(f"  rehearsed {plan.rehearsed} of the rounds and assumed that the others are like them")
    if plan.unforeseen:
        lines.append(f"  not predictable: {plan.unforeseen}")
    return lines


def compared(plan: Plan, summary: Summary) -> str:
    """A plan next to the figures of the actual run."""
    rows = [
        ("", "planned", "actual", "ratio"),
        ("seconds", *_planned_actual_ratio(plan.seconds, summary.seconds, duration)),
        ("bytes", *_planned_actual_ratio(sum(plan.bytes.values()), summary.bytes.total, size)),
        ("messages", *_planned_actual_ratio(sum(plan.messages.values()), summary.messages.total, "{:,}".format)),
    ]
    head = f"{short_name(plan.method)}: {plan.peers} peers, {plan.rounds} rounds"
    return "\n".join([head, aligned(rows), *_cautions(plan)])


def _planned_actual_ratio(planned: T, actual: T, formatted: Callable[[T], str]) -> tuple[str, str, str]:
    return formatted(planned), formatted(actual), f"{planned / actual:.2f}" if actual else NOTHING
