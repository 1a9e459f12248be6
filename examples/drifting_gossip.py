"""Gossip with a figure of its own: how far training moves a model in a round, and how far averaging does.

coterie run panm-digits method.name=examples/drifting_gossip.py:DriftingGossip
"""

from dataclasses import dataclass
from typing import ClassVar

from coterie import Method, Peer, mean, parameter
from coterie.methods.base import need_others
from coterie.methods.figures import Described, Lines

DRIFT = Lines(
    name="drift",
    title="Drift of the models",
    notes=(("moved", "by training"), ("pulled", "by averaging")),
    y_label="distance",
    caption="Distance between a model's weights before and after, in each round.",
)


@dataclass(frozen=True)
class DriftingGossip(Method):
    summary: ClassVar[str] = "gossip that shows how far training and averaging move the models"
    figures: ClassVar[tuple[Described, ...]] = (DRIFT,)

    k: int = parameter(3, "neighbours to average with in a round", common="neighbours")

    def check(self, peers: int) -> None:
        need_others(self.k, "k", peers)

    async def round(self, me: Peer) -> None:
        start = me.model.copy()
        await me.train()
        trained = me.model.copy()
        me.shelve("model", me.model)
        others = await me.fetch(me.sample(self.k), "model")
        me.model.load(mean([me.model, *others.values()]))
        moved, pulled = trained.vector - start.vector, me.model.vector - trained.vector
        me.note(moved=float(moved.norm()), pulled=float(pulled.norm()))
