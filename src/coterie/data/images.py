"""Reads folders of image files: FOLDER/CLASS/*.png."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Array

SUFFIXES = {".png", ".jpg", ".jpeg"}
_GREY_MODES = {"1", "L", "LA", "I;16"}


def image_files(folder: Path) -> tuple[list[Path], list[int], tuple[str, ...]]:
    """The image files below `folder` in sorted order, the class number of each, and the class names."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    files: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(names):
        images = sorted(file for file in (folder / name).iterdir() if file.suffix.lower() in SUFFIXES)
        if not images:
            raise DataError(f"{folder / name}: holds no .png or .jpg files; every subfolder must be a class")
        files += images
        labels += [number] * len(images)
    if not files:
        raise DataError(f"{folder}: expected a subfolder of .png or .jpg files for every class")
    return files, labels, tuple(names)


def first_side(folder: Path) -> int | None:
    """The shorter side, in pixels, of an image below `folder` (all have the same size); None if there are none."""
    from PIL import Image

    file = next((file for file in folder.glob("[!.]*/*") if file.suffix.lower() in SUFFIXES), None)
    if file is None:
        return None
    with Image.open(file) as picture:
        return min(picture.size)


def stack_images(files: list[Path], channels: int | None = None) -> Array:
    """All images as uint8 (N, C, H, W), with so many `channels`; None: grey if all images are grey, else colour."""
    if channels is None:
        channels = 1 if all(_is_grey(file) for file in files) else 3
    first = read_image(files[0], channels)
    # Filled in place: stacking a list of arrays would need twice the memory of a large dataset.
    stacked = np.empty((len(files), *first.shape), dtype=np.uint8)
    for row, file in enumerate(files):
        pixels = read_image(file, channels)
        if pixels.shape != first.shape:
            raise DataError(
                f"{file}: {_size(pixels)} pixels, but {files[0].name} has {_size(first)}; "
                "all images must have the same size"
            )
        stacked[row] = pixels
    return stacked


def _size(pixels: Array) -> str:
    return f"{pixels.shape[2]}x{pixels.shape[1]}"


def _is_grey(file: Path) -> bool:
    from PIL import Image

    try:
        with Image.open(file) as picture:
            return picture.mode in _GREY_MODES
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{file}: not a readable image ({error})") from error


def read_image(file: Path, channels: int) -> Array:
    """One image as (C, H, W)."""
    from PIL import Image

    try:
        with Image.open(file) as picture:
            pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{file}: not a readable image ({error})") from error
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
