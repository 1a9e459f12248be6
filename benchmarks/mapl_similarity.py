"""MAPL's Figure 3: does the similarity of classifier heads show which peers have the same classes?

    python benchmarks/mapl_similarity.py mapl-scenario1-digits

Trains without graph learning, with and without the prototype loss, and prints the mean similarity of heads over pairs
of peers: of the same or different clusters, of the same or different architectures. The last column is how often a peer
of the same cluster is more similar than a peer of another: 0.5 is chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from torch import Tensor

from coterie import wiring
from coterie.config import loading
from coterie.methods.components.collaboration import LIKENESS
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer
from coterie.wiring import Population


def trained(preset: str, words: list[str]) -> Population:
    e = loading.load(preset, ["method.name=mapl", "method.graph=false", *words])
    circle = wiring.gather(e)
    trainer = Trainer(e.engine.batching, e.engine.worker_count, e.engine.threads)
    clock = Clock(e.clock, e.peers, e.seed)
    Simulation(LocalStage(e.method, circle.participants, e.rounds, trainer, evaluate_every=e.rounds), clock).run()
    trainer.close()
    return circle


def line(circle: Population, similarity: Callable[[Tensor, Tensor], float]) -> str:
    heads = [peer.model["head.weight"] for peer in circle.participants]
    table = np.array([[similarity(a, b) for b in heads] for a in heads])
    assert circle.clusters is not None, "choose a preset whose clusters are known"
    same_cluster = np.equal.outer(circle.clusters, circle.clusters)
    same_architecture = np.equal.outer(circle.architectures, circle.architectures)
    others = ~np.eye(len(heads), dtype=bool)
    groups = (
        same_cluster & same_architecture & others,
        same_cluster & ~same_architecture,
        ~same_cluster & same_architecture,
        ~same_cluster & ~same_architecture,
    )
    above = [(row[k & o][:, None] > row[~k]).mean() for row, k, o in zip(table, same_cluster, others, strict=True)]
    means = [f"{table[group].mean():.3f}" if group.any() else "" for group in groups]
    return " | ".join([*means, f"{np.mean(above):.3f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    options = parser.parse_args()
    pairs = ("same cluster, same architecture", "same, another", "other, same", "other, another", "above")
    print(f"| {' | '.join(('prototype loss', 'likeness', *pairs))} |")
    print("|---|---|---|---|---|---|---|")
    for proto in (1, 0):
        circle = trained(options.preset, [f"method.proto={proto}", *options.settings])
        for name, similarity in LIKENESS.items():
            print(f"| {'on' if proto else 'off'} | `{name}` | {line(circle, similarity)} |", flush=True)


if __name__ == "__main__":
    main()
