"""Server methods and full gossip against loops written out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from simulation_support import Played, tiny

from coterie import wiring
from coterie.config.sections import Experiment
from coterie.core.errors import ConfigError
from coterie.core.jobs import Split
from coterie.core.peer import Peer, held_by
from coterie.core.randomness import number, permutations
from coterie.running import simulated
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer


def unequal(e: Experiment) -> list[Peer]:
    """The experiment's participants, with 12, 9 and 6 training samples."""
    participants = wiring.gather(e).participants
    for peer, count in zip(participants, (12, 9, 6), strict=False):
        data = held_by(peer)
        assert data is not None
        train = data.train
        peer._held = replace(data, train=Split(train.pool, train.rows[:count]))
    return participants


def simulate(e: Experiment, participants: list[Peer]) -> Played:
    trainer = Trainer("never", 1, 1)
    simulation = Simulation(LocalStage(e.method, participants, e.rounds, trainer), Clock(e.clock, e.peers, e.seed))
    simulation.run()
    trainer.close()
    return Played(simulation)


def train_by_hand(me: Peer, vector: torch.Tensor, t: int) -> torch.Tensor:
    """SGD with momentum on batches of six, shuffled as the peer's key for this round says."""
    assert me.data is not None
    slots = me.model.layout.slots
    tensors = {s.name: vector[s.start : s.stop].view(s.shape).clone().requires_grad_() for s in slots}
    velocity = {name: torch.zeros_like(p) for name, p in tensors.items()}
    net = me.architecture.build()
    x, y, samples = me.data.train.x, me.data.train.y, len(me.data.train)
    (((order,),)) = permutations([number(me.seed, me.id, t, "train", 0, "shuffle")], 1, samples)
    lr = me.settings.lr * me.settings.lr_decay ** (t - 1)
    for start in range(0, samples, 6):
        rows = torch.from_numpy(order[start : start + 6])
        logits = torch.func.functional_call(net, tensors, (x[rows],)).logits
        gradients = torch.autograd.grad(F.cross_entropy(logits, y[rows]), list(tensors.values()))
        with torch.no_grad():
            for (name, parameter), gradient in zip(tensors.items(), gradients, strict=True):
                velocity[name] = 0.9 * velocity[name] + gradient
                parameter -= lr * velocity[name]
    return torch.cat([p.detach().reshape(-1) for p in tensors.values()])


def test_fedavg_is_the_weighted_mean() -> None:
    e = tiny("fedavg")
    played = simulate(e, unequal(e))
    clients = unequal(e)[:3]
    shared = clients[0].initial().vector
    for t in (1, 2, 3):
        trained = [train_by_hand(me, shared, t) for me in clients]
        shared = (12 * trained[0] + 9 * trained[1] + 6 * trained[2]) / 27
    *peers, server = played.peers
    for model in (*(peer.model for peer in peers), server.state["averages"]["mlp"]):
        torch.testing.assert_close(model.vector, shared, atol=1e-6, rtol=1e-5)


def test_gossip_with_all_peers_is_consensus() -> None:
    e = tiny("gossip", "method.k=2", rounds=2)
    played = simulate(e, unequal(e))
    peers = unequal(e)
    shared = peers[0].initial().vector
    for t in (1, 2):
        shared = sum((train_by_hand(me, shared, t) for me in peers), torch.zeros_like(shared)) / 3
    for peer in played.peers:
        torch.testing.assert_close(peer.model.vector, shared, atol=1e-6, rtol=1e-5)


def test_local_trains_alone() -> None:
    e = tiny("local", rounds=2)
    played = simulate(e, unequal(e))
    for me, peer in zip(unequal(e), played.peers, strict=True):
        expected = train_by_hand(me, train_by_hand(me, me.initial().vector, 1), 2)
        torch.testing.assert_close(peer.model.vector, expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_fedavg_s_messages(fraction: float, tmp_path: Path) -> None:
    # 4 clients, 3 rounds: every client fetches the model; those who train (all, or half) send theirs.
    e = tiny("fedavg", f"method.fraction={fraction}", peers=4)
    messages = simulated.run(e, tmp_path / "run")["messages"]
    assert messages["by_artifact"] == {"global.mlp": 4 * 3, "update": int(4 * 3 * fraction)}
    assert messages["total"] == (24 if fraction == 1 else 18)  # 2 per client and round, or 1.5


def test_ifca_s_messages(tmp_path: Path) -> None:
    # 3 clients, 3 rounds, c = 2: one update up and two models down.
    messages = simulated.run(tiny("ifca", "method.c=2", "engine.batching=always"), tmp_path / "run")["messages"]
    assert messages["by_artifact"] == {"model-0": 9, "model-1": 9, "update": 9}
    assert messages["total"] == 3 * 3 * (1 + 2)


def test_a_server_cannot_be_asynchronous() -> None:
    """It would find nothing new, and run through all its rounds before any peer has trained."""
    with pytest.raises(ConfigError, match="asynchronous"):
        tiny("fedavg", "engine.asynchronous=true")
