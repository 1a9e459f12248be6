"""`coterie plan`: arguments to calls, and a plan as text."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from coterie.config.command_words import EXPERIMENT, parse_words
from coterie.core.errors import ConfigError, RunError
from coterie.core.formatting import NOTHING, aligned, count, duration, short_name, size

if TYPE_CHECKING:
    from coterie.config.sections import Experiment
    from coterie.planning.plan import Plan

T = TypeVar("T", int, float)
PATIENCE = 1.0  # seconds before there is a word of why it takes so long


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    plan = commands.add_parser(
        "plan",
        help="how long a run will take here, its memory, and what peers will exchange",
        description="Rehearse an experiment for some seconds, without most of its computing, and say what running it "
        "would take on this machine. Example: coterie plan panm-digits peers=100 rounds=300",
    )
    plan.add_argument("settings", nargs="*", metavar=EXPERIMENT, help="in any order; default: the demo")
    plan.add_argument(
        "--all-rounds", action="store_true", help="rehearse every round of a long run, too: slower, counted exactly"
    )
    plan.add_argument("--check", type=Path, metavar="DIR", help="plan a run that is done, and compare")
    plan.set_defaults(command=_plan)


def _plan(options: argparse.Namespace) -> None:
    if options.check:
        if options.settings:
            raise ConfigError("--check plans a run as it was: it takes no experiment or settings")
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
    if not (folder / "summary.json").exists():
        raise RunError(f"{folder} has not ended yet: there is nothing to compare a plan with")
    summary = read_summary(folder)
    return compared(_plans([experiment], all_rounds)[0], summary)


def _plans(experiments: Sequence[Experiment], all_rounds: bool) -> list[Plan]:
    from coterie.planning.plan import plan

    with _a_word_if_it_takes_long():
        return [plan(experiment, all_rounds) for experiment in experiments]


@contextmanager
def _a_word_if_it_takes_long() -> Iterator[None]:
    note = "coterie: rehearsing; this takes some twenty seconds at the most"
    timer = threading.Timer(PATIENCE, lambda: print(note, file=sys.stderr, flush=True))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def text(plan: Plan) -> str:
    """What a plan says, for a person."""
    total, messages = sum(plan.bytes.values()), sum(plan.messages.values())
    parts = [f"{what} {duration(seconds)}" for what, seconds in plan.parts.items() if seconds >= plan.seconds / 100]
    rows = [
        ("time", f"{duration(plan.seconds)}, {duration(plan.seconds / plan.rounds)} a round"),
        ("  of it", ", ".join(parts)),
        ("  and around it", f"{duration(plan.around)} to read the data and to write the report"),
        ("memory", f"{size(plan.memory)} at the most"),
        ("exchanged", f"{size(total)} in {count(messages, 'message')}"),
        ("  in a round", _exchange(total / plan.rounds, messages / plan.rounds)),
        ("  by a peer", f"{_exchange(total / plan.peers, messages / plan.peers)}; the busiest {size(plan.busiest)}"),
        *((f"  {name}", _exchange(plan.bytes[name], plan.messages[name])) for name in plan.bytes),
    ]
    head = f"{short_name(plan.method)}: {count(plan.peers, 'peer')}, {count(plan.rounds, 'round')}"
    return "\n".join([head, *("  " + line for line in aligned(rows).splitlines()), *_cautions(plan)])


def _exchange(bytes: float, messages: float) -> str:
    return f"{size(round(bytes))} in {count(round(messages), 'message')}"


def _cautions(plan: Plan) -> list[str]:
    said = []
    if plan.rehearsed < plan.rounds:
        said.append(f"  rehearsed in {plan.rehearsed} of the rounds: the others are taken to be like them")
    if plan.unforeseen:
        said.append(f"  not foreseen: {plan.unforeseen}")
    return said


def compared(plan: Plan, summary: dict[str, Any]) -> str:
    """A plan against what came of it."""
    rows = [
        ("", "planned", "actual", "ratio"),
        ("seconds", *_beside(plan.seconds, summary["seconds"], duration)),
        ("bytes", *_beside(sum(plan.bytes.values()), summary["bytes"]["total"], size)),
        ("messages", *_beside(sum(plan.messages.values()), summary["messages"]["total"], "{:,}".format)),
    ]
    head = f"{short_name(plan.method)}: {plan.peers} peers, {plan.rounds} rounds"
    return "\n".join([head, aligned(rows), *_cautions(plan)])


def _beside(planned: T, actual: T, words: Callable[[T], str]) -> tuple[str, str, str]:
    return words(planned), words(actual), f"{planned / actual:.2f}" if actual else NOTHING
