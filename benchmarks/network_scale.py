"""Many real peers on one machine under mutual TLS: cost per peer, time until all know each other, time per round.

    python benchmarks/network_scale.py                  # 50 peers run PANM on digits to the end
    python benchmarks/network_scale.py 10 rounds=20

Memory is from /proc: RSS counts shared memory in full for each process, PSS divides it among them. So the sum of PSS is
what the machine needs. Linux only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from dataclasses import astuple, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from coterie.config import loading
from coterie.core.events import PeerRound, of_kind, read
from coterie.core.summary import Summary
from coterie.running.local_circle import LocalCircle, PeerProcess

# Digits has 1,797 samples: 30 for each of 50 peers.
SMALL_SHARES = ("baseline=", "data.train=20", "data.validation=5", "data.test=5", "train.batch=10")
SAMPLE_EVERY = 5.0  # seconds


@dataclass(frozen=True)
class Cost:
    """The cost of one process: kilobytes, threads and seconds of CPU time."""

    rss: int
    pss: int
    private: int
    threads: int
    cpu: float


def cost_of(process: int) -> Cost | None:
    """The cost of a process; None if it has ended."""
    place = Path("/proc") / str(process)
    try:
        lines = (place / "smaps_rollup").read_text().splitlines()[1:]
        ticks = (place / "stat").read_text().rpartition(")")[2].split()
        threads = len(list((place / "task").iterdir()))
    except OSError:
        return None
    sizes = {key: int(rest.split()[0]) for key, _, rest in (line.partition(":") for line in lines)}
    private = sizes["Private_Clean"] + sizes["Private_Dirty"]
    return Cost(sizes["Rss"], sizes["Pss"], private, threads, (int(ticks[11]) + int(ticks[12])) / 100)


class Watch(threading.Thread):
    """Samples all processes: the peak cost of each, and how many other peers each knows."""

    def __init__(self, circle: LocalCircle) -> None:
        super().__init__(daemon=True)
        self.circle, self.began = circle, time.monotonic()
        self.costs: dict[str, Cost] = {}
        self.total_pss = 0
        self.all_listen = self.all_know = 0.0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_EVERY if self.all_know else 0.5):
            self._sample_costs()
            now = time.monotonic() - self.began
            known = [_knows(member) for member in self.circle.members]
            self.all_listen = self.all_listen or (now if all(known) else 0.0)
            self.all_know = self.all_know or (now if min(known) >= len(known) else 0.0)

    def _sample_costs(self) -> None:
        sampled = {m.name: cost_of(m.process.pid) for m in self.circle.members if m.process is not None}
        alive = {name: cost for name, cost in sampled.items() if cost is not None}
        for name, cost in alive.items():  # the maximum of each figure: a process that ends has released its threads
            before = self.costs.get(name, cost)
            self.costs[name] = Cost(*map(max, astuple(before), astuple(cost)))
        self.total_pss = max(self.total_pss, sum(cost.pss for cost in alive.values()))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def _knows(member: PeerProcess) -> int:
    """The number of peers it knows, itself included; 0 before it listens."""
    try:
        status: dict[str, Any] = json.loads((member.out / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return 1 + len(status["peers"])


def figures(circle: LocalCircle, watch: Watch, summary: Summary) -> dict[str, Any]:
    costs = list(watch.costs.values())
    logs: list[list[PeerRound]] = [of_kind(read(m.out / "events.jsonl"), PeerRound) for m in circle.members]
    steps = [later.time - earlier.time for log in logs for earlier, later in pairwise(log)]
    waited = [float(record.notes["waited"]) for log in logs for record in log]
    return {
        "peers": len(circle.members), "rounds": circle.e.rounds,
        "finished": sum(len(log) == circle.e.rounds for log in logs),
        "accuracy": round(summary.test.last or 0.0, 4),
        "messages": summary.messages.total, "megabytes": round(summary.bytes.total / 1e6, 1),
        "MB of a peer, median": {
            key: round(statistics.median(getattr(c, key) for c in costs) / 1000) for key in ("rss", "pss", "private")
        },
        "MB of all together (PSS)": round(watch.total_pss / 1000),
        "threads of a peer": [min(c.threads for c in costs), max(c.threads for c in costs)],
        "seconds of processor time of a peer, median": round(statistics.median(c.cpu for c in costs), 1),
        "seconds until all listen": round(watch.all_listen, 1),
        "seconds until all know all": round(watch.all_know, 1),
        "seconds of a round, median": round(statistics.median(steps), 2) if steps else None,
        "seconds of a round, slowest of twenty": round(sorted(steps)[int(0.95 * len(steps))], 2) if steps else None,
        "seconds waited in a round, median": round(statistics.median(waited), 2),
        "seconds": round(summary["seconds"], 1),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="?", type=int, default=50)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="on top of panm-digits with small shares")
    parser.add_argument("--out", type=Path, help="the run's folder; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder) / "run"
        e = loading.load("panm-digits", [*SMALL_SHARES, *options.settings, f"peers={options.peers}"])
        circle = LocalCircle(e, out, say=print)
        circle.prepare(overwrite=True)
        watch = Watch(circle)
        watch.start()
        try:
            summary = circle.run()
        finally:
            watch.stop()
        for key, value in figures(circle, watch, summary).items():
            print(f"{key}: {value}")


if __name__ == "__main__":
    main()
