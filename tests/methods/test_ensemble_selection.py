"""Ensemble selection against brute force, a direct determinant, and a plain-loop twin."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.methods.components.ensemble_selection import (
    Bench,
    choose,
    cosines_of_errors,
    diversities,
    objectives,
    pareto,
)
from coterie.methods.components.nsga2 import to_size


def a_bench(seed: int, models: int = 7, samples: int = 12, classes: int = 4, own: int = 2) -> Bench:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, samples)
    logits = rng.normal(size=(models, samples, classes)) + 1.5 * rng.random((models, 1, 1)) * np.eye(classes)[labels]
    p = np.exp(logits)
    return Bench(p / p.sum(2, keepdims=True), labels, np.arange(models) < own)


def diversity_of(bench: Bench, members: tuple[int, ...]) -> float:
    """As the paper says it, sample by sample, with the library's determinant."""
    values = []
    for i, label in enumerate(bench.labels):
        rest = np.delete(bench.probabilities[list(members), i], label, axis=1)
        unit = rest / np.linalg.norm(rest, axis=1, keepdims=True)
        values.append(np.linalg.det(unit @ unit.T))
    return float(np.mean(values))


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3))
def test_diversity_is_the_determinant(seed: int, k: int) -> None:
    bench = a_bench(seed)
    members = np.array(list(combinations(range(7), k)))
    found = diversities(cosines_of_errors(bench), members, 4)
    np.testing.assert_allclose(found, [diversity_of(bench, tuple(m)) for m in members.tolist()], atol=1e-9)


def test_with_more_members_than_dimensions_it_is_one_minus_the_mean_cosine() -> None:
    bench = a_bench(0)
    found = diversities(cosines_of_errors(bench), np.array([[0, 1, 2, 3]]), 4)
    pairs = []
    for i, label in enumerate(bench.labels):
        rest = np.delete(bench.probabilities[:4, i], label, axis=1)
        unit = rest / np.linalg.norm(rest, axis=1, keepdims=True)
        pairs += [1 - unit[a] @ unit[b] for a, b in combinations(range(4), 2)]
    assert found == pytest.approx(np.mean(pairs))


def test_equal_models_have_no_diversity_and_opposite_ones_have_all() -> None:
    p = np.array([[[0.2, 0.8, 0.0]], [[0.2, 0.8, 0.0]], [[0.2, 0.0, 0.8]]])
    bench = Bench(p, np.array([0]), np.array([True, False, False]))
    found = diversities(cosines_of_errors(bench), np.array([[0, 1], [0, 2]]), 3)
    np.testing.assert_allclose(found, [0.0, 1.0], atol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_pareto_is_who_nobody_beats(points: list[tuple[int, int]]) -> None:
    strength, diversity = (np.array(c, dtype=float) for c in zip(*points, strict=True))
    kept = pareto(strength, diversity)
    beaten = {
        i for i, (s, d) in enumerate(points) for t, e in points if (t >= s and e > d) or (t > s and e >= d)
    }  # fmt: skip
    assert set(kept.tolist()) == set(range(len(points))) - beaten


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from(["soft", "hard"]))
def test_small_benches_give_the_best_of_the_brute_force_front(seed: int, k: int, vote: str) -> None:
    bench = a_bench(seed)
    every = np.array([[i in c for i in range(7)] for c in combinations(range(7), k)])
    strength, diversity = objectives(bench, cosines_of_errors(bench), every)
    front = every[pareto(strength, diversity)]
    best = max(bench.vote_merits(np.concatenate([front, bench.own[None]]), vote))
    choice = choose(bench, k, vote=vote)
    assert choice.merit == best
    mask = np.isin(np.arange(7), choice.members)
    assert bench.vote_merits(mask[None], vote)[0] == best


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6))
def test_the_search_finds_the_best_of_the_brute_force_front(seed: int) -> None:
    """13 models, ensembles of 4: 715, too many for so small a population to try all."""
    bench = a_bench(seed, models=13, samples=30, classes=5)
    every = np.array([[i in c for i in range(13)] for c in combinations(range(13), 4)])
    strength, diversity = objectives(bench, cosines_of_errors(bench), every)
    front = pareto(strength, diversity)
    found = choose(bench, 4, population=60, generations=80, seed=1)
    expected = {(round(strength[i], 9), round(diversity[i], 9)) for i in front}
    got = {(round(s, 9), round(d, 9)) for s, d in found.front}
    assert len(expected & got) >= 0.8 * len(expected)
    best = max(bench.vote_merits(np.concatenate([every[front], bench.own[None]])))
    assert found.merit >= best - 1 / 30


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_never_worse_than_alone_on_validation(seed: int, own: int) -> None:
    bench = a_bench(seed, own=own)
    alone = bench.vote_merits(bench.own[None])[0]
    assert choose(bench, 3).merit >= alone


def test_of_equals_more_of_ones_own_models() -> None:
    """All models are the same: any ensemble votes alike, so one's own stay."""
    p = np.tile(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]), (5, 1, 1))
    bench = Bench(p, np.array([0, 2]), np.array([False, True, False, True, False]))
    assert choose(bench, 2).members == (1, 3)


def test_hard_vote_counts_names_and_soft_vote_weighs_them() -> None:
    """Two are a little for class 0, one is sure of class 1."""
    p = np.array([[[0.51, 0.49]], [[0.51, 0.49]], [[0.0, 1.0]]])
    bench = Bench(p, np.array([0]), np.array([True, False, False]))
    everybody = np.ones((1, 3), dtype=bool)
    assert bench.vote_merits(everybody, "hard")[0] == 1.0
    assert bench.vote_merits(everybody, "soft")[0] == 0.0


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_repair_keeps_members_and_makes_the_size(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    masks = rng.random((20, 9)) < rng.random()
    sized = to_size(masks, k, rng)
    assert (sized.sum(1) == k).all()
    for before, after in zip(masks, sized, strict=True):
        if before.sum() >= k:
            assert not (after & ~before).any()
        else:
            assert (after | before == after).all()
