"""Which participants go together: a pure function of their architectures and the cost of training them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from coterie.architecture import Architecture
from coterie.experiment import Circle, Experiment


def sharded(e: Experiment, circle: Circle, count: int) -> list[list[int]]:
    """Peers in at most so many shards of about equal cost, each of few architectures; a server is in the last.

    Equal peers are trained as one, so those of one architecture stay together as far as costs allow.
    """
    cost = cache(lambda architecture: _operations(architecture, tuple(circle.dataset.x.shape[1:])))
    peers = [peer for peer in circle.participants if peer.data is not None]
    costs = {peer.id: cost(peer.architecture) * max(1, peer.samples * e.train.epochs) for peer in peers}
    by_kind = sorted(peers, key=lambda peer: (peer.architecture.name, peer.id))
    shards = divided([peer.id for peer in by_kind], [costs[peer.id] for peer in by_kind], count)
    shards[-1] += [peer.id for peer in circle.participants if peer.data is None]
    return shards


def divided(members: Sequence[int], costs: Sequence[float], count: int) -> list[list[int]]:
    """Consecutive pieces, none of them empty: each member goes where the middle of its cost falls."""
    count = min(count, len(members))
    total, before = sum(costs), 0.0
    pieces: list[list[int]] = [[] for _ in range(count)]
    for member, cost in zip(members, costs, strict=True):
        pieces[min(count - 1, int((before + cost / 2) / total * count))].append(member)
        before += cost
    return [piece for piece in pieces if piece]


def _operations(architecture: Architecture, shape: tuple[int, ...]) -> float:
    """Multiplications for one sample, as torch counts them."""
    counter = FlopCounterMode(display=False)
    net = architecture.build()
    net.eval()
    with torch.no_grad(), counter:
        net(torch.zeros(1, *shape))
    return float(max(counter.get_total_flops(), 1))
