"""Turns texts into features by hashing their words, without a vocabulary: what a peer's texts say stays with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Array


def hashed(texts: Sequence[str], features: int) -> Array:
    """A row of `features` numbers for each text, (N, features): the counts of its words, by hash, at length 1.

    A word is two or more letters or digits, in lower case. Its hash (MurmurHash3) determines its feature and its sign,
    alike at all peers, so words need not be agreed on. Different words may share a feature; more features make that
    rarer. A text without words is all zeros.
    """
    if features < 1:
        raise DataError(f"features of a text column must be at least 1, not {features}")
    if not len(texts):
        return np.zeros((0, features))
    from sklearn.feature_extraction.text import HashingVectorizer

    rows: Array = HashingVectorizer(n_features=features).transform(texts).toarray()
    return rows
