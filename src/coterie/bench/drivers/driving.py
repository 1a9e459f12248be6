"""Shared code of the drivers, which run in environments without Coterie: it needs only torch.

A driver is a program. Its only argument is a workload as JSON. The last line that it prints is JSON too: its version,
the end of the first round (seconds after the process started), and the seconds of each later round.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Share(NamedTuple):
    """One peer's training, validation and test samples with their labels."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def the_work() -> Any:
    """The workload that this process was started with, its keys as attributes."""
    return SimpleNamespace(**json.loads(sys.argv[1]))


def shares(work: Any) -> list[Share]:
    """All peers' samples, created once per process: the same numbers as for Coterie."""
    return _shares(work.peers, work.samples, work.held_out, tuple(work.shape), work.classes)


@cache
def _shares(peers: int, samples: int, held_out: int, shape: tuple[int, ...], classes: int) -> list[Share]:
    each = samples + 2 * held_out
    torch.manual_seed(0)
    x, y = torch.randn(peers * each, *shape), torch.randint(0, classes, (peers * each,))
    cuts = (0, samples, samples + held_out, each)
    starts = range(0, peers * each, each)
    return [Share(*((x[s + a : s + b], y[s + a : s + b]) for a, b in pairwise(cuts))) for s in starts]


def net(work: Any) -> nn.Module:
    """The workload's model, layer by layer as in Coterie's zoo."""
    if work.model == "mlp":
        return _mlp(work.shape[0], work.hidden, work.classes)
    if work.model == "lenet":
        return _lenet(work.shape, work.classes)
    raise SystemExit(f"drivers have no model {work.model}")


def _mlp(inputs: int, hidden: list[int], classes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for a, b in pairwise([inputs, *hidden]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], classes))


def _lenet(shape: list[int], classes: int) -> nn.Module:
    channels, height, width = shape
    layers: list[nn.Module] = []
    for a, b in ((channels, 32), (32, 64)):
        layers += [nn.Conv2d(a, b, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()]
    flat = 64 * (height // 4) * (width // 4)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(flat, 512), nn.ReLU(), nn.Linear(512, classes))


def train(model: nn.Module, samples: tuple[Tensor, Tensor], work: Any) -> float:
    """Train for the workload's epochs with SGD. Returns the last batch's loss."""
    x, y = samples
    optimizer = torch.optim.SGD(model.parameters(), lr=work.lr, momentum=work.momentum)
    loss = torch.zeros(())
    model.train()
    for _ in range(work.epochs):
        for rows in torch.split(torch.randperm(len(y)), work.batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return float(loss.detach())


def accuracies(model: nn.Module, share: Share) -> tuple[float, float]:
    """The accuracy on validation and test samples."""
    model.eval()
    with torch.inference_mode():
        return _accuracy(model, *share.validation), _accuracy(model, *share.test)


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(1) == y).float().mean())


def choose_threads(some_work: Callable[[], object]) -> None:
    """Use one thread or one per core, whichever is faster: small operations are slower on many threads."""
    took = {}
    for threads in (os.cpu_count() or 1, 1):
        torch.set_num_threads(threads)
        some_work()
        began = time.perf_counter()
        some_work()
        took[threads] = time.perf_counter() - began
    torch.set_num_threads(min(took, key=lambda threads: took[threads]))


class Rounds:
    """Records when rounds end, and prints the figures."""

    def __init__(self, work: Any) -> None:
        self.began = work.began  # start of the process, by the system clock
        self.ends: list[float] = []

    def end(self) -> None:
        self.ends.append(time.time())

    def say(self, version: str) -> None:
        say(version, self.ends[0] - self.began, [b - a for a, b in pairwise(self.ends)])


def say(version: str, first: float, seconds: list[float]) -> None:
    print(f"\n{json.dumps({'version': version, 'first': first, 'seconds': seconds})}", flush=True)
