"""FML and FedKD: a small model learns beside one's own, each from the other, and only the small one travels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from coterie.core.loss import Batch, BoundNet, Given, negative_log_likelihood
from coterie.core.peer import Peer
from coterie.core.weights import Weights, mean
from coterie.methods.base import Method, need, parameter


def divergence(taught: Tensor, teacher: Tensor) -> Tensor:
    """KL from the teacher's prediction to the taught one's; the teacher does not learn from it. Mean over samples."""
    target = F.log_softmax(teacher, dim=-1).detach()
    return (target.exp() * (target - F.log_softmax(taught, dim=-1))).sum(-1).mean()


def fml_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:
    """Both models at once: each its cross entropy, and its divergence from the other's prediction."""
    out = net(batch.x)
    assert out.mentee is not None
    own = given["alpha"] * negative_log_likelihood(out.logits, batch.y)
    own = own + (1 - given["alpha"]) * divergence(out.logits, out.mentee.logits)
    small = given["beta"] * negative_log_likelihood(out.mentee.logits, batch.y)
    small = small + (1 - given["beta"]) * divergence(out.mentee.logits, out.logits)
    return own + small


def fedkd_loss(net: BoundNet, batch: Batch, given: Given) -> Tensor:  # noqa: ARG001
    """Cross entropy of both; and what they learn from each other, less while both are still bad.

    Predictions (by divergence) and features (by squared distance, through the adapter), over the sum of both's cross
    entropies.
    """
    out = net(batch.x)
    assert out.mentee is not None
    assert out.adapted is not None
    own, small = (negative_log_likelihood(logits, batch.y) for logits in (out.logits, out.mentee.logits))
    total = (own + small).detach().clamp(min=1e-6)
    apart = (out.features - out.adapted).square().mean()
    both = divergence(out.logits, out.mentee.logits) + divergence(out.mentee.logits, out.logits)
    return own + small + (both + 2 * apart) / total


@dataclass(frozen=True)
class FML(Method):
    summary: ClassVar[str] = "any architectures: a small model travels, and learns with one's own from each other"
    paper: ClassVar[str] = "Shen et al., Federated Mutual Learning, 2020"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    parts: ClassVar[tuple[str, ...]] = ("mentee",)

    alpha: float = parameter(0.5, "of one's own model: weight of the cross entropy; the rest is the small one's word")
    beta: float = parameter(0.5, "the same of the small model")

    def check(self, peers: int) -> None:  # noqa: ARG002
        for key in ("alpha", "beta"):
            need(0 <= getattr(self, key) <= 1, key, f"must be from 0 to 1, not {getattr(self, key)}")

    async def setup(self, me: Peer) -> None:
        await take_over(me, "global")

    async def round(self, me: Peer, t: int) -> None:  # noqa: ARG002
        device = me.model.vector.device
        weights = {key: torch.tensor(getattr(self, key), device=device) for key in ("alpha", "beta")}
        await me.train(fml_loss, given=weights)
        me.shelve("mentee", me.model.part("mentee"), samples=me.samples)
        await take_over(me, "global")

    async def serve(self, me: Peer, t: int) -> None:  # noqa: ARG002
        theirs = (await me.fetch(me.peers, "mentee", like=me.model.part("mentee"), facts=["samples"])).values()
        if theirs:
            me.model.load(mean(list(theirs), [float(small.facts["samples"]) for small in theirs]))
        me.shelve("global", me.model.part("mentee"))


async def take_over(me: Peer, name: str) -> bool:
    """The server's small model: it shelves it before the first round, too, so that all begin with the same."""
    part = me.model.part("mentee")
    if me.id == me.server:
        me.shelve(name, part)
        return True
    assert me.server is not None
    found = await me.fetch(me.server, name, like=part)
    for small in found.values():
        me.model.load(small)
    return bool(found)


@dataclass(frozen=True)
class FedKD(Method):
    summary: ClassVar[str] = "FML that distils features too, adapts to how good both are, and sends updates of low rank"
    paper: ClassVar[str] = "Wu et al., Communication-Efficient Federated Learning via Knowledge Distillation, 2022"
    server: ClassVar[bool] = True
    mixed: ClassVar[bool] = True
    parts: ClassVar[tuple[str, ...]] = ("mentee", "adapter")
    unforeseen: ClassVar[str] = "of what rank updates are later: they are taken to be as in the first rounds"

    energy: float = parameter(0.95, "share of an update's squared singular values that is sent, in the first round")
    energy_end: float = parameter(0.98, "and in the end")
    rise: int = parameter(100, "rounds over which it rises from the one to the other")

    def check(self, peers: int) -> None:  # noqa: ARG002
        for key in ("energy", "energy_end"):
            need(0 < getattr(self, key) <= 1, key, f"must be above 0 and at most 1, not {getattr(self, key)}")
        need(self.rise >= 1, "rise", f"must be at least 1, not {self.rise}")

    async def setup(self, me: Peer) -> None:
        await take_over(me, "whole")
        me.state["at"] = 0  # the round of which one has the common small model

    def kept(self, t: int) -> float:
        return self.energy + (self.energy_end - self.energy) * min(1.0, t / self.rise)

    async def round(self, me: Peer, t: int) -> None:
        before = me.model.part("mentee")
        await me.train(fedkd_loss)
        after = me.model.part("mentee")
        me.model.load(before)
        me.shelve("update", packed(difference(after, before), self.kept(t)), samples=me.samples)
        await self.follow(me, t, before)

    async def follow(self, me: Peer, t: int, before: Weights) -> None:
        """Make the server's step; who has missed one takes over the whole model."""
        assert me.server is not None
        for found in (await me.fetch(me.server, "global")).values():
            step = unpacked(found, before)
            if step is not None and found.round == t and me.state["at"] == t - 1:
                me.model.load(added(before, step))
                me.state["at"] = t
        if me.state["at"] != t and await take_over(me, "whole"):
            me.state["at"] = t

    async def serve(self, me: Peer, t: int) -> None:
        before = me.model.part("mentee")
        theirs = await me.fetch(me.peers, "update", facts=["samples"])
        steps = {j: step for j, sent in theirs.items() if (step := unpacked(sent, before)) is not None}
        if steps:
            shares = [float(theirs[j].facts["samples"]) for j in steps]
            update = packed(mean(list(steps.values()), shares), self.kept(t))
        else:
            update = packed(difference(before, before), self.kept(t))
        step = unpacked(update, before)
        assert step is not None
        me.model.load(added(before, step))
        me.shelve("global", update)
        me.shelve("whole", me.model.part("mentee"))


def difference(one: Weights, other: Weights) -> Weights:
    return Weights(one.layout, one.vector - other.vector)


def added(one: Weights, step: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor + step[name] for name, tensor in one.items()}


def packed(update: Mapping[str, Tensor], energy: float) -> dict[str, Tensor]:
    """Matrices as two factors of the lowest rank that keeps this share of their energy, where that is smaller."""
    return {key: part for name, tensor in update.items() for key, part in _factors(name, tensor, energy)}


def _factors(name: str, tensor: Tensor, energy: float) -> Iterable[tuple[str, Tensor]]:
    if tensor.dim() < 2:
        return [(name, tensor)]
    matrix = tensor.reshape(len(tensor), -1)
    # Eigenvectors of A A' are singular vectors of A, for a tenth of the time where A is wide. In double precision, so
    # that squaring loses nothing; on the CPU, because not every device has it.
    wide = (matrix if len(matrix) <= matrix.shape[1] else matrix.T).to("cpu", torch.float64)
    squares, vectors = torch.linalg.eigh(wide @ wide.T)  # the largest last
    shares = squares.flip(0).clamp(min=0).cumsum(0)
    rank = int((shares < energy * shares[-1]).sum()) + 1
    if rank * sum(matrix.shape) >= matrix.numel():
        return [(name, tensor)]
    left = vectors[:, -rank:]
    right = left.T @ wide
    pair = (left, right) if len(matrix) <= matrix.shape[1] else (right.T, left.T)
    return [
        (f"{name}.{side}", part.to(tensor).contiguous()) for side, part in zip(("left", "right"), pair, strict=True)
    ]


def unpacked(sent: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The way back; None if it does not give tensors like these. (What others send is theirs to get wrong.)"""
    found = {}
    for name, expected in like.items():
        if name in sent:
            found[name] = sent[name]
            continue
        left, right = sent.get(f"{name}.left"), sent.get(f"{name}.right")
        if left is None or right is None or left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[0]:
            return None
        if expected.dim() < 2 or len(left) * right.shape[1] != expected.numel():
            return None
        found[name] = (left @ right).reshape(expected.shape)
    fits = all(found[name].shape == t.shape and found[name].dtype == t.dtype for name, t in like.items())
    return found if fits else None
