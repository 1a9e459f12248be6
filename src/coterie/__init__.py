"""Coterie: peer-to-peer personalized federated learning with heterogeneous models.

The packages, from bottom to top; a module imports from its own package and from those below (docs/architecture.md):

    core                  weights, models, artifacts; a peer and what its method may ask for
    data, portable        datasets and partitions; models as ONNX, and their sandbox
    training, models      the training loops; the zoo and custom models
    methods               one file for each method, and the components that they share
    config                experiments: settings, presets, checks
    report                tables, figures and pages, from a run's events
    engines               what both engines share: driving a method, shelves, measuring
    simulation, network   the two engines: all peers on a virtual clock; one real peer
    wiring, running       from an experiment to peers; runs from start to end, and their folders
    terminal, comparing, export, planning, bench, dashboard, reproducing, cli   what users see

The public API is `__all__`, below. Everything else may change between versions. Names are imported when first used, so
that `import coterie` is quick and starts nothing.
"""

from __future__ import annotations

import importlib
import os

# Must be set before MKL computes anything. By default MKL chooses kernels by memory alignment, so on some processors
# (AMD's) two equal runs would differ in their last bits. Every process that computes imports this first.
os.environ.setdefault("MKL_CBWR", "AUTO")

TYPE_CHECKING = False  # importing typing would take longer than everything else here
if TYPE_CHECKING:
    from typing import Any

    from coterie.comparing.execution import compare
    from coterie.config.loading import load
    from coterie.config.sections import Experiment
    from coterie.core.artifact import Artifact
    from coterie.core.errors import CoterieError
    from coterie.core.loss import Batch, cross_entropy, task_loss
    from coterie.core.model import Model
    from coterie.core.net import Net, Output
    from coterie.core.peer import Peer
    from coterie.core.weights import Layout, Weights, mean
    from coterie.methods.base import Method, parameter
    from coterie.models.parts import Part
    from coterie.report.saving import figures
    from coterie.running.frames import rounds, runs
    from coterie.running.simulated import resume, run
    from coterie.training.losses import proximal

_HOMES = {
    "Artifact": "coterie.core.artifact",
    "Batch": "coterie.core.loss",
    "CoterieError": "coterie.core.errors",
    "Experiment": "coterie.config.loading",
    "Layout": "coterie.core.weights",
    "Method": "coterie.methods.base",
    "Model": "coterie.core.model",
    "Net": "coterie.core.net",
    "Output": "coterie.core.net",
    "Part": "coterie.models.parts",
    "Peer": "coterie.core.peer",
    "Weights": "coterie.core.weights",
    "compare": "coterie.comparing.execution",
    "cross_entropy": "coterie.core.loss",
    "figures": "coterie.report.saving",
    "load": "coterie.config.loading",
    "mean": "coterie.core.weights",
    "parameter": "coterie.methods.base",
    "proximal": "coterie.training.losses",
    "resume": "coterie.running.simulated",
    "rounds": "coterie.running.frames",
    "run": "coterie.running.simulated",
    "runs": "coterie.running.frames",
    "task_loss": "coterie.core.loss",
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
    "Part",
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
    "task_loss",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'coterie' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
