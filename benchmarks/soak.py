"""Soak test: a circle of real peers runs for long while some are killed, leave, return or join. Finds leaks and hangs.

    python benchmarks/soak.py                       # 30 minutes
    python benchmarks/soak.py --minutes 3 --peers 6

Two veterans run undisturbed: their memory should not grow. From time to time another peer is killed and restarted, or
stopped for a while, or a newcomer with its own certificate joins and later leaves for good. At the end every running
peer must have finished a round within the last minute, every log must have each round once, and every audit log must
verify. Otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from coterie.config import loading, parsing
from coterie.core.events import Offence, PeerRound, of_kind, read
from coterie.network import authority
from coterie.network.audit import verify
from coterie.running.local_circle import free_ports

# Gossip on digits; a round trains for a tenth of a second or so.
GOSSIP = (
    "method.name=gossip", "method.k=3", "baseline=", "data.partition=iid", "data.train=40", "data.validation=10",
    "data.test=10", "evaluate.every=50", "engine.threads=1", "rounds=10000000", "network.patience=20",
)  # fmt: skip
VETERANS = 2
SAMPLE_EVERY = 5.0  # seconds
DISTURB_EVERY = (5.0, 20.0)  # seconds, from and to
AWAY = (5.0, 60.0)  # seconds that a peer stays away
GUESTS = 2  # newcomers at a time
WARM = 60.0  # seconds of warm-up of a process: first rounds, first connections
LEAST_SAMPLES = 12  # for a slope
STOPPED = (130, -signal.SIGTERM)  # exit codes of a peer asked to stop; the second, while it was still starting
STUCK = 60.0  # seconds without a round


@dataclass(frozen=True)
class Sample:
    at: float  # seconds since its process started
    rss: int  # kB
    threads: int
    files: int  # open ones, sockets included


@dataclass
class Seat:
    """A peer, through all its processes."""

    name: str
    file: Path
    out: Path
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0
    back_at: float | None = None  # when it will start again, if it is away
    life: list[Sample] = field(default_factory=list)  # samples of the current process
    lives: list[list[Sample]] = field(default_factory=list)  # samples of earlier processes

    def start(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        self.lives, self.life = [*self.lives, self.life], []
        self.began, self.back_at = time.monotonic(), None
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with (self.out / "output.txt").open("ab") as output:
            command = [sys.executable, "-m", "coterie", "peer", str(self.file)]
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def end(self, kind: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(kind)
        try:
            return self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def sample(self) -> None:
        if not self.alive or not self._listens():
            return
        assert self.process is not None
        place = Path("/proc") / str(self.process.pid)
        lines = (place / "status").read_text().splitlines()
        fields = {key: rest.split() for key, _, rest in (line.partition(":") for line in lines)}
        files = len(list((place / "fd").iterdir()))
        at = time.monotonic() - self.began
        self.life.append(Sample(at, int(fields["VmRSS"][0]), int(fields["Threads"][0]), files))

    def _listens(self) -> bool:
        """Whether the current process (not only an earlier one) listens: its imports do not count."""
        assert self.process is not None
        try:
            status = json.loads((self.out / "status.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(status["process"] == self.process.pid)

    def rounds(self) -> list[int]:
        records: list[PeerRound] = of_kind(read(self.out / "events.jsonl"), PeerRound)
        return [record.round for record in records]


class Soak:
    def __init__(self, folder: Path, peers: int, words: Sequence[str], seed: int) -> None:
        self.folder, self.chance, self.done = folder, random.Random(seed), Counter[str]()
        self.e = loading.load("panm-digits", [*GOSSIP, *words, f"peers={peers}"])
        self.troubles: list[str] = []
        authority.create_authority(folder / "keys", "soak", days=2)
        names = [f"peer-{i}" for i in range(peers)]
        ports = free_ports(peers)
        self.seeds = [f"{name}@127.0.0.1:{port}" for name, port in list(zip(names, ports, strict=True))[:3]]
        self.seats = [self._seat(name, port) for name, port in zip(names, ports, strict=True)]
        self.guests: list[Seat] = []

    def _seat(self, name: str, port: int, index: int = -1) -> Seat:
        authority.issue(name, self.folder / "keys", days=2)
        peer = {
            "keys": f"keys/{name}", "listen": f"127.0.0.1:{port}", "seeds": self.seeds, "out": f"of-{name}",
            "index": index,
        }  # fmt: skip
        file = self.folder / f"{name}.toml"
        file.write_text(parsing.dump({**self.e.tables(), "peer": peer}), encoding="utf-8")
        return Seat(name, file, self.folder / f"of-{name}")

    @property
    def all_seats(self) -> list[Seat]:
        return [*self.seats, *self.guests]

    # -- a run ---------------------------------------------------------------------------------

    def run(self, minutes: float) -> None:
        for seat in self.seats:
            seat.start()
        self._wait_until_all_started()
        until = time.monotonic() + 60 * minutes
        disturb = sample = time.monotonic()
        while (now := time.monotonic()) < until:
            if now >= sample:
                sample = now + SAMPLE_EVERY
                for seat in self.all_seats:
                    seat.sample()
            if now >= disturb and until - now > STUCK + AWAY[1]:  # towards the end, all come back
                disturb = now + self.chance.uniform(*DISTURB_EVERY)
                self._disturb()
            self._restart_ended()
            time.sleep(0.5)
        self._check()

    def _wait_until_all_started(self) -> None:
        began = time.monotonic()
        while not all((seat.out / "events.jsonl").exists() and len(seat.rounds()) >= 2 for seat in self.seats):
            self._restart_ended()
            if time.monotonic() - began > 600:
                sys.exit("the circle did not start within ten minutes")
            time.sleep(1)
        print(f"all started after {time.monotonic() - began:.0f} s", flush=True)

    def _disturb(self) -> None:
        running = [seat for seat in self.seats[VETERANS:] if seat.alive]
        guests = [seat for seat in self.guests if seat.alive and time.monotonic() - seat.began > WARM]
        what = self.chance.choice(["kill", "kill", "leave", "join", "goodbye"])
        if what == "kill" and running:
            seat = self.chance.choice(running)
            seat.end(signal.SIGKILL)
            seat.start()
        elif what == "leave" and len(running) > 2:
            seat = self.chance.choice(running)
            self._stop(seat)
            seat.back_at = time.monotonic() + self.chance.uniform(*AWAY)
        elif what == "join" and sum(seat.alive for seat in self.guests) < GUESTS:
            guest = self._seat(f"guest-{len(self.guests)}", free_ports(1)[0], self.chance.randrange(self.e.peers))
            self.guests.append(guest)
            guest.start()
        elif what == "goodbye" and guests:
            self._stop(guests[0])
        else:
            return
        self.done[what] += 1

    def _stop(self, seat: Seat) -> None:
        code = seat.end(signal.SIGTERM)
        if code not in STOPPED:
            self.troubles.append(f"{seat.name} was asked to stop, but exited with code {code}")

    def _restart_ended(self) -> None:
        for seat in self.all_seats:
            away = seat.back_at is not None
            if seat.process is None or seat.alive or (seat in self.guests and seat.process.returncode in STOPPED):
                continue
            if not away:
                self.troubles.append(f"{seat.name} ended unexpectedly with exit code {seat.process.returncode}")
                seat.back_at = 0.0
            if seat.back_at is not None and time.monotonic() >= seat.back_at:
                seat.start()

    # -- at the end ----------------------------------------------------------------------------

    def _check(self) -> None:
        before = {seat.name: len(seat.rounds()) for seat in self.all_seats if seat.alive}
        time.sleep(STUCK)
        for seat in self.all_seats:
            if seat.alive and len(seat.rounds()) <= before[seat.name]:
                self.troubles.append(f"{seat.name} is stuck in round {seat.rounds()[-1:]}")
        self.advanced = {seat.name: len(seat.rounds()) - before[seat.name] for seat in self.all_seats if seat.alive}
        for seat in self.all_seats:
            if seat.alive:
                self._stop(seat)
        for seat in self.all_seats:
            self._check_logs(seat)

    def _check_logs(self, seat: Seat) -> None:
        rounds = seat.rounds() if (seat.out / "events.jsonl").exists() else []
        if rounds and rounds != list(range(rounds[0], rounds[0] + len(rounds))):
            self.troubles.append(f"{seat.name} does not have every round exactly once in its log")
        if rounds and seat in self.seats and rounds[0] != 1:
            self.troubles.append(f"{seat.name} began in round {rounds[0]}")
        offences = of_kind(read(seat.out / "events.jsonl"), Offence) if rounds else []
        self.troubles += [
            f"{seat.name} recorded an offence of '{offence.sender}': {offence.what}" for offence in offences[:3]
        ]
        if (seat.out / "audit.jsonl").exists():
            try:
                verify(seat.out / "audit.jsonl")
            except Exception as error:
                self.troubles.append(f"the audit log of {seat.name}: {error}")

    def report(self) -> None:
        print(f"disturbed: {dict(self.done)}; guests {len(self.guests)}")
        print(f"rounds in the last minute: {self.advanced}")
        print(f"rounds of the veterans: {[seat.rounds()[-1] for seat in self.seats[:VETERANS]]}")
        for seat in self.seats[:VETERANS]:
            for name in ("rss", "threads", "files"):
                _report_growth(seat, name)
        lives = [life for seat in self.all_seats for life in (*seat.lives, seat.life)]
        slopes = sorted(slope(warm(life), "rss") for life in lives if len(warm(life)) >= LEAST_SAMPLES)
        if slopes:
            print(
                f"memory of {len(slopes)} long-lived processes: {statistics.median(slopes):+.0f} kB a "
                f"minute (median), {slopes[0]:+.0f} to {slopes[-1]:+.0f}"
            )
        print("\n".join(self.troubles) or "no problems")


def warm(life: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in life if sample.at >= life[0].at + WARM]


def _report_growth(seat: Seat, name: str) -> None:
    samples = warm(seat.life)
    values = [getattr(sample, name) for sample in samples]
    if len(values) >= LEAST_SAMPLES:
        print(
            f"{seat.name}, {name}: from {values[0]} to {values[-1]}, most {max(values)}; {slope(samples, name):+.1f} a "
            f"minute, in the second half {slope(samples[len(samples) // 2 :], name):+.1f}"
        )


def slope(samples: Sequence[Sample], name: str) -> float:
    """Growth per minute by the Theil-Sen estimator: the median of all pairwise slopes, robust to jumps."""
    thinned = samples[:: max(1, len(samples) // 200)]
    points = [(s.at / 60, float(getattr(s, name))) for s in thinned]
    slopes = [(y - x) / (b - a) for (a, x), (b, y) in combinations(points, 2)]
    return statistics.median(slopes) if slopes else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", metavar="key=value", help="such as train.epochs=100")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--peers", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="an empty folder to keep everything in; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        soak = Soak(folder, options.peers, ["train.epochs=60", *options.settings], options.seed)
        try:
            soak.run(options.minutes)
        finally:
            for seat in soak.all_seats:
                if seat.alive:
                    seat.end(signal.SIGKILL)
        soak.report()
        return 1 if soak.troubles else 0


if __name__ == "__main__":
    sys.exit(main())
