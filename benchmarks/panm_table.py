"""PANM's Table 2: runs every method and seed that is not done yet, then prints ours beside the paper's figures.

    python benchmarks/panm_table.py fashion-mnist --seeds 0,1,2 --out runs/panm

Each run is an ordinary run folder, `coterie run panm-fashion-mnist method.name=... seed=...`; a second call
runs only what is missing. Words of the form key=value go to every run (such as rounds=30).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from pathlib import Path
from typing import Any

from coterie import experiment, running
from coterie.errors import CoterieError

DATASETS = ("mnist", "fashion-mnist", "cifar10", "cifar10-short")  # short: fewer rounds, the same figures of the paper
# label: settings, and the paper's accuracy in per cent on each of DATASETS (its Table 2)
METHODS: dict[str, tuple[str, tuple[str, str, str]]] = {
    "Local": ("method.name=local", ("82.57 ±0.28", "76.24 ±0.22", "25.27 ±1.21")),
    "FixTopology": ("method.name=fixed", ("94.71 ±0.09", "85.86 ±0.17", "39.74 ±2.27")),
    "Random": ("method.name=gossip", ("95.12 ±0.04", "85.94 ±0.27", "42.96 ±1.42")),
    "PENS": ("method.name=pens", ("96.15 ±0.16", "86.82 ±0.11", "44.78 ±1.12")),
    "PANMLoss": ("method.metric=loss", ("95.63 ±0.12", "87.33 ±0.17", "49.19 ±0.79")),
    "PANMGrad": ("method.metric=grad", ("95.65 ±0.09", "86.88 ±0.34", "48.83 ±0.39")),
    "Oracle": ("method.name=oracle", ("95.87 ±0.08", "87.01 ±0.26", "49.11 ±0.48")),
}
STUDENT_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # two-sided, by degrees of freedom


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--seeds", default="0,1,2", type=lambda text: [int(s) for s in text.split(",")])
    parser.add_argument("--out", type=Path, default=Path("runs/panm"))
    parser.add_argument("--only", default="", help="labels, comma-separated; default: all")
    parser.add_argument("--print", action="store_true", help="only the table of what is there")
    options = parser.parse_args()
    labels = [label for label in METHODS if not options.only or label in options.only.split(",")]
    folders = {(label, s): options.out / f"{options.dataset}-{label}-{s}" for s in options.seeds for label in labels}
    if not options.print:
        for (label, seed), folder in folders.items():
            _run(options.dataset, folder, [METHODS[label][0], f"seed={seed}", *options.settings])
    print(table(options.dataset, {key: _summary(folder) for key, folder in folders.items()}, labels))


def _run(dataset: str, folder: Path, words: list[str]) -> None:
    if (folder / "summary.json").exists():
        return
    print(f"{folder.name} ...", flush=True)
    try:
        if (folder / "config.toml").exists():
            running.resume(folder)
        else:
            running.run(experiment.load(f"panm-{dataset}", words), folder)
    except CoterieError as error:
        raise SystemExit(f"{folder}: {error}") from error


def _summary(folder: Path) -> dict[str, Any] | None:
    path = folder / "summary.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table(dataset: str, runs: dict[tuple[str, int], dict[str, Any] | None], labels: list[str]) -> str:
    rows = ["| method | paper | last | validation-selected | precision | recall | models per peer | seconds | seeds |"]
    rows.append("|---|---|---|---|---|---|---|---|---|")
    for label in labels:
        done = [run for (name, _), run in sorted(runs.items()) if name == label and run]
        if not done:
            continue
        scores = [_neighbours(done, key) for key in ("precision", "recall")]
        models = statistics.mean(r["messages"]["by_artifact"].get("model", 0) / r["peers"] for r in done)
        seconds = statistics.mean(r["seconds"] for r in done)
        figures = [interval([100 * r["accuracy"][kind]["mean"] for r in done]) for kind in ("last", "selected")]
        paper = METHODS[label][1][DATASETS.index(dataset.removesuffix("-short"))]
        cells = [label, paper, *figures, *scores, f"{models:.0f}", f"{seconds:.0f}", str(len(done))]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _neighbours(done: list[dict[str, Any]], key: str) -> str:
    known = [run["neighbours"][key] for run in done if "neighbours" in run]
    return f"{statistics.mean(known):.3f}" if known else ""


def interval(values: list[float]) -> str:
    """Mean and the half-width of its 95% confidence interval over seeds (Student's t)."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.2f}"
    half = STUDENT_95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.2f} ±{half:.2f}"


if __name__ == "__main__":
    main()
