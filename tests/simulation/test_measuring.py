"""A peer is measured with its model at the end of a round, whenever the measurement is done."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from simulation_support import play

from coterie.core.peer import Peer, held_by
from coterie.methods import Method


@dataclass(frozen=True)
class SaysItsRound(Method):
    """The model predicts the class of the round. It says so before it trains: at the speed of light."""

    async def round(self, me: Peer) -> None:
        me.model.load({"head.weight": torch.zeros_like(me.model["head.weight"]), "head.bias": _only(me, me.round)})
        await me.train(epochs=1, lr=0.0)


def _only(me: Peer, label: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.tensor(label), len(me.model["head.bias"])).float()


@pytest.mark.parametrize("seconds", [(1.0, 1.0, 1.0), (1.0, 2.5, 9.0)], ids=["in step", "each at its own pace"])
def test_a_peer_that_has_gone_on_is_measured_as_it_was(seconds: tuple[float, ...]) -> None:
    played = play(SaysItsRound(), rounds=4, seconds=seconds)
    for peer in played.peers:
        data = held_by(peer)
        assert data is not None
        labels = data.test.y
        expected = [float((labels == t).float().mean()) for t in range(1, 5)]
        assert [record.test for record in played.rounds(peer.id)] == pytest.approx(expected)
    assert len({record.test for peer in range(3) for record in played.rounds(peer)}) > 1
