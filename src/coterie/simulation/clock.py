"""The virtual clock: durations at each peer, and when peers are away, as pure functions of the settings."""

from __future__ import annotations

import numpy as np

from coterie.config.sections import ClockSettings
from coterie.core import randomness

EVALUATION_COST = 1 / 3  # of training on the same samples: a forward pass without the backward one


class Clock:
    """The settings must have been checked (`config.checks`)."""

    def __init__(self, settings: ClockSettings, peers: int, seed: int) -> None:
        self.settings = settings
        self.seed = seed
        self.peers = peers
        factors = randomness.generator(seed, "speed").uniform(1, settings.spread, peers)
        self._speed = np.resize(np.array(settings.speed, dtype=float), peers) / factors
        self.windows: dict[int, list[tuple[float, float]]] = {}
        for peer, start, end in settings.offline:
            self.windows.setdefault(int(peer), []).append((start, end))

    def training(self, peer: int, samples: float) -> float:
        """Seconds that training on so many samples takes. A server's work takes none."""
        return 0.0 if peer >= self.peers else samples / float(self._speed[peer])

    def transfer(self, peer: int, size: int) -> float:
        latency = self.settings.latency[peer % len(self.settings.latency)]
        bandwidth = self.settings.bandwidth[peer % len(self.settings.bandwidth)]
        return latency + (size / bandwidth if bandwidth else 0.0)

    def away_until(self, peer: int, time: float) -> float | None:
        """When a peer that is away at this time returns (inf: never), or None if it is present."""
        for start, end in self.windows.get(peer, ()):
            if start <= time < end:
                return end
        return None

    def sits_out(self, peer: int, round: int) -> bool:
        if not self.settings.dropout or peer >= self.peers:
            return False
        return bool(randomness.reused_generator(self.seed, "dropout", peer, round).random() < self.settings.dropout)
