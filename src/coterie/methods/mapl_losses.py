"""MAPL's losses: as the paper prints them, and as its authors' published code computes them.

Each is the sum of four terms, times their weights. The terms are functions of their own, so that a loss of one's own
(`method.losses = "file.py:function"`) can change one and keep the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.loss import Batch, BoundNet, Given, Loss, negative_log_likelihood
from coterie.training.losses import supervised_contrastive

GIVEN = ("ce", "contrast", "proto", "uniform", "tau", "tau_proto")  # what a loss finds in `given`


def _weighted_sum(
    net: BoundNet,
    batch: Batch,
    given: Given,
    contrast: Callable[[Tensor, Tensor, Tensor], Tensor],
    to_prototypes: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
    uniform: Callable[[Tensor], Tensor],
) -> Tensor:
    """Cross entropy and the three other terms, each times its weight in `given`."""
    x, y = batch.stacked()
    out, prototypes = net(x), net.parameters["prototypes"]
    assert out.projection is not None
    return (
        given["ce"] * negative_log_likelihood(out.logits, y)
        + given["contrast"] * contrast(out.projection, y, given["tau"])
        + given["proto"] * to_prototypes(out.projection, y, prototypes, given["tau_proto"])
        + given["uniform"] * uniform(prototypes)
    )


# -- as the paper prints them ------------------------------------------------------------------


def to_prototypes(projected: Tensor, labels: Tensor, prototypes: Tensor, temperature: Tensor) -> Tensor:
    """Draw each sample to the prototype of its class and away from the others (InfoNCE over cosines)."""
    cosines = F.normalize(projected, dim=-1) @ F.normalize(prototypes, dim=-1).T
    return negative_log_likelihood(cosines / temperature, labels)


def uniformity(prototypes: Tensor) -> Tensor:
    """How alike the prototypes of different classes are: the sum of cosines with all others, mean over classes."""
    unit = F.normalize(prototypes, dim=-1)
    return ((unit @ unit.T).sum() - unit.square().sum()) / len(unit)


def mapl_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """All four terms, each times its weight in `given`."""
    return _weighted_sum(net, batch, given, supervised_contrastive, to_prototypes, uniformity)


# -- as the authors' code computes them --------------------------------------------------------


def contrastive_of_sums(embedded: Tensor, labels: Tensor, temperature: Tensor) -> Tensor:
    """The log of the share that all samples of one's class have together, where the paper has the mean of the logs.

    Every sample needs another one of its class in the batch; with two views of each, it has one.
    """
    unit = F.normalize(embedded, dim=-1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    scores = ((unit @ unit.T) / temperature).masked_fill(itself, -math.inf)
    others = (labels.unsqueeze(1) != labels.unsqueeze(0)) | itself
    return (torch.logsumexp(scores, -1) - torch.logsumexp(scores.masked_fill(others, -math.inf), -1)).mean()


def to_long_prototypes(projected: Tensor, labels: Tensor, prototypes: Tensor, temperature: Tensor) -> Tensor:
    """As `to_prototypes`, but a prototype counts with its length. (In their code the temperature cancels: it is 1.)"""
    return negative_log_likelihood(F.normalize(projected, dim=-1) @ prototypes.T / temperature, labels)


def exponential_uniformity(prototypes: Tensor, temperature: Tensor) -> Tensor:
    """The exponentials of inner products with all other prototypes, summed; mean over classes."""
    itself = torch.eye(len(prototypes), dtype=torch.bool, device=prototypes.device)
    scores = (prototypes @ prototypes.T / temperature).masked_fill(itself, -math.inf)
    return torch.exp(scores).sum() / len(prototypes)


def authors_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The same four terms in the form of the authors' code."""
    uniform = partial(exponential_uniformity, temperature=given["tau"])
    return _weighted_sum(net, batch, given, contrastive_of_sums, to_long_prototypes, uniform)


LOSSES: dict[str, Loss] = {"paper": mapl_loss, "authors": authors_loss}
