"""Weights and draws by which all classes count the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_sample_weight

from coterie.core.balancing import balanced_draws, balanced_weights, positions_at
from coterie.core.jobs import TrainSettings, batches

some_labels = st.lists(st.integers(0, 6), min_size=1, max_size=40).map(np.array)


def test_weights_by_hand() -> None:
    """Four samples, two classes: 4 / (2 * 3) for each of three samples, 4 / (2 * 1) for the single one."""
    weights = balanced_weights(torch.tensor([5, 5, 2, 5]))
    assert weights.tolist() == pytest.approx([2 / 3, 2 / 3, 2, 2 / 3])


@given(some_labels)
def test_weights_are_scikit_learns(labels: np.ndarray) -> None:
    weights = balanced_weights(torch.from_numpy(labels))
    np.testing.assert_allclose(weights.numpy(), compute_sample_weight("balanced", labels), rtol=1e-6)
    assert weights.mean().item() == pytest.approx(1, rel=1e-5)


@given(some_labels)
def test_evenly_spread_numbers_pick_each_class_equally_often_and_its_samples_too(labels: np.ndarray) -> None:
    """A grid of numbers in the middle of equal cells: each class has as many cells, and each sample within it."""
    present, counts = np.unique(labels, return_counts=True)
    cells = int(np.lcm.reduce(counts))
    of_class = np.repeat((np.arange(len(present)) + 0.5) / len(present), cells)
    within = np.tile((np.arange(cells) + 0.5) / cells, len(present))
    picked = positions_at(labels, of_class, within)
    expected = {at: cells / counts[present.tolist().index(label)] for at, label in enumerate(labels)}
    assert dict(zip(*np.unique(picked, return_counts=True), strict=True)) == expected


@given(some_labels, st.integers(0, 2**64 - 1))
def test_the_share_of_each_class(labels: np.ndarray, key: int) -> None:
    """Of n draws, each of k classes gets n / k; the standard deviation is sqrt(n p (1 - p)), and six are allowed."""
    n, classes = 2000, np.unique(labels)
    drawn = labels[balanced_draws([labels], [key], n)[0]]
    p = 1 / len(classes)
    for kind in classes:
        assert abs((drawn == kind).sum() - n * p) <= 6 * np.sqrt(n * p * (1 - p)) + 1e-9


@given(some_labels, st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=4, unique=True))
def test_draws_depend_on_the_key_alone(labels: np.ndarray, keys: list[int]) -> None:
    together = balanced_draws([labels] * len(keys), keys, 30)
    for row, key in zip(together, keys, strict=True):
        assert np.array_equal(balanced_draws([labels], [key], 30)[0], row)


@pytest.mark.parametrize(("samples", "batch"), [(10, 4), (9, 4), (3, 8), (1, 1), (0, 4)])
def test_steps_have_the_sizes_that_they_have_without_sampling(samples: int, batch: int) -> None:
    settings, labels = TrainSettings(epochs=2, batch=batch), np.arange(samples) % 3
    drawn, shuffled = batches(samples, settings, [7], [labels]), batches(samples, settings, [7])
    assert [step.shape for step in drawn] == [step.shape for step in shuffled]


def test_epochs_differ() -> None:
    first, second = batches(30, TrainSettings(epochs=2, batch=30), [7], [np.arange(30) % 2])
    assert not np.array_equal(first, second)
