"""MAPL's losses: as the paper prints them, and as its authors' published code computes them.

Each is the weighted sum of four terms. The terms are separate functions, so that a loss of the user's
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

GIVEN = ("ce", "contrast", "proto", "uniform", "tau", "tau_proto")  # the keys of `given`


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
        given["ce"] * negative_log_likelihood(out.logits, y, batch.stacked_weights())
        + given["contrast"] * contrast(out.projection, y, given["tau"])
        + given["proto"] * to_prototypes(out.projection, y, prototypes, given["tau_proto"])
        + given["uniform"] * uniform(prototypes)
    )


# -- as the paper prints them ------------------------------------------------------------------


def to_prototypes(projected: Tensor, labels: Tensor, prototypes: Tensor, temperature: Tensor) -> Tensor:
    """Pull each sample towards the prototype of its class and away from the others (InfoNCE over cosines)."""
    cosines = F.normalize(projected, dim=-1) @ F.normalize(prototypes, dim=-1).T
    return negative_log_likelihood(cosines / temperature, labels)


def uniformity(prototypes: Tensor) -> Tensor:
    """The similarity of the prototypes of different classes: the sum of cosines with all others, mean over classes."""
    unit = F.normalize(prototypes, dim=-1)
    return ((unit @ unit.T).sum() - unit.square().sum()) / len(unit)


def mapl_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """All four terms, each times its weight in `given`."""
    return _weighted_sum(net, batch, given, supervised_contrastive, to_prototypes, uniformity)


# -- as the authors' code computes them --------------------------------------------------------


def contrastive_of_sums(embedded: Tensor, labels: Tensor, temperature: Tensor) -> Tensor:
    """The log of the joint share of all samples of the same class, where the paper has the mean of the logs.

    Every sample needs another one of its class in the batch; with two views of each sample, there always is one.
    """
    unit = F.normalize(embedded, dim=-1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    scores = ((unit @ unit.T) / temperature).masked_fill(itself, -math.inf)
    others = (labels.unsqueeze(1) != labels.unsqueeze(0)) | itself
    return (torch.logsumexp(scores, -1) - torch.logsumexp(scores.masked_fill(others, -math.inf), -1)).mean()


def to_long_prototypes(projected: Tensor, labels: Tensor, prototypes: Tensor, temperature: Tensor) -> Tensor:
    """As `to_prototypes`, but prototypes are not normalised. (In their code the temperature cancels: it is 1.)"""
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
