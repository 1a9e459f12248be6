"""Checks the values of an experiment, each alone (as declared) and together. Errors name the key and the remedy."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from coterie.config import parsing
from coterie.config.sections import RAY, SECTIONS, ClockSettings, EngineSettings, EvaluateSettings, Experiment
from coterie.core import topology
from coterie.core.errors import ConfigError
from coterie.core.jobs import TrainSettings
from coterie.core.optimizers import OPTIMIZERS, OPTIONS
from coterie.core.schedules import STEP
from coterie.core.settings import check_values
from coterie.core.topology import COMPLETE
from coterie.data.scaling import POOLED
from coterie.methods import find
from coterie.methods.base import Method
from coterie.metrics import evaluation as metrics


def check(e: Experiment) -> None:
    """Raise ConfigError for the first invalid value."""
    check_values(e, "")
    for section in SECTIONS:
        check_values(getattr(e, section), f"{section}.")
    check_values(e.method, "method.")
    for column, texts in e.data.categories.items():
        if not texts or len(set(texts)) < len(texts) or "" in texts:
            raise ConfigError(f"data.categories.{column} must list one or more different texts, not {list(texts)}")
    if len(set(e.data.labels)) < len(e.data.labels):
        raise ConfigError("data.labels lists a label twice")
    if e.baseline:
        try:
            find(e.baseline)
        except ConfigError as error:
            raise ConfigError(f"baseline: {str(error).removeprefix('method.name: ')}") from error
    if e.engine.asynchronous and e.method.paced:
        raise ConfigError(
            f"engine.asynchronous = true does not work with {e.method_name}, which needs rounds that all peers share. "
            "Set engine.asynchronous = false, or use another method"
        )
    if e.engine.asynchronous and e.method.with_server():
        raise ConfigError(
            f"engine.asynchronous = true does not work with {e.method_name}: its server would not wait for any peer. "
            "Use a method without a server, or set clock.deadline so that the server does not wait for stragglers"
        )
    _check_metrics(e.evaluate)
    if e.train.warmup >= e.rounds:
        raise ConfigError(f"train.warmup = {e.train.warmup} must be below the number of rounds, {e.rounds}")
    _check_graph(e)
    _check_pooled(e)
    _check_sinks(e.engine.sinks)
    _check_device(e.engine.device)
    _check_cluster(e.engine)
    check_clock(e.clock, e.peers)
    e.method.check(e.peers)


def _check_metrics(s: EvaluateSettings) -> None:
    """What can be checked before the data are known; `coterie.metrics.evaluation_of` checks the rest."""
    measured = metrics.found(s.metrics)
    if s.metrics:
        metrics.selection(s.select, measured)


def check_used(given: Mapping[str, Any], tables: Mapping[str, Any]) -> None:
    """Raise ConfigError for a [train] setting that the user gives and that has no effect in the tables.

    Only what is given at one time, in a file or on the command line, is checked: settings that stay from a preset or
    file when the user changes the optimiser do no harm.
    """
    train, default = parsing.build(TrainSettings, _train(tables), "train."), TrainSettings()
    unused = _unused(train)
    for f in dataclasses.fields(TrainSettings):
        if f.name in _train(given) and f.name in unused and getattr(train, f.name) != getattr(default, f.name):
            raise ConfigError(
                f"train.{f.name} has no effect with train.{unused[f.name]}: remove it, or change the latter"
            )


def _train(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    table = tables.get("train", {})
    return table if isinstance(table, Mapping) else {}


def _unused(s: TrainSettings) -> dict[str, str]:
    """The settings without effect, each with the setting that makes it so."""
    uses = OPTIMIZERS[s.optimizer].uses if s.optimizer in OPTIMIZERS else OPTIONS
    unused = {option: f"optimizer = {s.optimizer}" for option in OPTIONS if option not in uses}
    if s.schedule != STEP:
        return unused | dict.fromkeys(("lr_decay", "step_every"), f"schedule = {s.schedule}")
    return unused | ({"step_every": "lr_decay = 1"} if s.lr_decay == 1 else {})


def _check_graph(e: Experiment) -> None:
    """Methods exchange along the edges of [graph]; a server would bypass them."""
    topology.check(e.graph)
    if e.graph.kind != COMPLETE and e.method.with_server():
        depends = type(e.method).with_server is not Method.with_server  # on parameters, as in CompFL
        raise ConfigError(
            f"method.name = {e.method_name} has a server, which reaches every peer, so graph.kind = {e.graph.kind} "
            "would have no effect. Remove [graph], or use a method without a server"
            f"{' (this one has none with other parameters)' if depends else ''}"
        )


def _check_pooled(e: Experiment) -> None:
    """The peers' feature sums go from every peer to every other."""
    links = topology.links_of(e.graph, e.peers, e.seed) if e.data.scale == POOLED else None
    if links is not None and any(len(near) < e.peers - 1 for near in links):
        raise ConfigError(
            f"data.scale = 'pooled' needs an exchange among all peers, but graph.kind = {e.graph.kind} lacks edges "
            "between some. Remove [graph], or use data.scale = 'standard'"
        )


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise ConfigError(f"engine.device = '{device}' cannot be used on this machine: {reason}. Use cpu") from error


def _check_cluster(settings: EngineSettings) -> None:
    if settings.name != RAY and settings.address:
        raise ConfigError(
            f"engine.address only applies to engine.name = ray. Remove engine.address = '{settings.address}', or set "
            f"engine.name = ray instead of {settings.name}"
        )
    if settings.name == RAY and importlib.util.find_spec("ray") is None:
        raise ConfigError("engine.name = ray needs the package ray: pip install 'ray>=2.40'")


def check_clock(s: ClockSettings, peers: int) -> None:
    check_values(s, "clock.")
    for key in ("speed", "latency", "bandwidth"):
        if not getattr(s, key):
            raise ConfigError(f"clock.{key} is empty: give one or more numbers")
    for peer, start, end in s.offline:
        if not (0 <= peer < peers and peer == int(peer) and 0 <= start < end):
            raise ConfigError(f"clock.offline: [{peer}, {start}, {end}] must be [peer below {peers}, from, until]")


def _check_sinks(names: Sequence[str]) -> None:
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"engine.sinks = {name} needs its package: pip install 'coterie[{name}]'")
