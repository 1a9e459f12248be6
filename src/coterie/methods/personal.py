"""How a server that averages for each peer apart gets its answers there: what pFedSim and FLT have in common.

An average goes to its peer alone, by `send`. A peer must not wait for one that is not made (the server may have
gone on without its update), so the server then says on its shelf whom it has answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.peer import Peer
from coterie.core.weights import mean

MOST_LOOKS = 100  # into the letter box: somebody else's letters must not keep a peer there for ever

Shares = Mapping[int, float]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Average:
    """What the server made for one peer: the tensors, and whose share in them is how large."""

    tensors: dict[str, Tensor]
    shares: dict[int, float]


async def answer(me: Peer, name: str, models: Mapping[int, Tensors], shares: Mapping[int, Shares]) -> None:
    """The server's part: send each peer of `shares` the average of `models` by its shares (which sum to one)."""
    answered = []
    for j in sorted(shares):
        authors = sorted(k for k, share in shares[j].items() if share > 0)
        weights = [shares[j][k] for k in authors]
        made = mean([models[k] for k in authors], weights)
        of = {"of": torch.tensor(authors), "shares": torch.tensor(weights, dtype=torch.float64)}
        if await me.send(j, name, {**made, **of}):
            answered.append(j)
    me.shelve("answered", {"peers": torch.tensor(answered, dtype=torch.int64)})


async def own_average(me: Peer, name: str, like: Tensors) -> Average | None:
    """A peer's part: the average (tensors `like` these) that the server made for it in this round, or None."""
    assert me.server is not None
    for answered in (await me.fetch(me.server, "answered")).values():
        if answered.round != me.round or me.id not in answered.get("peers", torch.empty(0)).tolist():
            return None  # the server has gone on, without this peer's update
        for _ in range(MOST_LOOKS):
            letters = await me.receive(name)
            # Not one of a round that this peer did not end, nor one that somebody else made up.
            mine = [x for x in letters if x.round == me.round and x.author == me.server]
            if mine or not letters:
                return _read(mine[-1], like) if mine else None
    return None


def _read(letter: Artifact, like: Tensors) -> Average | None:
    """The average in a letter, if it is one."""
    tensors = {key: letter[key] for key in letter if key not in ("of", "shares")}
    authors, shares = (letter.get(key, torch.empty(0)).flatten().tolist() for key in ("of", "shares"))
    if replace(letter, content=tensors).misfit(like, ()) or len(authors) != len(shares):
        return None
    return Average(tensors, dict(zip(map(int, authors), shares, strict=True)))
