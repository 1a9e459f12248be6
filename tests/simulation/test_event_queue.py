"""The queue against a plain list that is sorted again each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.simulation.event_queue import EXPIRE, RESUME, SERVE, EventQueue

EVENTS = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.5]), st.integers(0, 4), st.integers(0, 3)), max_size=12)


@given(EVENTS, st.lists(EVENTS, max_size=6))
def test_what_happens_next_is_the_earliest_then_by_phase_peer_and_order(
    first: list[tuple[float, int, int]], later: list[list[tuple[float, int, int]]]
) -> None:
    """`later` are put down while others happen, none of them in the past."""
    queue, plain, count = EventQueue(), [], 0
    coming = iter(later)
    for time, phase, peer in first:
        queue.put(time, phase, peer, count)
        plain.append((time, phase, peer, count))
        count += 1
    while queue:
        phase, events = queue.pop()
        plain.sort()
        expected = [e for e in plain if e[:2] == plain[0][:2]]
        assert (queue.now, phase) == expected[0][:2]
        assert events == [(peer, number) for _, _, peer, number in expected]
        plain = plain[len(expected) :]
        for ahead, its_phase, peer in next(coming, []):
            queue.put(queue.now + ahead, its_phase, peer, count)
            plain.append((queue.now + ahead, its_phase, peer, count))
            count += 1
    assert not plain


def test_of_one_peer_a_given_order_counts() -> None:
    queue = EventQueue()
    for what, order in (("second", (2.0, 1)), ("third", (2.0, 3)), ("first", (1.0, 9))):
        queue.put(5.0, RESUME, 0, what, order=order)
    assert queue.pop() == (RESUME, [(0, "first"), (0, "second"), (0, "third")])


def test_only_departures() -> None:
    queue = EventQueue()
    queue.put(3.0, EXPIRE, 1, None)
    assert queue.has_only_departures()
    queue.put(2.0, SERVE, 1, None)
    assert not queue.has_only_departures()
