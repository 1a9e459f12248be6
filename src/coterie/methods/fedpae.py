"""FedPAE: everybody publishes models when they are ready, and picks from all of them the ensemble that serves it best.

Nobody waits for anybody: who is ready looks at what others have published, and again whenever there is more.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from coterie.core import randomness
from coterie.core.artifact import Artifact, Fact
from coterie.core.ensemble import Ensemble, Member
from coterie.core.errors import ModelError
from coterie.core.model import Model
from coterie.core.model_registry import ModelRegistry, Packed
from coterie.core.peer import Peer
from coterie.core.portable_model import Portable
from coterie.methods.base import need, parameter
from coterie.methods.ensembles import Bench, choose
from coterie.methods.own_models import (
    LocalEnsemble,
    Own,
    author_of,
    frozen,
    is_ready,
    model_of,
    name_of,
    own_members,
    own_models,
)
from coterie.portable.estimators import holds_rows

BENCHES, NEIGHBOURS = ("models", "predictions"), ("all", "adaptive")
LEAST = {"k": 1, "population": 2, "generations": 1, "few": 1, "enough": 1, "again": 0, "largest": 1}
MOST_MODELS = 100  # of one peer, whatever it says


@dataclass(frozen=True)
class FedPAE(LocalEnsemble):
    summary: ClassVar[str] = "any models, nobody waits: pick the best ensemble of everybody's models"
    paper: ClassVar[str] = "Mueller et al., FedPAE: Peer-Adaptive Ensemble Learning, 2024"
    unforeseen: ClassVar[str] = (
        "when models get no better, and are ready: training to the last round is an upper bound, searches are a guess"
    )

    k: int = parameter(5, "members of an ensemble; all of the bench while it has fewer")
    population: int = parameter(100, "ensembles in a generation of NSGA-II")
    generations: int = parameter(100, "generations of NSGA-II")
    growth: float = parameter(0.0, "share by which the bench must have grown to be searched again before the end")
    early: bool = parameter(False, "use others' models while one's own still train (which delays those)")
    bench: str = parameter(
        "models",
        "what is kept of others: models | predictions on one's validation data (and the chosen are fetched again)",
    )
    neighbours: str = parameter("all", "whom to ask: all | adaptive (those whose models were chosen, and a few others)")
    few: int = parameter(3, "adaptive: how many others each time")
    enough: int = parameter(3, "adaptive: after so many times that none of theirs was chosen, ask no others")
    again: int = parameter(5, "adaptive: after that, ask some others every so many times all the same; 0: never")
    largest: int = parameter(100_000_000, "bytes that somebody else's model may have")
    rows_may_leave: bool = parameter(False, "publish also models that training rows can be read from (svm)")

    def check(self, peers: int) -> None:
        super().check(peers)
        for key, least in LEAST.items():
            need(getattr(self, key) >= least, key, f"must be at least {least}, not {getattr(self, key)}")
        for key, options in (("bench", BENCHES), ("neighbours", NEIGHBOURS)):
            need(getattr(self, key) in options, key, f"must be one of {', '.join(options)}, not '{getattr(self, key)}'")
        need(self.growth >= 0, "growth", f"must be at least 0, not {self.growth}")

    def check_circle(
        self, architectures: Sequence[str], kinds: ModelRegistry, links: Sequence[Sequence[int]] | None
    ) -> None:
        super().check_circle(architectures, kinds, links)
        telling = sorted({name for name in (*architectures, *kinds.zoo) if holds_rows(name)})
        if telling and not self.rows_may_leave:
            raise ModelError(
                f"model.zoo: whoever gets a {', '.join(telling)} can read training rows from it. Leave it out, or say "
                "method.rows_may_leave=true"
            )

    async def setup(self, me: Peer) -> None:
        await super().setup(me)
        # By name: what others' models say of one's validation data, which they were, and themselves if kept.
        me.state |= {"bench": {}, "digests": {}, "models": {}, "refused": [], "counts": {}}
        me.state |= {"chosen": [], "searched": 0, "fruitless": 0, "rested": 0}

    async def round(self, me: Peer, t: int) -> None:
        more = True
        if not is_ready(me):
            await self.train(me, t)
        elif t < me.rounds:
            more = await me.news()
        if more and (is_ready(me) or self.early):
            await self.look(me)
            await self.select(me)
        while t == me.rounds and await me.news():  # stay for what those bring who are slower
            await self.look(me)
            await self.select(me)
        await self.use(me, last=t == me.rounds)

    async def ready(self, me: Peer, slot: int, own: Own) -> None:
        await super().ready(me, slot, own)
        assert me.kinds is not None
        packed: Packed = await me.compute(me.kinds.packed, model_of(me, own["kind"], own["best"]))
        me.shelve(f"model-{slot}", packed[0], of=len(me.state["own"]), **packed[1])
        me.state["searched"] = 0  # a search with a lesser one does not count

    # -- gathering -----------------------------------------------------------------------------

    async def look(self, me: Peer) -> None:
        """Ask for what one does not have yet, and hear what it says of one's validation data."""
        bench, counts, refused = me.state["bench"], me.state["counts"], me.state["refused"]
        asked, usual = self.whom(me), len(me.state["own"])
        for slot in range(max([usual, *counts.values()])):
            had = {*bench, *refused}
            wanted = [j for j in asked if name_of(j, slot) not in had and slot < counts.get(j, usual)]
            found, unfit = await self.ask(me, wanted, f"model-{slot}")
            counts.update({j: count_of(artifact.facts) for j, artifact in found.items()})
            models = me.opened(found, self.largest)
            said = await self.hear(me, models)
            refused += [name_of(j, slot) for j in [*unfit, *found] if j not in said]
            for j, probabilities in said.items():
                self.keep(me, name_of(j, slot), models[j], probabilities)

    async def ask(self, me: Peer, wanted: Sequence[int], name: str) -> tuple[dict[int, Artifact], list[int]]:
        """What these peers have under this name, and whose was declined on its way: that need not come again."""
        earlier = me.notes.pop("declined", {})
        found = await me.fetch(wanted, name)
        unfit = list(me.notes.get("declined", {}))
        me.decline(earlier)
        return found, unfit

    async def hear(self, me: Peer, models: Mapping[int, Model | Portable]) -> dict[int, Tensor]:
        """What each says of one's validation data; those that say nothing that can be used are declined."""
        if not models:
            return {}
        said = dict(zip(models, await me.predict(models.values(), "validation"), strict=True))
        unusable = {j: s for j, s in said.items() if not s.logits.isfinite().all()}
        wrong = {j: s.trouble or "its predictions are not numbers" for j, s in unusable.items()}
        me.decline(wrong)
        return {j: s.logits.softmax(1) for j, s in said.items() if j not in wrong}

    def keep(self, me: Peer, name: str, model: Model | Portable, probabilities: Tensor) -> None:
        me.state["bench"][name] = probabilities
        if self.bench == "models":
            me.state["models"][name] = kept(model)
        else:
            me.state["digests"][name] = digest(model)

    def whom(self, me: Peer) -> list[int]:
        if self.neighbours == "all":
            return list(me.peers)
        chosen = {author_of(name) for name in me.state["chosen"]} & set(me.peers)
        strangers = me.sample(self.few, but=self.heard_out(me)) if self.curious(me) else []
        return sorted(chosen | set(strangers))

    def curious(self, me: Peer) -> bool:
        """Whether to ask others than those whose models serve: until that was in vain often enough, then rarely."""
        # The times since others were asked; checkpoints of older versions lack it.
        rested: int = me.state.get("rested", 0)
        curious: bool = me.state["fruitless"] < self.enough or 0 < self.again <= rested + 1
        me.state["rested"] = 0 if curious else rested + 1
        return curious

    def heard_out(self, me: Peer) -> set[int]:
        """Those who have nothing more to offer: all models that they say they have were heard, or refused."""
        had = {*me.state["bench"], *me.state["refused"]}
        counts: dict[int, int] = me.state["counts"]
        return {j for j, count in counts.items() if all(name_of(j, slot) in had for slot in range(count))}

    # -- choosing ------------------------------------------------------------------------------

    async def select(self, me: Peer, whatever: bool = False) -> None:
        """Search the bench if it has grown (enough); then see that one's own models alone do not do better."""
        own, others = own_models(me), sorted(me.state["bench"])
        names = [*own, *others]
        if not names:
            return
        bench = bench_of(me, own, others)
        new, before = len(others) - me.state["searched"], set(me.state["chosen"])
        if new > 0 and (whatever or new > self.growth * me.state["searched"]):
            seed = randomness.number(me.seed, me.id, *names) % 2**31  # not of the round: models come at any time
            sizes = {"population": self.population, "generations": self.generations}
            choice = await me.compute(choose, bench, self.k, vote=self.vote, seed=seed, **sizes)
            me.state["chosen"] = [names[i] for i in choice.members]
            me.state["searched"] = len(others)
            gained = set(me.state["chosen"]) - before - set(own)
            me.state["fruitless"] = 0 if gained else me.state["fruitless"] + 1
            me.note(front=choice.front, place=choice.place, **({"place_alone": choice.alone} if choice.alone else {}))
        self.stay_above_own(me, names, bench)

    def stay_above_own(self, me: Peer, names: list[str], bench: Bench) -> None:
        """One's own models may have learned since the search: nobody does worse than alone, at any time."""
        chosen = np.isin(names, me.state["chosen"])
        together, alone = bench.vote_accuracy(np.stack([chosen, bench.own]), self.vote)
        if bench.own.any() and (not chosen.any() or alone > together):
            chosen, together = bench.own, alone
        me.state["chosen"] = [name for name, one in zip(names, chosen, strict=True) if one]
        me.note(together=float(together), bench=len(names), **({"alone": float(alone)} if bench.own.any() else {}))

    # -- using ---------------------------------------------------------------------------------

    async def use(self, me: Peer, last: bool) -> None:
        """Predict with what was chosen. What cannot be had any more is off the bench, and one chooses again."""
        if last:
            await self.select(me, whatever=True)
        while missing := await self.obtain(me):
            for name in missing:
                del me.state["bench"][name]
            me.state["searched"] = 0
            await self.select(me, whatever=True)
        self.revive(me)
        if me.ensemble is not None:
            authors = [author_of(member.name) for member in me.ensemble.members]
            shares = {author: authors.count(author) / len(authors) for author in sorted(set(authors))}
            me.note(
                members=[member.name for member in me.ensemble.members], own_share=shares.get(me.id, 0.0),
                neighbours=sorted(set(authors) - {me.id}), weights=shares,
            )  # fmt: skip

    async def obtain(self, me: Peer) -> list[str]:
        """See that the chosen models of others are at hand; those that are not are fetched again. Returns the missing.

        Somebody may have another model under that name than the one that one heard: that is refused for good. Or be
        gone by now: who comes back is heard again.
        """
        models, own = me.state["models"], own_models(me)
        theirs = [name for name in me.state["chosen"] if name not in own]
        for name in [name for name in theirs if name not in models]:
            found = await me.fetch(author_of(name), name.partition("/")[2])
            for model in me.opened(found, self.largest).values():
                if digest(model) == me.state["digests"][name]:
                    models[name] = kept(model)
            if found and name not in models:
                me.state["refused"].append(name)
        if self.bench == "predictions":
            me.state["models"] = {name: model for name, model in models.items() if name in theirs}
        return [name for name in theirs if name not in models]

    def revive(self, me: Peer) -> None:
        own, models = own_members(me), me.state.get("models", {})
        theirs = {name: Member(name, model_of(me, **models[name])) for name in models if name not in own}
        members = {**own, **theirs}
        chosen = me.state.get("chosen") or list(own)
        me.ensemble = self.ensemble(members[name] for name in chosen if name in members)
        me.beside = {"alone": Ensemble(tuple(own.values()), self.vote)} if own else {}


def bench_of(me: Peer, own: Mapping[str, Own], others: Sequence[str]) -> Bench:
    said = torch.stack([*(model["probabilities"] for model in own.values()), *(me.state["bench"][n] for n in others)])
    labels = me.labels("validation").cpu().numpy()
    return Bench(said.cpu().double().numpy(), labels, np.arange(len(said)) < len(own))


def count_of(facts: Mapping[str, Fact]) -> int:
    """How many models somebody says it has."""
    count = facts.get("of", 1)
    return int(min(max(count, 1), MOST_MODELS)) if isinstance(count, int | float) else 1


def kept(model: Model | Portable) -> dict[str, object]:
    """A model as a checkpoint can keep it."""
    return {"kind": model.kind if isinstance(model, Portable) else model.architecture.name, "content": frozen(model)}


def digest(model: Model | Portable) -> str:
    if isinstance(model, Portable):
        return model.digest
    return hashlib.sha256(model.vector.cpu().numpy().tobytes()).hexdigest()
