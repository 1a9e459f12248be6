"""Collaboration weights: one peer's row of them, and the similarity of two heads (MAPL)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.errors import MethodError
from coterie.core.named_code import Function, call
from coterie.core.peer import Peer
from coterie.methods.components.simplex import project_to_simplex

# -- a row of weights --------------------------------------------------------------------------


class Acquaintance(NamedTuple):
    """One entry of a peer's row of collaboration weights; the peer itself has an entry, too."""

    weight: float  # zero: met, and found dissimilar
    samples: int


Row = dict[int, Acquaintance]


def load_row(me: Peer) -> Row:
    return {j: Acquaintance(weight, samples) for j, weight, samples in me.state["row"]}


def save_row(me: Peer, row: Row) -> None:
    me.state["row"] = [[j, a.weight, a.samples] for j, a in sorted(row.items())]


def neighbours(me: Peer, row: Row) -> list[int]:
    """The other peers with weight."""
    return sorted(j for j, a in row.items() if a.weight > 0 and j != me.id)


def equal_weights(samples: Mapping[int, int]) -> Row:
    return {j: Acquaintance(1 / len(samples), count) for j, count in samples.items()}


def on_simplex(own: int, row: Row) -> Row:
    """The same entries with weights that sum to one again, after entries came or went; zeros stay zero."""
    positive = sorted(j for j, a in row.items() if a.weight > 0) or [own]
    weights = project_to_simplex(np.array([row[j].weight for j in positive]))
    return {**row, **{j: row[j]._replace(weight=float(w)) for j, w in zip(positive, weights, strict=True)}}


def highest(scores: Mapping[int, float], count: int) -> list[int]:
    """The peers with the highest scores, by ascending number."""
    return sorted(sorted(scores, key=lambda j: (-scores[j], j))[:count])


def shares(own: int, row: Row, others: Collection[int], keep_own: bool) -> dict[int, float]:
    """The shares of the peer itself and of these others in an average; they sum to one.

    `keep_own`: the peer's own share is at least the mean of the others'. Graph learning often takes all weight off the
    peer itself, and two peers would then swap their tensors in every round instead of averaging them.
    """
    weights = {j: row[j].weight for j in others}
    own_weight = row[own].weight
    weights[own] = max(own_weight, sum(weights.values()) / len(weights)) if keep_own and weights else own_weight
    total = sum(weights.values())
    return {j: weights[j] / total for j in sorted(weights)} if total > 0 else {own: 1.0}


# -- similarity of heads -----------------------------------------------------------------------

Likeness = Callable[[Tensor, Tensor], float]


def alike_in_rows(mine: Tensor, theirs: Tensor) -> float:
    """The mean over classes of the cosine between the two heads' weights of that class, as in the paper."""
    return float(F.cosine_similarity(mine, theirs, dim=1).mean())


def alike_in_gram(mine: Tensor, theirs: Tensor) -> float:
    """The cosine between the two heads' Gram matrices (inner products of their classes' weights).

    Two peers' feature spaces may be rotated against each other, and with different backbones always are. The cosine of
    rows takes that for different tasks; inner products within one head do not change under rotation.
    """
    return float(F.cosine_similarity((mine @ mine.T).flatten(), (theirs @ theirs.T).flatten(), dim=0))


LIKENESS: dict[str, Likeness] = {"gram": alike_in_gram, "rows": alike_in_rows}


def similarities(mine: Tensor, heads: Mapping[int, Artifact], name: str, likeness: Function) -> dict[int, float]:
    """The similarity of each head to the peer's own. A head of a model that diverged is similar to none.

    `likeness` may be the user's function `name`. It is at fault if it returns a finite number for none of the heads;
    for a single one, that head may be: its model diverged, or an attacker sent it.
    """
    values = {
        j: _one_number(name, call("method.likeness", name, likeness, mine, head["weight"])) for j, head in heads.items()
    }
    finite = {j: math.isfinite(value) for j, value in values.items()}
    if ":" in name and values and not any(finite.values()) and mine.isfinite().all():
        raise MethodError(
            f"method.likeness = '{name}' returned {next(iter(values.values()))}, and no finite number for any head: "
            "look for a division by 0 or a log of 0"
        )
    return {j: value if finite[j] else -1.0 for j, value in values.items()}


def _one_number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise MethodError(
            f"method.likeness = '{name}' returned a {type(value).__name__}; it must return one number"
        ) from error
