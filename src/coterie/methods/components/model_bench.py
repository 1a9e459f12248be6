"""The bench of models that other peers published: gathering them, whom to ask, and fetching chosen ones again (FedPAE).

By name, `me.state` holds each model's predictions on the peer's validation data ("bench"), the model itself ("models")
or its digest ("digests"), and the names of unusable ones ("refused"); by peer, its claimed number of models ("counts").
"""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from coterie.core.artifact import Artifact, Fact
from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.core.portable_model import Portable
from coterie.methods.components.ensemble_selection import Bench
from coterie.methods.components.own_models import Own, author_of, frozen, name_of, own_models

MOST_MODELS = 100  # of one peer, whatever number it claims


class ModelBench:
    """A mixin of methods with these parameters."""

    bench: str
    neighbours: str
    few: int
    enough: int
    again: int
    largest: int

    async def gather(self, me: Peer) -> None:
        """Fetch models that the bench lacks, and compute their predictions on the peer's validation data."""
        bench, counts, refused = me.state["bench"], me.state["counts"], me.state["refused"]
        asked, usual = self.whom(me), len(me.state["own"])
        for slot in range(max([usual, *counts.values()])):
            seen = {*bench, *refused}
            wanted = [j for j in asked if name_of(j, slot) not in seen and slot < counts.get(j, usual)]
            artifacts, declined = await self.fetch_models(me, wanted, f"model-{slot}")
            counts.update({j: count_of(artifact.facts) for j, artifact in artifacts.items()})
            models = me.opened(artifacts, self.largest)
            predictions = await self.predictions(me, models)
            refused += [name_of(j, slot) for j in [*declined, *artifacts] if j not in predictions]
            for j, probabilities in predictions.items():
                self.keep(me, name_of(j, slot), models[j], probabilities)

    async def fetch_models(self, me: Peer, wanted: Sequence[int], name: str) -> tuple[dict[int, Artifact], list[int]]:
        """The artifacts of this name, and the peers whose artifact was declined: it need not be fetched again."""
        earlier = me.notes.pop("declined", {})
        artifacts = await me.fetch(wanted, name)
        declined = list(me.notes.get("declined", {}))
        me.decline(earlier)
        return artifacts, declined

    async def predictions(self, me: Peer, models: Mapping[int, Model | Portable]) -> dict[int, Tensor]:
        """Each model's answers on the peer's validation data; models without usable predictions are declined."""
        if not models:
            return {}
        outputs = dict(zip(models, await me.predict(models.values(), "validation"), strict=True))
        unusable = {j: output for j, output in outputs.items() if not output.logits.isfinite().all()}
        reasons = {j: output.trouble or "its predictions are not numbers" for j, output in unusable.items()}
        me.decline(reasons)
        return {j: output.answers for j, output in outputs.items() if j not in reasons}

    def keep(self, me: Peer, name: str, model: Model | Portable, probabilities: Tensor) -> None:
        me.state["bench"][name] = probabilities
        if self.bench == "models":
            me.state["models"][name] = stored(model)
        else:
            me.state["digests"][name] = digest(model)

    def whom(self, me: Peer) -> list[int]:
        """The peers to ask for models."""
        if self.neighbours == "all":
            return list(me.peers)
        chosen = {author_of(name) for name in me.state["chosen"]} & set(me.peers)
        strangers = me.sample(self.few, but=self.exhausted(me)) if self.explores(me) else []
        return sorted(chosen | set(strangers))

    def explores(self, me: Peer) -> bool:
        """Whether to ask also peers whose models were not chosen: until that failed often enough, then rarely."""
        # The number of times since such peers were asked; checkpoints of older versions lack it.
        rested: int = me.state.get("rested", 0)
        explores: bool = me.state["fruitless"] < self.enough or 0 < self.again <= rested + 1
        me.state["rested"] = 0 if explores else rested + 1
        return explores

    def exhausted(self, me: Peer) -> set[int]:
        """The peers with nothing more to offer: all models that they say they have are on the bench, or refused."""
        seen = {*me.state["bench"], *me.state["refused"]}
        counts: dict[int, int] = me.state["counts"]
        return {j for j, count in counts.items() if all(name_of(j, slot) in seen for slot in range(count))}

    async def obtain(self, me: Peer) -> list[str]:
        """Fetch the chosen models of others that are not stored. Returns the names of those that cannot be had.

        A peer may now have another model under that name: it is refused for good. Or the peer may be gone: if it comes
        back, its model is considered again.
        """
        models, own = me.state["models"], own_models(me)
        theirs = [name for name in me.state["chosen"] if name not in own]
        for name in [name for name in theirs if name not in models]:
            artifacts = await me.fetch(author_of(name), name.partition("/")[2])
            for model in me.opened(artifacts, self.largest).values():
                if digest(model) == me.state["digests"][name]:
                    models[name] = stored(model)
            if artifacts and name not in models:
                me.state["refused"].append(name)
        if self.bench == "predictions":
            me.state["models"] = {name: model for name, model in models.items() if name in theirs}
        return [name for name in theirs if name not in models]


def bench_of(me: Peer, own: Mapping[str, Own], others: Sequence[str]) -> Bench:
    """The predictions of the peer's own models and of these others, in this order."""
    rows = torch.stack([*(model["probabilities"] for model in own.values()), *(me.state["bench"][n] for n in others)])
    labels = me.labels("validation").cpu().numpy()
    return Bench(rows.cpu().double().numpy(), labels, np.arange(len(rows)) < len(own), me.judge)


def count_of(facts: Mapping[str, Fact]) -> int:
    """The number of models that a peer says it has."""
    count = facts.get("of", 1)
    return int(min(max(count, 1), MOST_MODELS)) if isinstance(count, int | float) else 1


def stored(model: Model | Portable) -> dict[str, object]:
    """A model in the form that checkpoints hold: the arguments of `model_of`."""
    return {"kind": model.kind if isinstance(model, Portable) else model.architecture.name, "content": frozen(model)}


def digest(model: Model | Portable) -> str:
    if isinstance(model, Portable):
        return model.digest
    return hashlib.sha256(model.vector.cpu().numpy().tobytes()).hexdigest()
