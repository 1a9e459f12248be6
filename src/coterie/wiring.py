"""Builds everything that runs an experiment: partitioned data, peers with their models, and their stage."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from coterie import data, models
from coterie.config.loading import from_tables
from coterie.config.sections import PROCESSES, RAY, DataSettings, Experiment
from coterie.core import randomness
from coterie.core.balancing import NONE
from coterie.core.errors import ConfigError, ModelError
from coterie.core.events import RunStarted
from coterie.core.formatting import short_name
from coterie.core.model import Architecture, Model
from coterie.core.model_registry import ModelRegistry
from coterie.core.net import Net
from coterie.core.others import Others
from coterie.core.peer import Desk, Peer, held_by
from coterie.core.task import REGRESSION
from coterie.core.topology import links_of
from coterie.core.version import version
from coterie.data import Dataset, Share
from coterie.data.dataset import INTEGERS
from coterie.data.own import refuse_unknown_ids
from coterie.data.pool import PooledData, pool_data
from coterie.data.row_columns import ONLY_FEATURES, RowColumns
from coterie.data.scaling import Scaling
from coterie.methods import METHODS
from coterie.methods.parts import resolved
from coterie.metrics import Evaluation, evaluation_of
from coterie.metrics.evaluation import AUTO
from coterie.metrics.judging import judge_of
from coterie.models import pretrained
from coterie.models.registry import registry
from coterie.portable.estimators import check_task, is_estimator
from coterie.simulation.local_stage import LocalStage
from coterie.simulation.placement import sharded
from coterie.simulation.processes import LOCAL, Processes
from coterie.simulation.protocol import Stage
from coterie.simulation.spill import Spill
from coterie.training import Trainer

MOST_PREDICTED = 5_000_000  # probabilities of all peers that evaluate.predictions = auto saves


@dataclass(frozen=True)
class Population:
    """The peers of an experiment, ready to run, with their architectures and data."""

    participants: list[Peer]  # the peers, then the server if there is one
    architectures: list[str]
    pooled: PooledData
    evaluation: Evaluation  # what is measured

    @property
    def dataset(self) -> Dataset:
        return self.pooled.dataset

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample."""
        return self.dataset.shape

    @property
    def clusters(self) -> list[int] | None:
        return self.pooled.clusters


class _NoDesk:
    """A placeholder until an engine takes over."""

    def shelve(self, artifact: object) -> None:  # noqa: ARG002
        raise ConfigError("this peer is not in a running engine")

    def inbox(self, peer: int, name: str) -> list[Any]:
        raise ConfigError(f"peer {peer} is not in a running engine: no inbox '{name}'")


def divide(e: Experiment) -> tuple[Dataset, list[Share]]:
    """The dataset, and the rows that each peer gets."""
    d = e.data
    if d.partition in data.SITES:
        dataset = data.load_sites(d)
        return dataset, data.partition_sites(dataset, e.peers, d, e.seed)
    dataset = _loaded(d)
    data.check_fits(dataset, e.data)
    return dataset, list(data.partition(dataset.strata, dataset.outputs, e.peers, e.data, e.seed))


def _loaded(d: DataSettings, rows: RowColumns = ONLY_FEATURES) -> Dataset:
    return data.load(
        d.name, label=d.label, labels=d.labels, categories=d.categories, schema=d.schema, task=d.task, rows=rows
    )


def own_data(e: Experiment, peer: int, site: str = "") -> PooledData:
    """The data of one real peer, by its number: all of its own file, or the rows of its site."""
    d = e.data
    if d.partition in data.SITES:
        dataset = data.load_site(d, site)
    else:
        dataset = _loaded(d, RowColumns(group=d.group, time=d.time))
    owner = f"site '{site}'" if site else short_name(d.name)
    return pool_data(dataset, [data.partition_alone(dataset, peer, d, e.seed, owner)], d)


def gather(e: Experiment, pooled: PooledData | None = None, number: int = 0) -> Population:
    """Make all peers with their data (loaded and partitioned, unless `pooled` has them) and models.

    `number` is that of the first peer, for its architecture: a real peer is made alone, but keeps its number.
    """
    pooled = pooled or pool_data(*divide(e), e.data)
    evaluation = _evaluation(e, pooled)
    dataset, held = pooled.dataset, pooled.splits(e.engine.device)
    shape, classes = dataset.shape, dataset.outputs
    _check_task(e, dataset)
    if e.model.vocabulary:
        _check_ids(dataset, pooled.kind, e.model.vocabulary)
    rng = randomness.generator(e.seed, "architectures")
    names = models.assign(e.model, number + e.peers, shape, classes, rng, dataset.blocks)[number:]
    _check_architectures(e, names)
    build = partial(
        models.build, input_shape=shape, classes=classes, settings=e.model, parts=resolved(e.method.parts),
        blocks=dataset.blocks,
    )  # fmt: skip
    kinds = registry(e.model.zoo, tuple(shape), classes, partial(_architecture, e, build))
    _check_parts(e, sorted(set(names)), kinds)
    truth, count = _truth(e, pooled), e.peers
    server = count if e.method.with_server() else None
    desk: Desk = _NoDesk()
    placed = Spill(e.engine.spill).copied if e.engine.spill else _unchanged
    links = links_of(e.graph, e.peers, e.seed)
    e.method.check_circle(names, kinds, links)
    members = [
        Peer(
            i, e.seed, Others(count, i), placed(kinds.network(_network(names[i])).initial(e.seed)), e.train, desk,
            held[i], server, None if links is None else links[i], truth, rounds=e.rounds, kind=names[i], kinds=kinds,
        )
        for i in range(count)
    ]  # fmt: skip
    for me in members:
        me.judge = judge_of(evaluation, partial(_label_scaling, me))
    if server is not None:
        first = kinds.network(names[0]).initial(e.seed)
        members.append(
            Peer(
                server, e.seed, Others(count, server), first, e.train, desk, None, server, None, truth,
                rounds=e.rounds, kinds=kinds,
            )
        )  # fmt: skip
    return Population(members, names, pooled, evaluation)


def _check_architectures(e: Experiment, names: Sequence[str]) -> None:
    """Raise ModelError if the method cannot train these peers' models."""
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


def _check_parts(e: Experiment, names: Sequence[str], kinds: ModelRegistry) -> None:
    """Raise ModelError if an architecture lacks a part that the method shares, or if parts do not fit together."""
    for part, name in itertools.product(e.method.shared, names):
        if not any(slot.name.startswith(f"{part}.") for slot in kinds.network(name).layout.slots):
            raise ModelError(f"{e.method_name} shares the {part}, but {name} has none: remove it from model.zoo")
    if e.method.same_features:
        _check_features({name: kinds.network(name) for name in names}, e)


def _truth(e: Experiment, pooled: PooledData) -> list[int] | None:
    """The true clusters, for the peers of an oracle alone."""
    if not e.method.needs_truth:
        return None
    if pooled.clusters is None:
        raise ConfigError(
            f"method.name = {e.method_name} needs the true clusters, but data.partition = {e.data.partition} "
            "has none: use rotation, label-swap or scenario1 to scenario4"
        )
    return pooled.clusters


def _label_scaling(me: Peer) -> Scaling | None:
    data = held_by(me)
    return data.label_scaling if data else None


def _check_task(e: Experiment, dataset: Dataset) -> None:
    """Raise ConfigError or ModelError if the method, its settings or the models are not for what is predicted."""
    task = dataset.task
    if task not in e.method.tasks:
        able = ", ".join(name for name, method in METHODS.items() if task in method.tasks)
        labels = "numbers" if task == REGRESSION else "classes"
        raise ConfigError(f"method.name = {e.method_name} is not for {task}, but the labels are {labels}: use {able}")
    if task == REGRESSION and e.train.balance != NONE:
        raise ConfigError(f"train.balance = {e.train.balance} is for classes, but the labels are numbers: remove it")
    for name in e.model.zoo:
        check_task(name, task)


def _evaluation(e: Experiment, pooled: PooledData) -> Evaluation:
    s, dataset = e.evaluate, pooled.dataset
    measured_rows = sum(end - validation for _, validation, _, end in pooled.cuts)
    moderate = measured_rows * dataset.outputs <= MOST_PREDICTED
    saves = s.predictions == "always" or (s.predictions == AUTO and dataset.is_table and moderate)
    return evaluation_of(
        s.metrics, s.select, str(s.positive), dataset.classes, table=dataset.is_table, predictions=saves,
        task=dataset.task,
    )  # fmt: skip


def _check_ids(dataset: Dataset, kind: str, vocabulary: int) -> None:
    shape = dataset.x.shape[1:]
    if kind != INTEGERS or len(shape) != 1:
        raise ConfigError(
            f"model.vocabulary = {vocabulary} is for token ids, integers of shape (rows, time), but "
            f"{dataset.name} has {kind} of shape (rows, {', '.join(map(str, shape))}): set model.vocabulary = 0"
        )
    refuse_unknown_ids(dataset.name, dataset.x, vocabulary)


def _unchanged(model: Model) -> Model:
    return model


def _architecture(e: Experiment, build: Callable[[str], Net], name: str) -> Architecture:
    make = partial(build, name)
    if not e.model.pretrained or name not in e.model.zoo:
        return Architecture(name, make, e.engine.device)
    return Architecture(name, make, e.engine.device, pretrained.backbone(e.model, name, make()))


def _network(name: str) -> str:
    """The network of a peer; a peer with an estimator has the smallest one as a placeholder, and never trains it."""
    return "linear" if is_estimator(name) else name


def _check_features(kinds: Mapping[str, Architecture], e: Experiment) -> None:
    widths = {name: kind.scratch().d_z for name, kind in kinds.items()}
    if len(set(widths.values())) > 1:
        has = ", ".join(f"{name} has {width}" for name, width in widths.items())
        raise ModelError(
            f"{e.method_name} shares parts that read features, so all architectures need the same number of them, but "
            f"{has}: set model.d_z (such as {max(widths.values())}), which adds a linear layer to adapt them"
        )


def run_started(e: Experiment, circle: Population, me: Peer | None = None) -> RunStarted:
    """The first record of a run. With `me`, that of one real peer: it knows its own data, but not the other peers'
    and not the true clusters."""
    if me is None:
        samples = [p.samples for p in circle.participants[: e.peers]]
        architectures, classes, clusters = circle.architectures, circle.pooled.class_counts, circle.clusters
    else:
        samples = [] if held_by(me) is None else [me.samples]
        classes = [] if held_by(me) is None else _class_counts(me, len(circle.dataset.classes))
        architectures, clusters = [me.kind or me.architecture.name], None
    return RunStarted(
        e.method_name, e.seed, e.peers, e.rounds, architectures, samples, classes, clusters, version(),
        f"{short_name(e.data.name)}, {e.data.partition}", names=[] if me else list(circle.dataset.site_names),
        label_unit=circle.dataset.label_unit, **circle.evaluation.described(),
    )  # fmt: skip


def _class_counts(me: Peer, classes: int) -> list[list[int]]:
    return [[int((me.labels() == c).sum()) for c in range(classes)]] if classes else []


# -- stages ------------------------------------------------------------------------------------


def stage_for(e: Experiment, circle: Population, trainer: Trainer | None = None) -> Stage:
    """The stage of an experiment: in this process, in several, or on a cluster. With a given trainer: in this one."""
    if trainer is not None:
        return _local_stage(e, circle.participants, trainer, circle.evaluation)
    if e.engine.name == RAY:
        from coterie.simulation.ray_stage import Cluster

        return Cluster(e, circle, stage_of)
    if e.engine.name == PROCESSES:
        return spread(e, circle)
    return stage_with(e, circle.participants, circle.evaluation, e.engine.worker_count)


def stage_of(members: Sequence[int], tables: dict[str, Any], pooled: PooledData) -> LocalStage:
    """The stage of a shard; called in the shard's process."""
    e, ids = from_tables(tables), set(members)
    circle = gather(e, pooled)
    return stage_with(e, [peer for peer in circle.participants if peer.id in ids], circle.evaluation)


def stage_with(e: Experiment, participants: Sequence[Peer], evaluation: Evaluation, workers: int = 1) -> LocalStage:
    """A stage with these participants, in this process."""
    return _local_stage(e, participants, Trainer(e.engine.batching, workers, e.engine.threads), evaluation)


def _local_stage(e: Experiment, participants: Sequence[Peer], trainer: Trainer, evaluation: Evaluation) -> LocalStage:
    return LocalStage(e.method, participants, e.rounds, trainer, e.evaluate.every, e.engine.spill, evaluation)


def spread(e: Experiment, circle: Population) -> Stage:
    """A stage that spreads the participants over the processes of engine.workers, including this one."""
    members = sharded(circle.participants, circle.shape, e.train.epochs, e.engine.worker_count, directs=True)
    stage = stage_with(e, [circle.participants[peer] for peer in sorted(members[LOCAL])], circle.evaluation)
    if len(members) == 1:
        return stage
    common = {"tables": e.tables(), "pooled": circle.pooled.without_raw()}
    return Processes(stage, circle.participants, members, stage_of, common)
