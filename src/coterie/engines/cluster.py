"""A Ray cluster as one stage: participants are sharded over actors, each with a stage of its own.

Whoever directs them (the simulation) does so as ever, and gets *tickets* for what they shelve and send. What an
artifact carries stays where it was made, until somebody elsewhere asks for it; then it crosses the object store once
for each shard, not once for each peer. All of a cluster is in the same hands: this is no boundary of trust.
"""

from __future__ import annotations

import itertools
import logging
import socket
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import RayError, RayTaskError
from torch import Tensor

from coterie.engines import checkpoint
from coterie.engines.acts import Reply, Turn
from coterie.engines.measuring import Measured
from coterie.engines.sharding import sharded
from coterie.engines.stage import Stage
from coterie.errors import ConfigError, CoterieError, StageLost
from coterie.experiment import Circle, Experiment, from_tables, gather
from coterie.holding import Holding
from coterie.peer import Fetch, Send
from coterie.shelf import Artifact
from coterie.training import Trainer
from coterie.weights import Layout, Weights

TO_ANSWER = 10.0  # seconds that a cluster has to
PATIENCE = 60.0  # seconds that actors have to begin

_log = logging.getLogger(__name__)

Key = tuple[int, int]  # of an artifact: the shard that has it, and its number there
Content = tuple[Layout, Any] | dict[str, Any]  # of an artifact, as arrays: they cross without being copied


@dataclass(frozen=True, eq=False)
class Ticket(Artifact):
    """An artifact that is in a shard: one knows of it, but has none of its tensors."""

    key: Key = (0, 0)
    size: int = 0

    @property
    def nbytes(self) -> int:
        return self.size


class Lent(NamedTuple):
    """An artifact on its way from one shard to another."""

    key: Key
    name: str
    author: int
    round: int
    content: Content
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, key: Key, a: Artifact) -> Lent:
        content: Content
        if isinstance(a.content, Weights):
            content = a.content.layout, _array(a.content.vector)
        else:
            content = {name: _array(tensor) for name, tensor in a.content.items()}
        return cls(key, a.name, a.author, a.round, content, a.facts)

    def artifact(self) -> Artifact:
        content: Mapping[str, Tensor]
        if isinstance(self.content, tuple):
            content = Weights(self.content[0], _tensor(self.content[1]))
        else:
            content = {name: _tensor(array) for name, array in self.content.items()}
        return Artifact(self.name, self.author, self.round, content, self.facts)


def _array(tensor: Tensor) -> Any:
    return tensor if tensor.dtype == torch.bfloat16 else tensor.detach().cpu().numpy()  # NumPy does not know that one


def _tensor(array: Any) -> Tensor:
    return array if isinstance(array, Tensor) else torch.from_numpy(array.copy())  # the store's own is read-only


# -- in an actor -------------------------------------------------------------------------------


class Shard:
    """Some of the participants, in a process of their own."""

    def begin(self, number: int, tables: dict[str, Any], members: Sequence[int], holding: Holding) -> None:
        e = from_tables(tables)
        mine = [peer for peer in gather(e, holding).participants if peer.id in set(members)]
        trainer = Trainer(e.engine.batching, 1, e.engine.threads)
        self.number, self.stage = number, Stage(e.method, mine, e.rounds, trainer, e.evaluate.every, e.engine.spill)
        self._count = itertools.count(1)
        self._artifacts: dict[Key, Artifact] = {}  # its own, and those that it has borrowed

    def do(self, orders: Sequence[tuple[str, Any]], wish: str, given: tuple[Any, ...], *lent: list[Lent]) -> Any:
        """Take in what was lent, carry out the orders, and then what is asked for."""
        self._artifacts |= {one.key: one.artifact() for one in itertools.chain(*lent)}
        for order, what in orders:
            getattr(self, order)(*what)
        return getattr(self, wish)(*given)

    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        return [self._told(reply) for reply in self.stage.act(now, [self._opened(turn) for turn in turns])]

    def _opened(self, turn: Turn) -> Turn:
        if not isinstance(turn.answer, dict):
            return turn
        return turn._replace(answer={author: self._artifacts[ticket.key] for author, ticket in turn.answer.items()})

    def _told(self, reply: Reply) -> Reply:
        """What can be told elsewhere: of artifacts that they are there, of a fetch what is wanted."""
        reply.shelved = [self._ticket(artifact) for artifact in reply.shelved]
        if isinstance(reply.request, Send):
            reply.request = replace(reply.request, artifact=self._ticket(reply.request.artifact))
        elif isinstance(reply.request, Fetch):
            reply.request = replace(reply.request, fitting=dict)  # who fetches judges what came
        return reply

    def _ticket(self, a: Artifact) -> Artifact:
        key = self.number, next(self._count)
        self._artifacts[key] = a
        return Ticket(a.name, a.author, a.round, {}, a.facts, key, a.nbytes)

    def lend(self, keys: Sequence[Key]) -> list[Lent]:
        return [Lent.of(key, self._artifacts[key]) for key in keys]

    def hold(self, key: Key, artifact: Artifact) -> None:
        self._artifacts[key] = artifact

    def forget(self, key: Key) -> None:
        self._artifacts.pop(key, None)

    def deliver(self, peer: int, key: Key) -> None:
        self.stage.deliver(peer, self._artifacts[key])

    def keep(self, peer: int, round: int) -> None:
        self.stage.keep(peer, round)

    def ask(self, wish: str, *given: Any) -> Any:
        """Something of the stage that needs no translation."""
        return getattr(self.stage, wish)(*given)

    def ready(self) -> None:
        """Answered as soon as there is a process."""

    def states(self) -> dict[int, dict[str, Any]]:
        """All that must survive of everybody, as it is now."""
        return {id: {**checkpoint.of_peer(peer), "inbox": {}} for id, peer in self.stage.peers.items()}


# -- at the director ---------------------------------------------------------------------------


class Cluster(Stage):
    """The shards of a run, which look like one stage."""

    def __init__(self, e: Experiment, circle: Circle) -> None:
        super().__init__(e.method, circle.participants, e.rounds, Trainer(e.engine.batching, 1, 1), e.evaluate.every)
        self._disconnect = connected(e)
        self._shards = _actors(_actors_wanted(e))
        self.members = sharded(e, circle, len(self._shards))
        self._where = {peer: shard for shard, members in enumerate(self.members) for peer in members}
        self._orders: dict[int, list[tuple[str, Any]]] = defaultdict(list)  # to be carried out with the next wish
        self._needed: dict[int, set[Key]] = defaultdict(set)  # what those orders are about
        self._has: dict[int, set[Key]] = defaultdict(set)  # what each shard has borrowed
        self._restored = itertools.count(1)
        begun = zip(self._shards, self.members, strict=False)
        holding = ray.put(circle.holding.without_raw())  # each machine has it once, whatever the number of shards
        self._get([shard.begin.remote(n, e.tables(), members, holding) for n, (shard, members) in enumerate(begun)])

    def end(self) -> None:
        """Everybody may still be asked for its state."""

    def bring_home(self) -> None:
        for states in self._wish_all("states"):
            super().restore(states)

    def close(self) -> None:
        super().close()
        for shard in self._shards:
            ray.kill(shard)
        self._disconnect()

    # -- asking shards -------------------------------------------------------------------------

    def _wish(self, shard: int, wish: str, *given: Any, needed: Iterable[Key] = ()) -> Any:
        """Ask a shard for something, with the orders that wait; what it needs of others is lent to it first."""
        orders, wanted = self._orders.pop(shard, []), {*needed, *self._needed.pop(shard, ())}
        by_owner: dict[int, list[Key]] = defaultdict(list)
        for key in sorted(wanted - self._has[shard]):
            if key[0] != shard:
                by_owner[key[0]].append(key)
                self._has[shard].add(key)
        lent = [self._wish(owner, "lend", keys) for owner, keys in by_owner.items()]  # after what it was ordered
        return self._shards[shard].do.remote(orders, wish, given, *lent)

    def _wish_all(self, wish: str, *given: Any) -> list[Any]:
        return self._get([self._wish(shard, wish, *given) for shard in range(len(self.members))])

    def _get(self, wishes: Sequence[Any]) -> list[Any]:
        try:
            found = [ray.get(wish) for wish in wishes]  # one by one: of several errors the first in order is told
        except RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, CoterieError) else error from None
        except RayError as error:
            raise StageLost(f"a part of the cluster is lost: {str(error).splitlines()[0]}") from error
        return found

    # -- what a stage does -----------------------------------------------------------------------

    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        by_shard: dict[int, list[Turn]] = defaultdict(list)
        for turn in turns:
            by_shard[self._where[turn.peer]].append(turn)
        wishes = [
            self._wish(shard, "act", now, theirs, needed=_tickets(theirs)) for shard, theirs in sorted(by_shard.items())
        ]
        replies = {reply.peer: reply for found in self._get(wishes) for reply in found}
        for reply in replies.values():
            self._watch(reply)
        return [replies[turn.peer] for turn in turns]

    def _watch(self, reply: Reply) -> None:
        """When the last who knows of an artifact has let go of its ticket, those who have it forget it."""
        sent = [reply.request.artifact] if isinstance(reply.request, Send) else []
        for ticket in (*reply.shelved, *sent):
            weakref.finalize(ticket, self._forget, ticket.key)  # type: ignore[attr-defined]

    def _forget(self, key: Key) -> None:
        for shard in {key[0], *(shard for shard, keys in self._has.items() if key in keys)}:
            self._orders[shard].append(("forget", (key,)))
            self._has[shard].discard(key)

    def compute(self, round: int) -> None:
        self._wish_all("ask", "compute", round)

    def measured(self, round: int) -> dict[int, Measured]:
        return _merged(self._wish_all("ask", "measured", round))

    def deliver(self, peer: int, artifact: Artifact) -> None:
        assert isinstance(artifact, Ticket)
        self._orders[self._where[peer]].append(("deliver", (peer, artifact.key)))
        self._needed[self._where[peer]].add(artifact.key)

    def whole(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        wishes = {}
        for ticket in artifacts:
            assert isinstance(ticket, Ticket)
            wishes[ticket.key] = self._wish(ticket.key[0], "lend", [ticket.key])
        lent = dict(zip(wishes, self._get(list(wishes.values())), strict=True))
        return [lent[ticket.key][0].artifact() for ticket in artifacts]  # type: ignore[attr-defined]

    def known(self, artifact: Artifact) -> Artifact:
        shard = self._where[artifact.author]
        ticket = Ticket(
            artifact.name, artifact.author, artifact.round, {}, artifact.facts, (shard, -next(self._restored)),
            artifact.nbytes,
        )  # fmt: skip
        self._orders[shard].append(("hold", (ticket.key, artifact)))
        weakref.finalize(ticket, self._forget, ticket.key)
        return ticket

    def keep(self, peer: int, round: int) -> None:
        self._orders[self._where[peer]].append(("keep", (peer, round)))

    def kept(self, round: int) -> dict[int, dict[str, Any]]:
        return _merged(self._wish_all("ask", "kept", round))

    def restore(self, saved: Mapping[int, dict[str, Any]]) -> None:
        shares = [{peer: saved[peer] for peer in members} for members in self.members]
        self._get([self._wish(shard, "ask", "restore", share) for shard, share in enumerate(shares)])


def _merged(parts: Iterable[dict[int, Any]]) -> dict[int, Any]:
    return {peer: found for part in parts for peer, found in part.items()}


def _tickets(turns: Sequence[Turn]) -> Iterable[Key]:
    return (ticket.key for turn in turns if isinstance(turn.answer, dict) for ticket in turn.answer.values())


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
    try:
        ray.init(
            address=e.engine.address or "local",
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except (ConnectionError, RayError, ValueError, RuntimeError) as error:
        where = f"engine.address = '{e.engine.address}'" if e.engine.address else "a Ray cluster of one's own"
        raise ConfigError(
            f"{where} cannot be used: {str(error).splitlines()[0]}. `ray start --head` begins one"
        ) from error
    return ray.shutdown


def _actors_wanted(e: Experiment) -> int:
    listed: Any = ray.nodes  # without types
    cpus = sum(int(node["Resources"].get("CPU", 0)) for node in listed() if node["Alive"])
    if not cpus:
        raise ConfigError("the Ray cluster has no CPU: see `ray status`")
    return min(e.engine.workers or cpus, cpus, e.peers)


def _actors(wanted: int) -> list[Any]:
    """Those that start in time: a node that was lost a moment ago may still be counted."""
    actor: Any = ray.remote(Shard).options(num_cpus=1, scheduling_strategy="SPREAD")
    actors = [actor.remote() for _ in range(wanted)]
    answers = {one.ready.remote(): one for one in actors}
    ray.wait(list(answers), num_returns=wanted, timeout=PATIENCE)
    ready = [one for answer, one in answers.items() if _came(answer)]
    for one in actors:
        if one not in ready:
            ray.kill(one)
    if not ready:
        raise ConfigError(f"no actor of one CPU began within {PATIENCE:.0f} s: is the cluster busy? See `ray status`")
    if len(ready) < wanted:
        _log.warning("only %d of %d actors of one CPU began within %.0f s", len(ready), wanted, PATIENCE)
    return ready


def _came(answer: Any) -> bool:
    try:
        ray.get(answer, timeout=0)
    except RayError:  # not yet, or never
        return False
    return True
