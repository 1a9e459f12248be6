"""Waiting for news: each shelving is announced once, and no peer waits when nothing more will come."""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulation_support import WORD, play

from coterie.core.peer import Peer
from coterie.methods import Method


@dataclass(frozen=True)
class Listeners(Method):
    """Every peer trains so many times, shelves a word, and then listens until there is no more news."""

    asynchronous = True

    async def round(self, me: Peer) -> None:
        await me.train()
        me.shelve("word", WORD)
        heard = []
        while me.round == me.rounds and await me.news():
            found = await me.fetch(me.peers, "word")
            heard.append(sorted(found))
        me.note(heard=heard)


def test_every_peer_gets_news_of_every_other_when_it_comes() -> None:
    """Training takes 1, 2 and 4 seconds: the words are there at those times."""
    played = play(Listeners(), seconds=(1.0, 2.0, 4.0))
    assert played.notes(0, "heard") == [[[1], [1, 2]]]
    assert played.notes(1, "heard") == [[[0], [0, 2]]]  # of what was there before it asked, at once
    assert played.notes(2, "heard") == [[[0, 1]]]
    assert [played.ends(p)[1] for p in range(3)] == [4.0, 4.0, 4.0]


def test_listening_is_not_waiting_for_others_work() -> None:
    played = play(Listeners(), seconds=(1.0, 2.0, 4.0))
    assert all("waited" not in r.notes for p in range(3) for r in played.rounds(p))


def test_a_peer_that_leaves_for_good_is_not_waited_for() -> None:
    played = play(Listeners(), seconds=(1.0, 2.0, 4.0), offline=((2.0, 3.0, math.inf),))
    assert played.notes(0, "heard") == [[[1]]]
    assert played.notes(1, "heard") == [[[0]]]


def test_a_peer_that_leaves_while_it_listens_is_gone() -> None:
    played = play(Listeners(), seconds=(1.0, 2.0, 4.0), offline=((0.0, 3.0, math.inf),))
    assert not played.rounds(0)
    assert played.notes(2, "heard") == [[[1]]]


def test_news_of_a_late_peer_still_comes() -> None:
    played = play(Listeners(), seconds=(1.0, 2.0, 4.0), offline=((2.0, 0.0, 10.0),))
    assert played.notes(0, "heard") == [[[1], [1, 2]]]
    assert played.ends(0)[1] == 14.0


def test_several_words_of_one_instant_are_one_piece_of_news() -> None:
    played = play(Listeners(), seconds=(1.0, 3.0, 3.0))
    assert played.notes(0, "heard") == [[[1, 2]]]
    assert played.notes(1, "heard") == [[[0, 2]]]
