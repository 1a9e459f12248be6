"""FedPAE's Table I on CIFAR-10, small: one column, a concentration of the Dirichlet partition.

    python benchmarks/fedpae_table.py 0.1 --seeds 0,1,2 --out runs/fedpae

Each run is an ordinary run folder; a second call runs only what is missing.
"""

from __future__ import annotations

from functools import partial

from tables import Row, command

COLUMNS = {"0.5": 0, "0.3": 1, "0.1": 2}
# FedAvg and FedProx share the small CNN, as in the paper; FedKD and FML have it beside a peer's own.
CNN = "model.zoo=lenet"
# label: settings, and the paper's accuracy with alpha 0.5, 0.3 and 0.1
TABLE: dict[str, tuple[str, tuple[str, str, str]]] = {
    "FedAvg": (f"method.name=fedavg {CNN}", ("69.7", "67.7", "66.8")),
    "FedProx": (f"method.name=fedprox {CNN}", ("69.7", "67.5", "66.7")),
    "FedDistill": ("method.name=feddistill", ("73.0", "79.9", "86.7")),
    "LG-FedAvg": ("method.name=lg-fedavg model.d_z=64", ("73.3", "80.3", "87.2")),
    "FedKD": ("method.name=fedkd", ("72.9", "80.6", "87.0")),
    "FedGH": ("method.name=fedgh model.d_z=64", ("73.1", "79.2", "86.9")),
    "FML": ("method.name=fml", ("72.9", "79.6", "87.0")),
    "LocalEnsemble": ("method.name=local-ensemble", ("74.4", "80.5", "87.1")),
    "FedPAE": ("method.name=fedpae", ("77.4", "82.6", "87.3")),
}


def column(alpha: str) -> tuple[str, list[Row]]:
    rows = [
        Row(label, (f"data.alpha={alpha}", *words.split()), paper[COLUMNS[alpha]])
        for label, (words, paper) in TABLE.items()
    ]
    return "fedpae-cifar10-small", rows


if __name__ == "__main__":
    command(__doc__ or "", {alpha: partial(column, alpha) for alpha in COLUMNS})
