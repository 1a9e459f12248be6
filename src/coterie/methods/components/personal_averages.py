"""A server that makes an average for each peer: how it sends them, and how peers receive theirs (pFedSim, FLT).

An average is sent to its peer alone. A peer must not wait for one that is never made (the server may have continued
without its update), so the server also shelves which peers it has sent one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.peer import Peer
from coterie.core.release import AVERAGE, BOOKKEEPING

MOST_READS = 100  # of the inbox: messages of other peers must not keep a peer there forever

Shares = Mapping[int, float]
Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Average:
    """The server's average for one peer: the tensors, and the share of each peer in them."""

    tensors: dict[str, Tensor]
    shares: dict[int, float]


async def send_averages(me: Peer, name: str, models: Mapping[int, Tensors], shares: Mapping[int, Shares]) -> None:
    """Run by the server: send each peer of `shares` the average of `models` by its shares (which sum to one)."""
    answered = []
    for j in sorted(shares):
        authors = sorted(k for k, share in shares[j].items() if share > 0)
        weights = [shares[j][k] for k in authors]
        average = me.average({k: models[k] for k in authors}, dict(zip(authors, weights, strict=True)), own=j)
        composition = {"of": torch.tensor(authors), "shares": torch.tensor(weights, dtype=torch.float64)}
        if await me.send(j, name, {**average, **composition}, made_from=AVERAGE):
            answered.append(j)
    me.shelve("answered", {"peers": torch.tensor(answered, dtype=torch.int64)}, made_from=BOOKKEEPING)


async def own_average(me: Peer, name: str, like: Tensors) -> Average | None:
    """Run by a peer: the average (tensors `like` these) that the server made for it in this round, or None."""
    for answered in (await me.fetch(me.server, "answered")).values():
        if answered.round != me.round or me.id not in answered.get("peers", torch.empty(0)).tolist():
            return None  # the server has continued without this peer's update
        for _ in range(MOST_READS):
            messages = await me.receive(name)
            # Neither one of a round that this peer did not finish, nor one that another peer forged.
            valid = [x for x in messages if x.round == me.round and x.author == me.server]
            if valid or not messages:
                return _read(valid[-1], like) if valid else None
    return None


def _read(message: Artifact, like: Tensors) -> Average | None:
    """The average in a message; None if it does not hold one."""
    tensors = {key: message[key] for key in message if key not in ("of", "shares")}
    authors, shares = (message.get(key, torch.empty(0)).flatten().tolist() for key in ("of", "shares"))
    if replace(message, content=tensors).misfit(like, ()) or len(authors) != len(shares):
        return None
    return Average(tensors, dict(zip(map(int, authors), shares, strict=True)))
