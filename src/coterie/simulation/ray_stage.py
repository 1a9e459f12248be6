"""A Ray cluster as a stage: participants are sharded over actors, and artifacts go through the object store."""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from coterie.core.cores import given_cores
from coterie.core.errors import ConfigError, CoterieError, StageLost, first_line
from coterie.simulation.placement import sharded
from coterie.simulation.shards import Lent, Make, Order, Shard, Sharded

if TYPE_CHECKING:
    from coterie.config.sections import Experiment
    from coterie.data.pool import PooledData
    from coterie.wiring import Population


CONNECT_TIMEOUT = 10.0  # seconds for a cluster to answer
ACTORS_TIMEOUT = 60.0  # seconds for all actors to start; after it, the run uses those that have
FIRST_ACTOR_TIMEOUT = 600.0  # further seconds for the first actor: on a busy machine a process takes minutes to start
# Ray gives its own processes half a minute to start, which is too short on a busy machine.
STARTS = 5
START_TIMEOUTS = {"RAY_gcs_server_port_wait_time_s": "120"}  # the only one of Ray's limits that can be set

_log = logging.getLogger(__name__)


class Actor:
    """A process of the cluster, with a shard."""

    def ready(self) -> None:
        """Returns as soon as the process has started."""

    def begin(
        self, number: int, members: Sequence[int], make: Make, tables: dict[str, Any], pooled: PooledData
    ) -> None:
        self.shard = Shard(number, make(members, tables, pooled))

    def run(self, orders: Sequence[Order], call: str, arguments: tuple[Any, ...], *lent: list[Lent]) -> Any:
        return self.shard.run(orders, call, arguments, lent)


class Cluster(Sharded):
    """The shards of a run, each in an actor."""

    def __init__(self, e: Experiment, circle: Population, make: Make) -> None:
        """`make(members, tables, pooled)` makes a shard's stage, in its actor."""
        self._disconnect = connected(e)
        self._actors = _actors(_actors_wanted(e))
        members = sharded(circle.participants, circle.shape, e.train.epochs, len(self._actors))
        super().__init__(e.method, circle.participants, e.rounds, members)
        actors = enumerate(zip(self._actors, self.members, strict=False))
        pooled = ray.put(circle.pooled.without_raw())  # stored once per machine, whatever the number of shards
        self._results([actor.begin.remote(n, members, make, e.tables(), pooled) for n, (actor, members) in actors])

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._disconnect()

    def _send(
        self, shard: int, orders: Sequence[Order], call: str, arguments: tuple[Any, ...], lent: Sequence[Any]
    ) -> Any:
        return self._actors[shard].run.remote(orders, call, arguments, *lent)

    def _results(self, calls: Sequence[Any]) -> list[Any]:
        try:
            results = [ray.get(call) for call in calls]
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, RayError):  # an argument of the call, which an actor that died has computed
                raise _lost(cause) from error
            raise cause if isinstance(cause, CoterieError) else error from None
        except RayError as error:
            raise _lost(error) from error
        return results


def _lost(error: RayError) -> StageLost:
    return StageLost(f"a part of the cluster is lost: {first_line(error)}")


# -- the cluster itself ------------------------------------------------------------------------


def check_reachable(address: str) -> None:
    """Raise ConfigError if no cluster answers: Ray would retry for minutes. (It resolves `auto` immediately.)"""
    host, colon, port = address.rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"engine.address = '{address}' does not answer ({error}): it should be HOST:PORT as `ray start --head` "
            "prints it, or auto on a machine of the cluster"
        ) from error


def connected(e: Experiment) -> Callable[[], None]:
    """Connect to the cluster at engine.address, or start one on this machine; returns a function that disconnects."""
    if ray.is_initialized():
        return lambda: None
    if not e.engine.address:
        start_local()
        return ray.shutdown
    try:
        ray.init(address=e.engine.address, **_QUIET)
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"engine.address = '{e.engine.address}' cannot be used: {first_line(error)}. Start a cluster with "
            "`ray start --head`"
        ) from error
    return ray.shutdown


_QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}


def start_local(**options: Any) -> None:
    """Start a cluster on this machine, with retries."""
    for name, seconds in START_TIMEOUTS.items():
        os.environ.setdefault(name, seconds)
    for start in range(1, STARTS + 1):
        try:
            ray.init(address="local", **_QUIET, **options)
            return
        except Exception as error:  # Ray has no class of its own for "timed out during startup"
            _end_failed_start(error)
            if start == STARTS:
                raise ConfigError(
                    f"a Ray cluster on this machine did not start in {STARTS} attempts: {first_line(error)}. Is the "
                    "machine overloaded, or its disk full? `ray start --head` tells more; engine.name = processes "
                    "needs no Ray"
                ) from error
            _log.warning("Ray did not start in time (%s); attempt %d of %d", first_line(error), start + 1, STARTS)


def _end_failed_start(error: Exception) -> None:
    """End the processes of a failed start, which Ray would leave running forever."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        end = getattr(frame.f_locals.get("self"), "kill_all_processes", None)
        if end is not None:
            end(check_alive=False, allow_graceful=False)
            break
    ray.shutdown()


def _actors_wanted(e: Experiment) -> int:
    listed: Any = ray.nodes  # untyped
    cpus = sum(int(node["Resources"].get("CPU", 0)) for node in listed() if node["Alive"])
    if not cpus:
        raise ConfigError("the Ray cluster has no CPU: see `ray status`")
    return min(e.engine.workers or given_cores() or cpus, cpus, e.peers)


def _actors(wanted: int) -> list[Any]:
    """The actors that start in time: a node that was just lost may still be counted."""
    actor: Any = ray.remote(Actor).options(num_cpus=1, scheduling_strategy="SPREAD")
    actors = [actor.remote() for _ in range(wanted)]
    answers = {one.ready.remote(): one for one in actors}
    ray.wait(list(answers), num_returns=wanted, timeout=ACTORS_TIMEOUT)
    ray.wait(list(answers), num_returns=1, timeout=FIRST_ACTOR_TIMEOUT)  # returns immediately if one has started
    ready = [one for answer, one in answers.items() if _is_ready(answer)]
    for one in actors:
        if one not in ready:
            ray.kill(one)
    if not ready:
        waited = ACTORS_TIMEOUT + FIRST_ACTOR_TIMEOUT
        raise ConfigError(f"no actor of one CPU started within {waited:.0f} s: is the cluster busy? See `ray status`")
    if len(ready) < wanted:
        _log.warning("only %d of %d actors of one CPU started within %.0f s", len(ready), wanted, ACTORS_TIMEOUT)
    return ready


def _is_ready(answer: Any) -> bool:
    try:
        ray.get(answer, timeout=0)
    except RayError:  # not yet, or never
        return False
    return True
