"""Checks whether torch's matrix products are bit-reproducible: MKL's mode, which `coterie/__init__.py` sets."""

from __future__ import annotations

import ctypes
import functools
import warnings
from pathlib import Path

MKL_CHOOSES_BY_ALIGNMENT = 1  # MKL_CBWR_BRANCH_OFF of mkl_types.h
_OF_THE_WHOLE_MODE = -1  # MKL_CBWR_ALL


@functools.cache
def mkl_mode() -> int | None:
    """The reproducibility mode of MKL in this process; None if torch has no MKL that reports it."""
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        mode: int = ctypes.CDLL(str(library)).mkl_serv_cbwr_get(_OF_THE_WHOLE_MODE)
    except (OSError, AttributeError):
        return None
    return mode


def warn_if_not() -> None:
    """Warn if MKL is not reproducible: a script that uses torch before it imports coterie has fixed MKL's mode."""
    if mkl_mode() == MKL_CHOOSES_BY_ALIGNMENT:
        warnings.warn(
            "torch was used before coterie was imported, so this run may not be bit-reproducible: import coterie "
            "first, or set MKL_CBWR=AUTO in the environment",
            RuntimeWarning,
            stacklevel=3,
        )
