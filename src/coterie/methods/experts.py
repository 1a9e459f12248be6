"""Experts: models of several sizes that a client may train. What CompFL computes with them, without any exchange."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.loss import Batch, BoundNet, Given, negative_log_likelihood
from coterie.core.net import Output

LEAST = 1e-7  # of a target's probability: its logarithm is taken
TINY = 1e-12  # instead of dividing by zero


def aligned_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy + lam * the squared distance of features from the anchor of their class, mean over samples.

    `given` holds "anchors" (K x d_z) and "lam".
    """
    return _aligned(net(batch.x), batch, given)


def taught_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The same + mu * KL(target || prediction), as distillation is usually done."""
    assert batch.targets is not None
    out, target = net(batch.x), batch.targets.clamp(min=LEAST)
    apart = (target * (target.log() - F.log_softmax(out.logits, dim=-1))).sum(-1)
    return _aligned(out, batch, given) + given["mu"] * apart.mean()


def taught_as_printed_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """The same with KL(prediction || target), as the paper prints it."""
    assert batch.targets is not None
    out = net(batch.x)
    said = F.log_softmax(out.logits, dim=-1)
    apart = (said.exp() * (said - batch.targets.clamp(min=LEAST).log())).sum(-1)
    return _aligned(out, batch, given) + given["mu"] * apart.mean()


def _aligned(out: Output, batch: Batch, given: Given) -> Tensor:
    apart = (out.features - given["anchors"][batch.y]).square().sum(1)
    return negative_log_likelihood(out.logits, batch.y) + given["lam"] * apart.mean()


def expert_weights(accuracies: Sequence[float], tau: float) -> list[float]:
    """Softmax of the accuracies, stretched from 0 (the worst) to 1 (the best), over tau; all equal where they tie."""
    found = np.asarray(accuracies, dtype=np.float64)
    spread = found.max() - found.min()
    stretched = (found - found.min()) / spread if spread > 0 else np.zeros_like(found)
    powers = np.exp((stretched - 1) / tau)
    shares: list[float] = (powers / powers.sum()).tolist()
    return shares


def soft_targets(labels: Tensor, said: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Half the truth, half what the teachers say (probabilities) by their weights."""
    mixed = sum((weight * one for weight, one in zip(weights, said, strict=True)), torch.zeros_like(said[0]))
    return 0.5 * F.one_hot(labels, said[0].shape[1]).to(mixed.dtype) + 0.5 * mixed


def pick(experts: Sequence[str], epsilon: float, rng: np.random.Generator) -> str:
    """The last, one's own, as a rule; with probability epsilon any of them, each as likely."""
    if len(experts) > 1 and rng.random() < epsilon:
        return experts[int(rng.integers(len(experts)))]
    return experts[-1]


def head_from(means: Tensor, counts: Tensor) -> Mapping[str, Tensor]:
    """A head that says which class's mean features are nearest.

    Of features f it says (|f - c|^2 - |f - m|^2) / 2r for a class with mean m, where c is the means' centre and r their
    mean distance from it (root of the squares' mean): its weights are as long as a fresh head's, however long the
    features are, and what all have in common does not matter. What it says of the nearest class is never below -r / 2
    (the mean over classes), so that a class without a sample, which gets -r, is never the answer.
    """
    there = counts > 0
    centre = means[there].mean(0)
    apart = torch.where(there.unsqueeze(1), means - centre, 0.0)
    r = apart[there].square().sum(1).mean().sqrt().clamp(min=TINY)
    nearer = (centre.square().sum() - means.square().sum(1)) / (2 * r)
    return {"head.weight": apart / r, "head.bias": torch.where(there, nearer, -r)}


def distance(features: Tensor, labels: Tensor, anchors: Tensor) -> float:
    """The squared distance of features from the anchor of their class, mean over samples: L_f before any factor."""
    return (features - anchors[labels]).square().sum(1).mean().item()


def cross_entropy_of(said: Tensor, labels: Tensor) -> float:
    """Of probabilities, mean over samples; above 0, so that it can be divided by."""
    likely = said.gather(1, labels.unsqueeze(1)).clamp(min=LEAST)
    return max(-likely.log().mean().item(), TINY)


def mean_square(anchors: Tensor) -> float:
    """The mean squared length of the anchors that there are; above 0. A class without a sample has zeros."""
    squares = anchors.square().sum(1)
    there = squares[squares > 0]
    return max(there.mean().item(), TINY) if len(there) else TINY


def stable_step(features: Tensor) -> float:
    """A step that a head can take on these features without overshooting: one over their mean squared length.

    The curvature of the cross entropy in a head's weights is at most half that length, so steps below four over it
    never diverge.
    """
    return 1 / max(features.square().sum(1).mean().item(), TINY)


def probabilities(features: Tensor, model: Mapping[str, Tensor]) -> Tensor:
    """What a model's head says of features."""
    return F.linear(features, model["head.weight"], model["head.bias"]).softmax(1)
