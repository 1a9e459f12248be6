"""Classifier heads on fixed features: built from class means, trained alone, and judged."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.loss import Batch, BoundNet, Given, sample_losses, weighted_mean
from coterie.methods.components.distillation import LEAST

TINY = 1e-12  # avoids division by zero


def head_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    """The loss of the head alone, on features."""
    logits = F.linear(batch.x, net.parameters["head.weight"], net.parameters["head.bias"])
    return weighted_mean(sample_losses(logits, batch.y), batch.weights)


def head_from(means: Tensor, counts: Tensor) -> Mapping[str, Tensor]:
    """A head that predicts the class whose mean features are nearest.

    The logit of a class with mean m for features f is (|f - c|^2 - |f - m|^2) / 2r, where c is the means' centre and r
    their root mean squared distance from it. So the weights have the length of a freshly initialised head's, whatever
    the length of the features, and a component that all features share does not matter. The logit of the nearest class
    is never below -r / 2 (the mean over classes), so a class without a sample, whose logit is -r, is never predicted.
    """
    present = counts > 0
    centre = means[present].mean(0)
    offsets = torch.where(present.unsqueeze(1), means - centre, 0.0)
    r = offsets[present].square().sum(1).mean().sqrt().clamp(min=TINY)
    bias = (centre.square().sum() - means.square().sum(1)) / (2 * r)
    return {"head.weight": offsets / r, "head.bias": torch.where(present, bias, -r)}


def probabilities(features: Tensor, model: Mapping[str, Tensor]) -> Tensor:
    """What a model's head predicts from features."""
    return F.linear(features, model["head.weight"], model["head.bias"]).softmax(1)


def stable_step(features: Tensor) -> float:
    """A learning rate at which a head does not overshoot on these features: one over their mean squared length.

    The curvature of the cross entropy in a head's weights is at most half that length, so steps below four over it
    never diverge.
    """
    return 1 / max(features.square().sum(1).mean().item(), TINY)


def distance(features: Tensor, labels: Tensor, anchors: Tensor) -> float:
    """The squared distance of features from the anchor of their class, mean over samples: L_f before any factor."""
    return (features - anchors[labels]).square().sum(1).mean().item()


def cross_entropy_of(predicted: Tensor, labels: Tensor) -> float:
    """Of probabilities, mean over samples; above 0, so that it can be a divisor."""
    likelihood = predicted.gather(1, labels.unsqueeze(1)).clamp(min=LEAST)
    return max(-likelihood.log().mean().item(), TINY)


def mean_square(anchors: Tensor) -> float:
    """The mean squared length of the anchors; above 0. A class without a sample has a zero anchor and is left out."""
    squares = anchors.square().sum(1)
    present = squares[squares > 0]
    return max(present.mean().item(), TINY) if len(present) else TINY
