"""Choosing an ensemble from a bench of models: NSGA-II over strength and diversity, then the best vote (FedPAE).

Pure functions of predictions on one's validation split: they do not care what made them, or where. Everything is
computed for a whole population at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]
Indices = NDArray[np.int64]

Place = tuple[float, float]  # strength and diversity of an ensemble
Evaluate = Callable[[Masks], tuple[Floats, Floats]]  # strength and diversity, of a whole population

TINY = 1e-12


@dataclass(frozen=True)
class Bench:
    """What models predict on the validation samples, and which of them are one's own."""

    probabilities: Floats  # (models, samples, classes)
    labels: Indices  # (samples,)
    own: Masks  # (models,)

    def __post_init__(self) -> None:
        models, samples, _ = self.probabilities.shape
        assert self.labels.shape == (samples,)
        assert self.own.shape == (models,)

    @property
    def models(self) -> int:
        return len(self.own)

    def accuracies(self) -> Floats:
        """Of each model alone."""
        right: Floats = (self.probabilities.argmax(2) == self.labels).mean(1)
        return right

    def vote_accuracy(self, masks: Masks, vote: str = "soft") -> Floats:
        """Of each ensemble: by the mean probability (soft), or by the class that most members name (hard)."""
        voices = self.probabilities if vote == "soft" else _named(self.probabilities)
        summed = np.tensordot(masks.astype(np.float64), voices, axes=1)  # (ensembles, samples, classes)
        right: Floats = (summed.argmax(2) == self.labels).mean(1)
        return right


def _named(probabilities: Floats) -> Floats:
    """One at the class that each model names, and the sum of probabilities as a tie-break far below one vote."""
    models, _, classes = probabilities.shape
    votes: Floats = np.eye(classes)[probabilities.argmax(2)] + probabilities / (10.0 * models)
    return votes


def cosines_of_errors(bench: Bench) -> Floats:
    """By sample, the cosines between any two models' predictions without the true class: (models, models, samples).

    What models disagree on is the classes that are wrong (Pang et al. 2019).
    """
    _, samples, classes = bench.probabilities.shape
    others = np.arange(classes)[None] != bench.labels[:, None]
    rest = bench.probabilities.transpose(1, 0, 2)[np.broadcast_to(others[:, None], (samples, bench.models, classes))]
    rest = rest.reshape(samples, bench.models, classes - 1)
    unit = rest / np.maximum(np.linalg.norm(rest, axis=2, keepdims=True), TINY)
    return np.ascontiguousarray((unit @ unit.transpose(0, 2, 1)).transpose(1, 2, 0))


def diversities(cosines: Floats, members: Indices, classes: int) -> Floats:
    """Of each ensemble (ensembles, k): the mean over samples of the determinant of its members' cosines.

    k vectors in classes - 1 dimensions are dependent if k is larger: then the mean of 1 - cosine over pairs.
    """
    k = members.shape[1]
    if k <= classes - 1:
        return np.asarray(_determinants(cosines, members).mean(1))
    if k == 1:
        return np.zeros(len(members))
    apart = [1.0 - cosines[members[:, a], members[:, b]].mean(1) for a, b in combinations(range(k), 2)]
    return np.asarray(np.mean(apart, axis=0))


def _determinants(cosines: Floats, members: Indices) -> Floats:
    """Of every ensemble's matrix at every sample, (ensembles, samples), by elimination.

    Entry by entry of the matrix, for all ensembles and samples at once: long rows are what arithmetic is fast with.
    """
    k = members.shape[1]
    left = {(a, b): cosines[members[:, a], members[:, b]] for a in range(k) for b in range(a, k)}
    product = np.ones_like(left[0, 0])
    for i in range(k):
        pivot = np.maximum(left[i, i], 0.0)  # positive semi-definite, but for rounding
        product *= pivot
        over = 1.0 / np.maximum(pivot, TINY)
        for a in range(i + 1, k):
            factor = left[i, a] * over
            for b in range(a, k):
                left[a, b] -= factor * left[i, b]
    return product


@dataclass(frozen=True)
class Choice:
    """The ensemble that was chosen, and the front it came from."""

    members: tuple[int, ...]
    accuracy: float  # of its vote, on the validation samples
    place: Place
    front: tuple[Place, ...]  # the ensembles on it
    alone: Place | None  # one's own models


def choose(
    bench: Bench, k: int, *, vote: str = "soft", population: int = 100, generations: int = 100, seed: int = 0
) -> Choice:
    """Search for ensembles of k models that are strong and diverse; of the best of them take the best vote.

    One's own models are a candidate of the final pick whatever the search found, so that on these samples nobody does
    worse than alone. Ties: more of one's own models, then the smaller ensemble, then the more diverse.
    """
    own = bench.own
    size = min(k, bench.models)
    masks = _every(bench.models, size) if _is_small(bench.models, size, population) else None
    cosines = cosines_of_errors(bench)
    if masks is None:
        masks = search(bench, partial(objectives, bench, cosines), size, population, generations, seed)
    strength, diversity = objectives(bench, cosines, masks)
    best = pareto(strength, diversity)
    masks, strength, diversity = masks[best], strength[best], diversity[best]
    front = tuple(sorted(zip(strength.tolist(), diversity.tolist(), strict=True)))
    if own.any():
        masks = np.concatenate([masks, own[None]])
        of_own = objectives(bench, cosines, own[None])
        strength, diversity = np.append(strength, of_own[0]), np.append(diversity, of_own[1])
    accuracy = bench.vote_accuracy(masks, vote)
    order = np.lexsort((-diversity, masks.sum(1), -(masks & own).sum(1), -accuracy))
    best_vote = int(order[0])
    places: list[Place] = list(zip(strength.tolist(), diversity.tolist(), strict=True))
    members = tuple(np.flatnonzero(masks[best_vote]).tolist())
    alone = places[-1] if own.any() else None
    return Choice(members, float(accuracy[best_vote]), places[best_vote], front, alone)


def objectives(bench: Bench, cosines: Floats, masks: Masks) -> tuple[Floats, Floats]:
    """Strength (the mean accuracy of the members) and diversity, of ensembles of one size."""
    k = int(masks[0].sum())
    members = np.nonzero(masks)[1].reshape(len(masks), k)
    strength = bench.accuracies()[members].mean(1)
    return strength, diversities(cosines, members, bench.probabilities.shape[2])


def pareto(strength: Floats, diversity: Floats) -> Indices:
    """Who is not beaten in one objective by somebody who is at least as good in the other; all of equals."""
    levels, level = np.unique(strength, return_inverse=True)
    best = np.full(len(levels), -np.inf)
    np.maximum.at(best, level, diversity)
    of_stronger = np.append(np.maximum.accumulate(best[::-1])[::-1][1:], -np.inf)
    return np.flatnonzero((diversity == best[level]) & (diversity > of_stronger[level]))


def _is_small(models: int, k: int, population: int) -> bool:
    """Whether trying every ensemble costs less than a few generations of the search."""
    return comb(models, k) <= 10 * population


def _every(models: int, k: int) -> Masks:
    chosen = np.array(list(combinations(range(models), k)))
    masks = np.zeros((len(chosen), models), dtype=bool)
    np.put_along_axis(masks, chosen, True, axis=1)
    return masks


def search(bench: Bench, evaluate: Evaluate, k: int, population: int, generations: int, seed: int) -> Masks:
    """The last population of NSGA-II (pymoo: its sorting and survival are compiled and well tested)."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.optimize import minimize

    first = _first_population(bench, k, population, np.random.default_rng(seed))

    class Ensembles(Problem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(n_var=bench.models, n_obj=2, xl=0, xu=1, vtype=bool)

        def _evaluate(self, x: Masks, out: dict[str, Any], *_: Any, **__: Any) -> None:
            strength, diversity = evaluate(x.astype(bool))
            out["F"] = np.column_stack([-strength, -diversity])

    crossover, mutation, repair = _operators(k)
    algorithm = NSGA2(
        pop_size=population, sampling=first, crossover=crossover, mutation=mutation, repair=repair,
        eliminate_duplicates=True,
    )  # fmt: skip
    result = minimize(Ensembles(), algorithm, ("n_gen", generations), seed=seed, verbose=False)
    found: Masks = np.atleast_2d(result.pop.get("X")).astype(bool)
    return found


def _operators(k: int) -> tuple[Any, Any, Any]:
    """Uniform crossover, a flip of one bit in M, and back to k members."""
    from pymoo.core.repair import Repair
    from pymoo.operators.crossover.ux import UniformCrossover
    from pymoo.operators.mutation.bitflip import BitflipMutation

    class ToSize(Repair):  # type: ignore[misc]
        def _do(self, _: Any, x: Masks, random_state: np.random.Generator | None = None, **__: Any) -> Masks:
            return to_size(x.astype(bool), k, random_state or np.random.default_rng(0))

    return UniformCrossover(), BitflipMutation(), ToSize()


def to_size(masks: Masks, k: int, rng: np.random.Generator) -> Masks:
    """Add or drop members at random until each has k: those it has come first in a random order."""
    keys = rng.random(masks.shape) + ~masks
    kept = np.argsort(keys, axis=1)[:, :k]
    sized = np.zeros_like(masks)
    np.put_along_axis(sized, kept, True, axis=1)
    return sized


def _first_population(bench: Bench, k: int, population: int, rng: np.random.Generator) -> Masks:
    """Random ensembles, and one of one's own models (as many as fit, filled up at random)."""
    masks = to_size(np.zeros((population, bench.models), dtype=bool), k, rng)
    masks[0] = to_size(bench.own[None], k, rng)[0]
    return masks
