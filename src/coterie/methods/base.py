"""The base class of all methods: coroutines that run at one peer, and a frozen dataclass of parameters."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.core.merging import Rule
    from coterie.core.model_registry import ModelRegistry
    from coterie.core.peer import Peer


def parameter(default: Any, help: str, common: str = "", function: bool = False) -> Any:
    """Declare a parameter of a method: a field of its dataclass.

    Args:
        default: its default value, which also gives its type.
        help: what `coterie list methods NAME` says of it.
        common: the meaning that it shares with parameters of other methods. A value carries over between two methods
            only if both give their parameter of that name the same meaning (`config.carry_over`).
        function: whether its value may name a function of the user's own, whose file then counts among the sources of
            a run (`core.named_code`).

    Returns:
        A dataclass field.
    """
    return field(default=default, metadata={"help": help, "common": common, "function": function})


@dataclass(frozen=True)
class Method(ABC):
    """Subclass it and write what one peer does in one round: it then runs in every engine.

    Example::

        @dataclass(frozen=True)
        class Gossip(Method):
            k: int = parameter(5, "neighbours to average with in a round")

            async def round(self, me, t):
                await me.train()
                me.shelve("model", me.model)
                others = await me.fetch(me.sample(self.k), "model")
                me.model.load(me.average({me.id: me.model, **others}))
    """

    summary: ClassVar[str] = ""  # one line, for `coterie list methods`
    title: ClassVar[str] = ""  # its name in LaTeX tables and on pages; default: the name of the class
    paper: ClassVar[str] = ""  # authors, title, year
    server: ClassVar[bool] = False  # whether there is a server, which runs `serve`
    mixed: ClassVar[bool] = False  # whether peers may have different architectures
    grouped: ClassVar[bool] = False  # whether models of one architecture are averaged: all must have the same size
    same_zoo: ClassVar[bool] = False  # whether every peer must know all architectures, also those that it does not use
    shared: ClassVar[tuple[str, ...]] = ()  # the parts of a model that are exchanged; default: the whole model
    same_features: ClassVar[bool] = False  # whether mixed architectures must have the same number of features
    parts: ClassVar[tuple[str, ...]] = ()  # of a model beside backbone and head: "projector", or one that a Net defines
    views: ClassVar[int] = 0  # augmented views of every batch that it asks for with `me.train(views=)`
    any_model: ClassVar[bool] = False  # whether peers may have models that no gradient trains: estimators, ONNX files
    # whether the weights that it notes are learned: the report then shows them as a heat map
    learns_weights: ClassVar[bool] = False
    ensembles: ClassVar[bool] = False  # whether a peer predicts with several models: its accuracy is the ensemble's
    needs_truth: ClassVar[bool] = False  # whether it is an oracle: it alone is told the true clusters, `me.truth`
    paced: ClassVar[bool] = False  # whether all peers must be in the same round
    unforeseen: ClassVar[str] = ""  # what `coterie plan` cannot predict, as it depends on how training goes
    asynchronous: ClassVar[bool] = False  # whether fetch returns the latest artifact instead of this round's

    def with_server(self) -> bool:
        """Whether there is a server with these parameters."""
        return self.server

    def check(self, peers: int) -> None:
        """Raise ConfigError if the parameters cannot work with this many peers."""

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        """Raise CoterieError if it cannot work with these peers' models and this graph (None: all are linked)."""

    def merge_rule(self) -> Rule | None:
        """The function by which `me.average` merges models (`core.merging`); None: the weighted mean."""
        return None

    async def setup(self, me: Peer) -> None:
        """Run once, before round 1."""

    @abstractmethod
    async def round(self, me: Peer, t: int) -> None:
        """Run by each peer in round t (from 1)."""

    def revive(self, me: Peer) -> None:
        """After a restart, rebuild from `me.state` whatever of `me` is not state, such as `me.ensemble`."""

    async def serve(self, me: Peer, t: int) -> None:
        """Run by the server in round t, if there is one."""


# -- checks of parameters ------------------------------------------------------------------------


def need(condition: bool, key: str, message: str) -> None:
    """Raise ConfigError about this parameter unless the condition holds."""
    if not condition:
        raise ConfigError(f"method.{key} {message}")


def need_others(count: int, key: str, peers: int) -> None:
    """Check a parameter that is a number of other peers, at least one."""
    if peers < 2:
        raise ConfigError(
            f"peers = {peers}: there is no other peer to exchange with. Set peers to 2 or more, or method.name to local"
        )
    need(1 <= count < peers, key, f"must be from 1 to {peers - 1} with {peers} peers, not {count}")


def need_one_of(method: Method, **options: Iterable[str]) -> None:
    """Check parameters whose values are words, each against its options."""
    for key, words in options.items():
        value = getattr(method, key)
        need(value in words, key, f"must be one of {', '.join(words)}, not '{value}'")


def need_at_least(method: Method, least: int, *keys: str) -> None:
    """Check parameters that are finite numbers with a minimum."""
    for key in keys:
        value = getattr(method, key)
        need(least <= value < math.inf, key, f"must be at least {least}, not {value}")


def need_above(method: Method, bound: int, *keys: str) -> None:
    """Check parameters that are finite numbers above a bound."""
    for key in keys:
        value = getattr(method, key)
        need(bound < value < math.inf, key, f"must be above {bound}, not {value}")


def need_share(method: Method, *keys: str) -> None:
    """Check parameters that are numbers from 0 to 1."""
    for key in keys:
        value = getattr(method, key)
        need(0 <= value <= 1, key, f"must be from 0 to 1, not {value}")
