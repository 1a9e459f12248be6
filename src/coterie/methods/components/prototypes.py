"""Prototypes: the mean vector of each class (of features or of logits), and the average of several peers' means."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from coterie.core.loss import Given


def class_means(vectors: Tensor, labels: Tensor, classes: int) -> dict[str, Tensor]:
    """The mean vector of each class and its number of samples; zeros where there are none."""
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
    sums.index_add_(0, labels, vectors)
    return {"means": sums / counts.clamp(min=1).unsqueeze(1), "counts": counts}


def average(last: Mapping[str, Tensor], theirs: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Each class's mean over the peers that have it, weighted by their samples; the last one where no peer has it."""
    sums, counts = torch.zeros_like(last["means"]), torch.zeros_like(last["counts"])
    for sent in theirs:
        weights = sent["counts"].to(counts.dtype).clamp(min=0)
        sums += weights.unsqueeze(1) * sent["means"]
        counts += weights
    known = (counts > 0).unsqueeze(1)
    means = sums / counts.clamp(min=1).unsqueeze(1)
    return {
        "means": torch.where(known, means, last["means"]),
        "counts": torch.where(counts > 0, counts, last["counts"]),
    }


def squared_distance(vectors: Tensor, labels: Tensor, given: Given) -> Tensor:
    """The mean squared difference of vectors from the mean of their class; 0 for a class whose mean is not known.

    `given` holds "means" (one row for each class) and "known" (1 where there is a mean, else 0).
    """
    squares = (vectors - given["means"][labels]).square().mean(1)
    return (given["known"][labels] * squares).mean()
