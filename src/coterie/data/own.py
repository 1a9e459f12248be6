"""Reads the user's own data as raw values: a table (.csv, .parquet), arrays (.npz), or a folder of images."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.data import tables
from coterie.data.dataset import Array, Dataset, read_arrays
from coterie.data.images import first_side, image_files, stack_images
from coterie.data.labels import encode_labels
from coterie.data.tables import Categories

_SUFFIXES = (*tables.SUFFIXES, ".npz")
_CHANNELS = (1, 3)
_LARGEST_INTEGER = 2**24  # float32 represents all integers up to this exactly


def looks_like_path(text: str) -> bool:
    """Whether `text` refers to a file or folder rather than a named dataset."""
    path = Path(text).expanduser()
    return path.exists() or path.suffix in _SUFFIXES or len(path.parts) > 1


def check_path(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")


def load_own(path: Path, label: str, labels: Sequence[str] = (), categories: Categories | None = None) -> Dataset:
    """Read the user's file or folder; `labels` lists all classes if this file may lack some that other peers have.

    Raises DataError that names the problem.
    """
    check_path(path)
    if categories and path.suffix not in tables.SUFFIXES:
        raise DataError(f"data.categories only applies to tables, and {path} is not a table: remove it")
    if path.is_dir():
        return _load_folder(path, labels)
    if path.suffix not in _SUFFIXES:
        valid = ", ".join(_SUFFIXES)
        raise DataError(f"{path}: cannot read '{path.suffix}' files; give a folder of images or one of: {valid}")
    if path.suffix == ".npz":
        dataset = _load_npz(path, labels)
    else:
        dataset = tables.load_table(path, label, labels, categories or {})
    if len(dataset.classes) < 2:
        raise DataError(f"{path}: all rows have the same label; at least two classes are needed")
    return dataset


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


def _load_npz(path: Path, labels: Sequence[str]) -> Dataset:
    arrays = read_arrays(path)
    if missing := {"x", "y"} - arrays.keys():
        held = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(f"{path}: has no array '{min(missing)}'; it needs x and y, but has {held}")
    x, y = arrays["x"], arrays["y"]
    if y.ndim != 1 or x.ndim < 1 or len(x) != len(y) or len(y) == 0:
        raise DataError(f"{path}: x has shape {x.shape}, y {y.shape}; y needs one label for every row of x")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"{path}: y has {int((~np.isfinite(y)).sum())} missing or infinite labels")
    numbers, classes = encode_labels(path, "y", y, labels)
    return Dataset(path.stem, _rows_of(path, x), numbers, classes)


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
