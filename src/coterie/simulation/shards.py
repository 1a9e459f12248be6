"""Participants in several processes (shards), which look like one stage to the director.

The director gets *tickets* for the artifacts that they shelve and send. The content of an artifact stays in its
process until a peer of another shard needs it; then it is transferred once per shard, not once per peer. Subclasses of
`Sharded` define the transfer: through a Ray cluster's object store, or through shared memory. Shards trust each other:
this is no security boundary.
"""

from __future__ import annotations

import itertools
import weakref
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core import checkpoint
from coterie.core.artifact import Artifact, Fact
from coterie.core.peer import Peer
from coterie.core.requests import Fetch, Send
from coterie.core.weights import Layout, Weights
from coterie.engines.measuring import Measured
from coterie.methods.base import Method
from coterie.simulation.local_stage import LocalStage
from coterie.simulation.protocol import Reply, SavedActor, Stage, Turn

T = TypeVar("T")
Key = tuple[int, int]  # of an artifact: its shard, and its number there
Array = Tensor | NDArray[Any]  # a tensor only if NumPy lacks its type
Content = tuple[Layout, Array] | dict[str, Array]  # of an artifact, as arrays: they are transferred without pickling
Order = tuple[str, tuple[Any, ...]]  # a deferred call of a shard's method, with its arguments
Make = Callable[..., LocalStage]  # makes the stage of a shard, from its members and the common arguments


@dataclass(frozen=True, eq=False)
class Ticket(Artifact):
    """A reference to an artifact in a shard, without its tensors."""

    key: Key = (0, 0)
    size: int = 0

    @property
    def nbytes(self) -> int:
        return self.size

    def __reduce__(self) -> tuple[Any, ...]:  # compact, because many are sent in every round
        return Ticket, (self.name, self.author, self.round, {}, self.facts, self.key, self.size)


class Lent(NamedTuple):
    """An artifact in transit from one shard to another."""

    key: Key
    name: str
    author: int
    round: int
    content: Content
    facts: Mapping[str, Fact]

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


def _array(tensor: Tensor) -> Array:
    return tensor if tensor.dtype == torch.bfloat16 else tensor.detach().cpu().numpy()  # NumPy has no bfloat16


def _tensor(array: Array) -> Tensor:
    if isinstance(array, Tensor):
        return array
    return torch.from_numpy(array if array.flags.writeable else array.copy())  # Ray's store is read-only


# -- in the process of a shard -------------------------------------------------------------------


class Shard:
    """Some of the participants, on their own stage."""

    def __init__(self, number: int, stage: LocalStage) -> None:
        self.number, self.stage = number, stage
        self._count = itertools.count(1)
        self._artifacts: dict[Key, Artifact] = {}  # its own, and borrowed ones
        self._device = next((peer.model.vector.device for peer in stage.peers.values()), "cpu")

    def run(
        self, orders: Sequence[Order], call: str, arguments: tuple[Any, ...], lent: Iterable[Sequence[Lent]]
    ) -> Any:
        """Store the lent artifacts, execute the deferred orders, then the call."""
        for one in itertools.chain(*lent):
            self._artifacts[one.key] = one.artifact(self._device)
        for order, of_order in orders:
            getattr(self, order)(*of_order)
        return getattr(self, call)(*arguments)

    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        return [self._with_tickets(reply) for reply in self.stage.act(now, [self._resolved(turn) for turn in turns])]

    def _resolved(self, turn: Turn) -> Turn:
        if not isinstance(turn.answer, dict):
            return turn
        answer = {author: self._artifacts[ticket.key] for author, ticket in turn.answer.items()}
        return Turn(turn.peer, turn.round, answer)

    def _with_tickets(self, reply: Reply) -> Reply:
        """The reply in a form that can be sent: tickets for artifacts, and a fetch without its check."""
        if reply.shelved:
            reply.shelved = [self._ticket(artifact) for artifact in reply.shelved]
        wanted = reply.request
        if isinstance(wanted, Send):
            reply.request = Send(wanted.to, self._ticket(wanted.artifact))
        elif isinstance(wanted, Fetch):
            reply.request = Fetch(wanted.peers, wanted.name, wanted.round, dict)  # the fetching peer does the check
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

    def on_stage(self, call: str, *arguments: Any) -> Any:
        """Call a method of the stage that needs no tickets."""
        return getattr(self.stage, call)(*arguments)

    def states(self) -> dict[int, checkpoint.SavedPeer]:
        """Snapshots of all participants."""
        return {id: checkpoint.of_peer(peer) for id, peer in self.stage.peers.items()}


# -- at the director -----------------------------------------------------------------------------


class Sharded(Stage):
    """The shards of a run, which look like one stage."""

    def __init__(
        self, method: Method, participants: Sequence[Peer], rounds: int, members: Sequence[Sequence[int]]
    ) -> None:
        """`participants` are those of all shards, as they are at the director; `members` are the peers of each."""
        super().__init__(method, participants, rounds)
        self.members = members
        self._shard_of = {peer: shard for shard, some in enumerate(members) for peer in some}
        self._orders: dict[int, list[Order]] = defaultdict(list)  # deferred to the next call of each shard
        self._needed: dict[int, list[Ticket]] = defaultdict(list)  # the artifacts that those orders use
        self._borrowed: dict[int, set[Key]] = defaultdict(set)  # by shard
        self._forgotten: dict[int, list[Key]] = defaultdict(list)  # artifacts that a shard may drop
        self._watched: dict[Key, weakref.ref[Artifact]] = {}
        self._restored = itertools.count(1)

    @abstractmethod
    def _send(
        self, shard: int, orders: Sequence[Order], call: str, arguments: tuple[Any, ...], lent: Sequence[Any]
    ) -> Any:
        """Start `Shard.run` as soon as `lent`, the results of pending calls, is available; returns the pending call."""

    @abstractmethod
    def _results(self, calls: Sequence[Any]) -> list[Any]:
        """Wait for the results of pending calls; of several errors the first in order is raised."""

    # -- calling shards ------------------------------------------------------------------------

    def _call(self, shard: int, call: str, *arguments: Any, lent: Sequence[Any] = ()) -> Any:
        """Call a shard, together with its deferred orders."""
        orders, needed = self._orders.pop(shard, []), self._needed.pop(shard, [])
        if shard in self._forgotten:
            orders.append(("forget", (self._forgotten.pop(shard),)))
        borrowed = self._borrow(shard, (ticket.key for ticket in needed)) if needed else []
        return self._send(shard, orders, call, arguments, [*lent, *borrowed])

    def _borrow(self, shard: int, needed: Iterable[Key]) -> list[Any]:
        """Request the artifacts that a shard does not have yet from their owners."""
        borrowed, by_owner = self._borrowed[shard], defaultdict(list)
        for key in sorted({key for key in needed if key[0] != shard and key not in borrowed}):
            by_owner[key[0]].append(key)
            borrowed.add(key)
        return [self._call(owner, "lend", keys) for owner, keys in by_owner.items()]  # after the owner's orders

    def _call_all(self, call: str, *arguments: Any) -> list[Any]:
        return self._results([self._call(shard, call, *arguments) for shard in range(len(self.members))])

    # -- the interface of a stage ----------------------------------------------------------------

    def act(self, now: float, turns: Sequence[Turn]) -> list[Reply]:
        by_shard: dict[int, list[Turn]] = defaultdict(list)
        for turn in turns:
            by_shard[self._shard_of[turn.peer]].append(turn)
        shards = sorted(by_shard)
        # All lending comes before any acting: an acting shard cannot lend, and others would wait for it.
        lent = [self._borrow(shard, _tickets(by_shard[shard])) for shard in shards]
        calls = [self._call(s, "act", now, by_shard[s], lent=theirs) for s, theirs in zip(shards, lent, strict=True)]
        replies = {reply.peer: reply for of_shard in self._results(calls) for reply in of_shard}
        for reply in replies.values():
            for ticket in reply.shelved:
                self._watch(ticket)
            if isinstance(reply.request, Send):
                self._watch(reply.request.artifact)
        return [replies[turn.peer] for turn in turns]

    def _watch(self, ticket: Artifact) -> None:
        """Let shards drop an artifact when the last reference to its ticket is gone."""
        assert isinstance(ticket, Ticket)
        self._watched[ticket.key] = weakref.ref(ticket, partial(self._forget, ticket.key))

    def _forget(self, key: Key, reference: object) -> None:  # noqa: ARG002
        del self._watched[key]
        self._forgotten[key[0]].append(key)
        for shard, keys in self._borrowed.items():
            if key in keys:
                keys.remove(key)
                self._forgotten[shard].append(key)

    def compute(self, round: int) -> None:
        self._call_all("on_stage", "compute", round)

    def measured(self, round: int) -> dict[int, Measured]:
        return _merged(self._call_all("on_stage", "measured", round))

    def deliver(self, peer: int, artifact: Artifact) -> None:
        assert isinstance(artifact, Ticket)
        self._orders[self._shard_of[peer]].append(("deliver", (peer, artifact.key)))
        self._needed[self._shard_of[peer]].append(artifact)

    def whole(self, artifacts: Sequence[Artifact]) -> list[Artifact]:
        calls = {}
        for ticket in artifacts:
            assert isinstance(ticket, Ticket)
            calls[ticket.key] = self._call(ticket.key[0], "lend", [ticket.key])
        lent = dict(zip(calls, self._results(list(calls.values())), strict=True))
        return [lent[ticket.key][0].artifact() for ticket in artifacts]  # type: ignore[attr-defined]

    def adopt(self, artifact: Artifact) -> Artifact:
        shard = self._shard_of[artifact.author]
        ticket = Ticket(
            artifact.name, artifact.author, artifact.round, {}, artifact.facts, (shard, -next(self._restored)),
            artifact.nbytes,
        )  # fmt: skip
        self._orders[shard].append(("hold", (ticket.key, artifact)))
        self._watch(ticket)
        return ticket

    def keep(self, peer: int, round: int) -> None:
        self._orders[self._shard_of[peer]].append(("keep", (peer, round)))

    def kept(self, round: int) -> dict[int, SavedActor]:
        return _merged(self._call_all("on_stage", "kept", round))

    def restore(self, saved: Mapping[int, SavedActor]) -> None:
        shares = [{peer: saved[peer] for peer in members} for members in self.members]
        self._results([self._call(shard, "on_stage", "restore", share) for shard, share in enumerate(shares)])

    def end(self) -> None:
        """Keep the participants: their states may still be collected."""

    def collect_states(self) -> None:
        for id, state in _merged(self._call_all("states")).items():
            checkpoint.to_peer(self.peers[id], state)
            self.method.revive(self.peers[id])


def _merged(parts: Iterable[dict[int, T]]) -> dict[int, T]:
    return {peer: value for part in parts for peer, value in part.items()}


def _tickets(turns: Sequence[Turn]) -> Iterable[Key]:
    return (ticket.key for turn in turns if isinstance(turn.answer, dict) for ticket in turn.answer.values())
