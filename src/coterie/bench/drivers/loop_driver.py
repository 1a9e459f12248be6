"""The driver of the plain PyTorch loop, with one thread or one per core, whichever is faster."""

from __future__ import annotations

from functools import partial

import driving
import torch

from coterie.bench.plain_loop import PlainLoop
from coterie.bench.workloads import chosen

SOME = 5  # peers trained to choose the number of threads


def main() -> None:
    work = driving.the_work()
    loop, rounds = PlainLoop(chosen([work.name])[0], work.method), driving.Rounds(work)
    driving.choose_threads(partial(loop.train, SOME))
    for _ in range(work.rounds):
        loop.round()
        rounds.end()
    rounds.say(torch.__version__)


if __name__ == "__main__":
    main()
