"""Losses that several methods use, as pure functions; `coterie.core.loss` defines the interface."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.loss import Batch, BoundNet, Given, task_loss
from coterie.core.weights import Weights


def proximal(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The loss of the task (cross entropy, or squared error) + mu/2 ||w - w_ref||^2, as in FedProx.

    Args:
        net: the model that is trained.
        batch: the samples of this step.
        given: the reference tensors as ``"ref.<name>"``, and ``"mu"``; `pulled_to` makes it.

    Returns:
        The loss, a tensor of one number.
    """
    distance = sum((p - given[f"ref.{name}"]).square().sum() for name, p in net.parameters.items())
    return task_loss(net, batch, given) + given["mu"] / 2 * distance


def pulled_to(model: Weights, mu: float) -> dict[str, Tensor]:
    """The `given` tensors of `proximal`, for a pull towards this model's current weights."""
    frozen = model.copy()
    reference = {f"ref.{slot.name}": frozen[slot.name] for slot in frozen.layout.parameters}
    return {**reference, "mu": torch.tensor(mu, device=frozen.vector.device)}


def supervised_contrastive(embedded: Tensor, labels: Tensor, temperature: Tensor) -> Tensor:
    """The loss of Khosla et al. (2020), which attracts samples of one class by cosine similarity; mean over samples.

    A sample that is the only one of its class in the batch counts as zero; with two views there is none.
    """
    unit = F.normalize(embedded, dim=-1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    scores = ((unit @ unit.T) / temperature).masked_fill(itself, -math.inf)
    positive = ((labels.unsqueeze(1) == labels.unsqueeze(0)) & ~itself).to(unit.dtype)
    log_share = F.log_softmax(scores, dim=-1).masked_fill(itself, 0.0)
    return -((log_share * positive).sum(1) / positive.sum(1).clamp(min=1)).mean()
