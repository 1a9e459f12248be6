"""One participant as its method sees it: its data, its model, and the verbs that are the whole contract.

A verb that takes time or needs others is awaited: it hands a request to whoever runs the method (the
simulation, a Ray actor, a network node) and gets the answer back. The others act at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from coterie.core import randomness
from coterie.core.artifact import Artifact, Fact
from coterie.core.ensemble import Ensemble
from coterie.core.errors import ConfigError, MethodError, unknown
from coterie.core.jobs import (
    AnyJob,
    EvaluateJob,
    FitJob,
    OptimizerMemory,
    Pool,
    PortableJob,
    Split,
    TrainSettings,
    rows_of,
)
from coterie.core.loss import Loss, cross_entropy
from coterie.core.model import Architecture, Model
from coterie.core.model_registry import ModelRegistry
from coterie.core.portable_model import Portable
from coterie.core.requests import ENGINES, Call, Compute, Evaluate, Fetch, News, Predict, Receive, Request, Send, Train

if TYPE_CHECKING:
    from coterie.data.scaling import Scaling

T = TypeVar("T")
LONGEST_REASON = 300  # characters
ESTIMATOR_EPOCHS = 10  # of training: what fitting an estimator is taken to cost on the virtual clock


R = TypeVar("R", bound=Request[Any])


class Desk(Protocol):
    """What the engine does at once for a peer."""

    def shelve(self, artifact: Artifact) -> None: ...

    def inbox(self, peer: int, name: str) -> list[Artifact]: ...


@dataclass(frozen=True, eq=False)
class PeerData:
    train: Split
    validation: Split
    test: Split
    scaling: Scaling | None = field(default=None, kw_only=True)  # how raw samples became these; None: they are raw


class Others(Sequence[int]):
    """Everybody but one, without a list: ten thousand peers would need a hundred million entries."""

    def __init__(self, count: int, but: int) -> None:
        self._count, self._but = count, but

    def __len__(self) -> int:
        return self._count - (self._but < self._count)

    def __contains__(self, peer: object) -> bool:
        return isinstance(peer, int | np.integer) and 0 <= int(peer) < self._count and int(peer) != self._but

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < self._count - 1:
            index = range(len(self))[index]
        return index + (index >= self._but)


@dataclass(eq=False)
class Peer:
    """`me` in a method. Read the attributes; act through the verbs."""

    id: int  # its number; a server's is the one after the last peer's
    seed: int  # the run's
    # Whom it may exchange with: everybody else that is there, or in a [graph] those next to it (never the server).
    peers: Sequence[int]
    model: Model  # its weights; training changes them in place
    settings: TrainSettings  # the [train] section
    desk: Desk
    data: PeerData | None = None  # None at a server
    server: int | None = None  # its id, where the method has one
    links: Sequence[int] | None = None  # who is next to it in the [graph]; None: everybody is
    # The true clusters, by peer, where the data were made with them: for the Oracle baseline alone.
    truth: Sequence[int] | None = None
    round: int = 0  # where it is, from 1
    rounds: int = 0  # how many there are
    kind: str = ""  # of its model, as model.zoo names it; of an estimator there is no `model` worth the name
    kinds: ModelRegistry | None = None  # of models that it may train or be sent, beside its own architecture
    ensemble: Ensemble | None = None  # what it predicts with, where that is not its model
    beside: dict[str, Ensemble] = field(default_factory=dict)  # what else to measure, by a name for the report
    state: dict[str, Any] = field(default_factory=dict)  # what must survive a crash: JSON values, tensors, models
    notes: dict[str, Any] = field(default_factory=dict)  # what the report should know of this round
    memory: OptimizerMemory = field(default_factory=OptimizerMemory)
    said: dict[tuple[str, str], Tensor] = field(default_factory=dict)  # the engine's: members' predictions, by split
    requested: dict[Request[Any], Call] = field(default_factory=dict)  # the engine's: what was not awaited so far
    circle: Sequence[int] = field(init=False)  # everybody else that is there, also who is not next to it
    _edges: frozenset[int] = field(init=False)  # who is next to it: `links`, for a quick look
    _draws: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._edges = frozenset(self.links or ())
        self.meet(self.peers)

    def meet(self, there: Sequence[int]) -> None:
        """These are there now. The one rule of the [graph]: of them, a peer exchanges with those next to it."""
        self.circle = self.peers = there
        if self.links is not None:
            present = there if isinstance(there, Others) else set(there)
            self.peers = [j for j in self.links if j in present]

    def may_exchange_with(self, peer: int) -> bool:
        """Whether the [graph] has an edge between the two. The server, which no graph has, reaches everybody."""
        return self.links is None or peer in self._edges or peer in (self.id, self.server)

    @property
    def architecture(self) -> Architecture:
        return self.model.architecture

    @property
    def samples(self) -> int:
        """How much training data this peer has."""
        return len(self._data().train)

    @property
    def linked(self) -> Sequence[int]:
        """The same as `peers`: who is next to this peer in the [graph]."""
        return self.peers

    # -- computing -----------------------------------------------------------------------------

    def train(
        self,
        loss: Loss = cross_entropy,
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
        """Train a model (one's own if none is named) in place, on one's training data.

        `on` are samples and labels to train on instead (what others sent, say); `given` goes to the loss; `only`
        trains one part ("head"); `views` are so many augmented twins of every batch, for a loss that compares them;
        `targets` has a row for each sample, in the order of `predict`, and the loss gets its batch's rows; `memory`
        is what the optimiser remembers of a model that is not one's own, and is updated; any [train] setting can be
        overridden. The learning rate decays by `lr_decay` per round.
        """
        wanted = self.settings if not settings else _override(self.settings, settings)
        if wanted.lr_decay != 1.0:
            wanted = replace(wanted, lr=wanted.lr * wanted.lr_decay ** max(self.round - 1, 0))
        key = (self.seed, self.id, self.round, "train", self._count("train"))
        if memory is None and wanted.keep_optimizer and model is None:
            memory = self.memory
        split = self._data().train if on is None else Split(Pool(*on), torch.arange(len(on[1]), device=on[1].device))
        job = FitJob(model or self.model, split, loss, wanted, key, given or {}, only, memory, views, targets)
        return self._requested("train", Train(job))

    def evaluate(
        self, models: Iterable[Mapping[str, Tensor] | Portable], split: str = "train", samples: int = 0
    ) -> Evaluate:
        """Loss and accuracy of each model (fetched ones of one's own architecture too) on one's own data.

        `samples` measures all of them on so many samples, drawn anew at every call; 0 is the whole split.
        """
        data: Split = getattr(self._data(), split)
        if 0 < samples < len(data):
            drawn = self.rng("evaluate").choice(len(data), samples, replace=False)
            data = Split(data.pool, rows_of(data, drawn))
        return self._requested("evaluate", Evaluate([self.job(m, data) for m in models]))

    def predict(self, models: Iterable[Mapping[str, Tensor] | Portable] = (), split: str = "train") -> Predict:
        """What models (one's own if none is named) say of each of one's samples: logits and features."""
        data: Split = getattr(self._data(), split)
        return self._requested("predict", Predict([self.job(m, data) for m in models or [self.model]]))

    def fit(self, kind: str) -> Compute[Portable]:
        """An estimator of one's own (a forest, say), fitted to one's training data; it is portable at once."""
        assert self.kinds is not None
        train, key = self._data().train, (self.seed, self.id, self.round, "fit", kind)
        x, y, seed = train.x.cpu().numpy(), train.y.cpu().numpy(), randomness.number(*key) % 2**31
        return self._requested("fit", Compute(self.kinds.fitting(kind, x, y, seed), ESTIMATOR_EPOCHS * len(train)))

    def compute(self, function: Callable[..., T], *arguments: Any, **named: Any) -> Compute[T]:
        """Anything that takes a while and depends on its arguments alone. Peers compute side by side."""
        return self._requested("compute", Compute(partial(function, *arguments, **named), 0))

    def labels(self, split: str = "train") -> Tensor:
        """The labels of one's samples, in the order of `predict`."""
        data: Split = getattr(self._data(), split)
        return data.y

    # -- exchanging ----------------------------------------------------------------------------

    def shelve(self, name: str, tensors: Mapping[str, Tensor], **facts: Fact) -> None:
        """Put this round's version where others may fetch it. The only way, with `send`, anything leaves a peer."""
        self.desk.shelve(Artifact.snapshot(name, self.id, self.round, tensors, facts))

    def fetch(
        self,
        peers: int | Iterable[int],
        name: str,
        *,
        like: Mapping[str, Tensor] | None = None,
        facts: Collection[str] = (),
    ) -> Fetch:
        """What these peers shelved this round (in an asynchronous run: their latest), by peer, in order.

        What others send is theirs to get wrong. What has not just the tensors of `like` (their shapes and types, all
        finite) and these facts (numbers above 0) counts as absent, and the report is told who and why.
        """
        wanted = (int(peers),) if isinstance(peers, int | np.integer) else tuple(sorted(set(peers)))
        self._check_edges(wanted, f"fetches '{name}' from")
        return self._requested(
            "fetch", Fetch(wanted, name, self.round, lambda found: self._fitting(found, like, facts))
        )

    def _fitting(
        self, found: dict[int, Artifact], like: Mapping[str, Tensor] | None, facts: Collection[str]
    ) -> dict[int, Artifact]:
        wrong = {j: reason for j, artifact in found.items() if (reason := artifact.misfit(like, facts))}
        if not wrong:
            return found
        self.decline(wrong)
        return {j: artifact for j, artifact in found.items() if j not in wrong}

    def send(self, peer: int, name: str, tensors: Mapping[str, Tensor], **facts: Fact) -> Send:
        """Push to one peer: a model that walks. Answers whether it gets there."""
        self._check_edges((peer,), f"sends '{name}' to")
        return self._requested("send", Send(peer, Artifact.snapshot(name, self.id, self.round, tensors, facts)))

    def inbox(self, name: str) -> list[Artifact]:
        """Take what was sent here under this name and has arrived, oldest first; does not wait."""
        return self.desk.inbox(self.id, name)

    def receive(self, name: str) -> Receive:
        """Wait until something sent under this name is there, then take it all.

        On a network the wait has an end: then there is nothing in it.
        """
        return self._requested("receive", Receive(name))

    def news(self) -> News:
        """Wait until somebody else has shelved something since the last time one was told.

        False if nobody will any more: all others have finished, are gone, or wait for news themselves.
        """
        return self._requested("news", News())

    def opened(self, found: Mapping[int, Artifact], largest: int) -> dict[int, Model | Portable]:
        """The models that others sent, of any kind. What cannot be used is left out, and the report told why."""
        assert self.kinds is not None
        opened = {j: self.kinds.opened(artifact, largest) for j, artifact in found.items()}
        self.decline({j: model for j, model in opened.items() if isinstance(model, str)})
        return {j: model for j, model in opened.items() if not isinstance(model, str)}

    def decline(self, wrong: Mapping[int, str]) -> None:
        """Tell the report whose things one could not use, and why."""
        if wrong:
            self.note(declined={**self.notes.get("declined", {}), **{j: _clear(why) for j, why in wrong.items()}})

    # -- choosing ------------------------------------------------------------------------------

    def rng(self, purpose: str) -> np.random.Generator:
        """Randomness of one's own: keyed by (seed, peer, round, purpose), fresh at every call."""
        return randomness.generator(*self._key_of_draw(purpose))

    def _key_of_draw(self, purpose: str) -> tuple[object, ...]:
        return self.seed, self.id, self.round, purpose, self._count(purpose)

    def sample(self, count: int, among: Sequence[int] | None = None, but: Collection[int] = ()) -> list[int]:
        """Different peers drawn at random, as many as there are if there are fewer; in ascending order.

        `but` are left out: so many more are drawn, which costs the same however many peers there are.
        """
        choice = self.peers if among is None else among
        there = len(choice)
        many, key = min(count + len(but), there), self._key_of_draw("sample")
        drawn = [choice[i] for i in randomness.distinct(many, there, *key, shuffled=bool(but))]
        return sorted([peer for peer in drawn if peer not in but][:count] if but else drawn)

    def initial(self, draw: int = 0) -> Model:
        """Fresh weights that every peer of this architecture gets alike."""
        return self.architecture.initial(self.seed, draw)

    def own_initial(self, kind: str = "", draw: int = 0) -> Model:
        """Fresh weights that no other peer has, of one's own architecture or of this one of the zoo."""
        architecture = self.kinds.network(kind) if kind and self.kinds else self.architecture
        more = (draw,) if draw else ()
        return architecture.drawn(self.seed, "initial", architecture.name, "of peer", self.id, *more)

    def note(self, **what: Any) -> None:
        """Tell the report: `neighbours` (a list of peers), `weights` (peer -> weight), or anything of one's own. A
        number of one's own, `me.note(loss_x=1.0)`, is drawn over rounds, in TensorBoard, too."""
        self.notes.update({key: _plain(value, key) for key, value in what.items()})

    # -- for the engine ------------------------------------------------------------------------

    def job(self, model: Mapping[str, Tensor] | Portable, split: Split) -> AnyJob:
        if isinstance(model, Portable):
            assert self.kinds is not None
            return PortableJob(model, split, self.kinds.classes)
        return EvaluateJob(model if isinstance(model, Model) else self.architecture.view(model), split)

    def begin(self, round: int) -> None:
        self.round = round
        self.notes = {}
        self._draws = {}

    def _requested(self, verb: str, request: R) -> R:
        """Note where it was made: whoever drives the method takes the note away when the request is awaited.

        This is done for every request of every peer, and costs less than a microsecond.
        """
        self.requested[request] = _called(verb, sys._getframe(2))
        return request

    def _check_edges(self, wanted: Iterable[int], does: str) -> None:
        if self.links is None:
            return
        for j in wanted:
            if not self.may_exchange_with(j):
                place = _called("", sys._getframe(2)).place
                raise MethodError(
                    f"{place}: peer {self.id} {does} peer {j}, and there is no edge between the two in the [graph]. "
                    "Ask those in me.peers, or remove [graph]"
                )

    def _count(self, purpose: str) -> int:
        self._draws[purpose] = count = self._draws.get(purpose, -1) + 1
        return count

    def _data(self) -> PeerData:
        if self.data is None:
            raise ConfigError(f"participant {self.id} is a server: it has no data to train or evaluate on")
        return self.data


def _called(verb: str, asked: FrameType) -> Call:
    """Where a verb was called: in the method's own code, or in a built-in method, where nobody else's called it."""
    frame: FrameType | None = asked
    while frame is not None and (module := frame.f_globals.get("__name__", "")).startswith("coterie."):
        frame = None if module.startswith(ENGINES) else frame.f_back
    frame = frame or asked
    return Call(f"me.{verb}()", frame.f_code.co_filename, frame.f_lineno)


def _clear(reason: str) -> str:
    """It may quote what somebody sent."""
    return "".join(c if c.isprintable() else "?" for c in reason[:LONGEST_REASON])


def _override(settings: TrainSettings, changes: Mapping[str, Any]) -> TrainSettings:
    for key in changes:
        if key not in settings.__dataclass_fields__:
            raise ConfigError(unknown("setting of train()", key, settings.__dataclass_fields__))
    return replace(settings, **changes)


_JSON_VALUES = frozenset((str, int, float, bool, type(None)))


def _plain(value: Any, key: str) -> Any:
    """A copy that JSON can write and later changes do not touch."""
    kind = type(value)
    if kind in _JSON_VALUES:  # most are, and there are many
        return value
    if kind is not dict and isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if kind is dict or isinstance(value, Mapping):
        return {
            k.item() if isinstance(k, np.generic) else k: v if type(v) in _JSON_VALUES else _plain(v, key)
            for k, v in value.items()
        }
    if isinstance(value, list | tuple | set):
        return [v if type(v) in _JSON_VALUES else _plain(v, key) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ConfigError(f"me.note({key}=...): a {type(value).__name__} cannot be written to the events")
