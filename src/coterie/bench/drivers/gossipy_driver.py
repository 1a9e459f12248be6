"""Gossip learning in gossipy: once per round each node sends its model to one other, which averages and then trains.

So a round has as much training as with the other frameworks, and a fifth of the exchange.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import driving
import torch
import without_torchvision
from torch import Tensor

without_torchvision.stand_in()

from gossipy.core import AntiEntropyProtocol, CreateModelMode, StaticP2PNetwork  # noqa: E402
from gossipy.model import TorchModel  # noqa: E402
from gossipy.model.handler import TorchModelHandler  # noqa: E402
from gossipy.node import GossipNode  # noqa: E402
from gossipy.simul import GossipSimulator, SimulationReport  # noqa: E402

STEPS = 100  # of its clock per round; each node sends at one of them

work = driving.the_work()
rounds = driving.Rounds(work)


class Model(TorchModel):
    def __init__(self) -> None:
        super().__init__()
        self.net = driving.net(work)

    def init_weights(self) -> None:
        """Keep the initial weights."""

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


class Handler(TorchModelHandler):
    def evaluate(self, data: tuple[Tensor, Tensor]) -> dict[str, float]:
        """Only accuracy, as in the other drivers."""
        x, y = data
        self.model.eval()
        with torch.inference_mode():
            return {"accuracy": float((self.model(x).argmax(1) == y).float().mean())}


class Report(SimulationReport):
    def update_timestep(self, t: int) -> None:
        if (t + 1) % STEPS == 0:
            rounds.end()


class NoCommonTest:
    """Nodes measure on their own samples."""

    def has_test(self) -> bool:
        return False


def node(number: int, share: driving.Share, network: Any) -> GossipNode:
    held_out = tuple(torch.cat(both) for both in zip(share.validation, share.test, strict=True))
    handler = Handler(
        Model(),
        torch.optim.SGD,
        {"lr": work.lr, "momentum": work.momentum},
        torch.nn.CrossEntropyLoss(),
        local_epochs=work.epochs,
        batch_size=work.batch,
        create_model_mode=CreateModelMode.MERGE_UPDATE,
    )
    return GossipNode(number, (share.train, held_out), STEPS, handler, network)


def main() -> None:
    shares = driving.shares(work)
    driving.choose_threads(lambda: driving.train(driving.net(work), shares[0].train, work))
    network = StaticP2PNetwork(work.peers)
    nodes = {i: node(i, share, network) for i, share in enumerate(shares)}
    simulator = GossipSimulator(nodes, NoCommonTest(), STEPS, AntiEntropyProtocol.PUSH)
    simulator.add_receiver(Report())
    simulator.init_nodes()
    simulator.start(work.rounds)
    rounds.say(importlib.metadata.version("gossipy-dfl"))


if __name__ == "__main__":
    main()
