"""Runs as their events tell of them, made up: one with everything that a report can show, and large ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.events import Event, EventLog, PeerRound, RunStarted

SIZE = 100_000  # bytes of a model


def run_of_all_figures(peers: int = 8, rounds: int = 12, name: str = "panm") -> list[Event]:
    """Two clusters that find each other halfway; with embeddings, fronts and walks as no single method has them."""
    rng = np.random.default_rng(0)
    clusters = [p % 2 for p in range(peers)]
    classes = [[20 if k % 2 == c else 0 for k in range(4)] for c in clusters]
    kinds = [(name, "cnn")[p % 2] for p in range(peers)]
    events: list[Event] = [RunStarted(name, 0, peers, rounds, kinds, [40] * peers, classes, clusters, "0.1.0")]
    for t in range(1, rounds + 1):
        for p in range(peers):
            kin = [j for j in range(peers) if j != p and (t <= rounds // 2 or clusters[j] == clusters[p])]
            chosen = sorted(rng.choice(kin, 3, replace=False).tolist())
            weights = {str(j): 0.25 for j in [p, *chosen]}
            notes: dict[str, Any] = {"neighbours": kin, "weights": weights, "members": [f"{p}/m", f"{kin[0]}/m"]}
            if t in (1, rounds):
                spots = {str(k): [float(k), float(clusters[p] * t), rng.random()] for k in range(4) if classes[p][k]}
                notes |= {"prototypes": spots, "features": {k: [*spot, 1.0] for k, spot in spots.items()}}
            if t == rounds:
                notes |= {"front": [[0.6, 0.4], [0.7, 0.2]], "place": [0.7, 0.2], "place_alone": [0.65, 0.1]}
                notes |= {"together": 0.9, "alone": 0.8}
            if t % peers == p:
                notes |= {f"hop.{name}": t, "found.cnn": t}
            if (t + 3) % peers == p:
                notes["hop.cnn"] = t
            test = min(1.0, 0.3 + 0.05 * t + 0.02 * p)
            events.append(PeerRound(p, t, float(t), test, test - 0.05, 1.0, {"model": SIZE}, {"model": 3}, notes))
    return events


def large_run(peers: int, rounds: int, k: int = 5) -> list[Event]:
    """Everybody averages with k others in every round."""
    rng = np.random.default_rng(0)
    clusters = [p * 4 // peers for p in range(peers)]
    classes = [[10] * 10 for _ in range(peers)]
    events: list[Event] = [RunStarted("panm", 0, peers, rounds, ["mlp"] * peers, [100] * peers, classes, clusters, "")]
    for t in range(1, rounds + 1):
        good = np.clip(rng.normal(0.5 + 0.4 * t / rounds, 0.05, (peers, 2)), 0, 1).tolist()
        for p in range(peers):
            near = rng.choice(peers // 4, k) + clusters[p] * (peers // 4) if t > rounds / 3 else rng.choice(peers, k)
            others = sorted({int(j) for j in near} - {p})
            weights = {str(j): 1 / (1 + len(others)) for j in [p, *others]}
            notes = {"neighbours": others, "weights": weights}
            events.append(PeerRound(p, t, float(t), *good[p], 0.5, {"model": SIZE}, {"model": k}, notes))
    return events


def written(events: list[Event], folder: Path) -> Path:
    """A folder with these events."""
    folder.mkdir()
    log = EventLog(folder / "events.jsonl")
    for event in events:
        log.write(event)
    log.close()
    return folder
