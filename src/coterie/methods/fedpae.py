"""FedPAE: each peer publishes its trained models, and selects its best ensemble from all published models.

No peer waits for another: a peer whose models are trained looks at what others have published, and again when there is
more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.core import randomness
from coterie.core.artifact import Fact
from coterie.core.ensemble import Ensemble, Member
from coterie.core.errors import ModelError
from coterie.core.model_registry import ONNX, ModelRegistry, Packed
from coterie.core.peer import Peer
from coterie.core.release import PARAMETERS, PORTABLE
from coterie.methods.base import parameter
from coterie.methods.components.ensemble_selection import Bench, choose
from coterie.methods.components.front_figure import FRONT
from coterie.methods.components.model_bench import ModelBench, bench_of
from coterie.methods.components.own_models import Own, author_of, is_ready, model_of, own_members, own_models
from coterie.methods.figures import Described
from coterie.methods.local_ensemble import LocalEnsemble
from coterie.methods.notes import BESIDE, Declared, Note, Predictor
from coterie.portable.estimators import holds_rows

BENCHES = {"models": "", "predictions": "on the peer's validation data; chosen models are fetched again"}
NEIGHBOURS = {"all": "", "adaptive": "those with chosen models, and a few others"}


@dataclass(frozen=True)
class FedPAE(ModelBench, LocalEnsemble):
    summary: ClassVar[str] = "any models, asynchronous: each peer picks the best ensemble from all published models"
    paper: ClassVar[str] = "Mueller et al., FedPAE: Peer-Adaptive Ensemble Learning, 2024"
    figures: ClassVar[tuple[Described, ...]] = (FRONT,)
    notes: ClassVar[tuple[Declared, ...]] = (
        Predictor("alone", "a peer's own models alone"),
        Note("own_share", curve=False, summary=BESIDE, label="own models among the chosen", form=".0%"),
    )
    unforeseen: ClassVar[str] = (
        "when models stop improving and are published: training to the last round is an upper bound, searches a guess"
    )

    k: int = parameter(5, "members of an ensemble; the whole bench while it has fewer", least=1)
    population: int = parameter(100, "ensembles in a generation of NSGA-II", least=2)
    generations: int = parameter(100, "generations of NSGA-II", least=1)
    growth: float = parameter(
        0.0, "share by which the bench must have grown to be searched again before the end", least=0
    )
    early: bool = parameter(False, "use others' models while the peer's own still train (which delays its own)")
    bench: str = parameter(
        "models",
        "what is kept of others",
        choices=BENCHES,
    )
    neighbours: str = parameter("all", "peers to ask", choices=NEIGHBOURS)
    few: int = parameter(3, "adaptive: number of others to ask each time", least=1)
    enough: int = parameter(
        3, "adaptive: stop asking others after this many times in a row without a chosen model", least=1
    )
    again: int = parameter(5, "adaptive: after that, still ask some others every this many times; 0: never", least=0)
    largest: int = parameter(100_000_000, "largest size of another peer's model, in bytes", least=1)
    rows_may_leave: bool = parameter(False, "publish also models that training rows can be read from (svm)")

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        super().check_circle(architectures, kinds, links)
        leaking = sorted({name for name in (*architectures, *kinds.zoo) if holds_rows(name)})
        if leaking and not self.rows_may_leave:
            raise ModelError(
                f"model.zoo: every peer that receives a {', '.join(leaking)} can read training rows from it. Remove "
                "it, or set method.rows_may_leave=true"
            )

    async def setup(self, me: Peer) -> None:
        await super().setup(me)
        me.state |= {"bench": {}, "digests": {}, "models": {}, "refused": [], "counts": {}}
        me.state |= {"chosen": [], "searched": 0, "fruitless": 0, "rested": 0}

    async def round(self, me: Peer) -> None:
        more = True
        if not is_ready(me):
            await self.train(me)
        elif me.round < me.rounds:
            more = await me.news()
        if more and (is_ready(me) or self.early):
            await self.gather(me)
            await self.select(me)
        while me.round == me.rounds and await me.news():  # stay for the models of slower peers
            await self.gather(me)
            await self.select(me)
        await self.use(me, last=me.round == me.rounds)

    async def ready(self, me: Peer, slot: int, own: Own) -> None:
        """Publish a model that will not change any more."""
        await super().ready(me, slot, own)
        packed: Packed = await me.compute(me.kinds.packed, model_of(me, own["kind"], own["best"]))
        made_from, before = PORTABLE, None
        if ONNX not in packed[0]:
            made_from = PARAMETERS
            before = self.initial(me, slot, own) if me.release_steps else None
        facts: dict[str, Fact] = {"of": len(me.state["own"]), "kind": packed[1]["kind"]}
        me.shelve(f"model-{slot}", packed[0], made_from=made_from, reference=before, **facts)
        me.state["searched"] = 0  # the last search used a worse version of it

    async def select(self, me: Peer, always: bool = False) -> None:
        """Search the bench if it has grown enough (`always`: if it has grown at all)."""
        own, others = own_models(me), sorted(me.state["bench"])
        names = [*own, *others]
        if not names:
            return
        bench = bench_of(me, own, others)
        new, before = len(others) - me.state["searched"], set(me.state["chosen"])
        if new > 0 and (always or new > self.growth * me.state["searched"]):
            seed = randomness.number(me.seed, me.id, *names) % 2**31  # not of the round: models come at any time
            sizes = {"population": self.population, "generations": self.generations}
            choice = await me.compute(choose, bench, self.k, vote=self.vote, seed=seed, **sizes)
            me.state["chosen"] = [names[i] for i in choice.members]
            me.state["searched"] = len(others)
            gained = set(me.state["chosen"]) - before - set(own)
            me.state["fruitless"] = 0 if gained else me.state["fruitless"] + 1
            me.note(front=choice.front, place=choice.place, **({"place_alone": choice.alone} if choice.alone else {}))
        self.keep_above_own(me, names, bench)

    def keep_above_own(self, me: Peer, names: list[str], bench: Bench) -> None:
        """Fall back to the peer's own models, which may have improved since the search, if they do better alone."""
        chosen = np.isin(names, me.state["chosen"])
        together, alone = bench.vote_merits(np.stack([chosen, bench.own]), self.vote)
        if bench.own.any() and (not chosen.any() or alone > together):
            chosen, together = bench.own, alone
        me.state["chosen"] = [name for name, is_chosen in zip(names, chosen, strict=True) if is_chosen]
        me.note(together=float(together), bench=len(names), **({"alone": float(alone)} if bench.own.any() else {}))

    async def use(self, me: Peer, last: bool) -> None:
        """Predict with the chosen ensemble. A model that cannot be had any more leaves the bench; then select again."""
        if last:
            await self.select(me, always=True)
        while missing := await self.obtain(me):
            for name in missing:
                del me.state["bench"][name]
            me.state["searched"] = 0
            await self.select(me, always=True)
        self.revive(me)
        if me.ensemble is not None:
            authors = [author_of(member.name) for member in me.ensemble.members]
            shares = {author: authors.count(author) / len(authors) for author in sorted(set(authors))}
            me.note(
                members=[member.name for member in me.ensemble.members], own_share=shares.get(me.id, 0.0),
                neighbours=sorted(set(authors) - {me.id}), weights=shares,
            )  # fmt: skip

    def revive(self, me: Peer) -> None:
        own, models = own_members(me), me.state.get("models", {})
        theirs = {name: Member(name, model_of(me, **models[name])) for name in models if name not in own}
        members = {**own, **theirs}
        chosen = me.state.get("chosen") or list(own)
        me.ensemble = self.ensemble(members[name] for name in chosen if name in members)
        me.beside = {"alone": Ensemble(tuple(own.values()), self.vote)} if own else {}
