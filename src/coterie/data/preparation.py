"""Turns the coded columns of a schema into features: fills missing values, and makes an indicator for each category.

A peer's preparation is fitted to its own training rows alone, in a simulation as on a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Array
from coterie.data.scaling import Scaling
from coterie.data.schema import MEAN, Column, Schema

DEVIATIONS = 6  # a value this far from the mean of the training rows is suspicious
SUSPICIOUS_SHARE = 0.1  # of a column's values that makes a warning: single outliers occur


@dataclass(frozen=True)
class Preparation:
    """From coded columns (N, columns) to features (N, features), for rows of any kind, also of later ones."""

    schema: Schema
    fills: tuple[float, ...]  # by column: what a missing value becomes; for a category, its number
    seen: tuple[bool, ...]  # by column: whether any training row has a value; otherwise every value is replaced

    @classmethod
    def fitted(cls, schema: Schema, train: Array) -> Preparation:
        """From the coded columns of a peer's training rows."""
        seen = tuple(bool((~np.isnan(column)).any()) for column in train.T)
        return cls(schema, tuple(_fill(c, train[:, i]) for i, c in enumerate(schema.columns)), seen)

    def features(self, coded: Array) -> Array:
        parts = [self._of_column(i, column, coded[:, i]) for i, column in enumerate(self.schema.columns)]
        return np.concatenate(parts, axis=1)

    def _of_column(self, i: int, column: Column, codes: Array) -> Array:
        missing = np.isnan(codes)
        if not column.is_category:
            filled = np.where(missing | (not self.seen[i]), self.fills[i], codes)
            return np.stack([filled, missing] if column.indicator else [filled], axis=1).astype(np.float64)
        # A missing category is its own indicator, or the most frequent one.
        own = len(column.values) + 1
        numbers = np.where(missing, own if len(column.features) > own else self.fills[i], codes)
        indicators: Array = (numbers[:, None] == np.arange(len(column.features))).astype(np.float64)
        return indicators

    def agreed_scaling(self) -> Scaling:
        """The scaling by the constants in the schema. Indicators are not scaled."""
        lacking = [c.name for c in self.schema.columns if not c.is_category and c.mean is None]
        if lacking:
            raise DataError(
                f"data.scale = 'schema' needs the agreed mean and deviation of every number in the schema; the columns "
                f"{', '.join(lacking)} have none"
            )
        scales = [(c.mean or 0.0, c.deviation or 1.0) for c in self.schema.columns for _ in c.features]
        firsts = np.cumsum([0, *(len(c.features) for c in self.schema.columns)])[:-1]
        numbers = {int(at) for at, c in zip(firsts, self.schema.columns, strict=True) if not c.is_category}
        kept = [scale if i in numbers else (0.0, 1.0) for i, scale in enumerate(scales)]
        return Scaling(tuple(mean for mean, _ in kept), tuple(deviation for _, deviation in kept))

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


def _fill(column: Column, values: Array) -> float:
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

    A column in other units (centimetres instead of metres) shows here.
    """
    mean, deviation = np.asarray(scaling.mean), np.asarray(scaling.deviation)
    with np.errstate(invalid="ignore"):
        far = (np.abs(raw - mean) > DEVIATIONS * deviation).sum(axis=0)
    return {name: int(n) for name, n in zip(names, far, strict=True) if n > SUSPICIOUS_SHARE * len(raw)}
