"""Defines the sections of an experiment: every setting with its default and help text.

The sections [model], [train] and [graph] are defined beside the code that they configure, in `models.zoo`, `core.jobs`
and `core.topology`; the keys of partitions are in `data.partitions.settings`.
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
SINKS = ("tensorboard", "wandb")  # also the names of their packages
# How an artifact can be encoded for sending; see `coterie.network.compression`.
ENCODINGS: tuple[str, ...] = ("none", "zstd", "fp16", "topk")


def _view(help: str) -> str:
    return f"image views: {help}; auto: depends on the dataset"


@dataclass(frozen=True)
class DataSettings(PartitionSettings):
    """Which data is used, and how it is divided among the peers: the [data] section."""

    name: str = field(default="digits", metadata={"help": "a dataset (`coterie list data`), or the path of your own"})
    scale: str = field(
        default="auto",
        metadata={
            "help": "standard (mean 0, standard deviation 1, per channel or feature) | unit (images: 0 to 1) | none | "
            "auto (standard, but integers in .npz arrays are not scaled)"
        },
    )
    label: str = field(default="label", metadata={"help": "name of the label column in a CSV or Parquet file"})
    labels: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "all class labels, in the same order for all peers; needed if your file may lack some of them"
        },
    )
    categories: dict[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata={
            "help": "for text columns of your table, by column name: all values that may occur, such as ['f', 'm']"
        },
    )
    crop: float | str = field(default=AUTO, metadata={"help": _view("smallest share of the area that a crop keeps")})
    flip: float | str = field(default=AUTO, metadata={"help": _view("probability of a horizontal flip")})
    jitter: float | str = field(default=AUTO, metadata={"help": _view("probability of colour jitter")})
    grey: float | str = field(default=AUTO, metadata={"help": _view("probability of conversion to greyscale")})
    blur: float | str = field(default=AUTO, metadata={"help": _view("probability of a blur")})
    noise: float = field(
        default=0.1, metadata={"help": "feature views: standard deviation of the noise added to each scaled feature"}
    )
    drop: float = field(
        default=0.1,
        metadata={"help": "feature views: probability that a feature is set to 0 (its mean, if standardised)"},
    )

    @property
    def views(self) -> Views:
        """How image views are made; the dataset decides what is auto."""
        given = {key: getattr(self, key) for key in VIEWS}
        usual = data.default_views(self.name) if AUTO in given.values() else None
        return Views(**{key: getattr(usual, key) if value == AUTO else value for key, value in given.items()})

    def __hash__(self) -> int:
        """Settings are dictionary keys, but `categories` has no hash. Equal settings have these fields equal, too."""
        return hash((self.name, self.partition, self.label, self.labels, tuple(sorted(self.categories))))


@dataclass(frozen=True)
class EngineSettings:
    """How a run is executed: the [engine] section."""

    name: str = field(
        default="simulation",
        metadata={
            "help": "simulation (in one process) | processes (one process per worker, for long runs) | ray (on a Ray "
            "cluster); all give the same results"
        },
    )
    address: str = field(
        default="",
        metadata={"help": "for ray: auto, or HOST:PORT of a cluster; empty: start one on this machine for this run"},
    )
    asynchronous: bool = field(
        default=False,
        metadata={"help": "fetch the latest available version instead of waiting for this round's"},
    )
    batching: str = field(
        default="auto",
        metadata={"help": "train peers of the same architecture as one stack: auto (where faster) | always | never"},
    )
    workers: int = field(
        default=0,
        metadata={"help": "threads or processes that train peers in parallel; 0: one per core; results do not change"},
    )
    threads: int = field(
        default=1,
        metadata={
            "help": "threads within an operation of a model that is trained alone; 0: all cores; changes last digits"
        },
    )
    checkpoint: int = field(default=25, metadata={"help": "rounds between checkpoints; 0: none"})
    device: str = field(default="cpu", metadata={"help": "cpu | cuda | mps"})
    spill: str = field(
        default="",
        metadata={
            "help": "folder for memory-mapped models, if they do not fit into memory; empty: keep them in memory"
        },
    )
    models: bool = field(
        default=True, metadata={"help": "write every peer's model to the run folder at the end, for use or export"}
    )
    sinks: tuple[str, ...] = field(
        default=(), metadata={"help": "further destinations of events: tensorboard | wandb (each needs its package)"}
    )


@dataclass(frozen=True)
class EvaluateSettings:
    """How often models are evaluated: the [evaluate] section."""

    every: int = field(default=1, metadata={"help": "rounds between evaluations (the last round is always evaluated)"})


@dataclass(frozen=True)
class ClockSettings:
    """Simulated time: the [clock] section. It affects which peers wait for which, not how long the run itself takes."""

    speed: tuple[float, ...] = field(
        default=(1000.0,), metadata={"help": "training samples per second, one value per peer; a shorter list repeats"}
    )
    spread: float = field(
        default=1.0, metadata={"help": "slow peers: each speed is divided by a random factor from 1 to this"}
    )
    latency: tuple[float, ...] = field(default=(0.0,), metadata={"help": "seconds per exchange, like speed"})
    bandwidth: tuple[float, ...] = field(
        default=(0.0,), metadata={"help": "bytes per second, like speed; 0: unlimited"}
    )
    deadline: float = field(
        default=0.0,
        metadata={"help": "seconds that a fetch waits for slower peers; 0: no limit"},
    )
    offline: tuple[tuple[float, float, float], ...] = field(
        default=(), metadata={"help": "windows [peer, from, until] in seconds; until = inf: the peer leaves for good"}
    )
    dropout: float = field(
        default=0.0,
        metadata={"help": "probability, per peer and round, that a peer is unreachable and skips the round"},
    )


@dataclass(frozen=True)
class NetworkSettings:
    """Real peers: the [network] section. Simulations ignore it."""

    deadline: float = field(
        default=0.0,
        metadata={"help": "seconds that a fetch waits for slower peers; 0: learned from recent rounds"},
    )
    patience: float = field(
        default=60.0,
        metadata={"help": "seconds: the longest deadline, the initial one, and the timeout for a server or a message"},
    )
    gather: float = field(
        default=600.0,
        metadata={"help": "seconds to wait at the start for all `peers`; then the run starts with those present"},
    )
    linger: float = field(
        default=600.0, metadata={"help": "seconds that a finished peer keeps serving peers that have not finished"}
    )
    interval: float = field(
        default=1.0, metadata={"help": "seconds, on average, between two exchanges of the list of peers"}
    )
    checkpoint: int = field(default=1, metadata={"help": "rounds between checkpoints"})
    largest: int = field(default=512, metadata={"help": "largest artifact that is accepted, in megabytes"})
    compress: str = field(
        default="none", metadata={"help": f"encoding of the artifacts that this peer sends: {' | '.join(ENCODINGS)}"}
    )
    share: float = field(default=0.1, metadata={"help": "for topk: fraction of the numbers that is sent each time"})


@dataclass(frozen=True)
class Experiment:
    """All settings that a run depends on, checked. Make one with :func:`coterie.load`.

    The sections are attributes: ``experiment.train.lr``. It is frozen; ``coterie.load`` with other words makes another.
    """

    method_name: str
    method: Method
    seed: int = field(default=0, metadata={"help": "random seed, from which all randomness derives"})
    rounds: int = field(default=60, metadata={"help": "number of rounds"})
    peers: int = field(default=20, metadata={"help": "number of peers, not counting a server"})
    baseline: str = field(default="", metadata={"help": "a method to also run on the same splits, for comparison"})
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()
    engine: EngineSettings = EngineSettings()
    clock: ClockSettings = ClockSettings()
    graph: TopologySettings = TopologySettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    network: NetworkSettings = NetworkSettings()
    # not a setting: what the method took over from methods that it replaced, for a note to the user
    carried: tuple[CarriedOver, ...] = field(default=(), compare=False, repr=False)
    # not a setting: what views assume of the user's own images, for a note to the user
    assumed: str = field(default="", compare=False, repr=False)

    @property
    def trains_on_views(self) -> bool:
        """Whether the method or train.augment makes random views of samples."""
        return self.train.augment or self.method.views > 0

    def tables(self) -> dict[str, Any]:
        """The settings as TOML tables: enough to repeat the run."""
        plain = {key: getattr(self, key) for key in ("seed", "rounds", "peers", "baseline")}
        method = {"name": self.method_name, **_values(self.method)}
        sections = {key: _values(getattr(self, key)) for key in SECTIONS}
        return {**plain, "method": method, **sections}

    def toml(self) -> str:
        return parsing.dump(self.tables())


def _values(settings: Any) -> dict[str, Any]:
    """The fields of a section. Not `asdict`: it copies every value and takes ten times as long."""
    return {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}


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
