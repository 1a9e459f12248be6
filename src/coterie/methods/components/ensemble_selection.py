"""Ensemble selection from a bench of models: a Pareto front of strength and diversity, then the best vote (FedPAE).

Pure functions of predictions on a validation split, whichever models made them. Everything is computed for a whole
population of ensembles at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coterie.core.merit import WORST, Judge, by_accuracy
from coterie.core.task import REGRESSION, task_of
from coterie.methods.components import nsga2
from coterie.methods.components.nsga2 import Floats, Masks

Indices = NDArray[np.int64]

Place = tuple[float, float]  # strength and diversity of an ensemble

TINY = 1e-12  # avoids division by zero


@dataclass(frozen=True)
class Bench:
    """The predictions of models on the validation samples, and which models are the peer's own."""

    probabilities: Floats  # (models, samples, classes); for regression (models, samples, 1), scaled numbers
    labels: NDArray[Any]  # (samples,)
    own: Masks  # (models,)
    judge: Judge = by_accuracy

    def __post_init__(self) -> None:
        models, samples, _ = self.probabilities.shape
        assert self.labels.shape == (samples,)
        assert self.own.shape == (models,)

    @property
    def models(self) -> int:
        return len(self.own)

    @cached_property
    def merits(self) -> Floats:
        """The merit of each model alone."""
        return np.maximum(self.judge(self.probabilities, self.labels), WORST)

    def vote_merits(self, masks: Masks, vote: str = "soft") -> Floats:
        """The merit of each ensemble: by mean answer (soft), or by the class that most members predict."""
        votes = self.probabilities if vote == "soft" else _hard_votes(self.probabilities)
        shares = masks / np.maximum(masks.sum(1, keepdims=True), 1)
        return self.judge(np.tensordot(shares, votes, axes=1), self.labels)  # of (ensembles, samples, classes)


def _hard_votes(probabilities: Floats) -> Floats:
    """One for the class that each model predicts, plus its probabilities as a tie-break far below one vote."""
    models, _, classes = probabilities.shape
    votes: Floats = np.eye(classes)[probabilities.argmax(2)] + probabilities / (10.0 * models)
    return votes


def cosines_of_errors(bench: Bench) -> Floats:
    """The cosines between any two models' predictions without the true class: (models, models, samples).

    Diversity is disagreement about the wrong classes (Pang et al. 2019). Of predicted numbers, it is disagreement
    about the error: the mean over samples is the cosine between two models' errors.
    """
    _, samples, classes = bench.probabilities.shape
    if task_of(classes) == REGRESSION:
        errors = bench.probabilities[:, :, 0] - bench.labels
        unit = errors * (np.sqrt(samples) / np.maximum(np.linalg.norm(errors, axis=1, keepdims=True), TINY))
        products: Floats = unit[:, None] * unit[None]
        return products
    others = np.arange(classes)[None] != bench.labels[:, None]
    rest = bench.probabilities.transpose(1, 0, 2)[np.broadcast_to(others[:, None], (samples, bench.models, classes))]
    rest = rest.reshape(samples, bench.models, classes - 1)
    unit = rest / np.maximum(np.linalg.norm(rest, axis=2, keepdims=True), TINY)
    return np.ascontiguousarray((unit @ unit.transpose(0, 2, 1)).transpose(1, 2, 0))


def diversities(cosines: Floats, members: Indices, classes: int) -> Floats:
    """The diversity of each ensemble (ensembles, k): the mean over samples of the determinant of its members' cosines.

    More than classes - 1 vectors in classes - 1 dimensions are linearly dependent: then the mean of 1 - cosine over
    pairs instead.
    """
    k = members.shape[1]
    if k <= classes - 1:
        return np.asarray(_determinants(cosines, members).mean(1))
    if k == 1:
        return np.zeros(len(members))
    distances = [1.0 - cosines[members[:, a], members[:, b]].mean(1) for a, b in combinations(range(k), 2)]
    return np.asarray(np.mean(distances, axis=0))


def _determinants(cosines: Floats, members: Indices) -> Floats:
    """The determinant of every ensemble's matrix at every sample, (ensembles, samples), by elimination.

    Entry by entry of the matrix, for all ensembles and samples at once: NumPy is fast on long rows.
    """
    k = members.shape[1]
    entries = {(a, b): cosines[members[:, a], members[:, b]] for a in range(k) for b in range(a, k)}
    product = np.ones_like(entries[0, 0])
    for i in range(k):
        pivot = np.maximum(entries[i, i], 0.0)  # positive semi-definite up to rounding
        product *= pivot
        inverse = 1.0 / np.maximum(pivot, TINY)
        for a in range(i + 1, k):
            factor = entries[i, a] * inverse
            for b in range(a, k):
                entries[a, b] -= factor * entries[i, b]
    return product


@dataclass(frozen=True)
class Choice:
    """The ensemble that was chosen, and the front it came from."""

    members: tuple[int, ...]
    merit: float  # of its vote, on the validation samples
    place: Place
    front: tuple[Place, ...]  # all ensembles on it
    alone: Place | None  # of the peer's own models


def choose(
    bench: Bench, k: int, *, vote: str = "soft", population: int = 100, generations: int = 100, seed: int = 0
) -> Choice:
    """Search for ensembles of k models that are strong and diverse; of those on the front take the best vote.

    The peer's own models are always a candidate of the final choice, so that on these samples the ensemble is never
    worse than these alone. Ties: more of the peer's own models, then the smaller ensemble, then the more diverse.
    """
    own = bench.own
    size = min(k, bench.models)
    cosines = cosines_of_errors(bench)
    if _is_small(bench.models, size, population):
        masks = _all_ensembles(bench.models, size)
    else:
        masks = nsga2.search(bench.own, partial(objectives, bench, cosines), size, population, generations, seed)
    strength, diversity = objectives(bench, cosines, masks)
    on_front = pareto(strength, diversity)
    masks, strength, diversity = masks[on_front], strength[on_front], diversity[on_front]
    front = tuple(sorted(zip(strength.tolist(), diversity.tolist(), strict=True)))
    if own.any():
        masks = np.concatenate([masks, own[None]])
        own_strength, own_diversity = objectives(bench, cosines, own[None])
        strength, diversity = np.append(strength, own_strength), np.append(diversity, own_diversity)
    merits = bench.vote_merits(masks, vote)
    order = np.lexsort((-diversity, masks.sum(1), -(masks & own).sum(1), -merits))
    best = int(order[0])
    places: list[Place] = list(zip(strength.tolist(), diversity.tolist(), strict=True))
    members = tuple(np.flatnonzero(masks[best]).tolist())
    alone = places[-1] if own.any() else None
    return Choice(members, float(merits[best]), places[best], front, alone)


def objectives(bench: Bench, cosines: Floats, masks: Masks) -> tuple[Floats, Floats]:
    """Strength (the mean merit of the members) and diversity, of ensembles of one size."""
    k = int(masks[0].sum())
    members = np.nonzero(masks)[1].reshape(len(masks), k)
    strength = bench.merits[members].mean(1)
    return strength, diversities(cosines, members, bench.probabilities.shape[2])


def pareto(strength: Floats, diversity: Floats) -> Indices:
    """The ensembles that no other beats in one objective while at least as good in the other; ties all count."""
    levels, level = np.unique(strength, return_inverse=True)
    best = np.full(len(levels), -np.inf)
    np.maximum.at(best, level, diversity)
    best_of_stronger = np.append(np.maximum.accumulate(best[::-1])[::-1][1:], -np.inf)
    return np.flatnonzero((diversity == best[level]) & (diversity > best_of_stronger[level]))


def _is_small(models: int, k: int, population: int) -> bool:
    """Whether trying all ensembles costs less than a few generations of the search."""
    return comb(models, k) <= 10 * population


def _all_ensembles(models: int, k: int) -> Masks:
    chosen = np.array(list(combinations(range(models), k)))
    masks = np.zeros((len(chosen), models), dtype=bool)
    np.put_along_axis(masks, chosen, True, axis=1)
    return masks
