"""If no peer can continue, the simulation says which peer waits for which, and stops."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from simulation_support import WORD, play

from coterie.core.errors import CoterieError, DeadlockError
from coterie.core.peer import Peer
from coterie.methods import Method


@dataclass(frozen=True)
class NeverShelved(Method):
    """In the second round a peer waits for an artifact that no peer has."""

    async def round(self, me: Peer) -> None:
        await me.train()
        if me.round == 2:
            await me.fetch(me.peers, "grail")


@dataclass(frozen=True)
class OnlyOneAsks(Method):
    async def round(self, me: Peer) -> None:
        await me.train(epochs=1 + me.id)  # peers 0 and 1 are done with a round before 2 is
        if me.id == 0 and me.round == 2:
            assert await me.fetch([1, 2], "grail") == {}


@dataclass(frozen=True)
class NobodySends(Method):
    async def round(self, me: Peer) -> None:
        await me.receive("grail")


def test_a_fetch_of_an_artifact_that_is_never_shelved() -> None:
    with pytest.raises(DeadlockError, match="peer 0 in round 2 waits for 'grail' of round 2 from 1, 2"):
        play(NeverShelved(), rounds=3)


def test_a_peer_in_a_later_round_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """As on a network. (Peer 2 needs three seconds for a round, and ends its second one after six.)"""
    assert play(OnlyOneAsks(), rounds=3).ends(0) == {1: 1.0, 2: 6.0, 3: 7.0}
    assert "'grail' was fetched, but no peer ever shelved it" in caplog.text


def test_an_asynchronous_fetch_never_waits() -> None:
    assert play(NeverShelved(), rounds=3, asynchronous=True).ends(0) == {1: 1.0, 2: 2.0, 3: 3.0}


def test_a_deadline_ends_the_wait() -> None:
    assert play(NeverShelved(), rounds=3, deadline=5.0).ends(0) == {1: 1.0, 2: 7.0, 3: 8.0}


def test_a_receive_without_a_sender() -> None:
    with pytest.raises(DeadlockError, match=r"peer 0 in round 1 waits for a message 'grail' from any peer"):
        play(NobodySends())


def test_many_are_counted() -> None:
    with pytest.raises(DeadlockError, match="and 2 more"):
        play(NobodySends(), peers=7)


def test_two_peers_that_wait_for_each_other() -> None:
    @dataclass(frozen=True)
    class Polite(Method):
        async def round(self, me: Peer) -> None:
            await me.fetch(me.peers, "word")
            me.shelve("word", WORD)

    with pytest.raises(DeadlockError, match=r"peer 0 .* from 1; peer 1 .* from 0"):
        play(Polite(), peers=2)


def test_only_the_verbs_can_be_awaited() -> None:
    class Other:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield "something"

    @dataclass(frozen=True)
    class Odd(Method):
        async def round(self, me: Peer) -> None:  # noqa: ARG002
            await Other()

    with pytest.raises(CoterieError, match=r"test_deadlock.py, line \d+: what is awaited here is not a verb"):
        play(Odd())


def test_a_fetch_from_an_unknown_peer() -> None:
    @dataclass(frozen=True)
    class Odd(Method):
        async def round(self, me: Peer) -> None:
            await me.fetch(7, "word")

    with pytest.raises(CoterieError, match=r"peer \d fetches '.*' from peer 7, but there are only"):
        play(Odd())
