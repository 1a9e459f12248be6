"""The agenda against a plain list that is sorted anew each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.simulation.event_queue import EXPIRE, RESUME, SERVE, Agenda

EVENTS = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.5]), st.integers(0, 4), st.integers(0, 3)), max_size=12)


@given(EVENTS, st.lists(EVENTS, max_size=6))
def test_what_happens_next_is_the_earliest_then_by_phase_peer_and_order(
    first: list[tuple[float, int, int]], later: list[list[tuple[float, int, int]]]
) -> None:
    """`later` are put down while others happen, none of them in the past."""
    agenda, plain, count = Agenda(), [], 0
    coming = iter(later)
    for time, phase, peer in first:
        agenda.put(time, phase, peer, count)
        plain.append((time, phase, peer, count))
        count += 1
    while agenda:
        phase, events = agenda.instant()
        plain.sort()
        expected = [e for e in plain if e[:2] == plain[0][:2]]
        assert (agenda.now, phase) == expected[0][:2]
        assert events == [(peer, number) for _, _, peer, number in expected]
        plain = plain[len(expected) :]
        for ahead, its_phase, peer in next(coming, []):
            agenda.put(agenda.now + ahead, its_phase, peer, count)
            plain.append((agenda.now + ahead, its_phase, peer, count))
            count += 1
    assert not plain


def test_of_one_peer_a_given_order_counts() -> None:
    agenda = Agenda()
    for what, order in (("second", (2.0, 1)), ("third", (2.0, 3)), ("first", (1.0, 9))):
        agenda.put(5.0, RESUME, 0, what, order=order)
    assert agenda.instant() == (RESUME, [(0, "first"), (0, "second"), (0, "third")])


def test_only_departures() -> None:
    agenda = Agenda()
    agenda.put(3.0, EXPIRE, 1, None)
    assert agenda.has_only_departures()
    agenda.put(2.0, SERVE, 1, None)
    assert not agenda.has_only_departures()
