"""Four hospitals (UCI heart disease): does learning together pay? Every method that fits, against alone and pooled.

    coterie data get heart-disease --tables hospitals
    python benchmarks/heart_disease.py hospitals [--seeds 0,1,2,3,4] [--models linear,mlp] [--methods local,fedavg,...]

`pooled` is one model trained on the training rows of all hospitals, prepared and scaled together, and tested on each
hospital's test rows: what a single database would give. All figures are those of the last round: with one or two
healthy patients in the validation rows of a hospital, selecting a round would add noise. Each run's figures are
appended to the file --out as it ends, and runs that are there are not repeated. The tables have means over hospitals
and seeds; then the difference from `local` on the same splits, with its 95% interval over seeds, for each hospital.
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
from coterie.data.sites import site_files
from coterie.metrics import METRICS, Scores
from coterie.report.interval import estimate
from coterie.report.summary import read_summary
from coterie.running import simulated
from coterie.training import Trainer
from coterie.wiring import divide, gather

HERE = Path(__file__).resolve().parents[1]
SCHEMA = HERE / "examples/heart_disease/schema.toml"
EXPERIMENT = HERE / "examples/heart_disease/hospitals.toml"  # the experiment of the tutorial
SPLITS = ("train", "validation", "test")
MEASURES = ("auroc", "balanced_accuracy", "accuracy")
METHODS = (
    "local", "pooled", "fedavg", "fedprox", "fedavg-ft", "fedper", "fedrep", "ditto", "fedrod", "ifca", "flt", "gossip",
    "dfedavgm", "pens", "panm", "fedproto", "feddistill", "fedgh", "fedsim", "mapl", "mapl+", "fedpae",
    "local-ensemble",
)  # fmt: skip
Row = dict[str, list[float | None]]  # by measure: the value of each hospital
Rows = dict[tuple[str, str, int], Row]  # by method, model and seed


def experiment(folder: Path, method: str, model: str, seed: int) -> Experiment:
    words = [
        f"data.name={folder}",
        f"data.schema={SCHEMA}",
        f"model.zoo={model}",
        f"seed={seed}",
        f"method.name={method}",
        "baseline=",
    ]
    unneeded = ["engine.models=false", "engine.checkpoint=0", "evaluate.predictions=never"]
    return load(str(EXPERIMENT), [*words, *FITTING.get(method, ()), *unneeded])


# Parameters whose defaults are for more peers than four.
FITTING = {
    "gossip": ("method.k=3",),
    "pens": ("method.k=2", "method.l=3"),
    "panm": ("method.k=2", "method.l=3"),
    "ifca": ("method.c=2",),
    "fedpae": ("method.k=2",),
}


def run(folder: Path, method: str, model: str, seed: int) -> Row:
    """The measures of each hospital's test rows, after the last round."""
    if method == "pooled":
        return pooled(folder, model, seed)
    with tempfile.TemporaryDirectory() as out:
        simulated.run(experiment(folder, method, model, seed), Path(out) / "run")
        summary = read_summary(Path(out) / "run")
        return {name: list(summary.of(name).last.per_peer) for name in MEASURES}


def pooled(folder: Path, model: str, seed: int) -> Row:
    """One model for all hospitals, trained on all training rows and tested on each hospital's test rows."""
    e = experiment(folder, "local", model, seed)
    dataset, shares = divide(e)
    train, validation, test = (np.concatenate([getattr(share, split) for share in shares]) for split in SPLITS)
    together = replace(e, peers=1, data=replace(e.data, partition="iid", scale="standard"))
    whole = replace(shares[0], train=train, validation=validation, test=test)
    me = gather(together, pool_data(dataset, [whole], together.data)).participants[0]
    data, trainer = held_by(me), Trainer("never", 1, 1)
    assert data is not None
    for round in range(1, e.rounds + 1):
        me.round = round
        trainer.fit([me.train().job])
    [measured] = trainer.measure([EvaluateJob(me.model, data.test)])
    ends = np.cumsum([0, *(len(share.test) for share in shares)])
    parts = [(measured.answers[a:b], measured.labels[a:b]) for a, b in pairwise(ends)]
    return {name: [METRICS[name].value(Scores(p), y) for p, y in parts] for name in MEASURES}


def done(path: Path) -> Rows:
    if not path.exists():
        return {}
    records = map(json.loads, path.read_text().splitlines())
    return {(r["method"], r["model"], r["seed"]): r["row"] for r in records}


def means(rows: Rows, model: str, seeds: Sequence[int], hospitals: Sequence[str]) -> Iterator[str]:
    """Means over hospitals and seeds, then over the seeds of each hospital."""
    short = ", ".join(name[:4] for name in hospitals)
    yield f"| {model} | " + " | ".join(f"{measure} | {short}" for measure in MEASURES) + " |"
    yield "| --- " * (1 + 2 * len(MEASURES)) + "|"
    for method in METHODS:
        if runs := _runs(rows, method, model, seeds):
            cells = [values for measure in MEASURES for values in _means(_values(runs, measure))]
            yield f"| {method} | " + " | ".join(cells) + " |"


def gains(rows: Rows, model: str, seeds: Sequence[int], hospitals: Sequence[str]) -> Iterator[str]:
    """The differences from local on the same splits, in points, with intervals."""
    alone = _runs(rows, "local", model, seeds)
    yield f"| {model}, against local | measure | mean | " + " | ".join(hospitals) + " |"
    yield "| --- " * (3 + len(hospitals)) + "|"
    for method, measure in itertools.product(METHODS, MEASURES):
        runs = _runs(rows, method, model, seeds)
        if method != "local" and len(runs) == len(alone) > 1:
            gained = _values(runs, measure) - _values(alone, measure)
            columns = [np.nanmean(gained, axis=1), *gained.T]
            yield f"| {method} | {measure} | " + " | ".join(map(_with_interval, columns)) + " |"


def _runs(rows: Rows, method: str, model: str, seeds: Sequence[int]) -> list[Row]:
    return [rows[method, model, seed] for seed in seeds if (method, model, seed) in rows]


def _values(runs: Sequence[Row], measure: str) -> np.ndarray:
    """(seeds, hospitals), in percent."""
    return 100 * np.array([[np.nan if v is None else v for v in run[measure]] for run in runs])


def _means(values: np.ndarray) -> tuple[str, str]:
    return f"{np.nanmean(values):.1f}", ", ".join(f"{v:.1f}" for v in np.nanmean(values, axis=0))


def _with_interval(values: np.ndarray) -> str:
    known = estimate([float(v) for v in values if not np.isnan(v)])
    return f"{known.mean:+.1f}" + ("" if known.half is None else f" ±{known.half:.1f}")


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
    hospitals = list(site_files(str(options.folder)))
    for model, make in itertools.product(options.models.split(","), (means, gains)):
        print("\n".join(make(rows, model, seeds, hospitals)), end="\n\n", flush=True)


def measure(folder: Path, key: tuple[str, str, int], rows: Rows, out: Path) -> None:
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
