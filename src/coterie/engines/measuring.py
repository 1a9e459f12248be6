"""Measures each peer's model or ensembles at the end of a round, for the report only: methods never see the scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from coterie.core.ensemble import Ensemble, Member, voted
from coterie.core.events import PeerRound
from coterie.core.jobs import AnyJob, EvaluateJob, Score, Split
from coterie.core.model import Model
from coterie.core.peer import Peer, PeerData, held_by
from coterie.training import Trainer
from coterie.training.portables import score

SPLITS = ("validation", "test")


def is_due(round: int, every: int, rounds: int) -> bool:
    return round % every == 0 or round == rounds


@dataclass(eq=False)
class Measure:
    """A peer's model and ensembles at the end of a round, to be measured."""

    me: Peer
    model: Model | None = None  # None: it predicts with an ensemble, or is a server
    ensembles: dict[str, Ensemble] = field(default_factory=dict)  # "" is the one it predicts with, if not its model

    def keep(self, copied: Callable[[Model], Model]) -> None:
        """Copy the model, because the peer will change it before it is measured."""
        if self.model is not None:
            self.model = copied(self.model)

    def job(self, split: str) -> EvaluateJob:
        assert self.model is not None
        return EvaluateJob(self.model, _split(self.me, split))


class Measured(NamedTuple):
    """A peer's scores on each split, and the accuracies of its further ensembles, by name."""

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
    if held_by(me) is None:  # a server
        return Measure(me)
    if me.ensemble is not None:
        return Measure(me, ensembles={**me.beside, "": me.ensemble})
    return Measure(me, me.model, dict(me.beside))


def _data(me: Peer) -> PeerData:
    """The data of a peer, test rows included, which only engines have."""
    data = held_by(me)
    assert data is not None  # only peers with data have something to measure
    return data


def _split(me: Peer, name: str) -> Split:
    split: Split = getattr(_data(me), name)
    return split


def score_all(measures: Sequence[Measure], trainer: Trainer) -> list[Measured | None]:
    """The scores of each, all computed at once; None for a server."""
    with_model = [m for m in measures if m.model is not None]
    # One split after the other, so that models that are adjacent in memory stay adjacent in the batch.
    scores = trainer.evaluate([m.job(split) for split in SPLITS for m in with_model])
    of_models = iter(zip(scores[: len(with_model)], scores[len(with_model) :], strict=True))
    _predict_members([m for m in measures if m.ensembles], trainer)
    measured = []
    for m in measures:
        by_name = {name: [_score(m.me, ensemble, split) for split in SPLITS] for name, ensemble in m.ensembles.items()}
        if m.model is not None:
            by_name[""] = [*next(of_models)]
        measured.append(_measured(by_name) if by_name else None)
    return measured


def _measured(by_name: dict[str, list[Score]]) -> Measured:
    validation, test = by_name.pop("")
    beside = {name: dict(zip(SPLITS, [s.accuracy for s in both], strict=True)) for name, both in by_name.items()}
    return Measured(validation, test, beside)


# -- ensembles -----------------------------------------------------------------------------------


def _members(m: Measure) -> dict[str, Member]:
    return {member.name: member for ensemble in m.ensembles.values() for member in ensemble.members}


def _predict_members(measures: Sequence[Measure], trainer: Trainer) -> None:
    """Cache the predictions of every member on its peer's data: the model of a name never changes."""
    pending: list[tuple[Peer, tuple[str, str], AnyJob]] = []
    for m in measures:
        members, predicted = _members(m), _data(m.me).predicted
        for key in [key for key in predicted if key[0] not in members]:
            del predicted[key]
        for member, split in product(members.values(), SPLITS):
            if (member.name, split) not in predicted:
                pending.append((m.me, (member.name, split), m.me.job(member.model, _split(m.me, split))))
    for (me, key, _), prediction in zip(pending, trainer.predict([job for *_, job in pending]), strict=True):
        # A member that cannot be run has no vote.
        _data(me).predicted[key] = (
            prediction.logits.new_empty(0) if prediction.trouble else prediction.logits.softmax(1)
        )


def _score(me: Peer, ensemble: Ensemble, split: str) -> Score:
    probabilities = [_data(me).predicted[member.name, split] for member in ensemble.members]
    voting = [i for i, of_member in enumerate(probabilities) if len(of_member)]
    if not voting:
        return Score(float("nan"), 0.0)
    weights = [ensemble.weights[i] for i in voting] if ensemble.weights else ()
    return score(voted([probabilities[i] for i in voting], ensemble.vote, weights), _split(me, split).y)
