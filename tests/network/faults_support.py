"""Real peers as processes that a test may kill, freeze, cut off or let come late; and a network to cut.

The network is one namespace for each peer, joined by a switch in this process: a TUN device in every namespace, whose
packets the switch passes on, delays, loses, or (between two sides of a cut) drops. So it needs root, `ip` and
/dev/net/tun, but neither netem nor a firewall in the kernel.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coterie.config import loading, parsing
from coterie.config.sections import Experiment
from coterie.core.events import PeerRound, of_kind, read
from coterie.network import authority
from coterie.running.local_circle import free_ports

LOOK = 0.05  # seconds between two looks at what a peer has done
SEEDS = 2


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Until this is so; how long it took. What did not come in time is named."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK)
    return time.monotonic() - began


# -- peers -------------------------------------------------------------------------------------


@dataclass
class Seat:
    """One peer of a circle: its file, its folder and, while it runs, its process."""

    name: str
    file: Path
    out: Path
    namespace: str = ""
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert not self.alive, f"{self.name} runs already"
        inside = ["ip", "netns", "exec", self.namespace] if self.namespace else []
        self.out.mkdir(parents=True, exist_ok=True)
        with (self.file.parent / f"{self.name}.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [*inside, sys.executable, "-m", "coterie", "peer", str(self.file)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, kind: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(kind)

    def kill(self) -> None:
        """As a power cut would: no time for anything."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(30)

    def stop(self) -> None:
        if self.alive:
            self.signal(signal.SIGCONT)
            self.kill()

    def wait(self, seconds: float) -> int:
        assert self.process is not None
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {seconds:g} s:\n{self.tail()}") from None

    def rounds(self) -> list[PeerRound]:
        if not (self.out / "events.jsonl").exists():
            return []
        records: list[PeerRound] = of_kind(read(self.out / "events.jsonl"), PeerRound)
        return records

    @property
    def round(self) -> int:
        """The last that it finished."""
        finished = self.rounds()
        return finished[-1].round if finished else 0

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "status.json").read_text(encoding="utf-8"))
        return found

    def said(self) -> str:
        path = self.file.parent / f"{self.name}.txt"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def tail(self) -> str:
        return "\n".join(self.said().splitlines()[-12:])


class RealCircle:
    """Peers with keys of one authority and files of their own, in one folder."""

    def __init__(self, folder: Path, *words: str, preset: str = "panm-digits") -> None:
        self.folder, self.e = folder, loading.load(preset, words)
        self.seats: dict[str, Seat] = {}
        self.seeds: list[str] = []
        authority.create_authority(folder / "keys", "throwaway", days=2)

    def __getitem__(self, name: str) -> Seat:
        return self.seats[name]

    def add(self, *names: str, e: Experiment | None = None, **peer: Any) -> None:
        """Keys and a file for each, at ports of this machine's own."""
        ports = free_ports(len(names))
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.place(dict(zip(names, addresses, strict=True)), e=e, **peer)

    def place(
        self,
        addresses: dict[str, str],
        namespaces: dict[str, str] | None = None,
        e: Experiment | None = None,
        **peer: Any,
    ) -> None:
        """Keys and a file for each name, at these addresses. The first few ever placed are everybody's seeds."""
        self.seeds = (self.seeds + [f"{name}@{address}" for name, address in addresses.items()])[:SEEDS]
        for name, address in addresses.items():
            authority.issue(name, self.folder / "keys", days=2)
            table = {"keys": f"keys/{name}", "listen": address, "seeds": self.seeds, "out": f"of-{name}", **peer}
            file = self.folder / f"{name}.toml"
            file.write_text(parsing.dump({**(e or self.e).tables(), "peer": table}), encoding="utf-8")
            self.seats[name] = Seat(name, file, self.folder / f"of-{name}", (namespaces or {}).get(name, ""))

    def start(self, *names: str) -> None:
        for name in names or self.seats:
            self[name].start()

    def stop(self) -> None:
        for seat in self.seats.values():
            seat.stop()

    def until_round(self, round: int, seconds: float, *names: str) -> float:
        """Until all of these have finished this round."""
        wanted = [self[name] for name in names or self.seats]

        def there() -> bool:
            ended = [s for s in wanted if not s.alive and s.round < round]
            assert not ended, f"{ended[0].name} ended before round {round}:\n{ended[0].tail()}"
            return all(s.round >= round for s in wanted)

        return wait_until(there, seconds, f"round {round} of {', '.join(s.name for s in wanted)}")

    def until_done(self, seconds: float, *names: str) -> None:
        """Until all of these have ended well."""
        until = time.monotonic() + seconds
        for name in names or self.seats:
            code = self[name].wait(max(0.1, until - time.monotonic()))
            assert code == 0, f"{name} ended with exit code {code}:\n{self[name].tail()}"


@contextlib.contextmanager
def real_circle(folder: Path, *words: str, **options: Any) -> Iterator[RealCircle]:
    """A circle whose processes end with the test, however it ends."""
    circle = RealCircle(folder, *words, **options)
    try:
        yield circle
    finally:
        circle.stop()


def every_round_once(records: list[PeerRound], rounds: int, first: int = 1) -> None:
    assert [r.round for r in records] == list(range(first, rounds + 1))


def received_from(seat: Seat) -> dict[str, int]:
    """From whom it has received how many artifacts since it started, as its status says."""
    return {other["name"]: int(other["received"]) for other in seat.status()["peers"]}


# -- a network to cut --------------------------------------------------------------------------

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
MTU = 1400


def need_namespaces() -> None:
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists() or shutil.which("ip") is None:
        pytest.skip("needs root, /dev/net/tun and the command `ip`, to make network namespaces")
    tried = subprocess.run(["ip", "netns", "add", "coterie-try"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "coterie-try"], capture_output=True)
    if tried.returncode:
        pytest.skip(f"network namespaces cannot be made here: {tried.stderr.strip()}")


@dataclass
class Switch:
    """Passes packets between namespaces. `cut` names one side of a cut: what would cross it is dropped."""

    count: int
    delay: float = 0.0  # seconds, of every packet
    loss: float = 0.0  # share of packets
    cut: frozenset[int] = frozenset()
    packets: int = 0
    lost: int = 0
    bytes: int = 0
    _devices: list[int] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _queue: list[tuple[float, int, int, bytes]] = field(default_factory=list)  # due, order, to whom, what
    _random: random.Random = field(default_factory=lambda: random.Random(0))
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Switch:
        tag = f"co{os.getpid() % 100_000}"
        try:
            for i in range(self.count):
                self._join(i, f"{tag}-{i}")
        except BaseException:
            self._leave()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._leave()

    def namespace(self, i: int) -> str:
        return self._names[i]

    @staticmethod
    def address(i: int) -> str:
        return f"10.77.0.{i + 1}"

    def _join(self, i: int, name: str) -> None:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._devices.append(device)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
        _ip("netns", "add", name)
        self._names.append(name)
        _ip("link", "set", name, "netns", name)
        _ip("-n", name, "address", "add", f"{self.address(i)}/24", "dev", name)
        _ip("-n", name, "link", "set", name, "mtu", str(MTU), "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _leave(self) -> None:
        for device in self._devices:
            os.close(device)
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def _run(self) -> None:
        poll = select.poll()
        places = {device: i for i, device in enumerate(self._devices)}
        for device in self._devices:
            poll.register(device, select.POLLIN)
        while not self._ended.is_set():
            for device, _ in poll.poll(self._pause()):
                self._read(device, places[device])
            while self._queue and self._queue[0][0] <= time.monotonic():
                _, _, to, packet = heapq.heappop(self._queue)
                with contextlib.suppress(OSError):
                    os.write(self._devices[to], packet)

    def _pause(self) -> int:
        """Milliseconds until the next packet is due."""
        if not self._queue:
            return 50
        return max(0, min(50, int(1000 * (self._queue[0][0] - time.monotonic())) + 1))

    def _read(self, device: int, sender: int) -> None:
        for _ in range(64):
            try:
                packet = os.read(device, 65536)
            except OSError:
                return
            if packet[0] >> 4 != 4 or packet[16:19] != bytes([10, 77, 0]) or not 0 < packet[19] <= self.count:
                continue
            to = packet[19] - 1
            self.packets += 1
            if self._random.random() < self.loss or (sender in self.cut) != (to in self.cut):
                self.lost += 1
                continue
            self.bytes += len(packet)
            heapq.heappush(self._queue, (time.monotonic() + self.delay, self.packets, to, packet))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
