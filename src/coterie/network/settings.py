"""How a peer behaves on a network: the [network] section."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.errors import ConfigError
from coterie.network.encodings import ENCODINGS


@dataclass(frozen=True)
class NetworkSettings:
    """Real peers: the [network] section. The simulation does not look at it."""

    deadline: float = field(
        default=0.0,
        metadata={"help": "seconds that a fetch waits for those who are behind; 0: learned from recent rounds"},
    )
    patience: float = field(
        default=60.0,
        metadata={"help": "seconds: the longest deadline, the first one, and how long a server or a letter is awaited"},
    )
    gather: float = field(
        default=600.0,
        metadata={"help": "seconds to wait at the start until `peers` are there; then with whoever is"},
    )
    linger: float = field(
        default=600.0, metadata={"help": "seconds that a peer who has finished goes on serving those who have not"}
    )
    interval: float = field(
        default=1.0, metadata={"help": "seconds, on average, between two exchanges of who is where"}
    )
    checkpoint: int = field(default=1, metadata={"help": "rounds between two checkpoints"})
    largest: int = field(default=512, metadata={"help": "megabytes of an artifact that are taken at most"})
    compress: str = field(default="none", metadata={"help": f"what leaves this peer: {' | '.join(ENCODINGS)}"})
    share: float = field(default=0.1, metadata={"help": "for topk: of the numbers, how many are sent each time"})


def check(s: NetworkSettings) -> None:
    for key in ("patience", "gather", "linger", "interval", "largest"):
        if not 0 < getattr(s, key) < 1e9:
            raise ConfigError(f"network.{key} must be above 0, not {getattr(s, key)}")
    if not 0 <= s.deadline < 1e9 or s.checkpoint < 1 or not 0 < s.share <= 1:
        raise ConfigError("network.deadline must be at least 0, network.checkpoint at least 1, network.share in (0, 1]")
    if s.compress not in ENCODINGS:
        raise ConfigError(f"network.compress must be one of {', '.join(ENCODINGS)}, not '{s.compress}'")
