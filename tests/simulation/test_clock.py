"""The virtual clock, against schedules derived by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from simulation_support import WORD, WORD_BYTES, Swap, now, play

from coterie.core.errors import CoterieError
from coterie.core.events import PeerAway
from coterie.core.peer import Peer
from coterie.methods import Method
from coterie.methods.local import Local

BYTES = float(WORD_BYTES)


def test_a_fetch_waits_for_the_slowest_and_then_takes_its_own_transfer() -> None:
    # Training takes 1, 2 and 3 s, so all words are there at 3. Each fetches two words:
    # peer 0: 0.5 + 2 words at 1 word/s = 2.5 -> 5.5; peer 1: nothing -> 3; peer 2: 1 + 2 words at 2/s = 2 -> 5.
    # Round 2: trained at 6.5, 5, 8; all there at 8 -> 10.5, 8, 10.
    played = play(Swap(), rounds=2, seconds=(1, 2, 3), latency=(0.5, 0.0, 1.0), bandwidth=(BYTES, 0.0, 2 * BYTES))
    assert [played.ends(p) for p in range(3)] == [{1: 5.5, 2: 10.5}, {1: 3.0, 2: 8.0}, {1: 5.0, 2: 10.0}]
    for record in played.rounds(0):
        assert (record.messages, record.bytes) == ({"word": 2}, {"word": 2 * WORD_BYTES})


def test_a_deadline_makes_the_straggler_absent() -> None:
    # Peers 0 and 1 are trained at 1, wait until 2, and have each other's word alone; the same at 3 -> 4.
    # Peer 2 is trained at 4 and 8 and waits for no other peer: both words of its own round are there,
    # of round 1 at 4 and of round 2 at 8.
    played = play(Swap(), rounds=2, seconds=(1, 1, 4), deadline=1.0)
    assert played.ends(0) == played.ends(1) == {1: 2.0, 2: 4.0}
    assert played.ends(2) == {1: 4.0, 2: 8.0}
    assert played.notes(0, "got") == [{1: 1}, {1: 2}]
    assert played.notes(2, "got") == [{0: 1, 1: 1}, {0: 2, 1: 2}]


def test_an_asynchronous_fetch_gets_the_latest() -> None:
    # Peer 0 is trained at 1, 2, 3, 4, 5 and peer 1 at 3, 6, 9, 12, 15. At 3 both have shelved before either
    # is served: peer 0 finds peer 1's first word, peer 1 peer 0's third. At 6 and after, peer 0's fifth.
    played = play(Swap(), peers=2, rounds=5, seconds=(1, 3), asynchronous=True)
    assert played.notes(0, "got") == [{}, {}, {1: 1}, {1: 1}, {1: 1}]
    assert played.notes(1, "got") == [{0: 3}, {0: 5}, {0: 5}, {0: 5}, {0: 5}]
    assert played.ends(0) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0, 5: 5.0}
    assert played.ends(1) == {1: 3.0, 2: 6.0, 3: 9.0, 4: 12.0, 5: 15.0}


def test_evaluating_takes_a_third_of_training() -> None:
    @dataclass(frozen=True)
    class Looks(Method):
        async def round(self, me: Peer) -> None:
            await me.evaluate([me.model, me.model, me.model, me.model, me.model, me.model])

    # Six models on twelve samples, each a third of a second; three seconds a training.
    assert play(Looks(), peers=2, seconds=(3,)).ends(0) == {1: pytest.approx(6.0)}


@dataclass(frozen=True)
class Post(Method):
    """Peers 0 and 1 train and send a word to peer 2, which receives, or trains and then looks into its inbox."""

    waits: bool = True

    async def round(self, me: Peer) -> None:
        if me.id < 2:
            await me.train()
            await me.send(2, "word", WORD)
        elif self.waits:
            first = await me.receive("word")
            at = now(me)
            second = await me.receive("word")
            me.note(first=[a.author for a in first], at=at, second=[a.author for a in second])
        else:
            early = me.inbox("word")
            await me.train()
            me.note(early=early, late=[a.author for a in me.inbox("word")], after=me.inbox("word"))


# Peer 1 sends at 1: 0.5 s and a word at one a second -> 2.5. Peer 0 sends at 2: 1 s -> 3.
POSTAGE = {"latency": (1.0, 0.5, 0.0), "bandwidth": (0.0, BYTES, 0.0)}


def test_what_is_sent_arrives_after_its_sender_s_transfer() -> None:
    played = play(Post(), seconds=(2, 1, 5), **POSTAGE)
    assert [played.ends(p) for p in range(3)] == [{1: 2.0}, {1: 1.0}, {1: 3.0}]  # sending takes no time
    assert played.notes(2, "first") == [[1]]
    assert played.notes(2, "at") == [2.5]
    assert played.notes(2, "second") == [[0]]
    assert played.rounds(0)[0].messages == {"word": 1}
    assert played.rounds(0)[0].bytes == {"word": WORD_BYTES}
    assert played.rounds(2)[0].messages == {}


def test_the_inbox_is_oldest_first_and_taken_once() -> None:
    played = play(Post(waits=False), seconds=(2, 1, 5), **POSTAGE)
    assert played.notes(2, "early") == [[]]
    assert played.notes(2, "late") == [[1, 0]]
    assert played.notes(2, "after") == [[]]


def test_messages_wait_for_an_absent_recipient() -> None:
    # Both words come while peer 2 is away, from 2 to 4; it trains from 0 to 5 and finds them in order.
    played = play(Post(waits=False), seconds=(2, 1, 5), **POSTAGE, offline=((2, 2.0, 4.0),))
    assert played.notes(2, "late") == [[1, 0]]
    # If it waits for them, it gets them at 4, both at once, and then waits for ever: so receive one only.
    assert play(Post(waits=False), seconds=(2, 1, 2.2), **POSTAGE, offline=((2, 2.0, 4.0),)).ends(2) == {1: 4.0}


def test_a_message_to_an_unknown_peer_is_an_error() -> None:
    @dataclass(frozen=True)
    class Lost(Method):
        async def round(self, me: Peer) -> None:
            await me.send(9, "word", WORD)

    with pytest.raises(CoterieError, match="9"):
        play(Lost())


def test_a_message_that_never_arrives_is_not_counted() -> None:
    @dataclass(frozen=True)
    class ToLeaver(Method):
        async def round(self, me: Peer) -> None:
            await me.train()
            if me.id == 0:
                await me.send(1, "word", WORD)

    # Peer 1 leaves for good at 0.5; the messages of 1 and 2 are never delivered.
    played = play(ToLeaver(), rounds=2, offline=((1, 0.5, math.inf),))
    assert [r.messages for r in played.rounds(0)] == [{}, {}]


def test_away_absent_and_back_in_the_circle_s_round() -> None:
    # Every peer trains for a second. Peer 2 is away from 1.5 to 3.5: in its second training, which is over at 2.
    # Peers 0 and 1: rounds 2 and 3 end at 2 and 3 without it. At 3.5 it finishes its round 2 with their words
    # of round 2, joins their round 4, and is trained at 4.5; they have waited for it since 4. Round 5: 5.5.
    played = play(Swap(), rounds=5, offline=((2, 1.5, 3.5),))
    assert played.ends(0) == {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.5, 5: 5.5}
    assert played.ends(2) == {1: 1.0, 2: 3.5, 4: 4.5, 5: 5.5}
    assert played.notes(0, "got") == [{1: 1, 2: 1}, {1: 2}, {1: 3}, {1: 4, 2: 4}, {1: 5, 2: 5}]
    assert played.notes(2, "got") == [{0: r, 1: r} for r in (1, 2, 4, 5)]


def test_no_peer_waits_for_one_that_goes_away() -> None:
    # Peer 1 would be trained at 4, and goes away at 2.5: peer 0 has waited since 1 and goes on at 2.5.
    played = play(Swap(), peers=2, seconds=(1, 4), offline=((1, 2.5, 10.0),))
    assert played.ends(0) == {1: 2.5}
    assert played.notes(0, "got") == [{}]
    assert played.ends(1) == {1: 10.0}  # back at 10, peer 0's word is there
    assert played.notes(1, "got") == [{0: 1}]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_peer_that_leaves_for_good_blocks_no_other(asynchronous: bool) -> None:
    played = play(Swap(), rounds=3, offline=((1, 1.5, math.inf),), asynchronous=asynchronous)
    assert played.ends(0) == played.ends(2) == {1: 1.0, 2: 2.0, 3: 3.0}
    assert played.ends(1) == {1: 1.0}
    assert [r.until for r in played.records if isinstance(r, PeerAway)] == [None]
    assert played.notes(0, "got")[1:] == [{2: 2}, {2: 3}]


def test_a_peer_that_leaves_while_waiting_for_messages_blocks_no_other() -> None:
    @dataclass(frozen=True)
    class Waits(Method):
        async def round(self, me: Peer) -> None:
            if me.id == 1:
                await me.receive("word")
            await me.train()

    played = play(Waits(), rounds=2, offline=((1, 0.5, math.inf),))
    assert played.ends(0) == {1: 1.0, 2: 2.0}
    assert [r.until for r in played.records if isinstance(r, PeerAway)] == [None]


def test_a_late_joiner_begins_with_the_circle_s_round() -> None:
    # Rounds 1 and 2 end at 1 and 2. Peer 2 comes at 2.5, into round 3, and is trained at 3.5: all wait for it.
    played = play(Swap(), rounds=4, offline=((2, 0.0, 2.5),))
    assert played.ends(0) == {1: 1.0, 2: 2.0, 3: 3.5, 4: 4.5}
    assert played.ends(2) == {3: 3.5, 4: 4.5}
    assert played.notes(0, "got") == [{1: 1}, {1: 2}, {1: 3, 2: 3}, {1: 4, 2: 4}]


@pytest.mark.parametrize("joins", [2.9, 3.0, 3.1])
def test_a_peer_that_joins_at_the_end_still_does_a_round(joins: float) -> None:
    # The others finish their third and last round at 3.
    rounds = set(play(Local(), rounds=3, offline=((2, 0.0, joins),)).ends(2))
    assert rounds
    assert rounds <= {1, 2, 3}


def test_a_round_that_was_skipped_is_not_waited_for() -> None:
    """What is shelved every other round: who was away for one of those is absent from it."""

    @dataclass(frozen=True)
    class EveryOther(Method):
        async def round(self, me: Peer) -> None:
            await me.train()
            me.shelve("word", WORD)
            if me.round % 2 == 0:
                me.shelve("rare", WORD)
                me.note(rare={j: a.round for j, a in (await me.fetch(me.peers, "rare")).items()})
            elif me.id != 0:
                await me.fetch(0, "word")

    # Peer 0 takes 4 s a round, peer 1 one. Peer 2 is there at 4.5, when peer 1 waits for peer 0 in round 2 or 3.
    for joins in (0.5, 3.5, 4.5, 5.5, 8.5, 9.5):
        played = play(EveryOther(), rounds=6, seconds=(4, 1, 1), deadline=0.0, offline=((2, 0.0, joins),))
        assert max(played.ends(0)) == 6


def test_dropout_is_drawn_by_seed_peer_and_round() -> None:
    first, second = (play(Swap(), rounds=6, dropout=0.5) for _ in range(2))
    assert first.records == second.records
    sat_out = {(r.peer, r.round) for r in first.records if isinstance(r, PeerAway)}
    assert sat_out
    for peer in range(3):
        for record in first.rounds(peer):
            expected = {j for j in range(3) if j != peer and (j, record.round) not in sat_out}
            assert set(record.notes["got"]) == expected
            assert set(record.notes["got"].values()) <= {record.round}
