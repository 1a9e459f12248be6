"""Any experiment as one round of a few peers with a few samples: its models, method, data and partition stay.

Datasets that are downloaded have stand-ins: random images of the right shape, with all labels.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.config.loading import from_tables
from coterie.config.sections import Experiment
from coterie.data import catalog
from coterie.data.dataset import write_arrays
from coterie.data.partitions.settings import cluster_count
from coterie.running import simulated

IMAGES = 1200  # of each stand-in: twelve of each of a hundred classes
SAMPLES = 4  # of a peer: a norm over the batch needs two
QUICK = {"population": 8, "generations": 2}  # FedPAE's search takes long, however few the samples


@contextmanager
def stand_ins(home: Path) -> Iterator[None]:
    """All downloaded datasets, in a folder of their own, with fewer images."""
    rng = np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COTERIE_DATA", str(home))
        labels: dict[str, dict[str, np.ndarray]] = {}
        of_images = {name: entry for name, entry in catalog.DOWNLOADED.items() if entry.are_images}
        for name, entry in of_images.items():
            labels.setdefault(catalog.file_of(name), {})[entry.labels] = np.arange(IMAGES) % len(entry.classes)
            patch.setitem(catalog.DOWNLOADED, name, dataclasses.replace(entry, rows=IMAGES, checksum=None))
        for name, arrays in labels.items():
            shape = (IMAGES, *catalog.find_entry(name).shape)
            write_arrays(home / f"{name}.npz", {"x": rng.integers(256, size=shape, dtype=np.uint8), **arrays})
        yield


def tiny(e: Experiment) -> Experiment:
    """One round; as few peers as its method, its models and its clusters allow."""
    tables = e.tables()
    method = tables["method"]
    tables |= {"rounds": _rounds(e), "peers": _peers(e, method), "baseline": ""}
    tables["method"] = {key: min(value, QUICK[key]) if key in QUICK else value for key, value in method.items()}
    tables["data"] |= _sizes(e)
    tables["train"] |= {"epochs": 1}
    tables["engine"] |= {"workers": 1, "threads": 1, "checkpoint": 0, "models": False}
    return from_tables(tables)


def _rounds(e: Experiment) -> int:
    """One; where models take turns, one for each."""
    return len(e.model.zoo) if getattr(e.method, "setting", "") == "model-by-model" else 1


def _peers(e: Experiment, method: dict[str, Any]) -> int:
    """Each of the architectures once, two of each cluster, and one more than any method draws."""
    if e.method.any_model:  # every peer trains all of them
        return 2
    drawn = max((int(method[key]) for key in ("k", "l") if isinstance(method.get(key), int)), default=1)
    return min(e.peers, max(len(e.model.zoo), 2 * cluster_count(e.data), drawn + 1, 3))


def _sizes(e: Experiment) -> dict[str, Any]:
    if e.data.partition == "quantity":
        return {}
    if e.data.partition.startswith("scenario"):  # of each class
        return {"train": 1, "validation": 1, "test": 1}
    return {"train": SAMPLES, "validation": 2, "test": 2}


def sameness(e: Experiment) -> str:
    """All that a run with stand-ins depends on: of a downloaded dataset its shape and its labels, not its name."""
    entry = catalog.DOWNLOADED.get(e.data.name)
    held = e.data.name if entry is None else f"{entry.shape}, {len(entry.classes)} labels"
    return json.dumps({**e.tables(), "data": {**e.tables()["data"], "name": held}}, sort_keys=True)


def run(e: Experiment, folder: Path) -> None:
    """A tiny round in which all peers are measured."""
    summary = simulated.run(e, folder)
    assert (summary["rounds"], summary["peers"]) == (e.rounds, e.peers)
    accuracies = summary["accuracy"]["last"]["per_peer"]
    assert len(accuracies) == e.peers
    assert all(math.isfinite(accuracy) and 0 <= accuracy <= 1 for accuracy in accuracies)
    assert (folder / "report.html").exists()
