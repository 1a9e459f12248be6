"""FedAvg in fluke: all clients train each round, one after the other, in one process.

Each client measures the average that it received on its validation and test samples together before it trains.
"""

from __future__ import annotations

import importlib.metadata
from typing import Any

import driving
import without_torchvision

without_torchvision.stand_in()

import torch  # noqa: E402
from fluke import FlukeENV  # noqa: E402
from fluke.algorithms.fedavg import FedAVG  # noqa: E402
from fluke.client import Client  # noqa: E402
from fluke.config import OptimizerConfigurator  # noqa: E402
from fluke.data import FastDataLoader  # noqa: E402
from fluke.evaluation import ClassificationEval  # noqa: E402
from fluke.server import Server  # noqa: E402
from torchmetrics import Accuracy  # noqa: E402

work = driving.the_work()
rounds = driving.Rounds(work)


class Watch:
    def end_round(self, round: int) -> None:  # noqa: ARG002
        rounds.end()


def settings() -> None:
    environment = FlukeENV()
    environment.set_seed(0)
    environment.set_device("cpu")
    environment.set_inmemory(True)
    environment.set_save_options()
    environment.set_eval_cfg(pre_fit=True, post_fit=False, locals=False, server=False)
    accuracy = Accuracy(task="multiclass", num_classes=work.classes)
    environment.set_evaluator(ClassificationEval(1, work.classes, accuracy=accuracy))


def client(number: int, share: driving.Share) -> Client:
    held_out = [torch.cat(both) for both in zip(share.validation, share.test, strict=True)]
    return Client(
        number,
        FastDataLoader(*share.train, num_labels=work.classes, batch_size=work.batch, shuffle=True),
        FastDataLoader(*held_out, num_labels=work.classes, batch_size=2 * work.held_out),
        OptimizerConfigurator({"name": "SGD", "lr": work.lr, "momentum": work.momentum}),
        torch.nn.CrossEntropyLoss(),
        local_epochs=work.epochs,
    )


def main() -> None:
    settings()
    shares = driving.shares(work)
    driving.choose_threads(lambda: driving.train(driving.net(work), shares[0].train, work))
    clients = [client(i, share) for i, share in enumerate(shares)]
    server: Any = Server(driving.net(work), None, clients, weighted=True)
    algorithm = FedAVG(work.peers, None, {}, clients=clients, server=server)
    algorithm.attach(Watch())
    algorithm.run(work.rounds, 1.0)
    rounds.say(importlib.metadata.version("fluke-fl"))


if __name__ == "__main__":
    main()
