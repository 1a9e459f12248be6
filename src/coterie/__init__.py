"""Coterie: peer-to-peer personalized federated learning with heterogeneous models.

Names are imported when first used, so that `import coterie` is quick and starts nothing.
"""

from __future__ import annotations

import importlib
import os

# Before MKL computes anything: by default it chooses its kernels by how memory is aligned, so on some processors
# (AMD's) two equal runs would differ in their last bits. Every process that computes imports this first.
os.environ.setdefault("MKL_CBWR", "AUTO")

TYPE_CHECKING = False  # importing typing for it would take longer than all the rest
if TYPE_CHECKING:
    from typing import Any

    from coterie.architecture import Model
    from coterie.comparing.carrying_out import compare
    from coterie.errors import CoterieError
    from coterie.experiment import Experiment, load
    from coterie.frames import rounds, runs
    from coterie.methods.base import Method, parameter
    from coterie.models import Net, Output
    from coterie.peer import Peer
    from coterie.report.saving import figures
    from coterie.running import resume, run
    from coterie.shelf import Artifact
    from coterie.training import Batch, cross_entropy, proximal
    from coterie.weights import Layout, Weights, mean

_HOMES = {
    "Artifact": "coterie.shelf",
    "Batch": "coterie.training",
    "CoterieError": "coterie.errors",
    "Experiment": "coterie.experiment",
    "Layout": "coterie.weights",
    "Method": "coterie.methods.base",
    "Model": "coterie.architecture",
    "Net": "coterie.models",
    "Output": "coterie.models",
    "Peer": "coterie.peer",
    "Weights": "coterie.weights",
    "compare": "coterie.comparing.carrying_out",
    "cross_entropy": "coterie.training",
    "figures": "coterie.report.saving",
    "load": "coterie.experiment",
    "mean": "coterie.weights",
    "parameter": "coterie.methods.base",
    "proximal": "coterie.training",
    "resume": "coterie.running",
    "rounds": "coterie.frames",
    "run": "coterie.running",
    "runs": "coterie.frames",
}

__all__ = [
    "Artifact",
    "Batch",
    "CoterieError",
    "Experiment",
    "Layout",
    "Method",
    "Model",
    "Net",
    "Output",
    "Peer",
    "Weights",
    "compare",
    "cross_entropy",
    "figures",
    "load",
    "mean",
    "parameter",
    "proximal",
    "resume",
    "rounds",
    "run",
    "runs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
