"""Texts as hashed counts of words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils import murmurhash3_32

from coterie.core.errors import DataError
from coterie.data.texts import hashed


def place(word: str, features: int) -> tuple[int, int]:
    """The feature and the sign of a word, by the rule of feature hashing: |h| mod features, and the sign of h."""
    h = int(murmurhash3_32(word, seed=0))
    return abs(h) % features, 1 if h >= 0 else -1


def test_counts_of_words_have_length_one() -> None:
    # "pain" twice and "chest" once, in different features of 64: (2, 1) / sqrt(5), each with its word's sign
    pain, chest = place("pain", 64), place("chest", 64)
    assert pain[0] != chest[0]
    expected = np.zeros(64)
    expected[pain[0]], expected[chest[0]] = pain[1] * 2 / np.sqrt(5), chest[1] / np.sqrt(5)
    np.testing.assert_allclose(hashed(["Pain, chest pain!"], 64), [expected], atol=1e-12)


def test_texts_without_words_are_zeros() -> None:
    assert not hashed(["", "a !"], 8).any()
    assert hashed([], 8).shape == (0, 8)


@given(st.lists(st.text(), min_size=1, max_size=6), st.integers(1, 300))
def test_a_row_depends_on_its_text_alone(texts: list[str], features: int) -> None:
    rows = hashed(texts, features)
    assert rows.shape == (len(texts), features)
    assert np.array_equal(rows, np.concatenate([hashed([text], features) for text in texts]))
    lengths = np.linalg.norm(rows, axis=1)
    assert all(np.isclose(length, 1) or length == 0 for length in lengths)


def test_at_least_one_feature() -> None:
    with pytest.raises(DataError, match="at least 1, not 0"):
        hashed(["text"], 0)
