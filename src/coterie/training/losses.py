"""Losses, as pure functions: the same one serves the plain loop and the batched one.

A loss gets the net (call it on inputs; `net.parameters` are its named tensors), a batch, and `given`: the
tensors that the method handed to `me.train` for this peer alone (a reference model, prototypes, ...).
It must not use anything else, so that a hundred peers' losses can be computed as one; nor draw random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.models import Output
from coterie.weights import Weights


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


def proximal(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Cross entropy + mu/2 ||w - w_ref||^2: `given` holds the reference as "ref.<name>", and "mu"."""
    distance = sum((p - given[f"ref.{name}"]).square().sum() for name, p in net.parameters.items())
    return cross_entropy(net, batch, given) + given["mu"] / 2 * distance


def pulled_to(model: Weights, mu: float) -> dict[str, Tensor]:
    """What `proximal` is given, for a pull to this model as it is now."""
    frozen = model.copy()
    reference = {f"ref.{slot.name}": frozen[slot.name] for slot in frozen.layout.parameters}
    return {**reference, "mu": torch.tensor(mu, device=frozen.vector.device)}


def supervised_contrastive(embedded: Tensor, labels: Tensor, temperature: Tensor) -> Tensor:
    """Draw samples of one class together (Khosla et al. 2020), by the cosine of their embeddings; mean over samples.

    A sample that is the only one of its class in the batch counts as zero: with two views there is none.
    """
    unit = F.normalize(embedded, dim=-1)
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    scores = ((unit @ unit.T) / temperature).masked_fill(itself, -math.inf)
    positive = ((labels.unsqueeze(1) == labels.unsqueeze(0)) & ~itself).to(unit.dtype)
    log_share = F.log_softmax(scores, dim=-1).masked_fill(itself, 0.0)
    return -((log_share * positive).sum(1) / positive.sum(1).clamp(min=1)).mean()


def negative_log_likelihood(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy, mean over samples."""
    return surprise(logits, labels).mean()


def surprise(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy of each sample, (..., classes) and (...).

    By its formula: torch's log-softmax of many short rows takes several times as long, and its own provision for labels
    to ignore doubles the operations under vmap.
    """
    return torch.logsumexp(logits, -1) - logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
