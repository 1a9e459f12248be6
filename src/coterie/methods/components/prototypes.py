"""Prototypes: the mean vector of each class (of features or of logits), and the average of several peers' means."""

from collections.abc import Mapping

import torch
from torch import Tensor

from coterie.core.loss import Given
from coterie.core.merging import sum_over_total
from coterie.core.peer import Peer


def class_means(vectors: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """The mean vector of each class and its number of samples; zeros where there are none."""
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    sums.index_add_(0, labels, vectors)
    return {"means": sums / counts.clamp(min=1).unsqueeze(1), "counts": counts}


def average(me: Peer, last: Mapping[str, Tensor], theirs: Mapping[int, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Each class's mean over the peers that have it, weighted by their samples; the last one where no peer has it.

    Class by class, because a rule of the method must not count peers that have no sample of the class.
    """
    means, counts = last["means"].clone(), torch.zeros_like(last["counts"])
    rows = {j: sent["means"].unbind(0) for j, sent in theirs.items()}
    held: dict[int, list[int]] = {}
    for j, sent in theirs.items():
        weights = sent["counts"].to(counts.dtype).clamp(min=0)
        counts += weights
        held[j] = weights.tolist()
    for k in torch.nonzero(counts > 0).flatten().tolist():
        shares = {j: float(numbers[k]) for j, numbers in held.items() if numbers[k] > 0}
        of_class = {j: {"mean": rows[j][k]} for j in shares}
        means[k] = me.average(of_class, shares, default=sum_over_total)["mean"]
    return {"means": means, "counts": torch.where(counts > 0, counts, last["counts"])}


def squared_distance(vectors: Tensor, labels: Tensor, given: Given) -> Tensor:
    """The mean squared difference of vectors from the mean of their class; 0 for a class whose mean is not known.

    `given` holds "means" (one row for each class) and "known" (1 where there is a mean, else 0).
    """
    squares = (vectors - given["means"][labels]).square().mean(1)
    return (given["known"][labels] * squares).mean()
