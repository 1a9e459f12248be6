"""Gossip whose models also reconstruct their inputs: a decoder, which the method brings, keeps features informative.

coterie run panm-digits method.name=examples/reconstructing_gossip.py:ReconstructingGossip
"""

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor, nn

from coterie import Batch, Method, Output, Part, Peer, mean, parameter
from coterie.core.loss import BoundNet, Given, negative_log_likelihood
from coterie.core.net import Seen
from coterie.methods.base import need_others
from coterie.models import Site


def build(site: Site) -> nn.Module:
    return nn.Linear(site.net.d_z, prod(site.input_shape))


def join(decoder: nn.Module, seen: Seen, out: Output) -> Output:  # noqa: ARG001
    return out.plus(reconstruction=decoder(out.features))


def reconstructing(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    out = net(batch.x)
    error = (out.of("reconstruction") - batch.x.flatten(1)).square().mean()
    return negative_log_likelihood(out.logits, batch.y) + given["weight"] * error


@dataclass(frozen=True)
class ReconstructingGossip(Method):
    summary: ClassVar[str] = "gossip of backbones and heads, with features that a decoder can reconstruct inputs from"
    parts: ClassVar[tuple[str | Part, ...]] = (Part("decoder", build, join),)
    shared: ClassVar[tuple[str, ...]] = ("backbone", "head")

    k: int = parameter(3, "neighbours to average with in a round", common="neighbours")
    weight: float = parameter(0.1, "weight of the squared error of reconstructed inputs; 0 is plain gossip", least=0)

    def check(self, peers: int) -> None:
        need_others(self.k, "k", peers)

    async def round(self, me: Peer) -> None:
        await me.train(reconstructing, given={"weight": torch.tensor(self.weight)})
        own = me.model.part("backbone", "head")
        me.shelve("model", own)
        others = await me.fetch(me.sample(self.k), "model", like=own)
        me.model.load(mean([own, *others.values()]))
