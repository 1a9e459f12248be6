"""Distillation among experts, with features aligned to class anchors: CompFL's losses and targets."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.loss import Batch, BoundNet, Given, Loss, negative_log_likelihood
from coterie.core.net import Output

LEAST = 1e-7  # least probability in a target, as its logarithm is taken


def aligned_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy + lam * the squared distance of features from the anchor of their class, mean over samples.

    `given` holds "anchors" (K x d_z) and "lam".
    """
    return _aligned(net(batch.x), batch, given)


def taught_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The same + mu * KL(target || prediction), the usual form of distillation."""
    assert batch.targets is not None
    out, target = net(batch.x), batch.targets.clamp(min=LEAST)
    divergence = (target * (target.log() - F.log_softmax(out.logits, dim=-1))).sum(-1)
    return _aligned(out, batch, given) + given["mu"] * divergence.mean()


def taught_as_printed_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The same with KL(prediction || target), as the paper prints it."""
    assert batch.targets is not None
    out = net(batch.x)
    predicted = F.log_softmax(out.logits, dim=-1)
    divergence = (predicted.exp() * (predicted - batch.targets.clamp(min=LEAST).log())).sum(-1)
    return _aligned(out, batch, given) + given["mu"] * divergence.mean()


def _aligned(out: Output, batch: Batch, given: Given) -> Tensor:
    squares = (out.features - given["anchors"][batch.y]).square().sum(1)
    return negative_log_likelihood(out.logits, batch.y, batch.weights) + given["lam"] * squares.mean()


KL: dict[str, Loss] = {"usual": taught_loss, "printed": taught_as_printed_loss}


def expert_weights(accuracies: Sequence[float], tau: float) -> list[float]:
    """Softmax of the accuracies, rescaled from 0 (the worst) to 1 (the best), over tau; equal if all tie."""
    values = np.asarray(accuracies, dtype=np.float64)
    spread = values.max() - values.min()
    rescaled = (values - values.min()) / spread if spread > 0 else np.zeros_like(values)
    powers = np.exp((rescaled - 1) / tau)
    shares: list[float] = (powers / powers.sum()).tolist()
    return shares


def soft_targets(labels: Tensor, predictions: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Half the label, half the teachers' predicted probabilities by their weights."""
    mixed = sum((weight * p for weight, p in zip(weights, predictions, strict=True)), torch.zeros_like(predictions[0]))
    return 0.5 * F.one_hot(labels, predictions[0].shape[1]).to(mixed.dtype) + 0.5 * mixed
