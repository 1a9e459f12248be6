"""The base class of all methods: coroutines that run at one peer, and a frozen dataclass of parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from coterie.core.errors import ConfigError
from coterie.core.settings import properties
from coterie.core.task import CLASSIFICATION
from coterie.methods.figures import Described
from coterie.methods.notes import Declared
from coterie.models.parts import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coterie.core.merging import Rule
    from coterie.core.model_registry import ModelRegistry
    from coterie.core.peer import Peer
    from coterie.core.release import Step


def parameter(
    default: Any,
    help: str,
    common: str = "",
    function: bool = False,
    *,
    choices: Iterable[str] = (),
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> Any:
    """Declare a parameter of a method: a field of its dataclass. A value that it does not allow is an error.

    Args:
        default: its default value, which also gives its type.
        help: what `coterie list methods NAME` says of it, besides the allowed values.
        common: the meaning that it shares with parameters of other methods. A value carries over between two methods
            only if both give their parameter of that name the same meaning (`config.carry_over`).
        function: whether its value may name a function of the user's own, whose file then counts among the sources of
            a run (`core.named_code`).
        choices: the words that it allows, or a mapping from these to explanations.
        least: the smallest number that it allows.
        above: the bound that it must exceed.
        most: the largest number that it allows.
        below: the bound that it must not reach.

    Returns:
        A dataclass field.
    """
    allowed = properties(help, choices, least=least, above=above, most=most, below=below)
    return field(default=default, metadata={**allowed, "common": common, "function": function})


@dataclass(frozen=True)
class Method(ABC):
    """Subclass it and write what one peer does in one round: it then runs in every engine.

    Example::

        @dataclass(frozen=True)
        class Gossip(Method):
            k: int = parameter(5, "neighbours to average with in a round")

            async def round(self, me):
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
    # of a model beside backbone and head: a Part that the method brings, or the name of one that a Net defines
    parts: ClassVar[tuple[str | Part, ...]] = ()
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)  # what its models can predict: classes, numbers, or both
    views: ClassVar[int] = 0  # augmented views of every batch that it asks for with `me.train(views=)`
    any_model: ClassVar[bool] = False  # whether peers may have models that no gradient trains: estimators, ONNX files
    # whether the weights that it notes are learned: the report then shows them as a heat map
    learns_weights: ClassVar[bool] = False
    ensembles: ClassVar[bool] = False  # whether a peer predicts with several models: its accuracy is the ensemble's
    needs_truth: ClassVar[bool] = False  # whether it is an oracle: it alone is told the true clusters, `me.truth`
    paced: ClassVar[bool] = False  # whether all peers must be in the same round
    figures: ClassVar[tuple[Described, ...]] = ()  # of its notes, for the report; single numbers need none
    notes: ClassVar[tuple[Declared, ...]] = ()  # those that are not curves over rounds, or that enter summary.json
    unforeseen: ClassVar[str] = ""  # what `coterie plan` cannot predict, as it depends on how training goes
    asynchronous: ClassVar[bool] = False  # whether fetch returns the latest artifact instead of this round's

    def with_server(self) -> bool:
        """Whether there is a server with these parameters."""
        return self.server

    def check(self, peers: int) -> None:
        """Raise ConfigError if the parameters cannot work with each other or with this many peers.

        What a parameter allows by itself is declared: `parameter(..., least=0)`.
        """

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        """Raise CoterieError if it cannot work with these peers' models and this graph (None: all are linked)."""

    def merge_rule(self) -> Rule | None:
        """The function by which `me.average` merges models (`core.merging`); None: the weighted mean."""
        return None

    def release_steps(self) -> Sequence[Step]:
        """What everything that leaves a peer passes, in order (`core.release`); default: nothing changes it."""
        return ()

    async def setup(self, me: Peer) -> None:
        """Run once, before round 1."""

    @abstractmethod
    async def round(self, me: Peer) -> None:
        """Run by each peer in every round; `me.round` is its number, from 1."""

    def revive(self, me: Peer) -> None:
        """After a restart, rebuild from `me.state` whatever of `me` is not state, such as `me.ensemble`."""

    async def serve(self, me: Peer) -> None:
        """Run by the server in every round, if there is one."""


# -- checks of parameters against others or the number of peers ----------------------------------


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
