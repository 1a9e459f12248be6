"""Read samples to predict, as raw values: a table, arrays, an image or a folder of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import FEATURES, INTEGERS, Array, FeatureColumn, read_arrays
from coterie.data.images import SUFFIXES, read_image
from coterie.data.labels import which_rows
from coterie.data.own import as_images, number_rows, refuse_large_integers, refuse_unknown_ids
from coterie.data.preparation import Preparation, suspicious_features
from coterie.data.tables import SUFFIXES as TABLES
from coterie.data.tables import encode, read_table, refuse_missing
from coterie.data.untidy import read_by_schema
from coterie.running.model_manifest import Manifest

MOST_NAMED = 5  # columns, in an error


@dataclass(frozen=True)
class Samples:
    raw: Array  # uint8 images (N, C, H, W), or other numbers (N, ...)
    names: list[str]  # of each: its row, counted from 0, or its file
    heading: str
    warnings: tuple[str, ...] = ()  # what is unusual about them


def read_samples(path: Path, manifest: Manifest) -> Samples:
    """Read a file or folder. Raises DataError if the samples do not fit the model."""
    if not path.exists():
        raise DataError(f"there is no file or folder {path}")
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in SUFFIXES:
        return _images(path, manifest)
    if suffix in TABLES and manifest.preparation:
        return _by_schema(path, manifest, manifest.preparation)
    if suffix in TABLES:
        return _rows(path, _table(path, manifest), manifest)
    if suffix == ".npz":
        return _rows(path, _array(path, manifest), manifest)
    raise DataError(f"{path}: give a .csv, .parquet or .npz file, a .png or .jpg image, or a folder of images")


def takes(manifest: Manifest) -> str:
    """The model's input, in words."""
    if not manifest.are_images:
        numbers = "whole numbers" if manifest.kind == INTEGERS else "features"
        return f"rows of {'x'.join(map(str, manifest.shape))} {numbers}"
    channels, height, width = manifest.shape
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
    return f"{colours} images of {width}x{height} pixels"


def _rows(path: Path, raw: Array, manifest: Manifest) -> Samples:
    if raw.shape[1:] != manifest.shape:
        raise DataError(f"{path}: samples of shape {raw.shape[1:]}, but the model takes {takes(manifest)}")
    if not len(raw):
        raise DataError(f"{path}: has no rows")
    if manifest.kind == INTEGERS:
        _check_whole(path, raw)
        vocabulary = manifest.model.get("vocabulary", 0)
        if isinstance(vocabulary, int) and vocabulary:
            refuse_unknown_ids(path, raw, vocabulary)
    return Samples(raw, [str(row) for row in range(len(raw))], "row", tuple(_unusual(raw, manifest)))


def _unusual(raw: Array, manifest: Manifest) -> Iterator[str]:
    """A warning for each feature whose values are far beyond those that the model was trained on."""
    if manifest.kind != FEATURES or len(manifest.shape) > 1:
        return
    names = manifest.features or tuple(f"number {i}" for i in range(manifest.shape[0]))
    for name, rows in suspicious_features(names, raw, manifest.scaling).items():
        if manifest.features and name not in manifest.measured:
            continue
        yield (
            f"'{name}' is far beyond the values that the model was trained on in {rows} of {len(raw)} rows: is it in "
            "other units?"
        )


def _array(path: Path, manifest: Manifest) -> Array:
    arrays = read_arrays(path)
    if "x" not in arrays:
        raise DataError(f"{path}: has no array 'x'; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    if not manifest.are_images:
        return number_rows(path, arrays["x"])
    images = as_images(arrays["x"])
    if images is None:
        has = f"{arrays['x'].dtype} {arrays['x'].shape}"
        raise DataError(f"{path}: x is {has}, but the model takes {takes(manifest)}: give them as uint8")
    return images


def _check_whole(path: Path, raw: Array) -> None:
    broken = (raw != np.floor(raw)).any(axis=tuple(range(1, raw.ndim)))
    if broken.any():
        raise DataError(f"{path}: the model takes whole numbers, but there are others {which_rows(broken)}")
    refuse_large_integers(path, raw)


# -- tables ------------------------------------------------------------------------------------


def _by_schema(path: Path, manifest: Manifest, preparation: Preparation) -> Samples:
    """Rows of an untidy table, by the schema that the model was trained with."""
    coded = read_by_schema(path, preparation.schema, labelled=False)
    if coded.reading.faults:
        raise DataError(f"{path}: {coded.reading.faults[0]}: correct the cells, or leave them empty")
    samples = _rows(path, preparation.features(coded.x), manifest)
    unlikely = (
        f"'{name}' is outside of its plausible range in {rows} of {len(coded.x)} rows, which count as missing: is it "
        "in other units?"
        for name, rows in coded.reading.unlikely.items()
    )
    rows = [str(number) for number in coded.kept.tolist()]
    return replace(samples, names=rows, warnings=(*unlikely, *samples.warnings))


def _table(path: Path, manifest: Manifest) -> Array:
    if len(manifest.shape) > 1:
        also = ", or images" if manifest.are_images else ""
        raise DataError(f"{path}: a table, but the model takes {takes(manifest)}: give a .npz file{also}")
    table = read_table(path, [c.name for c in manifest.columns if c.texts])
    table.columns = [str(name) for name in table.columns]
    if not len(table):
        raise DataError(f"{path}: has no rows")
    named = {column.name for column in manifest.columns}
    apart = [name for name in (manifest.label, *manifest.aside) if name not in named]
    table = table.drop(columns=apart, errors="ignore")
    columns = manifest.columns or tuple(FeatureColumn(name) for name in table.columns)
    _check_columns(path, list(table.columns), manifest)
    refuse_missing(path, table)
    return np.concatenate([encode(path, table[column.name], column) for column in columns], axis=1)


def _check_columns(path: Path, given: list[str], manifest: Manifest) -> None:
    """Check columns by name if the model knows their names; otherwise only their number, as they are used in order."""
    if not manifest.columns:
        if len(given) != manifest.shape[0]:
            raise DataError(f"{path}: has {len(given)} columns, but the model takes {takes(manifest)}, in order")
        return
    wanted = [column.name for column in manifest.columns]
    missing, extra = [n for n in wanted if n not in given], [n for n in given if n not in wanted]
    faults = [f"{verb} {_listed(names)}" for verb, names in (("lacks", missing), ("also has", extra)) if names]
    if faults:
        noun = "column" if len(wanted) == 1 else "columns"
        raise DataError(
            f"{path} {', and '.join(faults)}: it must have exactly the {noun} that the model was trained on"
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(f"'{name}'" for name in names[:MOST_NAMED]) + more


# -- images ------------------------------------------------------------------------------------


def _images(path: Path, manifest: Manifest) -> Samples:
    if not manifest.are_images:
        raise DataError(f"{path}: images, but the model takes {takes(manifest)}: give a .csv or .npz file")
    files = _image_files(path) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: holds no .png or .jpg files")
    raw = np.empty((len(files), *manifest.shape), dtype=np.uint8)
    for row, file in enumerate(files):
        pixels = read_image(file, manifest.shape[0])  # colours become grey, and grey becomes three equal channels
        if pixels.shape != manifest.shape:
            has = f"{pixels.shape[2]}x{pixels.shape[1]}"
            raise DataError(f"{file}: {has} pixels, but the model takes {takes(manifest)}; resize it")
        raw[row] = pixels
    names = [file.relative_to(path).as_posix() if path.is_dir() else file.name for file in files]
    return Samples(raw, names, "file")


def _image_files(folder: Path) -> list[Path]:
    """The images in the folder and its subfolders (which may be classes), without hidden ones."""
    images = (f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())
    return sorted(f for f in images if not any(part[0] == "." for part in f.relative_to(folder).parts))
