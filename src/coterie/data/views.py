"""The default random views of images, by their content and size."""

from __future__ import annotations

from dataclasses import dataclass, fields

AUTO = "auto"  # a setting's value: depends on the dataset
SMALL = 20  # pixels; in smaller images, a blur of a tenth of the image would be a fraction of a pixel


@dataclass(frozen=True)
class Views:
    """How image views are made: `crop` is a share of the area, all others are probabilities."""

    crop: float
    flip: float
    jitter: float
    grey: float
    blur: float

    def __str__(self) -> str:
        """As `key=value` settings."""
        return " ".join(f"data.{name}={getattr(self, name):g}" for name in NAMES)


NAMES = tuple(field.name for field in fields(Views))
PHOTOGRAPHS = Views(crop=0.2, flip=0.5, jitter=0.8, grey=0.2, blur=0.5)
"""MAPL's Table 8."""


def usual_views(side: int, mirrored: bool = True) -> Views:
    """The views of images whose shorter side has `side` pixels; `mirrored`: whether a mirror image means the same."""
    crop, blur = (PHOTOGRAPHS.crop, PHOTOGRAPHS.blur) if side >= SMALL else (0.7, 0.0)
    return Views(crop, PHOTOGRAPHS.flip if mirrored else 0.0, PHOTOGRAPHS.jitter, PHOTOGRAPHS.grey, blur)
