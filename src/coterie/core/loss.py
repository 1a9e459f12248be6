"""The interface of a loss, and the default loss of each task.

A loss gets the net (call it on inputs; `net.parameters` are its named tensors), a batch, and `given`: the
tensors that the method passed to `me.train` for this peer (a reference model, prototypes, ...).
It must use nothing else, so that the losses of a hundred peers can be computed as one, and draw no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from coterie.core.errors import ModelError
from coterie.core.net import Output


class Batch(NamedTuple):
    """The samples of one training step."""

    x: Tensor  # (batch, ...): scaled inputs
    y: Tensor  # (batch): labels, integers from 0; for regression, scaled numbers
    views: Tensor | None = None  # (views, batch, ...): augmented views of x, if `me.train(views=...)` requests them
    targets: Tensor | None = None  # (batch, ...): these samples' rows of `me.train(targets=...)`
    weights: Tensor | None = None  # (batch): the weight of each sample, with `train.balance = "weights"`

    def stacked(self) -> tuple[Tensor, Tensor]:
        """All views concatenated, and their labels."""
        assert self.views is not None  # the method requests them
        return self.views.flatten(0, 1), self.y.repeat(self.views.shape[0])

    def stacked_weights(self) -> Tensor | None:
        """The weights of the samples of `stacked`."""
        assert self.views is not None
        return None if self.weights is None else self.weights.repeat(self.views.shape[0])


class BoundNet(Protocol):
    """A net together with the parameters to evaluate it at."""

    @property
    def parameters(self) -> Mapping[str, Tensor]: ...

    def __call__(self, x: Tensor) -> Output: ...


Given = Mapping[str, Tensor]


Loss = Callable[[BoundNet, Batch, Given], Tensor]


def task_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    """The default loss of `me.train`: cross entropy of classes, or the mean squared error of predicted numbers.

    Args:
        net: the model that is trained.
        batch: the samples of this step.
        given: not used; other losses get tensors from `me.train(given=...)`.

    Returns:
        The loss, a tensor of one number.
    """
    return weighted_mean(sample_losses(net(batch.x).logits, batch.y), batch.weights)


def cross_entropy(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    """Cross entropy of the batch, the mean over samples by their weights.

    Args:
        net: the model that is trained.
        batch: the samples of this step.
        given: not used; other losses get tensors from `me.train(given=...)`.

    Returns:
        The loss, a tensor of one number.
    """
    return negative_log_likelihood(net(batch.x).logits, batch.y, batch.weights)


def negative_log_likelihood(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """F.cross_entropy, mean over samples; by their weights, if there are any."""
    if labels.is_floating_point():
        raise ModelError("cross entropy needs classes, but the labels are numbers: use task_loss, which fits both")
    return weighted_mean(sample_cross_entropy(logits, labels), weights)


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    return losses.mean() if weights is None else (weights * losses).sum() / weights.sum()


def sample_losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of each sample by its task, from (..., outputs) and (...): of a class, or of a number."""
    if labels.is_floating_point():
        return (outputs.squeeze(-1) - labels).square()
    return sample_cross_entropy(outputs, labels)


def sample_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy of each sample, from (..., classes) and (...).

    Written out as a formula: torch's log-softmax takes several times as long on many short rows, and its support for
    ignored labels doubles the operations under vmap.
    """
    return torch.logsumexp(logits, -1) - logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
