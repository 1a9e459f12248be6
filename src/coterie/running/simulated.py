"""Runs and resumes a simulation: its folder, engine and events, and the files written at its end."""

from __future__ import annotations

import itertools
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coterie.config import provenance
from coterie.config.loading import from_tables, read_tables, with_method
from coterie.config.sections import RAY, Experiment
from coterie.core import checkpoint
from coterie.core.artifact import Artifact
from coterie.core.errors import ConfigError, RunError, StageLost
from coterie.core.events import Event, EventLog, PeerAway, PeerRound, read
from coterie.core.json_values import finite as finite_number
from coterie.core.release import FEATURE_SUMS
from coterie.core.run_folder import RunFolder
from coterie.core.summary import Summary
from coterie.data.feature_sums import FeatureSums
from coterie.data.scaling import POOLED
from coterie.engines.predictions import Predictions
from coterie.report.html import write_report
from coterie.report.summary import read_summary, summarise, write_graph, write_json
from coterie.running import finite, saved_models, saved_predictions
from coterie.running.progress import OnRound, Progress, RoundProgress
from coterie.running.sinks import Sinks
from coterie.running.state import RunState, refuse_if_running
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation, round_after
from coterie.simulation.participants import Participant, activities
from coterie.training import Trainer
from coterie.wiring import Population, gather, run_started, stage_for

OnStart = Callable[[Simulation], None]
MOST_LOSSES = 10  # of processes or machines that one run survives

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StandIns:
    """What a rehearsal (`coterie plan`) replaces in a run, and sees of it."""

    trainer: Trainer
    following: Callable[[int], int]  # the round after a round
    on_record: Callable[[PeerRound | PeerAway], None]


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    overwrite: bool = False,
    on_round: OnRound | None = None,
    on_start: OnStart | None = None,
) -> dict[str, Any]:
    """Run an experiment, and write its run folder.

    Args:
        experiment: from :func:`coterie.load`.
        out: the run folder to make.
        overwrite: whether a run that is already in the folder is replaced.
        on_round: called with the progress after each round that all peers have finished.
        on_start: called with the simulation before it starts.

    Returns:
        The summary: the content of ``summary.json``, as a plain dict.

    Raises:
        CoterieError: the experiment cannot run, the folder is in use, or models diverged.

    Example::

        summary = coterie.run(coterie.load("demo"), "runs/demo")
        print(summary["accuracy"]["last"]["mean"])
    """
    return _run(experiment, Path(out), overwrite, on_round, on_start).to_json()


def rehearse(experiment: Experiment, out: Path, stand_ins: StandIns, on_start: OnStart) -> Summary:
    """As `run`, with stand-ins and without checkpoints."""
    return _run(experiment, out, False, None, on_start, stand_ins)


def _run(
    experiment: Experiment,
    out: Path,
    overwrite: bool,
    on_round: OnRound | None,
    on_start: OnStart | None,
    stand_ins: StandIns | None = None,
) -> Summary:
    check_folder(out, overwrite)
    circle = gather(experiment)  # before anything is written or deleted: most errors show here
    _check_cluster(experiment)
    if out.exists() and any(out.iterdir()):
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    provenance.begin(out, experiment)
    files = RunFolder(out)
    files.config.write_text(experiment.toml(), encoding="utf-8")
    log = EventLog(files.events)
    log.write(run_started(experiment, circle))
    log.flush()
    begin = partial(_go, experiment, circle, log, out, 0.0, None, on_round, on_start, stand_ins=stand_ins)
    return _retry_after_loss(begin, partial(_resume, out, on_round, on_start), out)


def resume(out: str | Path, *, on_round: OnRound | None = None, on_start: OnStart | None = None) -> dict[str, Any]:
    """Resume a run from its last checkpoint. The results are those of a run that was never stopped.

    Args:
        out: the run folder.
        on_round: as for :func:`coterie.run`.
        on_start: as for :func:`coterie.run`.

    Returns:
        The summary: the content of ``summary.json``, as a plain dict.

    Raises:
        CoterieError: the folder holds no run, or its files are damaged.
    """
    out = Path(out)
    again = partial(_resume, out, on_round, on_start)
    return _retry_after_loss(again, again, out).to_json()


def _retry_after_loss(go: Callable[[], Summary], again: Callable[[], Summary], out: Path) -> Summary:
    """Resume a run that loses part of its cluster, from its last checkpoint, on the remaining machines."""
    for _ in range(MOST_LOSSES):
        try:
            return go()
        except StageLost as lost:
            _log.warning("%s; resuming from the last checkpoint", lost)
            go = again
    raise RunError(f"{out}: lost a part of the cluster {MOST_LOSSES} times. Resume with `coterie run --resume {out}`")


def _resume(out: Path, on_round: OnRound | None, on_start: OnStart | None) -> Summary:
    experiment, files = of_folder(out), RunFolder(out)
    if files.is_circle():
        raise RunError(f"{out} was made by `coterie up`: resume it with `coterie up --resume {out}`")
    if files.is_finished():
        summary = read_summary(out)
        _warn_if_outdated(out, experiment)
        finite.refuse(summary, out)
        return summary
    refuse_if_running(out)
    saved = checkpoint.load(files.checkpoint)
    log = EventLog(files.events)
    circle = gather(experiment)
    if saved is None:
        _log.warning("%s has no checkpoint: starting over at round 1", out)
        log.path.unlink(missing_ok=True)
        provenance.begin(out, experiment)
        log.write(run_started(experiment, circle))
        return _go(experiment, circle, log, out, 0.0, None, on_round, on_start)
    kept = log.keep_until(saved[0])
    _check_complete(kept, saved[0], log.path)
    if warning := provenance.resume(out, experiment, saved[0]):
        _log.warning("%s", warning)
    return _go(
        experiment, circle, log, out, finite_number(saved[1].get("seconds")) or 0.0, saved, on_round, on_start, kept
    )


def _warn_if_outdated(out: Path, experiment: Experiment) -> None:
    """Warn if a baseline run now would use other sources than the finished run."""
    if reason := provenance.outdated(out, experiment):
        text = provenance.NOT_KNOWN if reason == provenance.NOT_RECORDED else f"they are outdated: {reason}"
        _log.warning("%s is finished and its figures are kept, but %s", out, text)


def _go(
    e: Experiment,
    circle: Population,
    log: EventLog,
    out: Path,
    seconds: float,
    saved: tuple[int, checkpoint.Tree] | None,
    on_round: OnRound | None,
    on_start: OnStart | None,
    kept: list[Event] | None = None,
    stand_ins: StandIns | None = None,
) -> Summary:
    began = time.perf_counter() - seconds
    with (
        RunState(out, e.rounds, saved[0] if saved else 0) as state,
        closing(Sinks(e.engine.sinks, out, e.tables(), resumed=saved is not None)) as sinks,
        closing(log),
        closing(stage_for(e, circle, stand_ins.trainer if stand_ins else None)) as stage,
    ):
        start = run_started(e, circle)
        progress = Progress(e.peers, e.rounds, circle.clusters, _reporter(state, log, on_round), start.measured)
        sinks.see(start)
        for event in kept or []:
            progress.see(event, tell=False)
            sinks.see(event, tell=False)
        state.facts["bytes"] = progress.bytes
        predictions = Predictions(circle.evaluation.selection, e.engine.checkpoint)
        simulation = Simulation(
            stage, Clock(e.clock, e.peers, e.seed), log, asynchronous=e.engine.asynchronous,
            checkpoint_every=e.engine.checkpoint, folder=None if stand_ins else RunFolder(out).checkpoint,
            on_record=partial(_pass_on, progress, sinks, stand_ins), seconds=lambda: time.perf_counter() - began,
            following=stand_ins.following if stand_ins else round_after, predictions=predictions,
        )  # fmt: skip
        if saved is not None:
            simulation.restore(*saved)
        elif e.data.scale == POOLED:
            numbers = circle.shape[0] + (not circle.dataset.classes)  # of the features, and of labels that are numbers
            _count_feature_sums(simulation.participants[: e.peers], numbers)
        state.activities = lambda: activities(simulation.participants)
        if on_start:
            on_start(simulation)
        simulation.run()
        stage.collect_states()
        peers = [(stage.peers[p.id], min(p.round, e.rounds)) for p in simulation.participants]
        saved_models.keep(out, e, circle, peers)
        saved_predictions.keep(out, circle, [me for me, _ in peers], predictions)
        log.write(*finite.diverged(peers, simulation.now))
        log.close()
        summary = finish(out, time.perf_counter() - began)
        sinks.finish(summary)
        finite.refuse(summary, out)  # last, so that nothing of the run is lost
        return summary


def _count_feature_sums(peers: Sequence[Participant], features: int) -> None:
    """Count what real peers fetch from each other before the first round; as their setup, it belongs to that round."""
    sums = FeatureSums(*np.zeros((3, features))).tensors()
    sizes = [Artifact(FEATURE_SUMS, p.id, 0, sums).nbytes for p in peers]
    for p, own in zip(peers, sizes, strict=True):
        p.bytes[FEATURE_SUMS] += sum(sizes) - own
        p.messages[FEATURE_SUMS] += len(peers) - 1


def _check_complete(events: Sequence[Event], rounds: int, path: Path) -> None:
    """A resumed run must have the events of all its rounds so far, or its figures would be wrong."""
    present = {getattr(event, "round", 0) for event in events}
    missing = [round for round in range(1, rounds + 1) if round not in present]
    if missing:
        raise RunError(
            f"{path} has no events of round {missing[0]}, but the checkpoint is later: the file is damaged. "
            "Start over with --overwrite"
        )


def _check_cluster(e: Experiment) -> None:
    if e.engine.name == RAY:
        from coterie.simulation.ray_stage import check_reachable

        check_reachable(e.engine.address)


def _pass_on(progress: Progress, sinks: Sinks, stand_ins: StandIns | None, event: PeerRound | PeerAway) -> None:
    if stand_ins:
        stand_ins.on_record(event)
    progress.see(event)
    sinks.see(event)


def _reporter(state: RunState, log: EventLog, on_round: OnRound | None) -> OnRound:
    """Flushes the files after each round, so that readers of a running run see it."""

    def report(p: RoundProgress) -> None:
        log.flush()
        state.update(p)
        if on_round:
            on_round(p)

    return report


def finish(out: Path, seconds: float) -> Summary:
    """Write everything that is derived from a run's events; returns the summary."""
    files = RunFolder(out)
    events = list(read(files.events))
    summary = provenance.with_mixture(summarise(events, seconds), out)
    write_graph(events, files.graph)
    write_report(events, summary, files.report)
    write_json(files.summary, summary)  # last: a run with a summary is complete
    return summary


def new_folder(name: str) -> Path:
    """A new folder in runs/, named by name and time; unique even within a second."""
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    names = itertools.chain([stem], (f"{stem}-{n}" for n in itertools.count(2)))
    return next(folder for folder in map(Path("runs").joinpath, names) if not folder.exists())


def check_folder(out: Path, overwrite: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not out.is_dir():
        raise RunError(f"{out} is a file: choose another --out")
    if not overwrite:
        raise RunError(
            f"{out} already exists: choose another --out, or use --overwrite, or continue it with --resume {out}"
        )
    files = RunFolder(out)
    if not (files.is_started() and files.events.exists()):
        raise RunError(f"{out} is not the folder of a run, so it is not overwritten: choose another --out")


def of_folder(out: Path) -> Experiment:
    """The experiment of a run's folder."""
    files = RunFolder(out)
    if not files.is_started():
        raise RunError(f"{out} is not the folder of a run: it has no config.toml")
    return from_tables(read_tables(str(files.config)))


def baseline_of(experiment: Experiment) -> Experiment | None:
    """The baseline of an experiment, if it names one."""
    if experiment.baseline in ("", experiment.method_name):
        return None
    try:
        return with_method(experiment, experiment.baseline)
    except ConfigError as error:
        raise ConfigError(f"baseline = {experiment.baseline}: {error}") from error
