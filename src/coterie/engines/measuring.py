"""Measuring what a peer predicts with at the end of a round: for whoever reads the report, never for the method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from coterie.core.ensemble import Ensemble, Member, voted
from coterie.core.events import PeerRound
from coterie.core.jobs import AnyJob, EvaluateJob, Score
from coterie.core.model import Model
from coterie.core.peer import Peer
from coterie.training import Trainer
from coterie.training.portables import score

SPLITS = ("validation", "test")


def is_due(round: int, every: int, rounds: int) -> bool:
    return round % every == 0 or round == rounds


@dataclass(eq=False)
class Measure:
    """A peer's model and ensembles, as they were when its round ended."""

    me: Peer
    model: Model | None = None  # None: it predicts with an ensemble, or is a server
    ensembles: dict[str, Ensemble] = field(default_factory=dict)  # "" is what it predicts with, if not its model

    def keep(self, copied: Callable[[Model], Model]) -> None:
        """The peer goes on, and will change its model before it is measured."""
        if self.model is not None:
            self.model = copied(self.model)

    def job(self, split: str) -> EvaluateJob:
        assert self.model is not None
        return EvaluateJob(self.model, getattr(self.me.data, split))


class Measured(NamedTuple):
    """How good what a peer predicts with is, on each split; and accuracies of what else it had measured, by name."""

    validation: Score
    test: Score
    beside: dict[str, dict[str, float]]

    def onto(self, record: PeerRound) -> PeerRound:
        notes = {**record.notes, "beside": self.beside} if self.beside else record.notes
        validation, test, loss = self.validation.accuracy, self.test.accuracy, self.validation.finite_loss
        return PeerRound(
            record.peer, record.round, record.time, validation, test, loss, record.bytes, record.messages, notes
        )


def measure_of(me: Peer) -> Measure:
    if me.data is None:  # a server
        return Measure(me)
    if me.ensemble is not None:
        return Measure(me, ensembles={**me.beside, "": me.ensemble})
    return Measure(me, me.model, dict(me.beside))


def settle(measures: Sequence[Measure], trainer: Trainer) -> list[Measured | None]:
    """What was measured of each, everybody's at once; None of a server."""
    with_model = [m for m in measures if m.model is not None]
    # One split after the other: models that lie side by side are then asked for side by side.
    scores = trainer.evaluate([m.job(split) for split in SPLITS for m in with_model])
    of_models = iter(zip(scores[: len(with_model)], scores[len(with_model) :], strict=True))
    _let_members_speak([m for m in measures if m.ensembles], trainer)
    settled = []
    for m in measures:
        found = {name: [_score(m.me, ensemble, split) for split in SPLITS] for name, ensemble in m.ensembles.items()}
        if m.model is not None:
            found[""] = [*next(of_models)]
        settled.append(_measured(found) if found else None)
    return settled


def _measured(found: dict[str, list[Score]]) -> Measured:
    validation, test = found.pop("")
    beside = {name: dict(zip(SPLITS, [s.accuracy for s in both], strict=True)) for name, both in found.items()}
    return Measured(validation, test, beside)


# -- ensembles -----------------------------------------------------------------------------------


def _members(m: Measure) -> dict[str, Member]:
    return {member.name: member for ensemble in m.ensembles.values() for member in ensemble.members}


def _let_members_speak(measures: Sequence[Measure], trainer: Trainer) -> None:
    """What every member says of its peer's data, once: a name's model never changes."""
    asked: list[tuple[Peer, tuple[str, str], AnyJob]] = []
    for m in measures:
        members = _members(m)
        m.me.said = {key: said for key, said in m.me.said.items() if key[0] in members}
        for member, split in product(members.values(), SPLITS):
            if (member.name, split) not in m.me.said:
                asked.append((m.me, (member.name, split), m.me.job(member.model, getattr(m.me.data, split))))
    for (me, key, _), found in zip(asked, trainer.predict([job for *_, job in asked]), strict=True):
        # Who cannot be run has no voice.
        me.said[key] = found.logits.new_empty(0) if found.trouble else found.logits.softmax(1)


def _score(me: Peer, ensemble: Ensemble, split: str) -> Score:
    said = [me.said[member.name, split] for member in ensemble.members]
    heard = [i for i, voice in enumerate(said) if len(voice)]
    if not heard:
        return Score(float("nan"), 0.0)
    weights = [ensemble.weights[i] for i in heard] if ensemble.weights else ()
    return score(voted([said[i] for i in heard], ensemble.vote, weights), me.labels(split))
