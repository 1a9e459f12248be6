"""How a server that averages for each peer apart gets its answers there: what pFedSim and FLT have in common.

An average goes to its peer alone, by `send`. A peer must not wait for one that is not made (the server may have
gone on without its update), so the server then says on its shelf whom it has answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.peer import Peer
from coterie.weights import mean

Shares = Mapping[int, float]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Average:
    """What the server made for one peer: the tensors, and whose share in them is how large."""

    tensors: dict[str, Tensor]
    shares: dict[int, float]


async def answer(me: Peer, name: str, models: Mapping[int, Tensors], shares: Mapping[int, Shares]) -> None:
    """The server's part: send each peer of `shares` the average of `models` by its shares (which sum to one)."""
    for j in sorted(shares):
        authors = sorted(k for k, share in shares[j].items() if share > 0)
        weights = [shares[j][k] for k in authors]
        made = mean([models[k] for k in authors], weights)
        of = {"of": torch.tensor(authors), "shares": torch.tensor(weights, dtype=torch.float64)}
        await me.send(j, name, {**made, **of})
    me.shelve("answered", {"peers": torch.tensor(sorted(shares), dtype=torch.int64)})


async def own_average(me: Peer, name: str) -> Average | None:
    """A peer's part: the average that the server made for it in this round, or None if it made none."""
    assert me.server is not None
    for answered in (await me.fetch(me.server, "answered")).values():
        if answered.round != me.round or me.id not in answered["peers"].tolist():
            return None  # the server has gone on, without this peer's update
        while True:
            for letter in await me.receive(name):
                # Not one of a round that this peer did not end, nor one that somebody else made up.
                if letter.round == me.round and letter.author == me.server:
                    tensors = {key: letter[key] for key in letter if key not in ("of", "shares")}
                    shares = dict(zip(letter["of"].tolist(), letter["shares"].tolist(), strict=True))
                    return Average(tensors, shares)
    return None
