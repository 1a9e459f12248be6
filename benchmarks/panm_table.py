"""PANM's Table 2: runs every method and seed that is not done yet, then prints ours beside the paper's figures.

    python benchmarks/panm_table.py fashion-mnist --seeds 0,1,2 --out runs/panm

Each run is an ordinary run folder, `coterie run panm-fashion-mnist method.name=... seed=...`; a second call
runs only what is missing. Words of the form key=value go to every run (such as rounds=30).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tables import Row, command

DATASETS = ("mnist", "fashion-mnist", "cifar10", "cifar10-short")  # short: fewer rounds, beside the paper's figures
# label: settings, and the paper's accuracy in per cent on MNIST, Fashion-MNIST and CIFAR-10
METHODS: dict[str, tuple[str, tuple[str, str, str]]] = {
    "Local": ("method.name=local", ("82.57 ±0.28", "76.24 ±0.22", "25.27 ±1.21")),
    "FixTopology": ("method.name=fixed", ("94.71 ±0.09", "85.86 ±0.17", "39.74 ±2.27")),
    "Random": ("method.name=gossip", ("95.12 ±0.04", "85.94 ±0.27", "42.96 ±1.42")),
    "PENS": ("method.name=pens", ("96.15 ±0.16", "86.82 ±0.11", "44.78 ±1.12")),
    "PANMLoss": ("method.metric=loss", ("95.63 ±0.12", "87.33 ±0.17", "49.19 ±0.79")),
    "PANMGrad": ("method.metric=grad", ("95.65 ±0.09", "86.88 ±0.34", "48.83 ±0.39")),
    "Oracle": ("method.name=oracle", ("95.87 ±0.08", "87.01 ±0.26", "49.11 ±0.48")),
}


def rows(dataset: str) -> tuple[str, Sequence[Row]]:
    column = DATASETS.index(dataset.removesuffix("-short"))
    return f"panm-{dataset}", [Row(label, (word,), paper[column]) for label, (word, paper) in METHODS.items()]


if __name__ == "__main__":
    command(__doc__ or "", {name: partial(rows, name) for name in DATASETS})
