"""FedAvg in Flower's simulation on Ray, one client per core at a time; all train and are evaluated each round."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import Any

import driving
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

work = driving.the_work()
rounds = driving.Rounds(work)
client, server = ClientApp(), ServerApp()


class Timed(FedAvg):
    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        return super().aggregate_train(server_round, all_replies(replies))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        aggregated = super().aggregate_evaluate(server_round, all_replies(replies))
        rounds.end()
        return aggregated


def all_replies(replies: Iterable[Message]) -> list[Message]:
    """Check that all clients answered: a round with failures would be faster."""
    answers = list(replies)
    failed = [answer.error.reason for answer in answers if answer.has_error()]
    if failed or len(answers) != work.peers:
        raise RuntimeError(f"{len(answers)} of {work.peers} clients answered. {''.join(failed[:1])}")
    return answers


@client.train()
def train(message: Message, context: Context) -> Message:
    share, model = client_state(message, context)
    loss = driving.train(model, share.train, work)
    metrics = MetricRecord({"loss": loss, "num-examples": len(share.train[1])})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    share, model = client_state(message, context)
    validation, test = driving.accuracies(model, share)
    metrics = MetricRecord({"validation": validation, "test": test, "num-examples": len(share.test[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def client_state(message: Message, context: Context) -> tuple[driving.Share, Any]:
    """The current client's samples, and the model that it received."""
    model = driving.net(work)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return driving.shares(work)[int(context.node_config["partition-id"])], model


@server.main()
def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
    strategy = Timed(min_available_nodes=work.peers, min_train_nodes=work.peers, min_evaluate_nodes=work.peers)
    strategy.start(grid=grid, initial_arrays=ArrayRecord(driving.net(work).state_dict()), num_rounds=work.rounds)


if __name__ == "__main__":
    run_simulation(server, client, work.peers, backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})
    rounds.say(importlib.metadata.version("flwr"))
