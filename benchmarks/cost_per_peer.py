"""The cost per peer in circles of growing size: time and messages per round, for methods that search for similar peers.

    python benchmarks/cost_per_peer.py [--peers 100 400 1600]

With w2's peers and data. Times exclude the first rounds, in which operations are recorded.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from workloads import PRESET, words

from coterie.config.loading import load
from coterie.running import simulated
from coterie.running.progress import RoundProgress

UNUSUAL = 3  # rounds, at the beginning
METHODS = {
    "gossip": ("method.name=gossip", "method.k=5"),
    "panm": ("method.name=panm", "method.k=5", "method.l=10", "method.t1=6", "method.tau=2"),
    "mapl, exploring": ("method.name=mapl", "method.explore=5", "method.t_thr=2", "model.projector_hidden=64"),
}


def measure(name: str, peers: int, rounds: int, folder: Path) -> None:
    ends: list[float] = []

    def note(_: RoundProgress) -> None:
        ends.append(time.perf_counter())

    settings = [word for word in words("w2", folder, peers) if not word.startswith("method.")]
    more = (f"rounds={rounds}", "engine.checkpoint=0", "engine.models=false")
    summary = simulated.run(load(PRESET, [*settings, *METHODS[name], *more]), folder / f"{name}-{peers}", on_round=note)
    seconds = (ends[-1] - ends[UNUSUAL - 1]) / (len(ends) - UNUSUAL)
    each = rounds * peers
    messages, size = summary["messages"]["total"] / each, summary["bytes"]["total"] / each
    print(f"{name:>16}, {peers:>6,} peers: {1e6 * seconds / peers:>7,.0f} us, {messages:>5.1f} messages, "
          f"{size / 1e3:>6.0f} kB a peer and round", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peers", type=int, nargs="+", default=[100, 400, 1600])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for name in METHODS:
        for peers in options.peers:
            with tempfile.TemporaryDirectory() as folder:
                measure(name, peers, options.rounds, Path(folder))


if __name__ == "__main__":
    main()
