"""Compare the engine with a plain loop and other frameworks on the same workload, each in a separate process.

They take turns, and the best turn of each counts, as in all benchmarks here. If a framework fails, the table says why,
and the others continue.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coterie.bench.frameworks import DRIVERS, Framework, home
from coterie.bench.watching import DriverRun, watched
from coterie.bench.workloads import Workload
from coterie.core.errors import CoterieError
from coterie.core.formatting import NOTHING, aligned, duration, size
from coterie.terminal.steps import Steps

LOOP, OURS = "plain loop", "Coterie"
METHODS = {"gossip": "gossip", "fedavg": "FedAvg"}
Say = Callable[[str], None]


@dataclass
class Contestant:
    """A participant of the comparison: how to start it, and its measurements."""

    title: str
    method: str
    command: Callable[[Say], list[str]]  # without the workload
    environment: Mapping[str, str]
    turns: list[DriverRun] = field(default_factory=list)
    failure: str = ""

    @property
    def seconds(self) -> float | None:
        """Seconds of the best round."""
        return min((s for turn in self.turns for s in turn.seconds), default=None)

    @property
    def startup(self) -> float:
        return min(turn.startup for turn in self.turns)

    @property
    def memory(self) -> int:
        return max(turn.memory for turn in self.turns)


@dataclass(frozen=True)
class Schedule:
    turns: int
    rounds: int  # per turn, including the first, which is not counted
    limit: float  # seconds per turn


def contest(work: Workload, frameworks: Sequence[Framework], plan: Schedule, steps: Steps) -> list[Contestant]:
    """Run all turns of all contestants with one workload; each turn is a step."""
    contenders = contestants(frameworks)
    for number in range(1, plan.turns + 1):
        for one in contenders:
            name = turn_name(work, number, plan, one)
            if one.failure:
                steps.drop(name)
                continue
            steps.begin(name)
            _take_turn(one, work, plan, steps.say)
            steps.end(name, one.failure or f"{duration(min(one.turns[-1].seconds))} a round", always=True)
    return contenders


def turn_name(work: Workload, number: int, plan: Schedule, one: Contestant) -> str:
    return f"{work.name}, turn {number} of {plan.turns}: {one.title}, {METHODS[one.method]}"


def turns_of(works: Sequence[Workload], frameworks: Sequence[Framework], plan: Schedule) -> list[str]:
    """The names of all turns."""
    return [
        turn_name(work, number, plan, one)
        for work in works
        for number in range(1, plan.turns + 1)
        for one in contestants(frameworks)
    ]


def contestants(frameworks: Sequence[Framework]) -> list[Contestant]:
    """The loop and the engine with gossip and with every other method of the frameworks; then the frameworks."""
    methods = ["gossip", *sorted({f.method for f in frameworks} - {"gossip"})]
    ours = [
        Contestant(title, method, partial(_own_command, driver), os.environ)
        for method in methods
        for title, driver in ((LOOP, "loop_driver.py"), (OURS, "coterie_driver.py"))
    ]
    return ours + [Contestant(f.title, f.method, f.command, f.environment()) for f in frameworks]


def _own_command(driver: str, say: Say) -> list[str]:  # noqa: ARG001
    return [sys.executable, str(DRIVERS / driver)]


def _take_turn(one: Contestant, work: Workload, plan: Schedule, say: Say) -> None:
    output = home() / f"{one.title}-{work.name}.log".replace(" ", "-").lower()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.unlink(missing_ok=True)
    try:
        command = one.command(say)
        workload = {**work.as_json(), "method": one.method, "rounds": plan.rounds, "began": time.time()}
        one.turns.append(watched([*command, json.dumps(workload)], plan.limit, one.environment, output))
    except CoterieError as error:
        one.failure = f"{error}" + (f" (its output: {output})" if output.exists() else "")


# -- as text and as JSON -------------------------------------------------------------------------


def table(contenders: Sequence[Contestant]) -> str:
    """A row for each contestant with figures, and a line for each failure."""
    head = ["", "does", "a round", "against the loop", "Coterie is", "start-up", "memory"]
    rows = [_row(one, contenders) for one in contenders if one.turns]
    failures = [f"{one.title}, {METHODS[one.method]}: {one.failure}" for one in contenders if one.failure]
    return "\n".join([*([aligned([head, *rows])] if rows else []), *failures])


def _row(one: Contestant, contenders: Sequence[Contestant]) -> list[str]:
    seconds = one.seconds
    assert seconds is not None
    loop, ours = (_seconds_of(title, one.method, contenders) for title in (LOOP, OURS))
    return [
        one.title if one.title == LOOP else f"{one.title} {one.turns[0].version}",
        METHODS[one.method],
        duration(seconds),
        f"{loop / seconds:.2f}x" if loop else NOTHING,
        f"{seconds / ours:.2f}x as fast" if ours else NOTHING,
        duration(one.startup),
        size(one.memory) if one.memory else NOTHING,
    ]


def _seconds_of(title: str, method: str, contenders: Sequence[Contestant]) -> float | None:
    return next((one.seconds for one in contenders if (one.title, one.method) == (title, method)), None)


def figures(work: Workload, contenders: Sequence[Contestant]) -> dict[str, Any]:
    """The figures for --out."""
    return {"workload": work.name, "title": work.title, "contestants": [_figures_of(one) for one in contenders]}


def _figures_of(one: Contestant) -> dict[str, Any]:
    known = {"title": one.title, "method": one.method, "failure": one.failure}
    if not one.turns:
        return known
    turns = [list(turn.seconds) for turn in one.turns]
    best = {"seconds_per_round": one.seconds, "startup": one.startup, "peak_memory": one.memory}
    return {**known, "version": one.turns[0].version, **best, "turns": turns}
