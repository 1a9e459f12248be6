"""CompFL's tables on CIFAR-10, small: Table 2 by column, Table 3 (the ablation), and Figure 7 (the three settings).

    python benchmarks/compfl_table.py unified5 --seeds 0,1,2 --out runs/compfl

unified5 has 5 classes a client and common labels, independent10 has 10 and labels that each client permutes for itself.
ablation is with 10 classes and common labels, and so is choices: what the paper leaves open, decided otherwise.
settings3, settings5 and settings10 compare the server with walks and gossip. Each run is an ordinary run folder; a
second call runs only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tables import Row, command

PRESET = "compfl-cifar10-small"
CLASSES = (3, 5, 10)
LABELS = {"unified": "data.private_labels=false", "independent": "data.private_labels=true"}
# label: settings, and the paper's accuracy with 3, 5 and 10 classes: unified labels, then independent ones
TABLE: dict[str, tuple[str, tuple[str, ...]]] = {
    "Standalone": ("method.name=local", ("78.28", "60.25", "40.17", "78.17", "61.03", "39.78")),
    "FedAvg": ("method.name=fedavg", ("60.73", "64.85", "68.27", "40.88", "28.73", "17.68")),
    "FedAvg-FT": ("method.name=fedavg-ft", ("84.52", "74.42", "66.27", "82.17", "68.57", "50.38")),
    # one head for all, so all must read as many features
    "LG-FedAvg": ("method.name=lg-fedavg model.d_z=64", ("79.61", "64.31", "43.86", "79.71", "64.24", "43.66")),
    "FedPer": ("method.name=fedper", ("82.71", "72.58", "61.17", "81.62", "71.78", "59.08")),
    "FedRep": ("method.name=fedrep", ("83.48", "73.62", "61.62", "83.87", "73.72", "61.19")),
    "FedBABU": ("method.name=fedbabu", ("85.52", "75.13", "67.68", "82.38", "68.95", "51.58")),
    "Ditto": ("method.name=ditto", ("85.37", "76.37", "67.53", "84.03", "71.12", "53.56")),
    "FedRoD": ("method.name=fedrod", ("84.32", "76.12", "68.38", "82.38", "68.58", "52.55")),
    "CompFL": ("method.name=compfl", ("86.22", "79.98", "74.29", "84.17", "77.25", "68.85")),
}
# alignment, greedy help, distillation; without any of them it is FedPer, but for its heads
ABLATION = {
    "---": "61.17", "a--": "68.65", "-g-": "65.69", "--k": "68.21", "ag-": "70.68", "a-k": "71.88", "agk": "74.29",
}  # fmt: skip
CHOICES = {
    "sum-over-features": "method.per_feature=false",
    "divergence-as-printed": "method.kl=printed",
    "learner-teaches-itself": "method.teachers=held",
    "head-epoch": "method.adapt_epochs=1",
    "head-renewed": "method.reinit=true",
    "head-renewed-epoch": "method.reinit=true method.adapt_epochs=1",
}
# A server's round trains every client, one of the walks' only who holds an expert: so they get five times as many.
WALKS, GOSSIP = "method.setting=device-by-device rounds=200 evaluate.every=25", "method.setting=model-by-model"
GRAPHS = {"1.0": "graph.kind=complete", "0.6": "graph.kind=erdos-renyi graph.p=0.6"}


def column(labels: str, classes: int) -> tuple[str, Sequence[Row]]:
    at = 3 * list(LABELS).index(labels) + CLASSES.index(classes)
    words = (LABELS[labels], f"data.classes_per_peer={classes}")
    return PRESET, [Row(label, (*words, *how.split()), paper[at]) for label, (how, paper) in TABLE.items()]


def ablation() -> tuple[str, Sequence[Row]]:
    rows = []
    for parts, paper in ABLATION.items():
        off = {"a": "method.lam=0", "g": "method.epsilon=0", "k": "method.mu=0"}
        words = [word for letter, word in off.items() if letter not in parts]
        rows.append(Row(parts, ("data.classes_per_peer=10", *words), paper))
    return PRESET, rows


def choices() -> tuple[str, Sequence[Row]]:
    return PRESET, [Row(label, ("data.classes_per_peer=10", *how.split()), "") for label, how in CHOICES.items()]


def settings(classes: int) -> tuple[str, Sequence[Row]]:
    rows = [Row("server", (f"data.classes_per_peer={classes}",), "")]
    for label, how in (("walks", WALKS), ("gossip", GOSSIP)):
        for p, graph in GRAPHS.items():
            rows.append(Row(f"{label}-{p}", (f"data.classes_per_peer={classes}", *how.split(), *graph.split()), ""))
    return PRESET, rows


if __name__ == "__main__":
    names: dict[str, Callable[[], tuple[str, Sequence[Row]]]] = {"ablation": ablation, "choices": choices}
    names |= {f"{labels}{n}": partial(column, labels, n) for labels in LABELS for n in CLASSES}
    names |= {f"settings{n}": partial(settings, n) for n in CLASSES}
    command(__doc__ or "", names)
