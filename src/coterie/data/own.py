"""The user's own data: a table (.csv, .parquet), arrays (.npz), or a folder of images.

Class names are the sorted distinct labels. Features are standardised, each over the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.dataset import Array, Column, Dataset, read_arrays
from coterie.data.images import image_files, stack_images
from coterie.data.scaling import Scaling
from coterie.errors import DataError

_MOST_CATEGORIES = 1000  # a text column with more distinct values is a name or a number, no category
_CHANNELS = (1, 3)


def looks_like_path(text: str) -> bool:
    """Whether `text` means a file or folder rather than the name of a dataset."""
    path = Path(text).expanduser()
    return path.exists() or path.suffix in _READERS or len(path.parts) > 1


def check_path(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: there is no such file or folder")


def load_own(path: Path, label: str, labels: Sequence[str] = ()) -> Dataset:
    """Read the user's file or folder; `labels` are the classes where others have some that this file may lack.

    Raises DataError naming what is wrong with it.
    """
    check_path(path)
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


def _load_folder(folder: Path, least: int) -> Dataset:
    files, labels, classes = image_files(folder)
    if len(classes) < least:
        raise DataError(f"{folder}: only one class folder ({classes[0]}); at least two are needed")
    return Dataset(folder.resolve().name, stack_images(files), np.asarray(labels, dtype=np.int64), classes)


def _load_table(path: Path, label: str) -> Dataset:
    return _from_table(path, read_table(path), label)


def read_table(path: Path, texts: Collection[str] = ()) -> Any:
    """A pandas table; the columns named in `texts` are texts even where they look like numbers."""
    import pandas

    try:
        if path.suffix == ".parquet":
            return pandas.read_parquet(path)
        return pandas.read_csv(path, dtype=dict.fromkeys(texts, str))
    except (OSError, ValueError) as error:  # pandas' parser errors and pyarrow's are ValueErrors
        raise DataError(f"{path}: cannot be read as a table ({_first_line(error)})") from error


def _from_table(path: Path, table: Any, label: str) -> Dataset:
    """A dataset out of a pandas table."""
    if label not in table.columns:
        names = ", ".join(map(str, table.columns))
        raise DataError(f"{path}: has no label column '{label}' (data.label); its columns: {names}")
    if len(table) == 0 or len(table.columns) < 2:
        raise DataError(f"{path}: needs at least one row, and a column beside '{label}'")
    refuse_missing(path, table)
    y, classes = _encode_labels(table[label].to_numpy())
    if len(classes) > max(2, len(table) // 2):
        raise DataError(f"{path}: '{label}' has {len(classes)} distinct values in {len(table)} rows: no classes")
    features = [name for name in table.columns if name != label]
    columns = tuple(_describe_column(path, table[name]) for name in features)
    raw = np.concatenate([encode(table[name], c) for name, c in zip(features, columns, strict=True)], axis=1)
    scaling = Scaling.standard(raw)
    return Dataset(path.stem, scaling.of_features(raw), y, classes, columns, scaling)


def refuse_missing(path: Path, table: Any) -> None:
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


def _describe_column(path: Path, column: Any) -> Column:
    """A column of numbers, or of texts and which ones."""
    from pandas.api import types

    if types.is_numeric_dtype(column):  # includes booleans
        return Column(str(column.name))
    if not (types.is_string_dtype(column) or types.is_object_dtype(column) or _is_categorical(column)):
        raise DataError(f"{path}: column '{column.name}' holds {column.dtype}; make it numbers or texts")
    values = np.unique(_texts(column))
    if len(values) > _MOST_CATEGORIES:
        raise DataError(f"{path}: column '{column.name}' has {len(values)} distinct texts; drop or group them")
    return Column(str(column.name), tuple(values.tolist()))


def encode(values: Any, column: Column) -> Array:
    """A pandas column's features, (N, F): numbers as they are, texts as one 0/1 feature for each that there is."""
    if not column.texts:
        numbers: Array = values.to_numpy(dtype=np.float64)[:, None]
        return numbers
    indicators: Array = _texts(values)[:, None] == np.array(column.texts)[None]
    return indicators.astype(np.float64)


def _texts(column: Any) -> Array:
    texts: Array = column.astype(str).to_numpy(dtype=str)
    return texts


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
    raw = raw_rows(path, x)
    if raw.ndim == 4:
        return Dataset(path.stem, raw, numbers, classes)
    scaling = Scaling.standard(raw)
    return Dataset(path.stem, scaling.of_features(raw), numbers, classes, scaling=scaling)


def raw_rows(path: Path, x: Array) -> Array:
    """Features as float64 (N, F), or images as uint8 (N, C, H, W)."""
    if x.ndim == 2 and x.dtype.kind in "iufb":
        if not np.isfinite(x).all():
            raise DataError(f"{path}: x has missing or infinite values in {_rows_not_finite(x)} rows")
        return x.astype(np.float64)
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
    ".csv": _load_table,
    ".parquet": _load_table,
    ".npz": _load_npz,
}
