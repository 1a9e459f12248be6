"""Reads the user's own data as raw values: a table (.csv, .parquet), arrays (.npz), or a folder of images."""

from __future__ import annotations

import glob
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.core.task import AUTO, REGRESSION
from coterie.data import tables, untidy
from coterie.data.dataset import Array, Dataset, read_arrays
from coterie.data.images import first_side, image_files, stack_images
from coterie.data.labels import read_labels_as, which_rows
from coterie.data.row_columns import ONLY_FEATURES, RowColumns
from coterie.data.schema import Schema
from coterie.data.tables import Categories

SUFFIXES = (*tables.SUFFIXES, ".npz")
_CHANNELS = (1, 3)
_LARGEST_INTEGER = 2**24  # float32 represents all integers up to this exactly


def looks_like_path(text: str) -> bool:
    """Whether `text` refers to a file or folder rather than a named dataset."""
    path = Path(text).expanduser()
    return path.exists() or path.suffix in SUFFIXES or len(path.parts) > 1


def check_path(path: Path) -> None:
    if not path.exists():
        hint = "; a pattern needs data.partition = files" if glob.has_magic(str(path)) else ""
        raise DataError(f"{path}: there is no such file or folder{hint}")


def load_own(
    path: Path,
    label: str,
    labels: Sequence[str] = (),
    categories: Categories | None = None,
    schema: Schema | None = None,
    *,
    rows: RowColumns = ONLY_FEATURES,
    task: str = AUTO,
) -> Dataset:
    """Read the user's file or folder; `labels` lists all classes if this file may lack some that other peers have, and
    `rows` names the columns that describe rows. A schema says how a table is read, including label and categories.
    `task` is what the label column is for.

    Raises DataError that names the problem.
    """
    check_path(path)
    if schema:
        if task not in (AUTO, schema.label.task):
            raise DataError(f"data.task = {task}, but data.schema declares a label for {schema.label.task}: remove one")
        return _load_by_schema(path, schema, rows)
    if categories and path.suffix not in tables.SUFFIXES:
        raise DataError(f"data.categories only applies to tables, and {path} is not a table: remove it")
    if path.is_dir():
        if rows.by_key:
            raise DataError(f"{min(rows.by_key)} only applies to tables and .npz files, not to the folder {path}")
        if task == REGRESSION:
            raise DataError(f"data.task = regression needs labels that are numbers, but {path} has folders of classes")
        return _load_folder(path, labels)
    if path.suffix not in SUFFIXES:
        valid = ", ".join(SUFFIXES)
        raise DataError(f"{path}: cannot read '{path.suffix}' files; give a folder of images or one of: {valid}")
    if path.suffix == ".npz":
        dataset = _load_npz(path, labels, rows, task)
    else:
        dataset = tables.load_table(path, label, labels, categories or {}, rows, task)
    if task == AUTO and dataset.task == REGRESSION:
        guess = f"{path.name}: the label has many different numbers with fractions: a regression (data.task)"
        dataset = replace(dataset, remarks=(*dataset.remarks, guess))
    if len(dataset.classes) == 1:
        raise DataError(f"{path}: all rows have the same label; at least two classes are needed")
    return dataset


def _load_by_schema(path: Path, schema: Schema, rows: RowColumns) -> Dataset:
    if path.suffix not in tables.SUFFIXES:
        raise DataError(f"data.schema only applies to tables, and {path} is not a .csv or .parquet file: remove it")
    coded = untidy.read_by_schema(path, schema, rows=rows)
    if coded.reading.faults:
        more = f" (and {len(coded.reading.faults) - 1} more)" if len(coded.reading.faults) > 1 else ""
        raise DataError(
            f"{path}: {coded.reading.faults[0]}{more}. `coterie data check {path} --schema FILE` lists all: correct "
            "the cells, or declare their spelling in the schema"
        )
    if not len(coded.x):
        raise DataError(f"{path}: has no rows with a label")
    assert coded.y is not None  # it was asked for
    return Dataset(
        path.stem, coded.x, coded.y, schema.label.classes, schema=schema, remarks=_remarks(path, coded.reading),
        row_ids=coded.kept, **coded.row_fields,
    )  # fmt: skip


def _remarks(path: Path, reading: untidy.Reading) -> tuple[str, ...]:
    return tuple(f"{path.name}: {line}" for line in reading.lines())


def image_side(path: Path) -> int | None:
    """The shorter side of the user's images, in pixels, without reading them all; None if there are no images.

    Also None if the file cannot be read: loading it raises the error.
    """
    try:
        if path.is_dir():
            return first_side(path)
        images = as_images(_without_rows(path)) if path.suffix == ".npz" else None
    except (OSError, ValueError, SyntaxError, KeyError, zipfile.BadZipFile):
        return None
    return None if images is None else min(images.shape[2:])


def _without_rows(path: Path) -> Array:
    """The array x of an .npz file without its rows: only type and shape, read from the header."""
    with zipfile.ZipFile(path) as archive, archive.open("x.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    return np.empty((0, *shape[1:]), dtype)


def _load_folder(folder: Path, labels: Sequence[str]) -> Dataset:
    files, numbers, classes = image_files(folder)
    if len(classes) < 2 and not labels:
        raise DataError(f"{folder}: only one class folder ({classes[0]}); at least two are needed")
    dataset = Dataset(folder.resolve().name, stack_images(files), np.asarray(numbers, dtype=np.int64), classes)
    if not labels:
        return dataset
    unlisted = [name for name in classes if name not in labels]
    if unlisted:
        raise DataError(f"{folder}: the folder '{unlisted[0]}' is not in data.labels: {', '.join(labels)}")
    place = np.array([labels.index(name) for name in classes], dtype=np.int64)
    return replace(dataset, y=place[dataset.y], classes=tuple(labels))


def read_labels(path: Path, label: str) -> Array:
    """The labels of a file or folder as they are, without missing ones: `load_own` reports those."""
    check_path(path)
    if path.is_dir():
        _, numbers, classes = image_files(path)
        return np.array(classes)[numbers]
    if path.suffix == ".npz":
        return _arrays(path, ())["y"].ravel()
    labels: Array = tables.read_column(path, label, "data.label").dropna().to_numpy()
    return labels


def _arrays(path: Path, others: Sequence[str]) -> dict[str, Array]:
    """The arrays of an .npz file, with x, y and these others."""
    arrays = read_arrays(path)
    needed = ["x", "y", *others]
    if missing := [name for name in needed if name not in arrays]:
        held = ", ".join(sorted(arrays)) or "nothing"
        listed = f"{', '.join(needed[:-1])} and {needed[-1]}"
        raise DataError(f"{path}: has no array '{missing[0]}'; it needs {listed}, but has {held}")
    for name in others:
        if arrays[name].shape != arrays["y"].shape or name in ("x", "y"):
            raise DataError(f"{path}: the array '{name}' has shape {arrays[name].shape}; it needs one value per row")
    return arrays


def _load_npz(path: Path, labels: Sequence[str], rows: RowColumns, task: str) -> Dataset:
    arrays = _arrays(path, list(rows.by_key.values()))
    x, y = arrays["x"], arrays["y"]
    if y.ndim != 1 or x.ndim < 1 or len(x) != len(y) or len(y) == 0:
        raise DataError(f"{path}: x has shape {x.shape}, y {y.shape}; y needs one label for every row of x")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"{path}: y has {int((~np.isfinite(y)).sum())} missing or infinite labels")
    numbers, classes = read_labels_as(task, path, "y", y, labels)
    return Dataset(path.stem, _rows_of(path, x), numbers, classes, **rows.read(path, arrays))


def _rows_of(path: Path, x: Array) -> Array:
    """Byte arrays of an image shape are images; everything else is numbers."""
    images = as_images(x)
    return number_rows(path, x) if images is None else images


def as_images(x: Array) -> Array | None:
    """Grey or colour images as uint8 (N, C, H, W); None if `x` is not images."""
    if x.dtype != np.uint8 or 0 in x.shape[1:]:
        return None
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4 and x.shape[1] in _CHANNELS:
        return x
    if x.ndim == 4 and x.shape[3] in _CHANNELS:
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    return None


def number_rows(path: Path, x: Array) -> Array:
    """Numbers (N, ...) of any shape, unchanged; bytes become wider integers, as uint8 is reserved for images."""
    if x.dtype.kind not in "iufb":
        raise DataError(f"{path}: x holds {x.dtype}; give numbers (rows, ...), or images as uint8")
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise DataError(f"{path}: x has shape {x.shape}; expected is (rows, ...), with at least one number per row")
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        rows = int((~np.isfinite(x)).any(axis=tuple(range(1, x.ndim))).sum())
        raise DataError(f"{path}: x has missing or infinite values in {rows} rows")
    if x.dtype.kind == "b":
        return x.astype(np.float32)
    return x.astype(np.int16) if x.dtype == np.uint8 else x


def refuse_large_integers(where: object, x: Array) -> None:
    """Raise DataError for integers that float32, which models take, cannot represent exactly."""
    if max(int(x.max()), -int(x.min())) > _LARGEST_INTEGER:
        raise DataError(
            f"{where}: x has integers beyond {_LARGEST_INTEGER:,}, which the models' float32 cannot represent "
            "exactly: renumber them from 0; or, if they are measurements, train with data.scale = 'standard'"
        )


def refuse_unknown_ids(where: object, x: Array, vocabulary: int) -> None:
    """Raise DataError for token ids that a model's embedding does not have."""
    outside = np.asarray(((x < 0) | (x >= vocabulary)).reshape(len(x), -1).any(axis=1))
    if outside.any():
        raise DataError(
            f"{where}: has token ids outside 0 to {vocabulary - 1} {which_rows(outside)}: set model.vocabulary to the "
            "number of ids at all peers, or give unknown words an id of their own"
        )
