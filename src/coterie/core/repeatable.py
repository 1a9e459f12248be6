"""Whether torch's products repeat to the bit on this machine: MKL's mode, which `coterie/__init__.py` asks for."""

from __future__ import annotations

import ctypes
import functools
import warnings
from pathlib import Path

MKL_CHOOSES_BY_ALIGNMENT = 1  # MKL_CBWR_BRANCH_OFF of mkl_types.h
_OF_THE_WHOLE_MODE = -1  # MKL_CBWR_ALL


@functools.cache
def mkl_mode() -> int | None:
    """The mode that MKL computes in, in this process; None where torch has no MKL that tells."""
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        mode: int = ctypes.CDLL(str(library)).mkl_serv_cbwr_get(_OF_THE_WHOLE_MODE)
    except (OSError, AttributeError):
        return None
    return mode


def warn_if_not() -> None:
    """A script that computes with torch before it imports coterie has set MKL's mode for good."""
    if mkl_mode() == MKL_CHOOSES_BY_ALIGNMENT:
        warnings.warn(
            "torch computed before coterie was imported, so this run may not repeat to the last bit: import coterie "
            "first, or set MKL_CBWR=AUTO in the environment",
            RuntimeWarning,
            stacklevel=3,
        )
