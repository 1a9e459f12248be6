"""The sections of an experiment: every setting with its default and its help text, and the experiment made of them.

The sections [model], [train] and [graph] are beside what they configure, in `models.zoo`, `core.jobs` and
`core.topology`; the keys of partitions are in `data.partitions.settings`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from coterie import data
from coterie.config import parsing
from coterie.config.carry_over import CarriedOver
from coterie.core.jobs import TrainSettings
from coterie.core.topology import TopologySettings
from coterie.data import PartitionSettings, Views
from coterie.data.views import AUTO
from coterie.data.views import NAMES as VIEWS
from coterie.methods.base import Method
from coterie.models import ModelSettings

ENGINES = SIMULATION, PROCESSES, RAY = "simulation", "processes", "ray"
SINKS = ("tensorboard", "wandb")  # each also the name of its package
# The forms in which an artifact can travel; see `network.compression`.
ENCODINGS: tuple[str, ...] = ("none", "zstd", "fp16", "topk")


def _view(help: str) -> str:
    return f"views of images: {help}; auto: by dataset"


@dataclass(frozen=True)
class DataSettings(PartitionSettings):
    """Which data, and who gets what of it: the [data] section."""

    name: str = field(default="digits", metadata={"help": "a dataset (`coterie list data`), or a path of yours"})
    scale: str = field(
        default="auto",
        metadata={
            "help": "standard (mean 0, deviation 1, per channel or feature) | unit (images: 0 to 1) | none | "
            "auto: standard, but whole numbers in .npz arrays as they are"
        },
    )
    label: str = field(default="label", metadata={"help": "the label column of a CSV or Parquet file"})
    labels: tuple[str, ...] = field(
        default=(),
        metadata={"help": "all labels, in the order that peers agree on, where a file of yours may lack some"},
    )
    categories: dict[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata={
            "help": "of a text column in your table, by its name: all texts that it may have, such as ['f', 'm']"
        },
    )
    crop: float | str = field(default=AUTO, metadata={"help": _view("the least share of the area that a crop keeps")})
    flip: float | str = field(default=AUTO, metadata={"help": _view("probability of a horizontal flip")})
    jitter: float | str = field(default=AUTO, metadata={"help": _view("probability of other colours")})
    grey: float | str = field(default=AUTO, metadata={"help": _view("probability of losing the colours")})
    blur: float | str = field(default=AUTO, metadata={"help": _view("probability of a blur")})
    noise: float = field(
        default=0.1, metadata={"help": "views of features: deviation of the noise on each, as models see them"}
    )
    drop: float = field(
        default=0.1,
        metadata={"help": "views of features: probability that one is set to 0, its mean if it is standardised"},
    )

    @property
    def views(self) -> Views:
        """How views of images are made: what is auto is up to the dataset."""
        given = {key: getattr(self, key) for key in VIEWS}
        usual = data.default_views(self.name) if AUTO in given.values() else None
        return Views(**{key: getattr(usual, key) if value == AUTO else value for key, value in given.items()})

    def __hash__(self) -> int:
        """Settings are keys, and a table has no hash; equal settings are equal in these, too."""
        return hash((self.name, self.partition, self.label, self.labels, tuple(sorted(self.categories))))


@dataclass(frozen=True)
class EngineSettings:
    """Who advances whom: the [engine] section."""

    name: str = field(
        default="simulation",
        metadata={
            "help": "simulation (in one process) | processes (in one for each worker: for long runs) | ray (on a Ray "
            "cluster); the results are the same"
        },
    )
    address: str = field(
        default="",
        metadata={"help": "of ray: auto, or HOST:PORT of a cluster; empty: one on this machine, for this run"},
    )
    asynchronous: bool = field(
        default=False,
        metadata={"help": "fetch what is there, the latest version, instead of waiting for this round's"},
    )
    batching: str = field(
        default="auto", metadata={"help": "train equal peers as one: auto (where faster) | always | never"}
    )
    workers: int = field(
        default=0,
        metadata={"help": "threads, or processes, that train peers side by side; 0: one a core; results do not change"},
    )
    threads: int = field(
        default=1,
        metadata={
            "help": "threads within one operation of a model that is trained alone; 0: all cores; changes digits"
        },
    )
    checkpoint: int = field(default=25, metadata={"help": "rounds between two checkpoints; 0: none"})
    device: str = field(default="cpu", metadata={"help": "cpu | cuda | mps"})
    spill: str = field(
        default="",
        metadata={"help": "a folder in which models lie on disk, where there are more than memory; empty: none do"},
    )
    models: bool = field(
        default=True, metadata={"help": "write every peer's model into the run's folder at the end, to use or export"}
    )
    sinks: tuple[str, ...] = field(
        default=(), metadata={"help": "where else events go: tensorboard | wandb (packages of their own)"}
    )


@dataclass(frozen=True)
class EvaluateSettings:
    """When models are measured: the [evaluate] section."""

    every: int = field(default=1, metadata={"help": "rounds between two measurements (the last is always measured)"})


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


@dataclass(frozen=True)
class Experiment:
    """Everything that a run depends on."""

    method_name: str
    method: Method
    seed: int = field(default=0, metadata={"help": "the number that all randomness follows from"})
    rounds: int = field(default=60, metadata={"help": "how many there are"})
    peers: int = field(default=20, metadata={"help": "how many there are, without a server"})
    baseline: str = field(default="", metadata={"help": "a method to run beside, with the same splits, and show"})
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    engine: EngineSettings = EngineSettings()
    clock: ClockSettings = ClockSettings()
    graph: TopologySettings = TopologySettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    network: NetworkSettings = NetworkSettings()
    # what the method took over from others that it replaced: to be said, not a setting
    carried: tuple[CarriedOver, ...] = field(default=(), compare=False, repr=False)
    # what was assumed of the user's own images where views are made of them: the same
    assumed: str = field(default="", compare=False, repr=False)

    @property
    def trains_on_views(self) -> bool:
        """Whether random views of samples are made, as far as the method says."""
        return self.train.augment or self.method.views > 0

    def tables(self) -> dict[str, Any]:
        """As TOML would say it: enough to repeat the run."""
        plain = {key: getattr(self, key) for key in ("seed", "rounds", "peers", "baseline")}
        method = {"name": self.method_name, **dataclasses.asdict(self.method)}
        sections = {key: dataclasses.asdict(getattr(self, key)) for key in SECTIONS}
        return {**plain, "method": method, **sections}

    def toml(self) -> str:
        return parsing.dump(self.tables())


SECTIONS: dict[str, type[Any]] = {
    "data": DataSettings,
    "model": ModelSettings,
    "train": TrainSettings,
    "engine": EngineSettings,
    "clock": ClockSettings,
    "graph": TopologySettings,
    "evaluate": EvaluateSettings,
    "network": NetworkSettings,
}
PLAIN = {"seed": int, "rounds": int, "peers": int, "baseline": str}
