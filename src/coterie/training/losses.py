"""Losses, as pure functions: the same one serves the plain loop and the batched one.

A loss gets the net (call it on inputs; `net.parameters` are its named tensors), a batch, and `given`: the
tensors that the method handed to `me.train` for this peer alone (a reference model, prototypes, ...).
It must not use anything else, so that a hundred peers' losses can be computed as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch.nn.functional as F
from torch import Tensor

from coterie.models import Output


class Batch(NamedTuple):
    x: Tensor
    y: Tensor


class BoundNet(Protocol):
    """A net together with the parameters it is to be evaluated at."""

    @property
    def parameters(self) -> Mapping[str, Tensor]: ...

    def __call__(self, x: Tensor) -> Output: ...


Given = Mapping[str, Tensor]
Loss = Callable[[BoundNet, Batch, Given], Tensor]


def cross_entropy(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    return _negative_log_likelihood(net(batch.x).logits, batch.y)


def proximal(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy + mu/2 ||w - w_ref||^2: `given` holds the reference as "ref.<name>", and "mu"."""
    distance = sum((p - given[f"ref.{name}"]).square().sum() for name, p in net.parameters.items())
    return cross_entropy(net, batch, given) + given["mu"] / 2 * distance


def _negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy without its provision for ignored labels, which under vmap doubles the operations."""
    return -F.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).mean()
