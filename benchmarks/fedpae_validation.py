"""How many validation images FedPAE's selection needs: the same trained models, more and more images.

    python benchmarks/fedpae_validation.py --record runs/validation.jsonl
    python benchmarks/fedpae_validation.py fedpae-digits --alphas 1.0 --sizes 15,30,60,120

For each alpha and seed, all peers train their own models once, and keep each at its best on all their validation
images. Then every peer selects from all peers' models by FedPAE's search, using only some of its validation images.
Printed is the accuracy of its selection on its test images minus that of its own models, in points. Test images are
used for nothing else. A row has the same models, stopped on the same images in every column, so only the selection
differs between columns.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np

from coterie import wiring
from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.core import randomness
from coterie.core.peer import Peer, held_by
from coterie.methods.components.ensemble_selection import Bench, choose
from coterie.methods.components.own_models import model_of, own_models
from coterie.methods.fedpae import FedPAE
from coterie.methods.local_ensemble import LocalEnsemble
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer

Gains = dict[str, float]  # in points, by the number of images


@dataclass(frozen=True)
class Benches:
    """All models' predictions for one peer's images: for selection, and for the final test."""

    validation: Bench
    test: Bench


def trained(e: Experiment) -> list[Peer]:
    """The peers with their trained models."""
    participants = wiring.gather(e).participants
    trainer = Trainer(e.engine.batching, e.engine.worker_count, e.engine.threads)
    stage = LocalStage(e.method, participants, e.rounds, trainer, evaluate_every=e.rounds)
    try:
        Simulation(stage, Clock(e.clock, e.peers, e.seed)).run()
    finally:
        trainer.close()
    return participants


def benches_of(me: Peer, peers: Sequence[Peer], trainer: Trainer) -> Benches:
    models = {name: (peer, own) for peer in peers for name, own in own_models(peer).items()}
    own = np.array([peer is me for peer, _ in models.values()])
    benches = []
    for split in ("validation", "test"):
        data = getattr(held_by(me), split)
        jobs = [me.job(model_of(peer, kept["kind"], kept["best"]), data) for peer, kept in models.values()]
        probabilities = [prediction.logits.softmax(1).cpu().double().numpy() for prediction in trainer.predict(jobs)]
        benches.append(Bench(np.stack(probabilities), data.y.cpu().numpy(), own))
    return Benches(*benches)


def gain(me: Peer, benches: Benches, size: int, method: FedPAE) -> float:
    """A peer's gain on its test images, in points, when it selects with `size` of its validation images."""
    order = randomness.generator(me.seed, me.id, "validation images").permutation(len(benches.validation.labels))
    rows = order[:size]  # one fixed order, so that larger amounts contain the smaller ones
    fewer = Bench(benches.validation.probabilities[:, rows], benches.validation.labels[rows], benches.validation.own)
    sizes = {"population": method.population, "generations": method.generations}
    choice = choose(fewer, method.k, vote=method.vote, seed=me.seed, **sizes)
    chosen = np.isin(np.arange(fewer.models), choice.members)
    together, alone = benches.test.vote_merits(np.stack([chosen, fewer.own]), method.vote)
    return 100 * float(together - alone)


def measured(preset: str, words: Sequence[str], sizes: Sequence[int]) -> Gains:
    """The mean gain over peers, by the number of images."""
    e = loading.load(preset, [*words, "method.name=fedpae", "baseline="])
    method = e.method
    assert isinstance(method, FedPAE)
    alone = LocalEnsemble(**{field.name: getattr(method, field.name) for field in fields(LocalEnsemble)})
    peers = trained(replace(e, method=alone))
    trainer = Trainer(e.engine.batching, e.engine.worker_count, e.engine.threads)
    gains_by_size: dict[int, list[float]] = {size: [] for size in sizes}
    try:
        for me in peers:
            benches = benches_of(me, peers, trainer)
            for size in sizes:
                gains_by_size[size].append(gain(me, benches, size, method))
    finally:
        trainer.close()
    return {str(size): float(np.mean(gains)) for size, gains in gains_by_size.items()}


def read(path: Path | None) -> dict[str, Gains]:
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    return {record["settings"]: record["gains"] for record in map(json.loads, lines)}


def table(results: Mapping[tuple[str, int], Gains], sizes: Sequence[int]) -> str:
    """A row for each alpha with its mean over seeds, minimum and maximum; and the mean of all."""
    lines = [f"| alpha | seeds | {' | '.join(f'{size} images' for size in sizes)} |", f"|---|---|{'---|' * len(sizes)}"]
    alphas = list(dict.fromkeys(alpha for alpha, _ in results))
    for alpha in [*alphas, ""]:
        rows = [gains for (a, _), gains in results.items() if alpha in (a, "")]
        cells = [[gains[str(size)] for gains in rows] for size in sizes]
        shown = [f"{np.mean(c):+.2f}" + (f" ({min(c):+.2f} to {max(c):+.2f})" if alpha else "") for c in cells]
        lines.append(f"| {alpha or 'all'} | {len(rows)} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="fedpae-cifar10-small")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    parser.add_argument("--alphas", default="0.5,0.3,0.1", help="default: 0.5,0.3,0.1")
    parser.add_argument("--seeds", default="0,1,2", help="default: 0,1,2")
    parser.add_argument("--sizes", default="60,120,240,420,600", help="numbers of images to select with")
    parser.add_argument(
        "--record", type=Path, help="a file that keeps each result; results already in it are not computed again"
    )
    options = parser.parse_args()
    sizes = sorted(int(size) for size in options.sizes.split(","))
    kept, results = read(options.record), {}
    for alpha in options.alphas.split(","):
        for seed in map(int, options.seeds.split(",")):
            words = [f"data.validation={sizes[-1]}", *options.settings, f"data.alpha={alpha}", f"seed={seed}"]
            key = " ".join([options.preset, *words, f"sizes={options.sizes}"])
            if key not in kept:
                kept[key] = measured(options.preset, words, sizes)
                if options.record:
                    options.record.parent.mkdir(parents=True, exist_ok=True)
                    with options.record.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"settings": key, "gains": kept[key]}) + "\n")
            results[alpha, seed] = kept[key]
            gains = ", ".join(f"{value:+.2f} with {size}" for size, value in kept[key].items())
            print(f"alpha {alpha}, seed {seed}: {gains}", flush=True)
    print(table(results, sizes))


if __name__ == "__main__":
    main()
