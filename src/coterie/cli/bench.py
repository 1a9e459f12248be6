"""`coterie bench`: measure the engine and print the tables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from coterie.core.errors import ConfigError, unknown

NAMES = ("w1", "w2", "w3", "w4", "growth")
FOR_OTHERS = ("w1", "w2", "w3")  # workloads whose models the other frameworks' drivers implement
LIMIT = 600.0
START_UP = 15.0  # seconds, roughly: preparing a workload and its first turn


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser(
        "bench",
        help="benchmark the engine against a plain PyTorch loop and other frameworks, on this machine",
        description="Measure the engine against a plain PyTorch loop, in alternating turns. With --against, measure it "
        "against other frameworks. "
        "Example: coterie bench --against flower,fluke --only w2",
    )
    bench.add_argument(
        "--against",
        metavar="NAMES",
        help="other frameworks, such as flower,fluke, or all; each is installed into its own environment",
    )
    bench.add_argument("--only", metavar="NAMES", help=f"workloads, any of {','.join(NAMES)}; default: all")
    bench.add_argument("--quick", action="store_true", help="make fewer and smaller measurements")
    bench.add_argument(
        "--limit",
        type=float,
        default=LIMIT,
        metavar="SECONDS",
        help="timeout for one turn of a framework; default: 600",
    )
    bench.add_argument("--out", type=Path, help="also write the figures as JSON")
    bench.add_argument("--plain", action="store_true", help="plain lines instead of the live display")
    bench.set_defaults(command=_bench)


def _bench(options: argparse.Namespace) -> None:
    if options.against is None:
        report = _against_loop(_names(options.only, NAMES), options.quick, options.plain)
    else:
        report = _against_others(options, _names(options.only, FOR_OTHERS))
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _names(only: str | None, valid: Sequence[str]) -> list[str]:
    """The workloads in a list such as `w1,w3`; all of them if there is no list."""
    names = list(valid) if only is None else [word.strip() for word in only.split(",")]
    for name in names:
        if name not in valid:
            raise ConfigError(unknown("workload", name, valid))
    return names


def _machine() -> str:
    import os
    import platform

    import torch

    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    )


def _against_loop(names: Sequence[str], quick: bool, plain: bool) -> dict[str, Any]:
    from coterie.bench import against_loop, growth
    from coterie.bench.workloads import NEIGHBOURS, chosen
    from coterie.core import memory
    from coterie.core.formatting import size
    from coterie.terminal.steps import Steps

    turns, seconds = (3, 0.0) if quick else (7, 60.0)
    report: dict[str, Any] = {"machine": _machine(), "results": [], "growth": []}
    works = chosen([name for name in names if name != "growth"])
    circles = (growth.PEERS[:-1] if quick else growth.PEERS) if "growth" in names else ()
    more = "" if quick else f" or more in {seconds:.0f} s"
    print(
        f"{_machine()}; best of {turns} turns{more}; seconds, and the speed-up over the plain loop\n",
        flush=True,
    )
    weights = {work.name: seconds + START_UP for work in works}
    weights |= {_circle(peers): float(growth.SECONDS[peers]) for peers in circles}
    with Steps("bench", weights, plain=plain) as steps:
        steps.say(_forecast(weights))
        if works:
            steps.out(against_loop.HEAD)
        for work in works:
            steps.begin(work.name, "preparing")
            result = against_loop.compare(work, turns, seconds, partial(steps.update, work.name))
            steps.end(work.name, "measured")
            report["results"].append(asdict(result))
            steps.out(result)
        report["peak_memory"] = memory.peak()
        if works:
            steps.out(f"\npeak memory of the comparison: {size(report['peak_memory'])}\n")
        if circles:
            about = f"{growth.SMALL.title}, gossip with {NEIGHBOURS}"
            steps.out(f"{about}: growth with the number of peers (each measurement in its own process)")
        for peers in circles:
            steps.begin(_circle(peers))
            growth_result = growth.grow(peers)
            steps.end(_circle(peers), "measured")
            report["growth"].append(asdict(growth_result))
            steps.out(growth_result)
    return report


def _circle(peers: int) -> str:
    return f"growth, {peers:,} peers"


def _forecast(weights: Mapping[str, float]) -> str:
    from coterie.core.formatting import duration

    total = duration(sum(weights.values()))
    return f"bench: {'; '.join(weights)}. Takes about {total} on two cores with nothing else running"


def _against_others(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    from coterie.bench.against_others import Schedule, contest, figures, table, turns_of
    from coterie.bench.frameworks import named
    from coterie.bench.workloads import chosen
    from coterie.core.formatting import count
    from coterie.terminal.steps import Steps

    frameworks = named(options.against)
    plan = Schedule(turns=1 if options.quick else 3, rounds=3 if options.quick else 5, limit=options.limit)
    report: dict[str, Any] = {"machine": _machine(), "results": []}
    works, turns = chosen(names), count(plan.turns, "turn")
    print(f"{_machine()}; best of {turns} of {plan.rounds - 1} rounds each, after one warm-up round", flush=True)
    weights = dict.fromkeys(turns_of(works, frameworks, plan), 1.0)
    with Steps("bench", weights, plain=options.plain) as steps:
        others = ", ".join(framework.title for framework in frameworks)
        total = f"{count(len(weights), 'turn')} of at most {options.limit:.0f} s each"
        steps.say(f"bench: {', '.join(names)} against {others}: {total}")
        for work in works:
            contestants = contest(work, frameworks, plan, steps)
            report["results"].append(figures(work, contestants))
            steps.out(f"\n{work.name}: {work.summary}\n{table(contestants)}")
    return report
