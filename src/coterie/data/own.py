"""The user's own data: a table (.csv, .parquet), arrays (.npz), or a folder of images.

Class names are the sorted distinct labels. Features are standardised, each over the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.dataset import Array, Dataset, read_arrays
from coterie.data.images import image_files, stack_images
from coterie.errors import DataError

_MOST_CATEGORIES = 1000  # a text column with more distinct values is a name or a number, no category
_CHANNELS = (1, 3)


def looks_like_path(text: str) -> bool:
    """Whether `text` means a file or folder rather than the name of a dataset."""
    path = Path(text).expanduser()
    return path.exists() or path.suffix in _READERS or len(path.parts) > 1


def load_own(path: Path, label: str, labels: Sequence[str] = ()) -> Dataset:
    """Read the user's file or folder; `labels` are the classes where others have some that this file may lack.

    Raises DataError naming what is wrong with it.
    """
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")
    if path.is_dir():
        return _with_labels(_load_folder(path, 1 if labels else 2), path, labels)
    if path.suffix not in _READERS:
        valid = ", ".join(_READERS)
        raise DataError(f"{path}: cannot read '{path.suffix}' files; give a folder of images or one of: {valid}")
    dataset = _READERS[path.suffix](path, label)
    if len(dataset.classes) < 2 and not labels:
        raise DataError(f"{path}: all rows have the same label; at least two classes are needed")
    return _with_labels(dataset, path, labels)


def _with_labels(dataset: Dataset, path: Path, labels: Sequence[str]) -> Dataset:
    """The same rows, their classes numbered as in `labels`."""
    if not labels:
        return dataset
    strange = [name for name in dataset.classes if name not in labels]
    if strange:
        raise DataError(f"{path}: has the label '{strange[0]}', which is not one of data.labels: {', '.join(labels)}")
    place = np.array([labels.index(name) for name in dataset.classes], dtype=np.int64)
    return replace(dataset, y=place[dataset.y], classes=tuple(labels))


def standardise(features: Array) -> Array:
    """Each column at mean 0 and standard deviation 1, as float32; a constant column becomes 0."""
    values = features.astype(np.float64)
    spread = values.std(axis=0)
    scaled: Array = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled.astype(np.float32)


def _load_folder(folder: Path, least: int) -> Dataset:
    files, labels, classes = image_files(folder)
    if len(classes) < least:
        raise DataError(f"{folder}: only one class folder ({classes[0]}); at least two are needed")
    return Dataset(folder.resolve().name, stack_images(files), np.asarray(labels, dtype=np.int64), classes)


def _load_csv(path: Path, label: str) -> Dataset:
    import pandas

    return _from_table(path, _read_table(path, pandas.read_csv), label)


def _load_parquet(path: Path, label: str) -> Dataset:
    import pandas

    return _from_table(path, _read_table(path, pandas.read_parquet), label)


def _read_table(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except (OSError, ValueError) as error:  # pandas' parser errors and pyarrow's are ValueErrors
        raise DataError(f"{path}: cannot be read as a table ({_first_line(error)})") from error


def _from_table(path: Path, table: Any, label: str) -> Dataset:
    """A dataset out of a pandas table."""
    if label not in table.columns:
        names = ", ".join(map(str, table.columns))
        raise DataError(f"{path}: has no label column '{label}' (data.label); its columns: {names}")
    if len(table) == 0 or len(table.columns) < 2:
        raise DataError(f"{path}: needs at least one row, and a column beside '{label}'")
    _refuse_missing(path, table)
    y, classes = _encode_labels(table[label].to_numpy())
    if len(classes) > max(2, len(table) // 2):
        raise DataError(f"{path}: '{label}' has {len(classes)} distinct values in {len(table)} rows: no classes")
    columns = [_encode_column(path, table[name]) for name in table.columns if name != label]
    features = tuple(name for _, names in columns for name in names)
    return Dataset(path.stem, standardise(np.concatenate([x for x, _ in columns], axis=1)), y, classes, features)


def _refuse_missing(path: Path, table: Any) -> None:
    """Values that are missing or infinite are the user's to decide on."""
    missing = table.isna().sum()
    numbers = table.select_dtypes("number")
    infinite = np.isinf(numbers.to_numpy(dtype=np.float64, na_value=0.0)).sum(axis=0)
    for counts in (missing, dict(zip(numbers.columns, infinite, strict=True))):
        for name, count in counts.items():
            if count:
                raise DataError(
                    f"{path}: column '{name}' has missing or infinite values in {count} rows; fill them in or drop them"
                )


def _encode_column(path: Path, column: Any) -> tuple[Array, list[str]]:
    """A column of numbers as it is, a column of texts as one 0/1 column per distinct text: (N, F), and their names."""
    from pandas.api import types

    if types.is_numeric_dtype(column):  # includes booleans
        return column.to_numpy(dtype=np.float64)[:, None], [str(column.name)]
    if not (types.is_string_dtype(column) or types.is_object_dtype(column) or _is_categorical(column)):
        raise DataError(f"{path}: column '{column.name}' holds {column.dtype}; make it numbers or texts")
    texts = column.astype(str).to_numpy(dtype=str)
    values = np.unique(texts)
    if len(values) > _MOST_CATEGORIES:
        raise DataError(f"{path}: column '{column.name}' has {len(values)} distinct texts; drop or group them")
    indicators: Array = texts[:, None] == values[None]
    return indicators.astype(np.float64), [f"{column.name} = {value}" for value in values]


def _is_categorical(column: Any) -> bool:
    return str(column.dtype) == "category"


def _encode_labels(labels: Array) -> tuple[Array, tuple[str, ...]]:
    """Labels of any type as class numbers and names; numbers sort as numbers, all else as text."""
    if labels.dtype.kind not in "iufb":
        labels = np.asarray([str(label) for label in labels])
    values, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64), tuple(str(value) for value in values)


def _load_npz(path: Path, label: str) -> Dataset:  # noqa: ARG001  (arrays have no label column)
    arrays = read_arrays(path)
    if missing := {"x", "y"} - arrays.keys():
        held = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(f"{path}: has no array '{min(missing)}'; it needs x and y, and holds {held}")
    x, y = arrays["x"], arrays["y"]
    if y.ndim != 1 or len(x) != len(y) or len(y) == 0:
        raise DataError(f"{path}: x has shape {x.shape}, y {y.shape}; y needs one label for every row of x")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"{path}: y has {int((~np.isfinite(y)).sum())} missing or infinite labels")
    numbers, classes = _encode_labels(y)
    return Dataset(path.stem, _as_rows(path, x), numbers, classes)


def _as_rows(path: Path, x: Array) -> Array:
    """Features or images in the form of `Dataset.x`."""
    if x.ndim == 2 and x.dtype.kind in "iufb":
        if not np.isfinite(x).all():
            raise DataError(f"{path}: x has missing or infinite values in {_rows_not_finite(x)} rows")
        return standardise(x)
    if x.dtype == np.uint8 and x.ndim == 3:
        return x[:, None]
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[1] in _CHANNELS:
        return x
    if x.dtype == np.uint8 and x.ndim == 4 and x.shape[3] in _CHANNELS:
        return np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    raise DataError(
        f"{path}: x is {x.dtype} {x.shape}; give numbers (rows, features) "
        "or uint8 images (rows, channels, height, width)"
    )


def _rows_not_finite(x: Array) -> int:
    return int((~np.isfinite(x)).any(axis=1).sum())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


_READERS: dict[str, Callable[[Path, str], Dataset]] = {
    ".csv": _load_csv,
    ".parquet": _load_parquet,
    ".npz": _load_npz,
}
