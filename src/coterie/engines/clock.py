"""The virtual clock: how long things take at each peer, and who is away when. Pure functions of the settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from coterie import randomness
from coterie.errors import ConfigError

EVALUATION_COST = 1 / 3  # of training the same samples: a forward pass without the backward one


@dataclass(frozen=True)
class ClockSettings:
    """Simulated time: the [clock] section. It changes who waits for whom, and never the machine's own speed."""

    speed: tuple[float, ...] = field(
        default=(1000.0,), metadata={"help": "training samples per second, by peer index, modulo the length"}
    )
    spread: float = field(
        default=1.0, metadata={"help": "slow peers: divide each speed by a factor drawn from 1 to this"}
    )
    latency: tuple[float, ...] = field(default=(0.0,), metadata={"help": "seconds per exchange, by peer, modulo"})
    bandwidth: tuple[float, ...] = field(
        default=(0.0,), metadata={"help": "bytes per second, by peer, modulo; 0: unlimited"}
    )
    deadline: float = field(
        default=0.0,
        metadata={"help": "seconds that a fetch waits for those who are behind; 0: as long as it takes"},
    )
    offline: tuple[tuple[float, float, float], ...] = field(
        default=(), metadata={"help": "windows [peer, from, until] in seconds; until = inf: leaves for good"}
    )
    dropout: float = field(
        default=0.0,
        metadata={"help": "probability that a peer sits a round out, unreachable, drawn per round"},
    )


class Clock:
    def __init__(self, settings: ClockSettings, peers: int, seed: int) -> None:
        _check(settings, peers)
        self.settings = settings
        self.seed = seed
        self.peers = peers
        factors = randomness.generator(seed, "speed").uniform(1, settings.spread, peers)
        self._speed = np.resize(np.array(settings.speed, dtype=float), peers) / factors
        self.windows: dict[int, list[tuple[float, float]]] = {}
        for peer, start, end in settings.offline:
            self.windows.setdefault(int(peer), []).append((start, end))

    def training(self, peer: int, samples: float) -> float:
        """Seconds that training on so many samples takes. A server's own work takes none."""
        return 0.0 if peer >= self.peers else samples / float(self._speed[peer])

    def transfer(self, peer: int, size: int) -> float:
        latency = self.settings.latency[peer % len(self.settings.latency)]
        bandwidth = self.settings.bandwidth[peer % len(self.settings.bandwidth)]
        return latency + (size / bandwidth if bandwidth else 0.0)

    def away_until(self, peer: int, time: float) -> float | None:
        """When a peer that is away at this time comes back (inf: never), or None if it is there."""
        for start, end in self.windows.get(peer, ()):
            if start <= time < end:
                return end
        return None

    def sits_out(self, peer: int, round: int) -> bool:
        if not self.settings.dropout or peer >= self.peers:
            return False
        return bool(randomness.passing(self.seed, "dropout", peer, round).random() < self.settings.dropout)


def _check(s: ClockSettings, peers: int) -> None:
    for key in ("speed", "latency", "bandwidth"):
        values = getattr(s, key)
        if not values or not all(0 <= v < math.inf for v in values) or (key == "speed" and min(values) == 0):
            raise ConfigError(
                f"clock.{key} needs one or more {'positive' if key == 'speed' else 'non-negative'} numbers"
            )
    if not 1 <= s.spread < math.inf or not 0 <= s.deadline < math.inf or not 0 <= s.dropout < 1:
        raise ConfigError("clock.spread must be at least 1, clock.deadline at least 0, clock.dropout in [0, 1)")
    for peer, start, end in s.offline:
        if not (0 <= peer < peers and peer == int(peer) and 0 <= start < end):
            raise ConfigError(f"clock.offline: [{peer}, {start}, {end}] is not [a peer below {peers}, from, until]")
