"""A Ray cluster as one stage: participants are sharded over actors; what they lend goes through the object store."""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError, RayTaskError

from coterie.core.errors import ConfigError, CoterieError, StageLost, first_line
from coterie.simulation.placement import sharded
from coterie.simulation.shards import Lent, Order, Shard, Sharded
from coterie.simulation.stage import Stage
from coterie.training import Trainer

if TYPE_CHECKING:
    from coterie.config.sections import Experiment
    from coterie.data.pool import PooledData
    from coterie.wiring import Population

Make = Callable[..., Stage]  # a shard's stage

TO_ANSWER = 10.0  # seconds that a cluster has to
PATIENCE = 60.0  # seconds that actors have to begin, if some have: then the run does without the others
LONGEST_PATIENCE = 600.0  # seconds that the first of them has: on a busy machine a process takes minutes to begin
# Ray gives its own processes half a minute to begin. On a busy machine that is too short, and nothing is wrong.
STARTS = 5
SECONDS_OF_A_START = {"RAY_gcs_server_port_wait_time_s": "120"}  # the one of its limits that can be set

_log = logging.getLogger(__name__)


class Actor:
    """A process of the cluster, with a shard."""

    def ready(self) -> None:
        """Answered as soon as there is a process."""

    def begin(
        self, number: int, members: Sequence[int], make: Make, tables: dict[str, Any], holding: PooledData
    ) -> None:
        self.shard = Shard(number, make(members, tables, holding))

    def do(self, orders: Sequence[Order], wish: str, given: tuple[Any, ...], *lent: list[Lent]) -> Any:
        return self.shard.do(orders, wish, given, lent)


class Cluster(Sharded):
    """The shards of a run, each in an actor."""

    def __init__(self, e: Experiment, circle: Population, make: Make) -> None:
        """`make(members, tables, holding)` makes a shard's stage, in its actor."""
        super().__init__(e.method, circle.participants, e.rounds, Trainer(e.engine.batching, 1, 1), e.evaluate.every)
        self._disconnect = connected(e)
        self._actors = _actors(_actors_wanted(e))
        self._begin_sharding(sharded(circle.participants, circle.shape, e.train.epochs, len(self._actors)))
        begun = enumerate(zip(self._actors, self.members, strict=False))
        holding = ray.put(circle.holding.without_raw())  # each machine has it once, whatever the number of shards
        self._answers([actor.begin.remote(n, members, make, e.tables(), holding) for n, (actor, members) in begun])

    def close(self) -> None:
        super().close()
        for actor in self._actors:
            ray.kill(actor)
        self._disconnect()

    def _send(self, shard: int, orders: Sequence[Order], wish: str, given: tuple[Any, ...], lent: Sequence[Any]) -> Any:
        return self._actors[shard].do.remote(orders, wish, given, *lent)

    def _answers(self, wishes: Sequence[Any]) -> list[Any]:
        try:
            found = [ray.get(wish) for wish in wishes]
        except RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, CoterieError) else error from None
        except RayError as error:
            raise StageLost(f"a part of the cluster is lost: {str(error).splitlines()[0]}") from error
        return found


# -- the cluster itself ------------------------------------------------------------------------


def check_reachable(address: str) -> None:
    """Ray itself would try for minutes. (Where `auto` leads to, it knows at once.)"""
    host, colon, port = address.rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host, int(port)), TO_ANSWER).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"engine.address = '{address}' does not answer ({error}): it should be HOST:PORT as `ray start --head` "
            "prints it, or auto on a machine of the cluster"
        ) from error


def connected(e: Experiment) -> Callable[[], None]:
    """Join the cluster at engine.address, or begin one on this machine; returns what to do in the end."""
    if ray.is_initialized():
        return lambda: None
    if not e.engine.address:
        start_local()
        return ray.shutdown
    try:
        ray.init(address=e.engine.address, **_QUIET)
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"engine.address = '{e.engine.address}' cannot be used: {first_line(error)}. `ray start --head` begins one"
        ) from error
    return ray.shutdown


_QUIET: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}


def start_local(**options: Any) -> None:
    """Begin a cluster on this machine; what was too slow is tried again."""
    for name, seconds in SECONDS_OF_A_START.items():
        os.environ.setdefault(name, seconds)
    for start in range(1, STARTS + 1):
        try:
            ray.init(address="local", **_QUIET, **options)
            return
        except Exception as error:  # Ray has no class of its own for "timed out during startup"
            _end_what_began(error)
            if start == STARTS:
                raise ConfigError(
                    f"a Ray cluster on this machine did not begin in {STARTS} attempts: {first_line(error)}. Is the "
                    "machine overloaded, or its disk full? `ray start --head` tells more; engine.name = processes "
                    "needs no Ray"
                ) from error
            _log.warning("Ray did not begin in time (%s); attempt %d of %d", first_line(error), start + 1, STARTS)


def _end_what_began(error: Exception) -> None:
    """Ray forgets the processes of a start that failed half-way: they would run on for ever."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        end = getattr(frame.f_locals.get("self"), "kill_all_processes", None)
        if end is not None:
            end(check_alive=False, allow_graceful=False)
            break
    ray.shutdown()


def _actors_wanted(e: Experiment) -> int:
    listed: Any = ray.nodes  # without types
    cpus = sum(int(node["Resources"].get("CPU", 0)) for node in listed() if node["Alive"])
    if not cpus:
        raise ConfigError("the Ray cluster has no CPU: see `ray status`")
    return min(e.engine.workers or cpus, cpus, e.peers)


def _actors(wanted: int) -> list[Any]:
    """Those that begin in time: a node that was lost a moment ago may still be counted."""
    actor: Any = ray.remote(Actor).options(num_cpus=1, scheduling_strategy="SPREAD")
    actors = [actor.remote() for _ in range(wanted)]
    answers = {one.ready.remote(): one for one in actors}
    ray.wait(list(answers), num_returns=wanted, timeout=PATIENCE)
    ray.wait(list(answers), num_returns=1, timeout=LONGEST_PATIENCE)  # at once, where one has begun
    ready = [one for answer, one in answers.items() if _came(answer)]
    for one in actors:
        if one not in ready:
            ray.kill(one)
    if not ready:
        waited = PATIENCE + LONGEST_PATIENCE
        raise ConfigError(f"no actor of one CPU began within {waited:.0f} s: is the cluster busy? See `ray status`")
    if len(ready) < wanted:
        _log.warning("only %d of %d actors of one CPU began within %.0f s", len(ready), wanted, PATIENCE)
    return ready


def _came(answer: Any) -> bool:
    try:
        ray.get(answer, timeout=0)
    except RayError:  # not yet, or never
        return False
    return True
