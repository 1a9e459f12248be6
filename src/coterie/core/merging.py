"""Merging: how several peers' models, or parts of them, become one. Methods merge through `me.average` alone.

A rule is one function of the models, their shares and the peer that the result is for. The weighted mean is the
default, in three forms that differ only in the order of their operations, and so in rounding. A method that returns
another rule from `Method.merge_rule` replaces all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from coterie.core.errors import ArtifactError, MethodError
from coterie.core.weights import Layout, Weights, as_weights, mean, mean_into

Models = Mapping[int, Mapping[str, Tensor]]  # by author, in the order of summation; all have the same tensors
Shares = Mapping[int, float]  # by author: their weights relative to each other, which need not sum to one
# `own` is the peer that the result is for. Its own model may be among the models; at a server, usually none is.
Rule = Callable[[Models, Shares, int], Mapping[str, Tensor]]


def weighted_mean(models: Models, shares: Shares, own: int) -> Mapping[str, Tensor]:  # noqa: ARG001
    """`coterie.mean`: shares are normalised before they multiply."""
    return mean(list(models.values()), list(shares.values()))


def weighted_sum(models: Models, shares: Shares, own: int) -> Mapping[str, Tensor]:  # noqa: ARG001
    """The mean, if the shares sum to one already (MAPL's prototypes)."""
    names = next(iter(models.values()))
    return {name: sum((shares[j] * models[j][name] for j in models), torch.zeros(())) for name in names}


def sum_over_total(models: Models, shares: Shares, own: int) -> Mapping[str, Tensor]:  # noqa: ARG001
    """The mean, if the shares are counts: the sum of all samples, divided by their number (means of a class)."""
    total, merged = sum(shares.values()), {}
    for name, first in next(iter(models.values())).items():
        rows = torch.stack([model[name] for model in models.values()])
        counts = rows.new_tensor(list(shares.values())).reshape(-1, *[1] * first.dim())
        sums = torch.zeros_like(first)
        for row in (counts * rows).unbind(0):  # one by one: torch's own sum does not say in which order it adds
            sums += row
        merged[name] = sums / sums.new_tensor(total)
    return merged


def merge(rule: Rule, models: Models, shares: Shares | None, own: int, into: Weights | None = None) -> Weights:
    """Apply a rule, and load the result into the weights `into`, if there are any. `Peer.average` documents it."""
    if not models:
        raise ArtifactError("there are no models to average: pass at least one")
    if shares is None:
        shares = dict.fromkeys(models, 1.0)
    elif shares.keys() != models.keys():
        raise ArtifactError(f"models of the peers {list(models)} need a share each, not shares of {list(shares)}")
    shares = {j: shares[j] for j in models}
    first, *others = models.values()
    if rule is weighted_mean and into is first:  # the same numbers, without a copy of the model
        mean_into(into, others, list(shares.values()))
        return into
    merged = _packed(rule, rule(models, shares, own), models)
    if into is None:
        return merged
    into.load(merged)
    return into


def _packed(rule: Rule, result: Mapping[str, Tensor], models: Models) -> Weights:
    """The result of a rule as new weights; its tensors must be like those that it merged."""
    if isinstance(result, Weights) and not any(result is as_weights(model) for model in models.values()):
        return result
    like = next(iter(models.values()))
    expected, actual = ({name: tuple(tensor.shape) for name, tensor in tensors.items()} for tensors in (like, result))
    if expected != actual:
        name = getattr(rule, "__qualname__", repr(rule))
        raise MethodError(f"the merge rule {name} returned {actual} for models of {expected}: keep names and shapes")
    content = as_weights(like)
    layout = content.layout if isinstance(content, Weights) else Layout.of_shapes(expected)
    return Weights(layout, torch.cat([result[slot.name].detach().reshape(-1) for slot in layout.slots]))
