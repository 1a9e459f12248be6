"""Reads the columns that describe rows and are not features: each row's site, group and time."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Array
from coterie.data.labels import name_of, which_rows


@dataclass(frozen=True)
class RowColumns:
    """The names of these columns (in an .npz file: arrays); empty for those that are not used."""

    site: str = ""
    group: str = ""
    time: str = ""

    @property
    def by_key(self) -> dict[str, str]:
        """The columns in use, by the setting that names each."""
        named = {"data.column": self.site, "data.group": self.group, "data.time": self.time}
        return {key: name for key, name in named.items() if name}

    @property
    def texts(self) -> list[str]:
        """The columns whose values are names: 007 is not 7."""
        return [name for name in (self.site, self.group) if name]

    def check(self, where: object, label: str, features: Collection[str], declared_in: str) -> None:
        """Raise DataError if one of the columns is also the label, or a feature that the user declares."""
        for key, name in self.by_key.items():
            if name == label:
                raise DataError(f"{key} = '{name}' is the label column of {where}: name another column")
            if name in features:
                raise DataError(f"{key} = '{name}' is not a feature: remove it from {declared_in}")

    def read(self, path: Path, table: Mapping[str, Any], numbers: Array | None = None) -> dict[str, Any]:
        """The fields of a Dataset that these columns give; `table` has all of them, without missing values. `numbers`
        are the row numbers in the file, if they do not count up from 0."""
        fields: dict[str, Any] = {}
        if self.site:
            texts = _texts(table[self.site])
            names = sorted(set(texts.tolist()), key=natural)
            number = {name: i for i, name in enumerate(names)}
            fields["sites"] = np.array([number[text] for text in texts.tolist()], dtype=np.int64)
            fields["site_names"] = tuple(names)
        if self.group:
            fields["groups"] = np.unique(_texts(table[self.group]), return_inverse=True)[1].astype(np.int64)
        if self.time:
            fields["times"] = _times(path, self.time, table[self.time], numbers)
        return fields


ONLY_FEATURES = RowColumns()


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key: site 2 before site 10."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _texts(values: Any) -> Array:
    return np.array([name_of(value).strip() for value in np.asarray(values)], dtype=str)


def _times(path: Path, name: str, values: Any, numbers: Array | None) -> Array:
    """Numbers unchanged; dates as nanoseconds."""
    import pandas

    column = pandas.Series(np.asarray(values))
    if not pandas.api.types.is_datetime64_any_dtype(column):  # an untidy table has texts
        measured = pandas.to_numeric(column, errors="coerce")
        column = measured if measured.notna().all() else column
    if pandas.api.types.is_numeric_dtype(column):
        times = column.to_numpy()
        wrong = ~np.isfinite(times)
    else:
        dates = pandas.to_datetime(column, format="ISO8601", errors="coerce", utc=True)
        times, wrong = dates.to_numpy("datetime64[ns]").astype(np.int64), dates.isna().to_numpy()
    if wrong.any():
        raise DataError(
            f"{path}: '{name}' (data.time) has no date or number {which_rows(wrong, numbers)}: write dates as "
            "2024-05-31 or 2024-05-31T13:45, or drop these rows"
        )
    return np.asarray(times)
