"""Serverless FedAvg in p2pfl, in one process: every node trains, and gossips until it has the average of all.

Each node measures the average on its validation and test samples together before it trains.
"""

from __future__ import annotations

import importlib.metadata
import os
import tempfile
import time
from functools import partial
from typing import Any

import driving
import lightning
import torch
import without_torchvision
from torch import Tensor

without_torchvision.stand_in()  # after lightning, which checks for torchvision

from datasets import Dataset, DatasetDict  # noqa: E402
from p2pfl.settings import Settings  # noqa: E402

Settings.general.DISABLE_RAY = True  # before its other imports, which would start Ray

from p2pfl.communication.protocols.protobuff.memory import MemoryCommunicationProtocol  # noqa: E402
from p2pfl.learning.dataset.p2pfl_dataset import P2PFLDataset  # noqa: E402
from p2pfl.learning.frameworks.pytorch import lightning_learner  # noqa: E402
from p2pfl.learning.frameworks.pytorch.lightning_model import LightningModel  # noqa: E402
from p2pfl.management.logger import logger  # noqa: E402
from p2pfl.node import Node  # noqa: E402
from p2pfl.utils.topologies import TopologyFactory, TopologyType  # noqa: E402
from p2pfl.utils.utils import set_standalone_settings, wait_convergence  # noqa: E402

PAUSE = 0.05  # seconds between two rounds of gossip
POLL = 0.01  # seconds between two checks of the nodes' rounds
MEETING = 120  # seconds for nodes to find each other

work = driving.the_work()


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = driving.net(work)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=work.lr, momentum=work.momentum)

    def training_step(self, batch: dict[str, Tensor], _: int) -> Tensor:
        return torch.nn.functional.cross_entropy(self(batch), batch["y"])

    def test_step(self, batch: dict[str, Tensor]) -> None:
        self.log("accuracy", (self(batch).argmax(1) == batch["y"]).float().mean())

    def forward(self, batch: dict[str, Tensor]) -> Any:
        return self.net(batch["x"].view(-1, *work.shape))


def dataset(share: driving.Share) -> Any:
    held_out = [torch.cat(both) for both in zip(share.validation, share.test, strict=True)]
    splits = {"train": share.train, "test": held_out}
    # Rows are flat because tables of flat lists are read much faster than nested ones.
    tables = {name: Dataset.from_dict({"x": x.flatten(1).numpy(), "y": y.numpy()}) for name, (x, y) in splits.items()}
    return P2PFLDataset(DatasetDict(tables), batch_size=work.batch)


def settings() -> None:
    set_standalone_settings()  # p2pfl's settings for all nodes on one machine
    Settings.general.LOG_LEVEL = "ERROR"
    # By default it sleeps for two seconds between two checks, and gives up after ten without a change.
    Settings.gossip.MODELS_PERIOD, Settings.gossip.MODELS_PER_ROUND = PAUSE, work.peers
    Settings.gossip.EXIT_ON_X_EQUAL_ROUNDS = 10**6
    Settings.training.AGGREGATION_TIMEOUT = Settings.training.VOTE_TIMEOUT = 3600  # every round must include all nodes
    logger.set_level("ERROR")
    # Nodes are threads, and Lightning's progress bars do not work in several threads.
    lightning_learner.Trainer = partial(lightning.Trainer, enable_progress_bar=False)


def wait_for(nodes: list[Node], number: int) -> None:
    """Wait until all nodes have finished this round, counted from 1."""
    started = set()
    while len(ended := [node for node in nodes if (node.state.round or 0) >= number]) < len(nodes):
        started |= {node.addr for node in nodes if node.state.round is not None}
        gone = [node.addr for node in nodes if node.state.round is None and node.addr in started]
        if gone:
            raise RuntimeError(f"{gone[0]} gave up in round {number}; {len(ended)} nodes had finished it")
        time.sleep(POLL)


def main() -> None:
    os.chdir(tempfile.mkdtemp())  # it writes logs
    settings()
    rounds = driving.Rounds(work)
    nodes = [
        Node(LightningModel(Model()), dataset(share), addr=f"node-{i}", protocol=MemoryCommunicationProtocol())
        for i, share in enumerate(driving.shares(work))
    ]
    for node in nodes:
        node.start()
    TopologyFactory.connect_nodes(TopologyFactory.generate_matrix(TopologyType.FULL, len(nodes)), nodes)
    wait_convergence(nodes, len(nodes) - 1, wait=MEETING)
    # One extra round: nodes forget their round number after the last one.
    nodes[0].set_start_learning(work.rounds + 1, work.epochs, trainset_size=work.peers)
    try:
        for number in range(1, work.rounds + 1):
            wait_for(nodes, number)
            rounds.end()
        rounds.say(importlib.metadata.version("p2pfl"))
        code = 0
    except RuntimeError as error:
        print(f"RuntimeError: {error}", flush=True)
        code = 1
    os._exit(code)  # its threads are still in the extra round


if __name__ == "__main__":
    main()
