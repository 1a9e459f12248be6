"""Four hospitals (UCI heart disease): does learning together pay? Every method that fits, against alone and pooled.

    python benchmarks/heart_disease.py FOLDER [--seeds 0,1,2,3,4] [--models linear,mlp] [--methods local,fedavg,...]

FOLDER has cleveland.csv, hungarian.csv, switzerland.csv and va.csv. `pooled` is one model trained on the training rows
of all hospitals, prepared and scaled together, and tested on each hospital's test rows: what a single database would
give. Each run's figures are appended to the file --out as it ends, and runs that are there are not repeated. The table
has means over hospitals and seeds with 95% intervals over seeds, then each hospital.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from coterie.config.loading import load
from coterie.config.sections import Experiment
from coterie.core.errors import CoterieError
from coterie.core.jobs import EvaluateJob
from coterie.core.peer import held_by
from coterie.data.pool import pool_data
from coterie.metrics import METRICS, Scores
from coterie.report.interval import estimate
from coterie.running import simulated
from coterie.training import Trainer
from coterie.wiring import divide, gather

HERE = Path(__file__).resolve().parents[1]
SCHEMA = HERE / "examples/heart_disease/schema.toml"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SPLITS = ("train", "validation", "test")
MEASURES = ("auroc", "balanced_accuracy", "accuracy")
METHODS = (
    "local", "pooled", "fedavg", "fedprox", "fedavg-ft", "fedper", "fedrep", "ditto", "fedrod", "ifca", "flt", "gossip",
    "dfedavgm", "pens", "panm", "fedproto", "feddistill", "fedgh", "fedsim", "mapl", "mapl+", "fedpae",
    "local-ensemble",
)  # fmt: skip
Row = dict[str, list[float | None]]  # by measure: the value of each hospital


def experiment(folder: Path, method: str, model: str, seed: int) -> Experiment:
    words = [
        f"data.name={folder}/*.csv", "data.partition=files", f"data.schema={SCHEMA}", "data.train=0.6",
        "data.validation=0.2", "data.test=0.2", f"model.zoo={model}", "model.hidden=[16]", "train.epochs=1",
        "train.batch=16", "train.lr=0.02", "train.weight_decay=0.001", "rounds=40", f"seed={seed}",
        f"method.name={method}", "evaluate.select=auroc", "evaluate.metrics=balanced_accuracy,auroc", "baseline=",
        "engine.models=false", "engine.checkpoint=0", *FITTING.get(method, ()),
    ]  # fmt: skip
    return load(str(HERE / "src/coterie/presets/panm-digits.toml"), words)


# Parameters whose defaults are for more peers than four.
FITTING = {
    "gossip": ("method.k=3",),
    "pens": ("method.k=2", "method.l=3"),
    "panm": ("method.k=2", "method.l=3"),
    "ifca": ("method.c=2",),
}


def run(folder: Path, method: str, model: str, seed: int) -> Row:
    """The measures of each hospital's test rows, at the round that its validation rows select."""
    if method == "pooled":
        return pooled(folder, model, seed)
    with tempfile.TemporaryDirectory() as out:
        summary = simulated.run(experiment(folder, method, model, seed), Path(out) / "run")
        scores = {name: summary["scores"][name]["selected"]["per_peer"] for name in MEASURES if name != "accuracy"}
        return {**scores, "accuracy": summary["accuracy"]["selected"]["per_peer"]}


def pooled(folder: Path, model: str, seed: int) -> Row:
    """One model for all hospitals: trained on all training rows, selected on all validation rows, tested on each."""
    e = experiment(folder, "local", model, seed)
    dataset, shares = divide(e)
    train, validation, test = (np.concatenate([getattr(share, split) for share in shares]) for split in SPLITS)
    together = replace(e, peers=1, data=replace(e.data, partition="iid"))
    whole = replace(shares[0], train=train, validation=validation, test=test)
    me = gather(together, pool_data(dataset, [whole], e.data)).participants[0]
    data, trainer, best, selected = held_by(me), Trainer("never", 1, 1), -1.0, np.empty(0)
    assert data is not None
    for round in range(1, e.rounds + 1):
        me.round = round
        trainer.fit([me.train().job])
        validated, tested = (
            p.logits.softmax(1).double().numpy()
            for p in trainer.predict([EvaluateJob(me.model, split) for split in (data.validation, data.test)])
        )
        if (value := METRICS["auroc"].value(Scores(validated), data.validation.y.numpy()) or 0.0) > best:
            best, selected = value, tested
    ends = np.cumsum([0, *(len(share.test) for share in shares)])
    parts = [(selected[a:b], data.test.y.numpy()[a:b]) for a, b in pairwise(ends)]
    return {name: [METRICS[name].value(Scores(p), y) for p, y in parts] for name in MEASURES}


def done(path: Path) -> dict[tuple[str, str, int], Row]:
    if not path.exists():
        return {}
    records = map(json.loads, path.read_text().splitlines())
    return {(r["method"], r["model"], r["seed"]): r["row"] for r in records}


def table(rows: dict[tuple[str, str, int], Row], model: str, seeds: Sequence[int]) -> Iterator[str]:
    yield f"| method ({model}) | " + " | ".join(f"{m} | {', '.join(h[:4] for h in HOSPITALS)}" for m in MEASURES) + " |"
    yield "| --- " * (1 + 2 * len(MEASURES)) + "|"
    for method in METHODS:
        runs = [rows[method, model, seed] for seed in seeds if (method, model, seed) in rows]
        if runs:
            yield f"| {method} | " + " | ".join(_cells(runs, measure) for measure in MEASURES) + " |"


def _cells(runs: Sequence[Row], measure: str) -> str:
    values = np.array([[np.nan if v is None else v for v in run[measure]] for run in runs])
    mean = estimate(np.nanmean(values, axis=1).tolist())
    each = ", ".join(f"{100 * v:.1f}" for v in np.nanmean(values, axis=0))
    half = "" if mean.half is None else f" ±{100 * mean.half:.1f}"
    return f"{100 * mean.mean:.1f}{half} | {each}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="0,1,2,3,4")
    parser.add_argument("--models", default="linear,mlp")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path, default=Path("runs/heart_disease.jsonl"), help="records of the runs")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows = done(options.out)
    for model, seed in itertools.product(options.models.split(","), seeds):
        for method in options.methods.split(","):
            if (method, model, seed) not in rows:
                measure(options.folder.resolve(), (method, model, seed), rows, options.out)
    for model in options.models.split(","):
        print("\n".join(table(rows, model, seeds)), end="\n\n", flush=True)


def measure(folder: Path, key: tuple[str, str, int], rows: dict[tuple[str, str, int], Row], out: Path) -> None:
    """Run, and record the result at once. A method that does not fit the data is named and left out."""
    method, model, seed = key
    try:
        rows[key] = run(folder, method, model, seed)
    except CoterieError as error:
        print(f"{model}, seed {seed}, {method}: left out ({error})", flush=True)
        return
    with out.open("a") as file:
        file.write(json.dumps({"method": method, "model": model, "seed": seed, "row": rows[key]}) + "\n")
    print(f"{model}, seed {seed}, {method}: AUROC {np.nanmean(np.array(rows[key]['auroc'], float)):.3f}", flush=True)


if __name__ == "__main__":
    main()
