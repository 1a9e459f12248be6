"""Which random views are made of images where the settings do not say: by what the images show, and by their size."""

from __future__ import annotations

from dataclasses import dataclass, fields

AUTO = "auto"  # of a setting: by dataset
SMALL = 20  # pixels; below, a blur of a tenth of the image would be a fraction of a pixel


@dataclass(frozen=True)
class Views:
    """How views of images are made: `crop` is a share of the area, all others are probabilities."""

    crop: float
    flip: float
    jitter: float
    grey: float
    blur: float

    def __str__(self) -> str:
        """As one would set them."""
        return " ".join(f"data.{name}={getattr(self, name):g}" for name in NAMES)


NAMES = tuple(field.name for field in fields(Views))
PHOTOGRAPHS = Views(crop=0.2, flip=0.5, jitter=0.8, grey=0.2, blur=0.5)
"""MAPL's Table 8."""


def usual_views(side: int, mirrored: bool = True) -> Views:
    """Those of images whose shorter side has so many pixels; `mirrored`: whether mirror images show the same thing."""
    crop, blur = (PHOTOGRAPHS.crop, PHOTOGRAPHS.blur) if side >= SMALL else (0.7, 0.0)
    return Views(crop, PHOTOGRAPHS.flip if mirrored else 0.0, PHOTOGRAPHS.jitter, PHOTOGRAPHS.grey, blur)
