"""An experiment: its settings from a preset or file and overrides, and the wiring of peers from them."""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from coterie import data, models, provenance, randomness, settings, sinks, topology
from coterie.architecture import Architecture, Model
from coterie.carry_over import CarriedOver, carry_over
from coterie.carry_over import told as told_of_methods
from coterie.data import Dataset, PartitionSettings, Share, Views
from coterie.data.views import AUTO
from coterie.data.views import NAMES as VIEWS
from coterie.engines.clock import Clock, ClockSettings
from coterie.engines.spill import Spill
from coterie.errors import ConfigError, ModelError, unknown
from coterie.holding import Holding, hold
from coterie.kinds import Kinds
from coterie.methods import METHODS, Method, find
from coterie.models import ModelSettings, pretrained
from coterie.named_code import function_parameters
from coterie.network import settings as network_settings
from coterie.network.settings import NetworkSettings
from coterie.peer import Desk, Others, Peer
from coterie.portable.estimators import SUFFIX as ONNX_FILE
from coterie.portable.estimators import is_estimator
from coterie.report.words import short_name
from coterie.topology import COMPLETE, TopologySettings, neighbours
from coterie.training import TrainSettings


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


ENGINES = SIMULATION, PROCESSES, RAY = "simulation", "processes", "ray"


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
        return settings.dump(self.tables())


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
DEMO = "demo"
DEFAULT_METHOD = "panm"
DEEPEST_BASE = 8
ORIGINS = {
    "paper": "as the paper prints its settings, for a GPU",
    "authors": "as the authors' published code runs it",
    "ours": "our own settings: smaller, or what we found to be better",
}
"""Whose settings a preset has: what it says as `origin`, of itself and not of its base."""


def presets() -> dict[str, str]:
    """Preset names and what each says of itself in its first line."""
    return {name: text.split("\n")[0].lstrip("# ") for name, text in _preset_files().items()}


def preset_origins() -> dict[str, str]:
    """Preset names and whose settings each has: one of ORIGINS."""
    return {name: str(tomllib.loads(text).get("origin", "")) for name, text in _preset_files().items()}


def _preset_files() -> dict[str, str]:
    folder = resources.files("coterie") / "presets"
    found = {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir() if p.name.endswith(".toml")}
    return {name.removesuffix(".toml"): text for name, text in sorted(found.items())}


def load(name: str = DEMO, words: Sequence[str] = (), *more: Sequence[str]) -> Experiment:
    """The experiment of a preset or TOML file, with `key=value` words on top; of several lists the later ones win."""
    return asked_for(read_tables(name), *map(settings.overrides, (words, *more)))


def asked_for(tables: dict[str, Any], *changes: Mapping[str, Any]) -> Experiment:
    """The experiment of these tables with the user's on top, one after the other; it says what methods took over."""
    carried: list[CarriedOver] = []
    for change in changes:
        tables, taken = changed(tables, change)
        carried += [] if taken is None else [taken]
    check_files(tables)
    return dataclasses.replace(from_tables(tables), carried=tuple(carried))


def check_files(tables: Mapping[str, Any]) -> None:
    """Files that are named must be there: who misspelt one need not read about anything else first."""

    def value(section: str, key: str) -> Any:
        table = tables.get(section, {})
        return table.get(key, "") if isinstance(table, Mapping) else ""

    name, zoo = value("data", "name"), value("model", "zoo")
    if isinstance(name, str) and name:
        data.check_there(name)
    networks = [kind for kind in (zoo if isinstance(zoo, list | tuple) else [zoo]) if str(kind).endswith(ONNX_FILE)]
    places = [("model.pretrained", value("model", "pretrained")), ("graph.file", value("graph", "file"))]
    for key, place in [*(("model.zoo", kind) for kind in networks), *places]:
        if isinstance(place, str) and place and not Path(place).exists():
            raise ConfigError(f"{key} = '{place}': there is no such file or folder")


def over(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`change` wins; where it names another method, of the old one's parameters only those stay that carry over."""
    return changed(base, change)[0]


def changed(base: dict[str, Any], change: Mapping[str, Any]) -> tuple[dict[str, Any], CarriedOver | None]:
    """The tables with `change` on top, and what the method takes over from another that it replaces."""
    old, new = base.get("method", {}), change.get("method", {})
    if not (isinstance(old, Mapping) and isinstance(new, Mapping) and "name" in new):
        return settings.merge(base, change), None
    source, name = str(old.get("name", DEFAULT_METHOD)), settings.convert(new["name"], str, "method.name")
    if _absolute(source) == _absolute(name):
        return settings.merge(base, change), None
    carried = carry_over(old, source, name, given=new)
    return settings.merge({**base, "method": carried.taken}, change), carried


def from_tables(tables: Mapping[str, Any]) -> Experiment:
    """The experiment of these tables, checked."""
    experiment = built(tables)
    _check(experiment)
    return experiment


def built(tables: Mapping[str, Any]) -> Experiment:
    """The experiment of these tables, its values of the right types but not checked against each other."""
    valid = {*PLAIN, *SECTIONS, "method"}
    for key, value in tables.items():
        if key not in valid:
            raise ConfigError(unknown("key", key, valid))
        if (key in PLAIN) == isinstance(value, Mapping):
            raise ConfigError(f"{key} {'must be one value' if key in PLAIN else 'is a section: set one of its keys'}")
    method_table = dict(tables.get("method", {}))
    method_name = settings.convert(method_table.pop("name", DEFAULT_METHOD), str, "method.name")
    if method_name not in METHODS:
        method_name = _absolute(method_name)
    plain = {k: settings.convert(tables[k], hint, k) for k, hint in PLAIN.items() if k in tables}
    sections = {k: settings.build(kind, tables.get(k, {}), f"{k}.") for k, kind in SECTIONS.items()}
    if sections["data"].name not in data.available():
        sections["data"] = dataclasses.replace(sections["data"], name=_absolute(sections["data"].name))
    assumed = _assumption(sections["data"])
    sections["data"] = _with_views(sections["data"])
    if sections["data"].scale == "auto" and not sections["data"].name.endswith(".npz"):  # only arrays may be integers
        sections["data"] = dataclasses.replace(sections["data"], scale="standard")
    zoo = tuple(_absolute(name) if name.endswith(ONNX_FILE) else name for name in sections["model"].zoo)
    start = sections["model"].pretrained
    sections["model"] = dataclasses.replace(sections["model"], zoo=zoo, pretrained=start and _absolute(start))
    kind = find(method_name)
    provenance.remember(kind)
    for key in method_table.keys() & function_parameters(kind):
        name = settings.convert(method_table[key], str, f"method.{key}")
        method_table[key] = _absolute(name) if ":" in name else name  # one of ours, also beside a folder of its name
    method = settings.build(kind, method_table, "method.")
    cores, engine = os.cpu_count() or 1, sections["engine"]
    sections["engine"] = dataclasses.replace(engine, threads=engine.threads or cores, workers=engine.workers or cores)
    return Experiment(method_name=method_name, method=method, assumed=assumed, **plain, **sections)


def _with_views(d: DataSettings) -> DataSettings:
    """With numbers for the views that are up to the dataset."""
    for key in VIEWS:
        if isinstance(getattr(d, key), str) and getattr(d, key) != AUTO:
            raise ConfigError(f"data.{key} must be a number, or {AUTO} (by dataset), not '{getattr(d, key)}'")
    return dataclasses.replace(d, **dataclasses.asdict(d.views))


def _assumption(d: DataSettings) -> str:
    """What nobody can know of the user's own images, to be said until they say it: whether they may be flipped."""
    if d.flip != AUTO or not data.of_unknown_content(d.name):
        return ""
    return (
        f"views of images of unknown content ({short_name(d.name)}) are flipped at random: set data.flip=0 if left and "
        f"right matter, data.flip=0.5 if they do not. Now: {d.views}"
    )


def notices(experiments: Iterable[Experiment]) -> list[str]:
    """What a person should know of these experiments before they run, each line once."""
    some = list(experiments)
    assumed = [e.assumed for e in some if e.assumed and e.trains_on_views]
    return [*told_of_methods(change for e in some for change in e.carried), *dict.fromkeys(assumed)]


def _absolute(name: str) -> str:
    """A file or folder of the user's own, so that a run can be repeated from anywhere; other names as they are."""
    place, colon, attribute = name.rpartition(":")
    path = Path(place if colon else name)
    if not path.exists() or (colon and path.suffix != ".py"):
        return name
    return f"{path.resolve()}{colon}{attribute if colon else ''}"


def with_method(experiment: Experiment, name: str) -> Experiment:
    """The same data, models and training under another method (parameters that mean the same carry over)."""
    other = asked_for(experiment.tables(), {"method": {"name": name}, "baseline": ""})
    return dataclasses.replace(other, assumed=experiment.assumed)


def read_tables(name: str, through: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tables of a preset or file, on top of those of its `base`; `through` are the files that led here."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    elif name in presets():
        text = (resources.files("coterie") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise ConfigError(f"{unknown('preset', name, presets())}, or the path of a .toml file")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error
    origin = tables.pop("origin", None)  # whose settings a preset has; of no effect, and not its base's
    if origin is not None and origin not in list(ORIGINS):
        raise ConfigError(f"{name}: origin must be one of {', '.join(ORIGINS)}, not {origin!r}")
    base = tables.pop("base", None)  # a preset, or a file beside this one, that this one changes
    if base is None:
        return tables
    if len(through) >= DEEPEST_BASE:
        raise ConfigError(f"base: {' -> '.join((*through, name))} goes round in a circle, or too deep")
    beside = str(path.parent / str(base)) if str(base).endswith(".toml") else str(base)
    return over(read_tables(beside, (*through, name)), tables)


def _check(e: Experiment) -> None:
    for key, value, least in (
        ("rounds", e.rounds, 1), ("peers", e.peers, 1), ("train.batch", e.train.batch, 1),
        ("train.epochs", e.train.epochs, 0), ("evaluate.every", e.evaluate.every, 1),
        ("engine.workers", e.engine.workers, 0), ("engine.threads", e.engine.threads, 0),
        ("engine.checkpoint", e.engine.checkpoint, 0), ("seed", e.seed, 0),
    ):  # fmt: skip
        if value < least:
            raise ConfigError(f"{key} must be at least {least}, not {value}")
    for key, chosen, options in (
        ("train.optimizer", e.train.optimizer, ("sgd", "adam")),
        ("engine.name", e.engine.name, ENGINES),
        ("engine.batching", e.engine.batching, ("auto", "always", "never")),
        ("data.scale", e.data.scale, ("auto", "standard", "unit", "none")),
    ):
        if chosen not in options:
            raise ConfigError(f"{key} must be one of {', '.join(options)}, not '{chosen}'")
    for column, texts in e.data.categories.items():
        if not texts or len(set(texts)) < len(texts) or "" in texts:
            raise ConfigError(f"data.categories.{column} must be one or more different texts, not {list(texts)}")
    if len(set(e.data.labels)) < len(e.data.labels):
        raise ConfigError("data.labels has a label twice")
    for key in ("flip", "jitter", "grey", "blur", "drop"):
        if not 0 <= getattr(e.data, key) <= 1:
            raise ConfigError(f"data.{key} is a probability: from 0 to 1, not {getattr(e.data, key)}")
    if not 0 < e.data.views.crop <= 1:
        raise ConfigError(f"data.crop must be above 0 and at most 1, not {e.data.crop}")
    if not e.data.noise >= 0:
        raise ConfigError(f"data.noise must be at least 0, not {e.data.noise}")
    if not 0 < e.train.lr < math.inf:
        raise ConfigError(f"train.lr must be above 0, not {e.train.lr}")
    for key in ("momentum", "weight_decay"):
        if not 0 <= getattr(e.train, key) < math.inf:
            raise ConfigError(f"train.{key} must be at least 0, not {getattr(e.train, key)}")
    if not all(0 <= beta < 1 for beta in e.train.betas):
        raise ConfigError(f"train.betas must be from 0 to below 1, not {e.train.betas}")
    if e.baseline:
        try:
            find(e.baseline)
        except ConfigError as error:
            raise ConfigError(f"baseline: {str(error).removeprefix('method.name: ')}") from error
    if e.engine.asynchronous and e.method.paced:
        raise ConfigError(f"engine.asynchronous = true: {e.method_name} needs rounds that all have in common")
    if e.engine.asynchronous and e.method.with_server():
        raise ConfigError(
            f"engine.asynchronous = true: the server of {e.method_name} would have nobody to wait for. "
            "Use a method without a server, or clock.deadline so that it does not wait for stragglers"
        )
    _check_graph(e)
    network_settings.check(e.network)
    sinks.check(e.engine.sinks)
    _check_device(e.engine.device)
    _check_cluster(e.engine)
    Clock(e.clock, e.peers, e.seed)  # it checks its settings
    e.method.check(e.peers)


def _check_graph(e: Experiment) -> None:
    """Methods exchange along the edges of a [graph]; a server would do so around it."""
    topology.check(e.graph)
    if e.graph.kind != COMPLETE and e.method.with_server():
        depends = type(e.method).with_server is not Method.with_server  # on its parameters, as CompFL's does
        raise ConfigError(
            f"method.name = {e.method_name} has a server, which reaches every peer: graph.kind = {e.graph.kind} would "
            f"have no effect. Remove [graph], or use a method{', or a setting of this one,' if depends else ''} "
            "without a server"
        )


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise ConfigError(f"engine.device = '{device}' cannot be used here: {reason}. Use cpu") from error


def _check_cluster(settings: EngineSettings) -> None:
    if settings.name != RAY and settings.address:
        raise ConfigError(f"engine.address = '{settings.address}' is of engine.name = ray, not of {settings.name}")
    if settings.name == RAY and importlib.util.find_spec("ray") is None:
        raise ConfigError("engine.name = ray needs the package ray: pip install 'ray>=2.40'")


# -- from settings to peers --------------------------------------------------------------------


@dataclass(frozen=True)
class Circle:
    """The peers of an experiment, ready to run, and what is true of them."""

    participants: list[Peer]  # the peers, then the server where there is one
    architectures: list[str]
    holding: Holding

    @property
    def dataset(self) -> Dataset:
        return self.holding.dataset

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample."""
        return tuple(self.dataset.x.shape[1:])

    @property
    def clusters(self) -> list[int] | None:
        return self.holding.clusters


class _NoDesk:
    """Stands in until an engine takes over."""

    def shelve(self, artifact: object) -> None:  # noqa: ARG002
        raise ConfigError("this peer is not in a running engine")

    def inbox(self, peer: int, name: str) -> list[Any]:
        raise ConfigError(f"peer {peer} is not in a running engine: no inbox '{name}'")


def divide(e: Experiment) -> tuple[Dataset, list[Share]]:
    """The dataset, and who gets which rows of it."""
    d = e.data
    dataset = data.load(d.name, label=d.label, labels=d.labels, categories=d.categories)
    data.check_fits(dataset, e.data)
    return dataset, list(data.partition(dataset.y, len(dataset.classes), e.peers, e.data, e.seed))


def gather(e: Experiment, holding: Holding | None = None) -> Circle:
    """Give every peer its part of the data (which are loaded and divided, unless they are at hand) and its model."""
    holding = holding or hold(*divide(e), e.data)
    dataset, held = holding.dataset, holding.splits(e.engine.device)
    shape, classes = dataset.x.shape[1:], len(dataset.classes)
    rng = randomness.generator(e.seed, "architectures")
    names = models.assign(e.model, e.peers, shape, classes, rng)
    estimators = sorted(filter(is_estimator, set(names)))
    if estimators and not e.method.any_model:
        raise ModelError(
            f"model.zoo: {', '.join(estimators)} cannot be trained by gradients, as {e.method_name} does: "
            "use networks, or a method for any model (fedpae)"
        )
    if len(set(names)) > 1 and not e.method.mixed:
        raise ModelError(
            f"method.name = {e.method_name} needs one architecture at all peers, "
            f"but model.zoo gives {', '.join(sorted(set(names)))}"
        )
    build = partial(models.build, input_shape=shape, classes=classes, settings=e.model, parts=e.method.parts)
    kinds = Kinds(e.model.zoo, tuple(shape), classes, partial(_architecture, e, build))
    for part, name in itertools.product(e.method.shared, sorted(set(names))):
        if not any(slot.name.startswith(f"{part}.") for slot in kinds.network(name).layout.slots):
            raise ModelError(f"{e.method_name} shares the {part}, and {name} has none: leave it out of model.zoo")
    if e.method.same_features:
        _check_features({name: kinds.network(name) for name in sorted(set(names))}, e)
    truth = holding.clusters
    if e.method.needs_truth and truth is None:
        raise ConfigError(
            f"method.name = {e.method_name} must be told the true clusters, and data.partition = {e.data.partition} "
            "has none: use rotation, label-swap or scenario1 to scenario4"
        )
    count = e.peers
    server = count if e.method.with_server() else None
    desk: Desk = _NoDesk()
    placed = Spill(e.engine.spill).copied if e.engine.spill else _as_it_is
    links = links_of(e)
    e.method.check_circle(names, kinds, links)
    members = [
        Peer(
            i, e.seed, Others(count, i), placed(kinds.network(_network(names[i])).initial(e.seed)), e.train, desk,
            held[i], server, None if links is None else links[i], truth, rounds=e.rounds, kind=names[i], kinds=kinds,
        )
        for i in range(count)
    ]  # fmt: skip
    if server is not None:
        first = kinds.network(names[0]).initial(e.seed)
        members.append(
            Peer(
                server, e.seed, Others(count, server), first, e.train, desk, None, server, None, truth,
                rounds=e.rounds, kinds=kinds,
            )
        )  # fmt: skip
    return Circle(members, names, holding)


def _as_it_is(model: Model) -> Model:
    return model


def _architecture(e: Experiment, build: Callable[[str], models.Net], name: str) -> Architecture:
    make = partial(build, name)
    if not e.model.pretrained or name not in e.model.zoo:
        return Architecture(name, make, e.engine.device)
    return Architecture(name, make, e.engine.device, pretrained.backbone(e.model, name, make()))


def links_of(e: Experiment) -> list[tuple[int, ...]] | None:
    """Who is next to whom, by peer; None where everybody is next to everybody."""
    return None if e.graph.kind == COMPLETE else neighbours(e.graph, e.peers, e.seed)


def _network(name: str) -> str:
    """The network that a peer has as its model; who brings an estimator has the least there is, and never trains it."""
    return "linear" if is_estimator(name) else name


def _check_features(kinds: Mapping[str, Architecture], e: Experiment) -> None:
    widths = {name: kind.scratch().d_z for name, kind in kinds.items()}
    if len(set(widths.values())) > 1:
        has = ", ".join(f"{name} has {width}" for name, width in widths.items())
        raise ModelError(
            f"{e.method_name} exchanges what reads features, so all architectures need the same number of them, but "
            f"{has}: set model.d_z (such as {max(widths.values())}), and a linear layer adapts them"
        )
