"""Divides participants into shards, as a pure function of their architectures and training costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
from torch.utils.flop_counter import FlopCounterMode

from coterie.core.model import Architecture
from coterie.core.peer import Peer, held_by

# Estimated cost of a peer's round, in seconds of a core; only the ratios matter.
A_SECOND = 1e10  # forward operations per second; the backward pass needs twice as many
TO_ACT = 150e-6
TO_DIRECT = 50e-6


def sharded(
    participants: Sequence[Peer], shape: tuple[int, ...], epochs: int, count: int, *, directs: bool = False
) -> list[list[int]]:
    """At most `count` shards of peers, of about equal cost and with few architectures each; a server is in the last.

    Equal peers are trained as one, so those of one architecture stay together as far as costs allow. If the first
    shard also `directs` all others, it gets fewer peers, or none.
    """
    cost = cache(lambda architecture: _operations(architecture, shape) / A_SECOND)
    peers = [peer for peer in participants if held_by(peer) is not None]
    by_kind = sorted(peers, key=lambda peer: (peer.architecture.name, peer.id))
    costs = [TO_ACT + cost(peer.architecture) * peer.samples * epochs for peer in by_kind]
    first = TO_DIRECT * len(peers) if directs else 0.0
    shards = divided([peer.id for peer in by_kind], costs, count, first)
    shards[-1] += [peer.id for peer in participants if held_by(peer) is None]
    return shards


def divided(members: Sequence[int], costs: Sequence[float], count: int, first: float = 0.0) -> list[list[int]]:
    """Consecutive nonempty pieces: each member goes where the middle of its cost falls.

    `first` is an extra cost of the first piece, which makes it smaller, and possibly empty.
    """
    count = min(count, len(members))
    before = min(first, sum(costs) / max(count - 1, 1))  # beyond an equal part, it makes no difference to the others
    total = before + sum(costs)
    pieces: list[list[int]] = [[] for _ in range(count)]
    for member, cost in zip(members, costs, strict=True):
        pieces[min(count - 1, int((before + cost / 2) / total * count))].append(member)
        before += cost
    return [piece for number, piece in enumerate(pieces) if piece or (first and number == 0)]


def _operations(architecture: Architecture, shape: tuple[int, ...]) -> float:
    """Multiplications for one sample, as torch counts them."""
    counter = FlopCounterMode(display=False)
    net = architecture.build()
    net.eval()
    with torch.no_grad(), counter:
        net(torch.zeros(1, *shape))
    return float(max(counter.get_total_flops(), 1))
