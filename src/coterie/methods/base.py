"""What a method is: a coroutine seen from one peer, and a frozen class of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from coterie.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.core.model_registry import ModelRegistry
    from coterie.core.peer import Peer


def parameter(default: Any, help: str, common: str = "", function: bool = False) -> Any:
    """A field of a method: its default, and what `coterie list methods NAME` says of it.

    `common` names what it means where other methods have the same: a value carries over between two methods only
    if both give their parameter of that name the same `common` meaning (`config.carry_over`). `function`: its value
    may name a function of the user's own, whose file then counts among the sources of a run (`core.named_code`).
    """
    return field(default=default, metadata={"help": help, "common": common, "function": function})


@dataclass(frozen=True)
class Method(ABC):
    """Subclass it, say what one peer does in one round, and it runs in every engine."""

    summary: ClassVar[str] = ""  # one line, for `coterie list methods`
    title: ClassVar[str] = ""  # its name in LaTeX tables and on pages; default: that of its class
    paper: ClassVar[str] = ""  # authors, title, year
    server: ClassVar[bool] = False  # whether there is one more participant, running `serve`
    mixed: ClassVar[bool] = False  # whether peers may have different architectures
    grouped: ClassVar[bool] = False  # whether those of one architecture are averaged: it must be of one size
    same_zoo: ClassVar[bool] = False  # whether all must know the same architectures, also those that they do not have
    shared: ClassVar[tuple[str, ...]] = ()  # the parts of a model that travel, where it is not all of it
    same_features: ClassVar[bool] = False  # whether mixed architectures must have the same number of features
    parts: ClassVar[tuple[str, ...]] = ()  # of a model beside backbone and head: "projector", or one that a Net brings
    views: ClassVar[int] = 0  # the augmented twins of every batch that it asks for, with `me.train(views=)`
    any_model: ClassVar[bool] = False  # whether peers may bring what no gradient trains: estimators, ONNX files
    # whether the weights it notes are learned: shown as a heat map at the end of a run
    learns_weights: ClassVar[bool] = False
    ensembles: ClassVar[bool] = False  # whether a peer predicts with several models: its accuracy is of none of them
    needs_truth: ClassVar[bool] = False  # whether it must be told the true clusters
    paced: ClassVar[bool] = False  # whether it needs rounds that all have in common
    unforeseen: ClassVar[str] = ""  # what of its course depends on how training goes, for `coterie plan`
    asynchronous: ClassVar[bool] = False  # whether fetch gives the latest instead of this round's

    def with_server(self) -> bool:
        """Whether there is one with these parameters."""
        return self.server

    def check(self, peers: int) -> None:
        """Raise ConfigError if the parameters cannot work with this many peers."""

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        """Raise CoterieError if it cannot work with these peers' models and this graph (None: all are linked)."""

    async def setup(self, me: Peer) -> None:
        """Once, before round 1."""

    @abstractmethod
    async def round(self, me: Peer, t: int) -> None:
        """What a peer does in round t (from 1)."""

    def revive(self, me: Peer) -> None:
        """After a restart, from `me.state`: what a method keeps at `me` that is not state, such as `me.ensemble`."""

    async def serve(self, me: Peer, t: int) -> None:
        """What the server does in round t, where there is one."""


def need_others(count: int, key: str, peers: int) -> None:
    """A method's check of a parameter that is a number of other peers, one at the least."""
    if peers < 2:
        raise ConfigError(
            f"peers = {peers}: there is nobody to exchange with. Set peers to 2 or more, or method.name to local"
        )
    need(1 <= count < peers, key, f"must be from 1 to {peers - 1} with {peers} peers, not {count}")


def need(condition: bool, key: str, message: str) -> None:
    """A method's check of one parameter."""
    if not condition:
        raise ConfigError(f"method.{key} {message}")
