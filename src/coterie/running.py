"""A run from beginning to end: its folder, its engine, its events, and what is written when it is done."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.engines import checkpoint
from coterie.engines.clock import Clock
from coterie.engines.participants import doings
from coterie.engines.simulation import Simulation
from coterie.errors import RunError
from coterie.events import Event, EventLog, Offence, PeerAway, PeerRound, RunStarted, read
from coterie.experiment import Circle, Experiment, from_tables, gather, read_tables, with_method
from coterie.graph import Neighbourhood, neighbour_scores
from coterie.report.html import write_report
from coterie.report.summary import summarise, write_graph, write_json
from coterie.run_state import RunState
from coterie.training import Trainer
from coterie.using.keeping import keep
from coterie.using.manifest import version


@dataclass(frozen=True)
class RoundProgress:
    """All peers that are still there have finished a round: what a live display shows."""

    round: int
    rounds: int
    accuracy: float | None  # on validation data, so that nobody is tempted by the test set
    bytes: int  # so far
    neighbours: Neighbourhood | None


OnRound = Callable[[RoundProgress], None]
OnStart = Callable[[Simulation], None]


def run(
    experiment: Experiment,
    out: Path,
    *,
    overwrite: bool = False,
    on_round: OnRound | None = None,
    on_start: OnStart | None = None,
) -> dict[str, Any]:
    """Run an experiment into a new folder; returns its summary."""
    check_folder(out, overwrite)
    circle = gather(experiment)  # before anything is written or deleted: most mistakes show here
    if out.exists() and any(out.iterdir()):
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.toml").write_text(experiment.toml(), encoding="utf-8")
    log = EventLog(out / "events.jsonl")
    log.write(run_started(experiment, circle))
    log.flush()
    return _go(experiment, circle, log, out, 0.0, None, on_round, on_start)


def resume(out: Path, *, on_round: OnRound | None = None, on_start: OnStart | None = None) -> dict[str, Any]:
    """Go on with a run from its last checkpoint, as if nothing had happened; returns its summary."""
    experiment = of_folder(out)
    if (out / "summary.json").exists():
        finished: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        return finished
    found = checkpoint.load(out / "checkpoint")
    log = EventLog(out / "events.jsonl")
    circle = gather(experiment)
    if found is None:
        log.path.unlink(missing_ok=True)
        log.write(run_started(experiment, circle))
        return _go(experiment, circle, log, out, 0.0, None, on_round, on_start)
    kept = log.keep_until(found[0])
    return _go(experiment, circle, log, out, found[1].get("seconds", 0.0), found, on_round, on_start, kept)


def _go(
    e: Experiment,
    circle: Circle,
    log: EventLog,
    out: Path,
    seconds: float,
    saved: tuple[int, dict[str, Any]] | None,
    on_round: OnRound | None,
    on_start: OnStart | None,
    kept: list[Event] | None = None,
) -> dict[str, Any]:
    began = time.perf_counter() - seconds
    with RunState(out, e.rounds, saved[0] if saved else 0) as state:
        progress = Progress(e, circle.clusters, _told_to(state, log, on_round))
        for event in kept or []:
            progress.see(event, tell=False)
        state.tell(bytes=progress.bytes)
        trainer = Trainer(e.engine.batching, e.engine.workers, e.engine.threads)
        simulation = Simulation(
            e.method, circle.participants, e.rounds, trainer, Clock(e.clock, e.peers, e.seed), log,
            asynchronous=e.engine.asynchronous, evaluate_every=e.evaluate.every,
            checkpoint_every=e.engine.checkpoint, folder=out / "checkpoint",
            on_record=progress.see, seconds=lambda: time.perf_counter() - began,
        )  # fmt: skip
        try:
            if saved is not None:
                simulation.restore(*saved)
            state.doings = lambda: doings(simulation.all)
            if on_start:
                on_start(simulation)
            simulation.run()
        finally:
            trainer.close()
            log.close()
        keep(out, e, circle, [(p.peer, min(p.round, e.rounds)) for p in simulation.all])
        return finish(out, time.perf_counter() - began)


def _told_to(state: RunState, log: EventLog, on_round: OnRound | None) -> OnRound:
    """Whoever reads the files while the run goes on learns of a round when it is done."""

    def tell(p: RoundProgress) -> None:
        log.flush()
        state.tell(round=p.round, accuracy=p.accuracy, bytes=p.bytes)
        if on_round:
            on_round(p)

    return tell


def finish(out: Path, seconds: float) -> dict[str, Any]:
    """Everything that is derived from a run's events."""
    events = list(read(out / "events.jsonl"))
    summary = summarise(events, seconds)
    write_graph(events, out / "graph.npz")
    write_report(events, summary, out / "report.html")
    write_json(out / "summary.json", summary)  # last: a run with a summary is a whole one
    return summary


def check_folder(out: Path, overwrite: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise RunError(f"{out} exists already: choose another --out, or --overwrite it, or go on with --resume {out}")
    if not ((out / "config.toml").exists() and (out / "events.jsonl").exists()):
        raise RunError(f"{out} is not the folder of a run: it is not overwritten")


def run_started(e: Experiment, circle: Circle) -> RunStarted:
    samples = [p.samples for p in circle.participants[: e.peers]]
    return RunStarted(
        e.method_name, e.seed, e.peers, e.rounds, circle.architectures, samples, circle.class_counts,
        circle.clusters, version(),
    )  # fmt: skip


class Progress:
    """Turns the records of single peers into the progress of rounds: a round is done when nobody is behind it."""

    def __init__(self, e: Experiment, clusters: list[int] | None, on_round: OnRound | None) -> None:
        self.e, self.clusters, self.on_round = e, clusters, on_round
        self.bytes = 0
        self.done = 0
        self.at = dict.fromkeys(range(e.peers), 0)  # the last round that each peer finished, or skipped
        self.behind: Counter[int] = Counter({0: e.peers})
        self.validation: dict[int, list[float]] = defaultdict(list)
        self.lists: dict[int, dict[int, list[int]]] = defaultdict(dict)

    def see(self, record: Event, tell: bool = True) -> None:
        if isinstance(record, RunStarted | Offence):
            return
        if isinstance(record, PeerRound):
            self.bytes += sum(record.bytes.values())
            if record.validation is not None:
                self.validation[record.round].append(record.validation)
            if "neighbours" in record.notes and self.clusters:
                self.lists[record.round][record.peer] = record.notes["neighbours"]
        if record.peer in self.at:
            self._move(record)
            self._tell(tell)

    def _move(self, record: PeerRound | PeerAway) -> None:
        self.behind[self.at[record.peer]] -= 1
        if isinstance(record, PeerAway) and record.until is None:
            del self.at[record.peer]
        else:
            self.at[record.peer] = record.round
            self.behind[record.round] += 1

    def _tell(self, tell: bool) -> None:
        before = self.done
        while self.at and not self.behind[self.done]:
            self.done += 1
        if self.done == before:
            return
        scores, lists = self.validation.get(self.done, []), self.lists.get(self.done, {})
        for passed in [r for r in self.validation if r <= self.done]:
            del self.validation[passed]
        for passed in [r for r in self.lists if r <= self.done]:
            del self.lists[passed]
        if tell and self.on_round:
            accuracy = sum(scores) / len(scores) if scores else None
            neighbours = neighbour_scores(lists, self.clusters) if lists and self.clusters else None
            self.on_round(RoundProgress(self.done, self.e.rounds, accuracy, self.bytes, neighbours))


def of_folder(out: Path) -> Experiment:
    """The experiment of a run's folder."""
    if not (out / "config.toml").exists():
        raise RunError(f"{out} is not the folder of a run: it has no config.toml")
    return from_tables(read_tables(str(out / "config.toml")))


def baseline_of(experiment: Experiment) -> Experiment | None:
    """The experiment to show beside this one, if it names a baseline."""
    if experiment.baseline in ("", experiment.method_name):
        return None
    return with_method(experiment, experiment.baseline)
