"""A participant as its method sees it (`me`): its data, its model, and the verbs through which a method acts.

A verb that takes time or needs other peers is awaited: it passes a request to the engine that runs the method (the
simulation, a Ray actor, a network node) and returns the answer. The other verbs act immediately.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from coterie.core import randomness
from coterie.core.artifact import Artifact, Fact
from coterie.core.balancing import NONE
from coterie.core.ensemble import Ensemble
from coterie.core.errors import ConfigError, MethodError, unknown
from coterie.core.formatting import plain
from coterie.core.jobs import (
    AnyJob,
    EvaluateJob,
    FitJob,
    OptimizerMemory,
    Pool,
    PortableJob,
    Prediction,
    Split,
    TrainSettings,
    rows_of,
)
from coterie.core.loss import Loss, task_loss
from coterie.core.merging import Rule, merge, weighted_mean
from coterie.core.merit import WORST, Judge, by_accuracy
from coterie.core.model import Architecture, Model
from coterie.core.model_registry import NO_KINDS, ModelRegistry
from coterie.core.notes import json_value
from coterie.core.others import Others
from coterie.core.peer_data import FOR_METHODS, MethodData, PeerData, no_test_rows
from coterie.core.portable_model import Portable
from coterie.core.release import PARAMETERS, Release, Step, released
from coterie.core.requests import Call, Compute, Evaluate, Fetch, News, Predict, Receive, Request, Send, Train, called
from coterie.core.schedules import learning_rate
from coterie.core.settings import check_values
from coterie.core.weights import Weights

T = TypeVar("T")
ESTIMATOR_EPOCHS = 10  # assumed cost of fitting an estimator on the virtual clock, in epochs of training


R = TypeVar("R", bound=Request[Any])


class Desk(Protocol):
    """What the engine does immediately for a peer."""

    def shelve(self, artifact: Artifact) -> None: ...

    def inbox(self, peer: int, name: str) -> list[Artifact]: ...


@dataclass(eq=False)
class Peer:
    """`me` in a method. Read the attributes; act through the verbs."""

    id: int  # its number; a server has the number after the last peer's
    seed: int  # of the run
    # The peers that it may exchange with: all others present, or its neighbours in a [graph] (never the server).
    peers: Sequence[int]
    model: Model  # its weights; training changes them in place
    settings: TrainSettings  # the [train] section
    desk: Desk
    _held: PeerData | None = None  # for the engine: `held_by`; None at a server
    server: int | None = None  # the id of the server, if the method has one
    links: Sequence[int] | None = None  # its neighbours in the [graph]; None: all peers
    _truth: Sequence[int] | None = None  # the true cluster of each peer; None unless the method is an oracle
    round: int = 0  # the current round, from 1
    rounds: int = 0  # the number of rounds
    kind: str = ""  # of its model, as in model.zoo; for an estimator, `model` is only a placeholder
    kinds: ModelRegistry = NO_KINDS  # the models that it may train or receive, besides its own architecture
    ensemble: Ensemble | None = None  # what it predicts with, instead of its model
    beside: dict[str, Ensemble] = field(default_factory=dict)  # further ensembles to measure, by name in the report
    state: dict[str, Any] = field(default_factory=dict)  # kept in checkpoints: JSON values, tensors, models
    notes: dict[str, Any] = field(default_factory=dict)  # of this round, for the report
    memory: OptimizerMemory = field(default_factory=OptimizerMemory)
    requested: dict[Request[Any], Call] = field(default_factory=dict)  # for the engine: requests not awaited so far
    rule: Rule | None = None  # for the engine: how the method merges models; None: by the weighted mean
    release_steps: Sequence[Step] = ()  # for the engine: what everything passes that leaves the peer
    judge: Judge = by_accuracy  # the metric that selects rounds, for `merits`
    circle: Sequence[int] = field(init=False)  # all other peers that are present, neighbours or not
    _edges: frozenset[int] = field(init=False)  # `links` as a set, for fast lookups
    _draws: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._edges = frozenset(self.links or ())
        self.meet(self.peers)

    def meet(self, there: Sequence[int]) -> None:
        """Set the peers that are present. In a [graph], a peer exchanges only with its neighbours among them."""
        self.circle = self.peers = there
        if self.links is not None:
            present = there if isinstance(there, Others) else set(there)
            self.peers = [j for j in self.links if j in present]

    def may_exchange_with(self, peer: int) -> bool:
        """Whether the [graph] has an edge to this peer. The server is not part of a graph and reaches all peers."""
        return self.links is None or peer in self._edges or peer in (self.id, self.server)

    @property
    def architecture(self) -> Architecture:
        return self.model.architecture

    @property
    def samples(self) -> int:
        """The number of this peer's training samples."""
        return len(self._data().train)

    @property
    def data(self) -> MethodData | None:
        """This peer's training and validation samples, `me.data.train.x` and `.y`; None at a server.

        A method gets no test samples: asking for them is an error.
        """
        return None if self._held is None else MethodData(self._held, self.id)

    @property
    def truth(self) -> Sequence[int]:
        """The true cluster of each peer, for oracles alone: methods that declare `needs_truth`."""
        if self._truth is None:
            raise MethodError(
                f"{called('', sys._getframe(1)).place}: peer {self.id} asks for me.truth, but only an oracle is told "
                "the true clusters. Find similar peers without it, or declare the method an oracle: "
                "`needs_truth: ClassVar[bool] = True`"
            )
        return self._truth

    @property
    def linked(self) -> Sequence[int]:
        """The same as `peers`: this peer's neighbours in the [graph]."""
        return self.peers

    # -- computing -----------------------------------------------------------------------------

    def train(
        self,
        loss: Loss = task_loss,
        *,
        model: Model | None = None,
        given: Mapping[str, Tensor] | None = None,
        only: str | None = None,
        views: int = 0,
        targets: Tensor | None = None,
        on: tuple[Tensor, Tensor] | None = None,
        memory: OptimizerMemory | None = None,
        **settings: Any,
    ) -> Train:
        """Train a model (by default this peer's) in place, on this peer's training data.

        `on` are samples and labels to train on instead (received ones, say). `given` is passed to the loss. `only`
        trains one part ("head"). `views` is the number of augmented views of every batch, for a loss that compares
        them. `targets` has a row for each sample, in the order of `predict`; the loss gets the rows of its batch.
        `memory` is the optimiser state of another model, and is updated. Any [train] setting can be overridden. The
        learning rate follows the schedule of [train], also if it is overridden.
        """
        wanted = self.settings if not settings else _override(self.settings, settings)
        lr = learning_rate(wanted, self.round, self.rounds)
        if lr != wanted.lr:
            wanted = replace(wanted, lr=lr)
        key = (self.seed, self.id, self.round, "train", self._count("train"))
        if memory is None and wanted.keep_optimizer and model is None:
            memory = self.memory
        split = self._data().train if on is None else Split(Pool(*on), torch.arange(len(on[1]), device=on[1].device))
        job = FitJob(model or self.model, split, loss, wanted, key, given or {}, only, memory, views, targets)
        return self._requested("train", Train(job))

    def evaluate(
        self, models: Iterable[Mapping[str, Tensor] | Portable], split: str = "train", samples: int = 0
    ) -> Evaluate:
        """Loss and accuracy of each model (also fetched ones of this peer's architecture) on this peer's data.

        `split` is "train" or "validation"; the test split is an error. `samples` is the number of random samples to
        measure all of them on, redrawn at every call; 0: the whole split.
        """
        data = self._split(split, "evaluate")
        if 0 < samples < len(data):
            drawn = self.rng("evaluate").choice(len(data), samples, replace=False)
            data = Split(data.pool, rows_of(data, drawn))
        return self._requested("evaluate", Evaluate([self.job(m, data) for m in models]))

    def predict(self, models: Iterable[Mapping[str, Tensor] | Portable] = (), split: str = "train") -> Predict:
        """Logits and features of models (by default this peer's) for each of this peer's samples.

        `split` is "train" or "validation"; the test split is an error.
        """
        data = self._split(split, "predict")
        return self._requested("predict", Predict([self.job(m, data) for m in models or [self.model]]))

    def merits(self, predictions: Iterable[Prediction], split: str = "validation") -> list[float]:
        """How good predictions for this peer's samples are, by the metric that selects rounds; higher is better.

        That is `evaluate.select`: by default accuracy, for regression the negative root mean squared error.
        """
        answers = torch.stack([prediction.answers for prediction in predictions])
        merits = self.judge(answers.cpu().double().numpy(), self.labels(split).cpu().numpy())
        return [max(float(merit), WORST) for merit in merits]

    def fit(self, kind: str) -> Compute[Portable]:
        """An estimator (a forest, say), fitted to this peer's training data, as a portable model."""
        train, key = self._data().train, (self.seed, self.id, self.round, "fit", kind)
        x, y, seed = train.x.cpu().numpy(), train.y.cpu().numpy(), randomness.number(*key) % 2**31
        fitting = self.kinds.fitting(kind, x, y, seed, balanced=self.settings.balance != NONE)
        return self._requested("fit", Compute(fitting, ESTIMATOR_EPOCHS * len(train)))

    def compute(self, function: Callable[..., T], *arguments: Any, **named: Any) -> Compute[T]:
        """Run a slow function that depends only on its arguments. Peers compute in parallel."""
        return self._requested("compute", Compute(partial(function, *arguments, **named), 0))

    def average(
        self,
        models: Mapping[int, Mapping[str, Tensor]],
        shares: Mapping[int, float] | None = None,
        *,
        into: Weights | None = None,
        own: int | None = None,
        default: Rule = weighted_mean,
    ) -> Weights:
        """Merge models, or any named tensors, of several peers: by their weighted mean, or by the method's own rule.

        All merging goes through this verb, so that a rule that `Method.merge_rule` returns applies everywhere.

        Args:
            models: models or artifacts by author, all with the same tensors; at least one. This peer's own model has
                the key `me.id`. They are summed in this order.
            shares: the weight of each author's model, normalised here; default: equal.
            into: weights to load the result into, such as `me.model`. If these are also the first of the models, the
                mean needs no copy of them.
            own: the peer that the result is for; default: this one. A server that merges for one peer names it.
            default: the form of the mean that applies if the method has no rule of its own.

        Returns:
            New weights with the tensors of the models, or `into`.

        Raises:
            ArtifactError: there are no models, they differ in their tensors, or the shares are not of their authors.
            MethodError: the method's own rule returned other tensors than it was given.

        Example::

            others = await me.fetch(me.sample(3), "model", like=me.model)
            me.model.load(me.average({me.id: me.model, **others}))
        """
        return merge(self.rule or default, models, shares, self.id if own is None else own, into)

    def labels(self, split: str = "train") -> Tensor:
        """The labels of this peer's samples, in the order of `predict`.

        `split` is "train" or "validation"; the test split is an error.
        """
        return self._split(split, "labels").y

    # -- exchanging ----------------------------------------------------------------------------

    def shelve(
        self,
        name: str,
        tensors: Mapping[str, Tensor],
        *,
        made_from: str = PARAMETERS,
        reference: Mapping[str, Tensor] | None = None,
        **facts: Fact,
    ) -> None:
        """Publish this round's version for other peers to fetch. Besides `send`, the only way for data to leave a peer.

        Args:
            name: of the artifact.
            tensors: its content. A snapshot: later changes do not affect it.
            made_from: what it was computed from, for release steps: "parameters", "update", "class means", "features",
                "feature sums", "portable model", "average" or "bookkeeping" (`core.release`).
            reference: the same tensors before training, if the method has them: `me.reference()`.
            facts: numbers and texts that go with the tensors.
        """
        self.desk.shelve(self._released(Release(name, tensors, facts, made_from, reference)))

    def fetch(
        self,
        peers: int | Iterable[int] | None,
        name: str,
        *,
        like: Mapping[str, Tensor] | None = None,
        facts: Collection[str] = (),
    ) -> Fetch:
        """What these peers shelved this round (in an asynchronous run: their latest), by peer, in order.

        Received data are never trusted. An artifact without exactly the tensors of `like` (shapes and types, all
        finite) and these facts (numbers above 0) counts as absent; the report says from which peer, and why.
        """
        if peers is None:
            raise MethodError(
                f"peer {self.id} fetches '{name}' from the server (me.server), but there is none: "
                "a method with a server sets `server = True`"
            )
        wanted = (int(peers),) if isinstance(peers, int | np.integer) else tuple(sorted(set(peers)))
        self._check_edges(wanted, f"fetches '{name}' from")
        return self._requested(
            "fetch", Fetch(wanted, name, self.round, lambda artifacts: self._fitting(artifacts, like, facts))
        )

    def _fitting(
        self, artifacts: dict[int, Artifact], like: Mapping[str, Tensor] | None, facts: Collection[str]
    ) -> dict[int, Artifact]:
        wrong = {j: reason for j, artifact in artifacts.items() if (reason := artifact.misfit(like, facts))}
        if not wrong:
            return artifacts
        self.decline(wrong)
        return {j: artifact for j, artifact in artifacts.items() if j not in wrong}

    def send(
        self,
        peer: int,
        name: str,
        tensors: Mapping[str, Tensor],
        *,
        made_from: str = PARAMETERS,
        reference: Mapping[str, Tensor] | None = None,
        **facts: Fact,
    ) -> Send:
        """Push an artifact to one peer; arguments as for `shelve`. Returns whether it is or will be delivered."""
        self._check_edges((peer,), f"sends '{name}' to")
        artifact = self._released(Release(name, tensors, facts, made_from, reference, to=peer))
        return self._requested("send", Send(peer, artifact))

    def reference(self, *parts: str, model: Weights | None = None) -> Weights | None:
        """A copy of this peer's model (or of another), whole or these parts, to pass to `shelve` after training.

        None if no release step would read it: the copy would be for nothing.
        """
        if not self.release_steps:
            return None
        model = self.model if model is None else model
        return model.part(*parts) if parts else model.copy()

    def inbox(self, name: str) -> list[Artifact]:
        """Take the messages of this name that have arrived, oldest first; does not wait."""
        return self.desk.inbox(self.id, name)

    def receive(self, name: str) -> Receive:
        """Wait for a message of this name, then take all of them.

        On a network the wait may time out: then the list is empty.
        """
        return self._requested("receive", Receive(name))

    def news(self) -> News:
        """Wait until another peer has shelved something since the last call.

        False if no peer ever will: all others have finished, are gone, or wait for news themselves.
        """
        return self._requested("news", News())

    def opened(self, found: Mapping[int, Artifact], largest: int) -> dict[int, Model | Portable]:
        """The models in fetched artifacts, of any kind. Unusable ones are left out, and the report says why."""
        opened = {j: self.kinds.opened(artifact, largest) for j, artifact in found.items()}
        self.decline({j: model for j, model in opened.items() if isinstance(model, str)})
        return {j: model for j, model in opened.items() if not isinstance(model, str)}

    def decline(self, wrong: Mapping[int, str]) -> None:
        """Note for the report which peers' artifacts were unusable, and why."""
        if wrong:
            self.note(declined={**self.notes.get("declined", {}), **{j: plain(why) for j, why in wrong.items()}})

    # -- choosing ------------------------------------------------------------------------------

    def rng(self, purpose: str) -> np.random.Generator:
        """A random generator, keyed by (seed, peer, round, purpose); a new one at every call."""
        return randomness.generator(*self._key_of_draw(purpose))

    def _key_of_draw(self, purpose: str) -> tuple[object, ...]:
        return self.seed, self.id, self.round, purpose, self._count(purpose)

    def sample(self, count: int, among: Sequence[int] | None = None, but: Collection[int] = ()) -> list[int]:
        """Up to `count` distinct peers drawn at random, in ascending order.

        `but` are left out: that many more are drawn, so the cost does not grow with the number of peers.
        """
        choice = self.peers if among is None else among
        available = len(choice)
        many, key = min(count + len(but), available), self._key_of_draw("sample")
        drawn = [choice[i] for i in randomness.distinct(many, available, *key, shuffled=bool(but))]
        return sorted([peer for peer in drawn if peer not in but][:count] if but else drawn)

    def initial(self, draw: int = 0) -> Model:
        """New weights, the same at every peer of this architecture."""
        return self.architecture.initial(self.seed, draw)

    def own_initial(self, kind: str = "", draw: int = 0) -> Model:
        """New weights that no other peer has, of this peer's architecture or of the one that `kind` names."""
        architecture = self.kinds.network(kind) if kind else self.architecture
        more = (draw,) if draw else ()
        return architecture.drawn(self.seed, "initial", architecture.name, "of peer", self.id, *more)

    def note(self, **what: Any) -> None:
        """Record values for the report: `neighbours` (a list of peers), `weights` (peer -> weight), or anything else.
        Other numbers, `me.note(loss_x=1.0)`, are plotted over rounds, also in TensorBoard, unless `Method.notes`
        declares that they are not."""
        self.notes.update({key: json_value(value, key) for key, value in what.items()})

    # -- for the engine ------------------------------------------------------------------------

    def job(self, model: Mapping[str, Tensor] | Portable, split: Split) -> AnyJob:
        if isinstance(model, Portable):
            return PortableJob(model, split, self.kinds.classes)
        return EvaluateJob(model if isinstance(model, Model) else self.architecture.view(model), split)

    def begin(self, round: int) -> None:
        self.round = round
        self.notes = {}
        self._draws = {}

    def _released(self, release: Release) -> Artifact:
        """The artifact that leaves: every one is made here."""
        return released(self, release, self.release_steps)

    def _requested(self, verb: str, request: R) -> R:
        """Record where the request was made; the engine removes the record when the request is awaited.

        This runs for every request of every peer, and costs less than a microsecond.
        """
        self.requested[request] = called(verb, sys._getframe(2))
        return request

    def _check_edges(self, wanted: Iterable[int], does: str) -> None:
        if self.links is None:
            return
        for j in wanted:
            if not self.may_exchange_with(j):
                place = called("", sys._getframe(2)).place
                raise MethodError(
                    f"{place}: peer {self.id} {does} peer {j}, but the [graph] has no edge between the two. "
                    "Use only the peers in me.peers, or remove [graph]"
                )

    def _count(self, purpose: str) -> int:
        self._draws[purpose] = count = self._draws.get(purpose, -1) + 1
        return count

    def _data(self) -> PeerData:
        if self._held is None:
            raise ConfigError(f"participant {self.id} is a server: it has no data to train or evaluate on")
        return self._held

    def _split(self, name: str, verb: str) -> Split:
        """A split that a verb may read. The engine measures on test rows through `held_by`, not through a verb."""
        data, caller = self._data(), sys._getframe(2)
        if name == "test":
            raise no_test_rows(self.id, f'me.{verb}(..., "test")', caller)
        if name not in FOR_METHODS:
            raise MethodError(f"{called('', caller).place}: {unknown(f'split of me.{verb}()', name, FOR_METHODS)}")
        split: Split = getattr(data, name)
        return split


def held_by(me: Peer) -> PeerData | None:
    """All of a peer's data, test rows included; None for a server. For engines and reports: not a verb of `me`."""
    return me._held


def hold(me: Peer, data: PeerData) -> None:
    """Give a peer other data, such as the same rows in another scaling. For engines: not a verb of `me`."""
    me._held = data


def _override(settings: TrainSettings, changes: Mapping[str, Any]) -> TrainSettings:
    for key in changes:
        if key not in settings.__dataclass_fields__:
            raise ConfigError(unknown("setting of train()", key, settings.__dataclass_fields__))
    wanted = replace(settings, **changes)
    for key in changes:
        if isinstance(changes[key], str):  # numbers may leave the bounds for [train]
            check_values(wanted, "me.train: ", key)
    return wanted
