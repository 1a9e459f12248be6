"""Writes a named dataset as CSV files, one for each of its sites: as the sites of a circle would have them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.core.files import write_whole
from coterie.data.catalog import DOWNLOADED, OF_NUMBERS, file_of
from coterie.data.dataset import Array, Dataset, data_home, read_arrays
from coterie.data.loading import load


def write_tables(name: str, folder: Path, home: Path | None = None) -> list[Path]:
    """The files, with a header, the label in the last column, and empty cells where a value is missing.

    Raises DataError if the dataset is no table, or if the folder cannot be made or has files already.
    """
    dataset = load(name, home=home)
    if not dataset.columns:
        raise DataError(f"{name} is no table with named columns: --tables is for {', '.join(_tables())}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # such as a file of that name
        raise DataError(f"{folder} cannot be made a folder ({error.strerror}): choose another") from error
    if any(folder.iterdir()):
        raise DataError(f"{folder} is not empty: choose another folder")
    written = []
    for site, rows in _by_site(name, dataset, home).items():
        path = folder / f"{site}.csv"
        write_whole(path, "\n".join([_header(name, dataset), *(_line(dataset, row) for row in rows)]) + "\n")
        written.append(path)
    return written


def _tables() -> list[str]:
    return [*OF_NUMBERS, *(name for name, entry in DOWNLOADED.items() if entry.columns)]


def _by_site(name: str, dataset: Dataset, home: Path | None) -> dict[str, Array]:
    """The row numbers of each site, by the name of its file; without sites, those of all rows."""
    names = DOWNLOADED[name].site_names if name in DOWNLOADED else ()
    if not names:
        return {name: np.arange(len(dataset.y))}
    site = read_arrays(data_home(home) / f"{file_of(name)}.npz")["site"]
    return {re.sub(r"\W+", "-", text.lower()): np.flatnonzero(site == i) for i, text in enumerate(names)}


def _header(name: str, dataset: Dataset) -> str:
    label = DOWNLOADED[name].label_column if name in DOWNLOADED else "label"
    return ",".join([*(column.name for column in dataset.columns), label])


def _line(dataset: Dataset, row: int) -> str:
    label = dataset.classes[dataset.y[row]] if dataset.classes else f"{dataset.y[row]:.12g}"
    return ",".join([*("" if np.isnan(value) else f"{value:.12g}" for value in dataset.x[row]), label])
