"""Neighbour lists and weights against the truth."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.report.graph_scores import mass_inside, neighbour_scores

worlds = st.lists(st.integers(0, 3), min_size=1, max_size=7).flatmap(
    lambda clusters: st.tuples(
        st.just(clusters),
        st.dictionaries(
            st.integers(0, len(clusters) - 1),
            st.lists(st.integers(0, len(clusters) - 1), max_size=8),
            max_size=7,
        ),
    )
)


@given(worlds)
def test_scores_are_those_of_counting_pairs(world: tuple[list[int], dict[int, list[int]]]) -> None:
    clusters, lists = world
    everybody = range(len(clusters))
    precisions, recalls = [], []
    for i, neighbours in lists.items():
        chosen = [j for j in everybody if j != i and j in neighbours]
        kin = [j for j in everybody if j != i and clusters[j] == clusters[i]]
        both = [j for j in chosen if j in kin]
        if chosen:
            precisions.append(Fraction(len(both), len(chosen)))
        if kin:
            recalls.append(Fraction(len(both), len(kin)))
    scores = neighbour_scores(lists, clusters)
    assert scores.precision == pytest.approx(float(sum(precisions) / len(precisions)) if precisions else 0.0)
    assert scores.recall == pytest.approx(float(sum(recalls) / len(recalls)) if recalls else 0.0)


def test_scores_by_hand() -> None:
    # Peer 0: itself does not count, one of two is kin, one of two kin found. Peer 3: nobody chosen, one kin.
    scores = neighbour_scores({0: [0, 1, 3], 3: []}, [0, 0, 0, 1, 1])
    assert scores == (0.5, 0.25)


def test_mass_by_hand() -> None:
    clusters = [0, 0, 1, 1]
    # Peer 0: its own 0.5 and 0.25 of its relative. Peer 2: 3 of a row that sums to 4. Peer 3: all on a stranger.
    assert mass_inside({0: {0: 0.5, 1: 0.25, 2: 0.25}}, clusters) == 0.75
    assert mass_inside({2: {0: 1.0, 2: 1.0, 3: 2.0}}, clusters) == 0.75
    assert mass_inside({0: {0: 0.5, 1: 0.25, 2: 0.25}, 3: {0: 1.0}}, clusters) == 0.375
    # Peer 1 has no weight, and is left out; 4 is a server, whose weight counts as none.
    assert mass_inside({0: {0: 0.5, 3: 0.5, 4: 9.0}, 1: {}, 2: {2: 0.0}}, clusters) == 0.5
    assert mass_inside({3: {4: 1.0}}, clusters) is None
    assert mass_inside({}, clusters) is None


@given(worlds)
def test_mass_of_equal_weights_is_precision_with_oneself(world: tuple[list[int], dict[int, list[int]]]) -> None:
    clusters, lists = world
    rows = {i: dict.fromkeys([i, *neighbours], 0.25) for i, neighbours in lists.items()}
    shares = [Fraction(sum(clusters[j] == clusters[i] for j in row), len(row)) for i, row in rows.items()]
    expected = pytest.approx(float(sum(shares) / len(shares))) if shares else None
    assert mass_inside(rows, clusters) == expected
