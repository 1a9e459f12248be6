"""Neighbour lists against the truth."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.graph import neighbour_scores

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
