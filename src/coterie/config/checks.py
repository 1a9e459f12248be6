"""Checks the values of an experiment, each alone and together. Errors name the key and the remedy."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence

import torch

from coterie.config.sections import (
    ENCODINGS,
    ENGINES,
    RAY,
    SINKS,
    ClockSettings,
    EngineSettings,
    Experiment,
    NetworkSettings,
)
from coterie.core import topology
from coterie.core.errors import ConfigError, unknown
from coterie.core.topology import COMPLETE
from coterie.methods import find
from coterie.methods.base import Method


def check(e: Experiment) -> None:
    """Raise ConfigError for the first invalid value."""
    for key, value, least in (
        ("rounds", e.rounds, 1), ("peers", e.peers, 1), ("train.batch", e.train.batch, 1),
        ("train.epochs", e.train.epochs, 0), ("evaluate.every", e.evaluate.every, 1),
        ("engine.workers", e.engine.workers, 0), ("engine.threads", e.engine.threads, 0),
        ("engine.checkpoint", e.engine.checkpoint, 0), ("seed", e.seed, 0),
    ):  # fmt: skip
        if value < least:
            raise ConfigError(f"{key} must be at least {least}, not {value}")
    for key, chosen, options in (
        ("train.optimizer", e.train.optimizer, ("sgd", "adam")),
        ("engine.name", e.engine.name, ENGINES),
        ("engine.batching", e.engine.batching, ("auto", "always", "never")),
        ("data.scale", e.data.scale, ("auto", "standard", "unit", "none")),
    ):
        if chosen not in options:
            raise ConfigError(f"{key} must be one of {', '.join(options)}, not '{chosen}'")
    for column, texts in e.data.categories.items():
        if not texts or len(set(texts)) < len(texts) or "" in texts:
            raise ConfigError(f"data.categories.{column} must list one or more different texts, not {list(texts)}")
    if len(set(e.data.labels)) < len(e.data.labels):
        raise ConfigError("data.labels lists a label twice")
    for key in ("flip", "jitter", "grey", "blur", "drop"):
        if not 0 <= getattr(e.data, key) <= 1:
            raise ConfigError(f"data.{key} must be a probability from 0 to 1, not {getattr(e.data, key)}")
    if not 0 < e.data.views.crop <= 1:
        raise ConfigError(f"data.crop must be above 0 and at most 1, not {e.data.crop}")
    if not e.data.noise >= 0:
        raise ConfigError(f"data.noise must be at least 0, not {e.data.noise}")
    if not 0 < e.train.lr < math.inf:
        raise ConfigError(f"train.lr must be above 0, not {e.train.lr}")
    for key in ("momentum", "weight_decay"):
        if not 0 <= getattr(e.train, key) < math.inf:
            raise ConfigError(f"train.{key} must be at least 0, not {getattr(e.train, key)}")
    if not all(0 <= beta < 1 for beta in e.train.betas):
        raise ConfigError(f"train.betas must be from 0 to below 1, not {e.train.betas}")
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
    _check_graph(e)
    _check_network(e.network)
    _check_sinks(e.engine.sinks)
    _check_device(e.engine.device)
    _check_cluster(e.engine)
    check_clock(e.clock, e.peers)
    e.method.check(e.peers)


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
    for key in ("speed", "latency", "bandwidth"):
        values = getattr(s, key)
        if not values or not all(0 <= v < math.inf for v in values) or (key == "speed" and min(values) == 0):
            raise ConfigError(
                f"clock.{key} needs one or more {'positive' if key == 'speed' else 'non-negative'} numbers"
            )
    if not 1 <= s.spread < math.inf or not 0 <= s.deadline < math.inf or not 0 <= s.dropout < 1:
        raise ConfigError("clock.spread must be at least 1, clock.deadline at least 0, clock.dropout in [0, 1)")
    for peer, start, end in s.offline:
        if not (0 <= peer < peers and peer == int(peer) and 0 <= start < end):
            raise ConfigError(f"clock.offline: [{peer}, {start}, {end}] must be [peer below {peers}, from, until]")


def _check_network(s: NetworkSettings) -> None:
    for key in ("patience", "gather", "linger", "interval", "largest"):
        if not 0 < getattr(s, key) < 1e9:
            raise ConfigError(f"network.{key} must be above 0, not {getattr(s, key)}")
    if not 0 <= s.deadline < 1e9 or s.checkpoint < 1 or not 0 < s.share <= 1:
        raise ConfigError("network.deadline must be at least 0, network.checkpoint at least 1, network.share in (0, 1]")
    if s.compress not in ENCODINGS:
        raise ConfigError(f"network.compress must be one of {', '.join(ENCODINGS)}, not '{s.compress}'")


def _check_sinks(names: Sequence[str]) -> None:
    for name in names:
        if name not in SINKS:
            raise ConfigError(f"engine.sinks: {unknown('sink', name, SINKS)}")
        if importlib.util.find_spec(name) is None:
            raise ConfigError(f"engine.sinks = {name} needs its package: pip install 'coterie[{name}]'")
