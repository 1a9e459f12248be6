"""Participants in several processes, which look like one stage to whoever directs them (the simulation).

The director gets *tickets* for what they shelve and send. What an artifact carries stays where it was made, until
somebody elsewhere asks for it; then it crosses once for each shard, not once for each peer. How it crosses is of those
who derive from `Sharded`: through a Ray cluster's object store, or through memory that processes have in common. All
shards are in the same hands: this is no boundary of trust.
"""

from __future__ import annotations

import itertools
import weakref
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from coterie.core import checkpoint
from coterie.core.artifact import Artifact
from coterie.core.requests import Fetch, Send
from coterie.core.weights import Layout, Weights
from coterie.engines.measuring import Measured
from coterie.simulation.protocol import Reply, Turn
from coterie.simulation.stage import Stage

Key = tuple[int, int]  # of an artifact: the shard that has it, and its number there
Content = tuple[Layout, Any] | dict[str, Any]  # of an artifact, as arrays: they cross without being pickled
Order = tuple[str, tuple[Any, ...]]  # something of a shard to be called, and with what


@dataclass(frozen=True, eq=False)
class Ticket(Artifact):
    """An artifact that is in a shard: one knows of it, but has none of its tensors."""

    key: Key = (0, 0)
    size: int = 0

    @property
    def nbytes(self) -> int:
        return self.size

    def __reduce__(self) -> tuple[Any, ...]:  # many cross in every round: as little as is enough
        return Ticket, (self.name, self.author, self.round, {}, self.facts, self.key, self.size)


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

    def artifact(self, device: torch.device | str = "cpu") -> Artifact:
        content: Mapping[str, Tensor]
        if isinstance(self.content, tuple):
            content = Weights(self.content[0], _tensor(self.content[1]).to(device))
        else:
            content = {name: _tensor(array).to(device) for name, array in self.content.items()}
        return Artifact(self.name, self.author, self.round, content, self.facts)


def _array(tensor: Tensor) -> Any:
    return tensor if tensor.dtype == torch.bfloat16 else tensor.detach().cpu().numpy()  # NumPy does not know that one


def _tensor(array: Any) -> Tensor:
    if isinstance(array, Tensor):
        return array
    return torch.from_numpy(array if array.flags.writeable else array.copy())  # Ray's store is read-only


# -- where participants are ----------------------------------------------------------------------


class Shard:
    """Some of the participants, on a stage of their own."""

    def __init__(self, number: int, stage: Stage) -> None:
        self.number, self.stage = number, stage
        self._count = itertools.count(1)
        self._artifacts: dict[Key, Artifact] = {}  # its own, and those that it has borrowed
        self._device = next((peer.model.vector.device for peer in stage.peers.values()), "cpu")

    def do(self, orders: Sequence[Order], wish: str, given: tuple[Any, ...], lent: Iterable[Sequence[Lent]]) -> Any:
        """Take in what was lent, carry out the orders, and then what is asked for."""
        for one in itertools.chain(*lent):
            self._artifacts[one.key] = one.artifact(self._device)
        for order, what in orders:
            getattr(self, order)(*what)
        return getattr(self, wish)(*given)

    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        return [self._told(reply) for reply in self.stage.act(now, [self._opened(turn) for turn in turns])]

    def _opened(self, turn: Turn) -> Turn:
        if not isinstance(turn.answer, dict):
            return turn
        answer = {author: self._artifacts[ticket.key] for author, ticket in turn.answer.items()}
        return Turn(turn.peer, turn.round, answer)

    def _told(self, reply: Reply) -> Reply:
        """What can be told elsewhere: of artifacts that they are there, of a fetch what is wanted."""
        if reply.shelved:
            reply.shelved = [self._ticket(artifact) for artifact in reply.shelved]
        wanted = reply.request
        if isinstance(wanted, Send):
            reply.request = Send(wanted.to, self._ticket(wanted.artifact))
        elif isinstance(wanted, Fetch):
            reply.request = Fetch(wanted.peers, wanted.name, wanted.round, dict)  # who fetches judges what came
        return reply

    def _ticket(self, a: Artifact) -> Artifact:
        key = self.number, next(self._count)
        self._artifacts[key] = a
        return Ticket(a.name, a.author, a.round, {}, a.facts, key, a.nbytes)

    def lend(self, keys: Sequence[Key]) -> list[Lent]:
        return [Lent.of(key, self._artifacts[key]) for key in keys]

    def hold(self, key: Key, artifact: Artifact) -> None:
        self._artifacts[key] = artifact

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._artifacts.pop(key, None)

    def deliver(self, peer: int, key: Key) -> None:
        self.stage.deliver(peer, self._artifacts[key])

    def keep(self, peer: int, round: int) -> None:
        self.stage.keep(peer, round)

    def ask(self, wish: str, *given: Any) -> Any:
        """Something of the stage that needs no translation."""
        return getattr(self.stage, wish)(*given)

    def states(self) -> dict[int, dict[str, Any]]:
        """All that must survive of everybody, as it is now."""
        return {id: {**checkpoint.of_peer(peer), "inbox": {}} for id, peer in self.stage.peers.items()}


# -- at the director -----------------------------------------------------------------------------


class Sharded(Stage):
    """The shards of a run, which look like one stage."""

    members: list[list[int]]  # the peers of each shard

    def _begin_sharding(self, members: list[list[int]]) -> None:
        self.members = members
        self._where = {peer: shard for shard, some in enumerate(members) for peer in some}
        self._orders: dict[int, list[Order]] = defaultdict(list)  # to be carried out with the next wish
        self._needed: dict[int, list[Ticket]] = defaultdict(list)  # what those orders are about
        self._has: dict[int, set[Key]] = defaultdict(set)  # what each shard has borrowed
        self._forgotten: dict[int, list[Key]] = defaultdict(list)  # what it need not have any longer
        self._watched: dict[Key, weakref.ref[Artifact]] = {}
        self._restored = itertools.count(1)

    @abstractmethod
    def _send(self, shard: int, orders: Sequence[Order], wish: str, given: tuple[Any, ...], lent: Sequence[Any]) -> Any:
        """Have a shard `do` this, as soon as what was lent to it (wishes under way) is there; returns the wish."""

    @abstractmethod
    def _answers(self, wishes: Sequence[Any]) -> list[Any]:
        """What came of wishes under way; of several errors the first in order is raised."""

    # -- asking shards -------------------------------------------------------------------------

    def _wish(self, shard: int, wish: str, *given: Any, lent: Sequence[Any] = ()) -> Any:
        """Ask a shard for something, with the orders that wait."""
        orders, needed = self._orders.pop(shard, []), self._needed.pop(shard, [])
        if shard in self._forgotten:
            orders.append(("forget", (self._forgotten.pop(shard),)))
        borrowed = self._borrowed(shard, (ticket.key for ticket in needed)) if needed else []
        return self._send(shard, orders, wish, given, [*lent, *borrowed])

    def _borrowed(self, shard: int, needed: Iterable[Key]) -> list[Any]:
        """What a shard does not have yet, asked of those who do."""
        has, by_owner = self._has[shard], defaultdict(list)
        for key in sorted({key for key in needed if key[0] != shard and key not in has}):
            by_owner[key[0]].append(key)
            has.add(key)
        return [self._wish(owner, "lend", keys) for owner, keys in by_owner.items()]  # after what it was ordered

    def _wish_all(self, wish: str, *given: Any) -> list[Any]:
        return self._answers([self._wish(shard, wish, *given) for shard in range(len(self.members))])

    # -- what a stage does -----------------------------------------------------------------------

    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        by_shard: dict[int, list[Turn]] = defaultdict(list)
        for turn in turns:
            by_shard[self._where[turn.peer]].append(turn)
        shards = sorted(by_shard)
        # All is lent before anybody acts: who does cannot lend, and others would wait for it.
        lent = [self._borrowed(shard, _tickets(by_shard[shard])) for shard in shards]
        wishes = [self._wish(s, "act", now, by_shard[s], lent=theirs) for s, theirs in zip(shards, lent, strict=True)]
        replies = {reply.peer: reply for found in self._answers(wishes) for reply in found}
        for reply in replies.values():
            for ticket in reply.shelved:
                self._watch(ticket)
            if isinstance(reply.request, Send):
                self._watch(reply.request.artifact)
        return [replies[turn.peer] for turn in turns]

    def _watch(self, ticket: Artifact) -> None:
        """When the last who knows of an artifact has let go of its ticket, those who have it forget it."""
        assert isinstance(ticket, Ticket)
        self._watched[ticket.key] = weakref.ref(ticket, partial(self._forget, ticket.key))

    def _forget(self, key: Key, reference: object) -> None:  # noqa: ARG002
        del self._watched[key]
        self._forgotten[key[0]].append(key)
        for shard, keys in self._has.items():
            if key in keys:
                keys.remove(key)
                self._forgotten[shard].append(key)

    def compute(self, round: int) -> None:
        self._wish_all("ask", "compute", round)

    def measured(self, round: int) -> dict[int, Measured]:
        return _merged(self._wish_all("ask", "measured", round))

    def deliver(self, peer: int, artifact: Artifact) -> None:
        assert isinstance(artifact, Ticket)
        self._orders[self._where[peer]].append(("deliver", (peer, artifact.key)))
        self._needed[self._where[peer]].append(artifact)

    def whole(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        wishes = {}
        for ticket in artifacts:
            assert isinstance(ticket, Ticket)
            wishes[ticket.key] = self._wish(ticket.key[0], "lend", [ticket.key])
        lent = dict(zip(wishes, self._answers(list(wishes.values())), strict=True))
        return [lent[ticket.key][0].artifact() for ticket in artifacts]  # type: ignore[attr-defined]

    def known(self, artifact: Artifact) -> Artifact:
        shard = self._where[artifact.author]
        ticket = Ticket(
            artifact.name, artifact.author, artifact.round, {}, artifact.facts, (shard, -next(self._restored)),
            artifact.nbytes,
        )  # fmt: skip
        self._orders[shard].append(("hold", (ticket.key, artifact)))
        self._watch(ticket)
        return ticket

    def keep(self, peer: int, round: int) -> None:
        self._orders[self._where[peer]].append(("keep", (peer, round)))

    def kept(self, round: int) -> dict[int, dict[str, Any]]:
        return _merged(self._wish_all("ask", "kept", round))

    def restore(self, saved: Mapping[int, dict[str, Any]]) -> None:
        shares = [{peer: saved[peer] for peer in members} for members in self.members]
        self._answers([self._wish(shard, "ask", "restore", share) for shard, share in enumerate(shares)])

    def end(self) -> None:
        """Everybody may still be asked for its state."""

    def bring_home(self) -> None:
        for states in self._wish_all("states"):
            super().restore(states)


def _merged(parts: Iterable[dict[int, Any]]) -> dict[int, Any]:
    return {peer: found for part in parts for peer, found in part.items()}


def _tickets(turns: Sequence[Turn]) -> Iterable[Key]:
    return (ticket.key for turn in turns if isinstance(turn.answer, dict) for ticket in turn.answer.values())
