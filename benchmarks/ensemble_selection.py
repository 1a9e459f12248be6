"""Compare FedPAE's search with a whole population evaluated at once with one ensemble at a time.

    python benchmarks/ensemble_selection.py

The same search (NSGA-II, the same random numbers) over the same models; both must find the same ensembles.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np

from coterie.methods.components.ensemble_selection import Bench, cosines_of_errors, objectives
from coterie.methods.components.nsga2 import Floats, Masks, search


def a_bench(models: int, samples: int, classes: int) -> Bench:
    """Models of different strength that make different errors."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, samples)
    skill = 3 * rng.random((models, 1, 1))
    powers = np.exp(rng.normal(size=(models, samples, classes)) + skill * np.eye(classes)[labels])
    return Bench(powers / powers.sum(2, keepdims=True), labels, np.arange(models) < 5)


def one_by_one(bench: Bench, masks: Masks) -> tuple[Floats, Floats]:
    """The obvious implementation: each ensemble separately, with the library's determinant."""
    accuracies, classes = bench.merits, bench.probabilities.shape[2]
    keep = np.arange(classes)[None] != bench.labels[:, None]
    strengths, diversities = [], []
    for mask in masks:
        members = np.flatnonzero(mask)
        rest = bench.probabilities[members][:, keep].reshape(len(members), len(keep), classes - 1)
        unit = rest / np.linalg.norm(rest, axis=2, keepdims=True)
        strengths.append(accuracies[members].mean())
        diversities.append(np.linalg.det(np.einsum("asc,bsc->sab", unit, unit)).mean())
    return np.array(strengths), np.array(diversities)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("models", 100), ("samples", 1000), ("classes", 10), ("k", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name in ("population", "generations"):
        parser.add_argument(f"--{name}", type=int, default=100)
    o = parser.parse_args()
    bench = a_bench(o.models, o.samples, o.classes)
    began = time.perf_counter()
    at_once = search(
        bench.own, partial(objectives, bench, cosines_of_errors(bench)), o.k, o.population, o.generations, 0
    )
    middle = time.perf_counter()
    single = search(bench.own, partial(one_by_one, bench), o.k, o.population, o.generations, 0)
    end = time.perf_counter()
    same = {tuple(m) for m in at_once.tolist()} == {tuple(m) for m in single.tolist()}
    print(f"{o.models} models, {o.samples} samples, population {o.population}, {o.generations} generations, k = {o.k}")
    print(
        f"all at once {middle - began:.2f} s, one by one {end - middle:.2f} s: {(end - middle) / (middle - began):.1f}x"
    )
    print(f"the same ensembles: {same}")


if __name__ == "__main__":
    main()
