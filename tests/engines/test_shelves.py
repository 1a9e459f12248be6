"""The shelves: which version a fetch gets, and which are dropped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coterie.core.artifact import Artifact
from coterie.engines.shelves import MOST_VERSIONS, Shelves


def version(round: int, author: int = 0, name: str = "model") -> Artifact:
    return Artifact(name, author, round, {})


def found(shelves: Shelves, round: int, time: float = 0.0, author: int = 0, name: str = "model") -> int | None:
    shelved = shelves.find(author, name, round, time)
    return None if shelved is None else shelved.artifact.round


def test_a_synchronous_fetch_gets_its_rounds_version() -> None:
    shelves = Shelves(asynchronous=False)
    for round in (1, 2, 3):
        shelves.put(version(round), float(round), oldest_round=1)
    assert [found(shelves, round) for round in (1, 2, 3, 4)] == [1, 2, 3, None]
    assert found(shelves, 1, author=1) is None
    assert found(shelves, 1, name="update") is None


def test_a_fetch_gets_the_next_version_of_a_peer_that_skipped_a_round() -> None:
    shelves = Shelves(asynchronous=False)
    shelves.put(version(1), 0, 1)
    shelves.put(version(3), 0, 1)
    assert found(shelves, 2) == 3


def test_versions_before_the_oldest_round_are_dropped() -> None:
    shelves = Shelves(asynchronous=False)
    shelves.put(version(1), 0, 1)
    shelves.put(version(2, author=1), 0, 1)
    shelves.drop_before(2)
    assert [v.artifact.author for v in shelves.everything()] == [1]
    assert found(shelves, 1) is None
    assert found(shelves, 2, author=1) == 2


def test_without_common_rounds_the_latest_is_kept() -> None:
    shelves = Shelves(asynchronous=True)
    shelves.put(version(1), 0.0, 1)
    shelves.drop_before(5)
    assert found(shelves, 5, time=9.0) == 1


def test_shelved_twice_in_a_round_the_later_counts() -> None:
    shelves = Shelves(asynchronous=False)
    first, second = version(1), version(1)
    shelves.put(first, 1.0, 1)
    shelves.put(second, 2.0, 1)
    shelved = shelves.find(0, "model", 1, 9.0)
    assert shelved is not None
    assert shelved.artifact is second
    assert shelved.time == 2.0


def test_superseded_versions_are_dropped() -> None:
    shelves = Shelves(asynchronous=False)
    for round in range(1, 5):
        shelves.put(version(round), 0, oldest_round=1)
    shelves.put(version(5), 0, oldest_round=4)
    assert found(shelves, 1) == 4
    for round in range(6, 30):
        shelves.put(version(round), 0, oldest_round=1)
    assert found(shelves, 1) == 29 - MOST_VERSIONS + 1


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8).map(sorted), st.floats(0, 12))
def test_an_asynchronous_fetch_gets_the_latest_of_its_time(times: list[float], later: float) -> None:
    """The clock never goes back: after the last version, all fetches have that time or a later one."""
    shelves = Shelves(asynchronous=True)
    for i, time in enumerate(times):
        shelves.put(version(i), time, oldest_round=0)
        assert found(shelves, 0, time) == i
    now = max(later, times[-1])
    assert found(shelves, 0, now) == len(times) - 1


def test_a_future_version_is_not_seen_yet() -> None:
    shelves = Shelves(asynchronous=True)
    shelves.restore([])
    shelves.put(version(1), 5.0, 0)
    assert found(shelves, 1, 4.9) is None
    assert found(shelves, 1, 5.0) == 1


def test_versions_are_kept_until_the_checkpoint_is_written() -> None:
    shelves = Shelves(asynchronous=True)
    shelves.put(version(1), 1.0, 0)
    shelves.retain = True
    shelves.put(version(2), 2.0, 0)
    shelves.put(version(3), 3.0, 0)
    kept = shelves.until(2)
    assert [v.artifact.round for v in kept] == [1, 2]
    shelves.release(3.0)
    assert shelves.until(2) == []
    assert found(shelves, 0, 3.0) == 3
    resumed = Shelves(asynchronous=True)
    resumed.restore(kept)
    assert found(resumed, 0, 1.5) == 1
    assert found(resumed, 0, 9.0) == 2


def test_a_synchronous_run_goes_on_without_old_shelves() -> None:
    shelves = Shelves(asynchronous=False)
    shelves.put(version(1), 1.0, 0)
    assert shelves.until(1) == []
