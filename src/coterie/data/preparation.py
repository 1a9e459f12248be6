"""Turns the codes of a schema's columns into features: fills missing values, and makes an indicator for each category.

A peer's preparation is fitted to its own training rows alone, in a simulation as on a network. Only with
data.scale = "pooled", a column that it lacks is filled with the mean of all peers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Array
from coterie.data.scaling import Scaling
from coterie.data.schema import MEAN, Column, Schema

DEVIATIONS = 6  # a value this far from the mean of the training rows is suspicious
UNSCALED = (0.0, 1.0)  # mean and deviation
SUSPICIOUS_SHARE = 0.1  # of a column's values that makes a warning: single outliers occur


@dataclass(frozen=True)
class Preparation:
    """From codes (N, codes of all columns) to features (N, features), for rows of any kind, also of later ones."""

    schema: Schema
    fills: tuple[float, ...]  # by column: what a missing value becomes; for a category, its number; unused for a text
    seen: tuple[bool, ...]  # by column: whether any training row has a value; otherwise every value is replaced

    @classmethod
    def fitted(cls, schema: Schema, train: Array) -> Preparation:
        """From the codes of a peer's training rows."""
        by_column = list(zip(schema.columns, _by_column(schema, train), strict=True))
        seen = tuple(bool((~np.isnan(codes)).any()) for _, codes in by_column)
        return cls(schema, tuple(_fill(column, codes) for column, codes in by_column), seen)

    def features(self, coded: Array) -> Array:
        by_column = zip(self.schema.columns, _by_column(self.schema, coded), strict=True)
        return np.concatenate([self._of_column(i, *of_column) for i, of_column in enumerate(by_column)], axis=1)

    def _of_column(self, i: int, column: Column, codes: Array) -> Array:
        if column.is_text:
            return codes
        codes, missing = codes[:, 0], np.isnan(codes[:, 0])
        if column.is_measured:
            filled = np.where(missing | (not self.seen[i]), self.fills[i], codes)
            return np.stack([filled, missing] if column.indicator else [filled], axis=1).astype(np.float64)
        # A missing category is its own indicator, or the most frequent one.
        own = len(column.values) + 1
        numbers = np.where(missing, own if len(column.feature_names) > own else self.fills[i], codes)
        indicators: Array = (numbers[:, None] == np.arange(len(column.feature_names))).astype(np.float64)
        return indicators

    def scaling(self, train: Array) -> Scaling:
        """The standard scaling of the features of training rows. Indicators and hashed words are not scaled: the
        deviation of a rare one is small, and dividing by it would let few rows dominate."""
        standard = Scaling.standard(train)
        scales = zip(self.schema.measured, standard.mean, standard.deviation, strict=True)
        return Scaling.of_pairs((mean, deviation) if column else UNSCALED for column, mean, deviation in scales)

    def present(self, coded: Array) -> Array:
        """Which of the features of these rows are measured values of the row: bool (N, features). Filled values are
        not, nor are indicators and hashed words, which are not scaled."""
        by_column = zip(self.schema.columns, _by_column(self.schema, coded), strict=True)
        parts = [np.zeros((len(coded), len(column.feature_names)), dtype=bool) for column in self.schema.columns]
        for part, (column, codes) in zip(parts, by_column, strict=True):
            if column.is_measured:
                part[:, 0] = ~np.isnan(codes[:, 0])
        return np.concatenate(parts, axis=1)

    def centred_by(self, scaling: Scaling) -> Preparation:
        """The same, but numbers that no training row has are filled with the mean of this scaling: they become 0."""
        means = {c.name: mean for c, mean in zip(self.schema.measured, scaling.mean, strict=True) if c}
        by_column = zip(self.schema.columns, self.fills, self.seen, strict=True)
        return replace(self, fills=tuple(fill if seen else means.get(c.name, fill) for c, fill, seen in by_column))

    def agreed_scaling(self) -> Scaling:
        """The scaling by the constants in the schema. Indicators and hashed words are not scaled."""
        lacking = [c.name for c in self.schema.columns if c.is_measured and c.mean is None]
        if lacking:
            raise DataError(
                f"data.scale = 'schema' needs the agreed mean and deviation of every number in the schema; the columns "
                f"{', '.join(lacking)} have none"
            )
        return Scaling.of_pairs((c.mean or 0.0, c.deviation or 1.0) if c else UNSCALED for c in self.schema.measured)

    def tree(self) -> dict[str, Any]:
        """As JSON, for the manifest of a model."""
        return {"schema": self.schema.tree(), "fills": list(self.fills), "seen": list(self.seen)}

    @classmethod
    def of_tree(cls, tree: Any) -> Preparation:
        """From `tree`; raises KeyError, TypeError or ValueError if it is not one."""
        schema = Schema.of_tree(tree["schema"])
        fills, seen = tuple(map(float, tree["fills"])), tuple(map(bool, tree["seen"]))
        if not len(fills) == len(seen) == len(schema.columns):
            raise ValueError("a preparation of another number of columns than its schema")
        return cls(schema, fills, seen)


def _by_column(schema: Schema, coded: Array) -> list[Array]:
    """The codes (N, codes) of each column."""
    return np.split(coded, np.cumsum([column.codes for column in schema.columns])[:-1], axis=1)


def _fill(column: Column, values: Array) -> float:
    if column.is_text:
        return 0.0
    known = values[~np.isnan(values)]
    if column.is_category:
        if not len(known):
            return float(len(column.values))  # unknown
        return float(np.bincount(known.astype(np.int64)).argmax())  # the first of equally frequent ones
    if not len(known):
        return column.mean or 0.0
    return float(known.mean() if column.filled_by == MEAN else np.median(known))


def suspicious_features(names: tuple[str, ...], raw: Array, scaling: Scaling) -> dict[str, int]:
    """The features of which many values are far beyond those of the training rows, with the number of such rows.

    A column in other units (centimetres instead of metres) shows here. With data.scale = "none" the training rows are
    not known.
    """
    if scaling == Scaling.none(len(scaling.mean)):
        return {}
    mean, deviation = np.asarray(scaling.mean), np.asarray(scaling.deviation)
    with np.errstate(invalid="ignore"):
        far = (np.abs(raw - mean) > DEVIATIONS * deviation).sum(axis=0)
    return {name: int(n) for name, n in zip(names, far, strict=True) if n > SUSPICIOUS_SHARE * len(raw)}
