"""What a loss is, and the one that peers train with unless their method says otherwise.

A loss gets the net (call it on inputs; `net.parameters` are its named tensors), a batch, and `given`: the
tensors that the method handed to `me.train` for this peer alone (a reference model, prototypes, ...).
It must not use anything else, so that a hundred peers' losses can be computed as one; nor draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from coterie.core.net import Output


class Batch(NamedTuple):
    """The samples of one step: what a loss is given to compute on."""

    x: Tensor  # (batch, ...): inputs, scaled
    y: Tensor  # (batch): labels, as whole numbers from 0
    views: Tensor | None = None  # (views, batch, ...): augmented twins of x, where `me.train(views=...)` asks for them
    targets: Tensor | None = None  # (batch, ...): these samples' rows of what `me.train(targets=...)` was given

    def stacked(self) -> tuple[Tensor, Tensor]:
        """All views one after the other, and their labels."""
        assert self.views is not None  # the method asks for them
        return self.views.flatten(0, 1), self.y.repeat(self.views.shape[0])


class BoundNet(Protocol):
    """A net together with the parameters it is to be evaluated at."""

    @property
    def parameters(self) -> Mapping[str, Tensor]: ...

    def __call__(self, x: Tensor) -> Output: ...


Given = Mapping[str, Tensor]


Loss = Callable[[BoundNet, Batch, Given], Tensor]


def cross_entropy(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    return negative_log_likelihood(net(batch.x).logits, batch.y)


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy, mean over samples."""
    return surprise(logits, labels).mean()


def surprise(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy of each sample, (..., classes) and (...).

    By its formula: torch's log-softmax of many short rows takes several times as long, and its own provision for labels
    to ignore doubles the operations under vmap.
    """
    return torch.logsumexp(logits, -1) - logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
