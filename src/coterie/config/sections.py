"""Defines the sections of an experiment: every setting with its default and help text.

The sections [model], [train] and [graph] are defined beside the code that they configure, in `models.zoo`, `core.jobs`
and `core.topology`; the keys of partitions are in `data.partitions.settings`.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from coterie import data
from coterie.config import parsing
from coterie.config.carry_over import CarriedOver
from coterie.core.cores import usable_cores
from coterie.core.errors import DataError
from coterie.core.jobs import TrainSettings
from coterie.core.settings import setting
from coterie.core.task import CLASSIFICATION, REGRESSION
from coterie.core.topology import TopologySettings
from coterie.data import PartitionSettings, Views
from coterie.data.partitions.settings import FILES
from coterie.data.scaling import POOLED
from coterie.data.views import AUTO
from coterie.data.views import NAMES as VIEWS
from coterie.methods.base import Method
from coterie.models import ModelSettings

ENGINES = SIMULATION, PROCESSES, RAY = "simulation", "processes", "ray"
SINKS = ("tensorboard", "wandb")  # also the names of their packages
# How an artifact can be encoded for sending; see `coterie.network.compression`.
ENCODINGS: tuple[str, ...] = ("none", "zstd", "fp16", "topk")
LIMIT = 1e9  # of seconds and megabytes


def _view_setting(help: str, *, least: float | None = None, above: float | None = None) -> Any:
    choices = {AUTO: "depends on the dataset"}
    return setting(AUTO, f"image views: {help}", choices=choices, least=least, above=above, most=1)


@dataclass(frozen=True)
class DataSettings(PartitionSettings):
    """Which data is used, and how it is divided among the peers: the [data] section."""

    name: str = setting("digits", "a dataset (`coterie list data`), or the path of your own")
    scale: str = setting(
        "auto",
        "how inputs are scaled",
        choices={
            "auto": "standard, but integers in .npz arrays are not scaled",
            "standard": "mean 0, standard deviation 1, per channel or feature",
            "unit": "images: 0 to 1",
            "schema": "by the mean and deviation that the schema declares for each column",
            POOLED: "features: by the mean and deviation of all peers' training rows, from sums that peers exchange",
            "none": "",
        },
    )
    task: str = setting(
        AUTO,
        "what is predicted",
        choices={
            AUTO: "numbers if the label has many different values with fractions, classes if it has few, else an error",
            CLASSIFICATION: "the class of a sample",
            REGRESSION: "a number",
        },
    )
    label: str = setting("label", "name of the label column in a CSV or Parquet file")
    labels: tuple[str, ...] = setting(
        (), "all class labels, in the same order for all peers; needed if your file may lack some of them"
    )
    categories: dict[str, tuple[str, ...]] = setting(
        dict, "for text columns of your table, by column name: all values that may occur, such as ['f', 'm']"
    )
    schema: str = setting(
        "", "path of a declared schema (schema.toml) for untidy tables; it replaces label, labels and categories"
    )
    crop: float | str = _view_setting("smallest share of the area that a crop keeps", above=0)
    flip: float | str = _view_setting("probability of a horizontal flip", least=0)
    jitter: float | str = _view_setting("probability of colour jitter", least=0)
    grey: float | str = _view_setting("probability of conversion to greyscale", least=0)
    blur: float | str = _view_setting("probability of a blur", least=0)
    noise: float = setting(0.1, "feature views: standard deviation of the noise added to each scaled feature", least=0)
    drop: float = setting(
        0.1, "feature views: probability that a feature is set to 0 (its mean, if standardised)", least=0, most=1
    )

    @property
    def example(self) -> str:
        """The name or path of the data; of sites with a file each, the first file if it is there."""
        if self.partition == FILES:
            with suppress(DataError):  # loading the data reports it; a finished run does not need them
                return str(next(iter(data.site_files(self.name).values())))
        return self.name

    @property
    def views(self) -> Views:
        """How image views are made; the dataset decides what is auto."""
        given = {key: getattr(self, key) for key in VIEWS}
        usual = data.default_views(self.example) if AUTO in given.values() else None
        return Views(**{key: getattr(usual, key) if value == AUTO else value for key, value in given.items()})

    def __hash__(self) -> int:
        """Settings are dictionary keys, but `categories` has no hash. Equal settings have these fields equal, too."""
        return hash((self.name, self.partition, self.label, self.labels, tuple(sorted(self.categories))))


@dataclass(frozen=True)
class EngineSettings:
    """How a run is executed: the [engine] section."""

    name: str = setting(
        SIMULATION,
        "where peers are computed; all give the same results",
        choices={
            SIMULATION: "in one process",
            PROCESSES: "one process per worker, for long runs",
            RAY: "on a Ray cluster",
        },
        effect=False,
    )
    address: str = setting(
        "", "for ray: auto, or HOST:PORT of a cluster; empty: start one on this machine for this run", effect=False
    )
    asynchronous: bool = setting(False, "fetch the latest available version instead of waiting for this round's")
    batching: str = setting(
        "auto",
        "train peers of the same architecture as one stack",
        choices={"auto": "where faster", "always": "", "never": ""},
    )
    workers: int = setting(
        0,
        "threads or processes that train peers in parallel; 0: one per core; results do not change",
        least=0,
        effect=False,
        fingerprint=1,
    )
    threads: int = setting(
        1, "threads within an operation of a model that is trained alone; 0: all cores; changes last digits", least=0
    )
    checkpoint: int = setting(25, "rounds between checkpoints; 0: none", least=0, effect=False, fingerprint=0)
    device: str = setting("cpu", "cpu | cuda | mps")
    spill: str = setting(
        "", "folder for memory-mapped models, if they do not fit into memory; empty: keep them in memory", effect=False
    )
    models: bool = setting(
        True, "write every peer's model to the run folder at the end, for use or export", effect=False
    )
    sinks: tuple[str, ...] = setting(
        (), "further destinations of events (each needs its package)", choices=SINKS, effect=False
    )

    @property
    def worker_count(self) -> int:
        """The number of workers in this process: not a setting, because a run may continue on another machine."""
        return self.workers or usable_cores()


@dataclass(frozen=True)
class EvaluateSettings:
    """When models are evaluated and what is measured: the [evaluate] section."""

    every: int = setting(1, "rounds between evaluations (the last round is always evaluated)", least=1)
    metrics: tuple[str, ...] = setting(
        (),
        "what is measured besides loss and accuracy: metrics by name, or your own as file.py:name; empty: for tables "
        "balanced_accuracy and auroc, for regression rmse, mae and r2, else nothing",
    )
    select: str = setting(
        AUTO,
        "the metric that selects each peer's round on its validation data, and what methods choose by; auto: accuracy, "
        "for regression rmse",
    )
    positive: str | int = setting("", "the positive class; empty: the last of two")
    predictions: str = setting(
        AUTO,
        "whether each peer's predictions on its validation and test data are saved, for its last and its selected "
        "round",
        choices={AUTO: "for tables of moderate size", "always": "", "never": ""},
        effect=False,
    )


@dataclass(frozen=True)
class ClockSettings:
    """Simulated time: the [clock] section. It affects which peers wait for which, not how long the run itself takes."""

    speed: tuple[float, ...] = setting(
        (1000.0,), "training samples per second, one value per peer; a shorter list repeats", above=0
    )
    spread: float = setting(1.0, "slow peers: each speed is divided by a random factor from 1 to this", least=1)
    latency: tuple[float, ...] = setting((0.0,), "seconds per exchange, like speed", least=0)
    bandwidth: tuple[float, ...] = setting((0.0,), "bytes per second, like speed; 0: unlimited", least=0)
    deadline: float = setting(0.0, "seconds that a fetch waits for slower peers; 0: no limit", least=0)
    offline: tuple[tuple[float, float, float], ...] = setting(
        (), "windows [peer, from, until] in seconds; until = inf: the peer leaves for good"
    )
    dropout: float = setting(
        0.0, "probability, per peer and round, that a peer is unreachable and skips the round", least=0, below=1
    )


@dataclass(frozen=True)
class NetworkSettings:
    """Real peers: the [network] section. Simulations ignore it."""

    deadline: float = setting(
        0.0, "seconds that a fetch waits for slower peers; 0: learned from recent rounds", least=0, below=LIMIT
    )
    patience: float = setting(
        60.0,
        "seconds: the longest deadline, the initial one, and the timeout for a server or a message",
        above=0,
        below=LIMIT,
    )
    gather: float = setting(
        600.0,
        "seconds to wait at the start for all `peers`; then the run starts with those present",
        above=0,
        below=LIMIT,
    )
    linger: float = setting(
        600.0, "seconds that a finished peer keeps serving peers that have not finished", above=0, below=LIMIT
    )
    interval: float = setting(
        1.0, "seconds, on average, between two exchanges of the list of peers", above=0, below=LIMIT
    )
    checkpoint: int = setting(1, "rounds between checkpoints", least=1)
    largest: int = setting(512, "largest artifact that is accepted, in megabytes", least=1, below=LIMIT)
    compress: str = setting("none", "encoding of the artifacts that this peer sends", choices=ENCODINGS)
    share: float = setting(0.1, "for topk: fraction of the numbers that is sent each time", above=0, most=1)


@dataclass(frozen=True)
class Experiment:
    """All settings that a run depends on, checked. Make one with :func:`coterie.load`.

    The sections are attributes: ``experiment.train.lr``. It is frozen; ``coterie.load`` with other words makes another.
    """

    method_name: str
    method: Method
    seed: int = setting(0, "random seed, from which all randomness derives", least=0)
    rounds: int = setting(60, "number of rounds", least=1)
    peers: int = setting(20, "number of peers, not counting a server", least=1)
    baseline: str = setting("", "a method to also run on the same splits, for comparison", effect=False)
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
