"""IFCA: a server keeps c models; every client trains the one that fits its data best (Ghosh et al. 2020)."""

from dataclasses import dataclass
from typing import ClassVar

from coterie.core.artifact import sample_counts
from coterie.core.peer import Peer
from coterie.core.release import AVERAGE
from coterie.core.task import TASKS
from coterie.methods.base import Method, need, parameter
from coterie.methods.notes import Declared, Note


@dataclass(frozen=True)
class IFCA(Method):
    summary: ClassVar[str] = "a server keeps c models; each client trains and improves the one that fits it best"
    paper: ClassVar[str] = "Ghosh et al., An Efficient Framework for Clustered Federated Learning, 2020"
    server: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = TASKS
    notes: ClassVar[tuple[Declared, ...]] = (Note("cluster", curve=False),)  # an identifier

    c: int = parameter(2, "models that the server keeps: a guess at the number of clusters, at most `peers`", least=1)

    def check(self, peers: int) -> None:
        need(self.c <= peers, "c", f"must be at most the number of peers ({peers}), not {self.c}")

    async def setup(self, me: Peer) -> None:
        """All peers draw the same c models from the run's seed, so nothing is exchanged."""
        me.state["models"] = [me.initial(draw) for draw in range(self.c)]
        if me.id != me.server:
            await self.choose(me)

    async def round(self, me: Peer) -> None:
        before = me.reference()
        await me.train()
        me.shelve("update", me.model, reference=before, samples=me.samples, cluster=me.state["cluster"])
        for i, model in enumerate(me.state["models"]):
            for improved in (await me.fetch(me.server, f"model-{i}", like=model)).values():
                model.load(improved)
        await self.choose(me)
        me.note(cluster=me.state["cluster"])

    async def choose(self, me: Peer) -> None:
        """Load the model with the lowest loss on the peer's training data; on ties, the first."""
        scores = await me.evaluate(me.state["models"])
        me.state["cluster"] = best = min(range(self.c), key=lambda i: scores[i].rank)
        me.model.load(me.state["models"][best])

    async def serve(self, me: Peer) -> None:
        updates = await me.fetch(me.peers, "update", like=me.model, facts=["samples"])
        for i, model in enumerate(me.state["models"]):
            members = {j: update for j, update in updates.items() if update.facts.get("cluster") == i}
            if members:
                model.load(me.average(members, sample_counts(members)))
            me.shelve(f"model-{i}", model, made_from=AVERAGE)
