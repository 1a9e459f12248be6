"""NSGA-II over ensembles of k models: a genetic search that maximises two objectives at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]
Evaluate = Callable[[Masks], tuple[Floats, Floats]]  # strength and diversity, of a whole population


def search(own: Masks, evaluate: Evaluate, k: int, population: int, generations: int, seed: int) -> Masks:
    """The last population of NSGA-II (pymoo: its sorting and survival are compiled and well tested).

    `own` marks the peer's own models among all.
    """
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    first = _first_population(own, k, population, np.random.default_rng(seed))

    class Ensembles(Problem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=len(own), n_obj=2, xl=0, xu=1, vtype=bool)

        def _evaluate(self, x: Masks, out: dict[str, Any], *_: Any, **__: Any) -> None:
            strength, diversity = evaluate(x.astype(bool))
            out["F"] = np.column_stack([-strength, -diversity])

    crossover, mutation, repair = _operators(k)
    algorithm = NSGA2(
        pop_size=population, sampling=first, crossover=crossover, mutation=mutation, repair=repair,
        eliminate_duplicates=True,
    )  # fmt: skip
    result = minimize(Ensembles(), algorithm, ("n_gen", generations), seed=seed, verbose=False)
    ensembles: Masks = np.atleast_2d(result.pop.get("X")).astype(bool)
    return ensembles


def _operators(k: int) -> tuple[Any, Any, Any]:
    """Uniform crossover, mutation by flipping each bit with probability 1/M, and a repair to k members."""
    from pymoo.core.repair import Repair
    from pymoo.operators.crossover.ux import UniformCrossover
    from pymoo.operators.mutation.bitflip import BitflipMutation

    class ToSize(Repair):  # type: ignore[misc]
        def _do(self, _: Any, x: Masks, random_state: np.random.Generator | None = None, **__: Any) -> Masks:
            return to_size(x.astype(bool), k, random_state or np.random.default_rng(0))

    return UniformCrossover(), BitflipMutation(), ToSize()


def to_size(masks: Masks, k: int, rng: np.random.Generator) -> Masks:
    """Add or drop members at random until each ensemble has k: current members come first, in random order."""
    keys = rng.random(masks.shape) + ~masks
    kept = np.argsort(keys, axis=1)[:, :k]
    sized = np.zeros_like(masks)
    np.put_along_axis(sized, kept, True, axis=1)
    return sized


def _first_population(own: Masks, k: int, population: int, rng: np.random.Generator) -> Masks:
    """Random ensembles, and one of the peer's own models (as many as fit, filled up at random)."""
    masks = to_size(np.zeros((population, len(own)), dtype=bool), k, rng)
    masks[0] = to_size(own[None], k, rng)[0]
    return masks
