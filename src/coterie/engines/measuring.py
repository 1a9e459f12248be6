"""Measures each peer's model or ensembles at the end of a round, for the report only: methods never see the scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from coterie.core.ensemble import Ensemble, Member, voted
from coterie.core.events import SPLITS, PeerRound
from coterie.core.jobs import AnyJob, EvaluateJob, Score, Split
from coterie.core.model import Model
from coterie.core.peer import Peer, held_by
from coterie.core.peer_data import PeerData
from coterie.core.task import REGRESSION, task_of
from coterie.metrics import ACCURACY_ONLY, Evaluation
from coterie.metrics.computing import ByMetric, Outputs, scores_of
from coterie.metrics.metric import Array
from coterie.training import Trainer
from coterie.training.portables import score


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
    """A peer's scores on each split, and those of its further ensembles, by name."""

    validation: Score
    test: Score
    beside: dict[str, dict[str, Any]]
    scores: ByMetric | None = None  # by metric other than accuracy; None: there are none
    predicted: tuple[Array, Array] | None = None  # probabilities on each split, if predictions are kept

    def onto(self, record: PeerRound) -> PeerRound:
        notes = {**record.notes, "beside": self.beside} if self.beside else record.notes
        (validation, test), loss = map(_accuracy, (self.validation, self.test)), self.validation.finite_loss
        return PeerRound(
            record.peer, record.round, record.time, validation, test, loss, record.bytes, record.messages, notes,
            self.scores or {},
        )  # fmt: skip


def _accuracy(score: Score) -> float | None:
    return None if math.isnan(score.accuracy) else score.accuracy  # predicted numbers have none


class _Outcome(NamedTuple):
    """A predictor on one split; `outputs` is None if loss and accuracy are enough."""

    score: Score
    outputs: Outputs | None = None


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


def score_all(
    measures: Sequence[Measure], trainer: Trainer, evaluation: Evaluation = ACCURACY_ONLY
) -> list[Measured | None]:
    """The scores of each, all computed at once; None for a server."""
    with_model = [m for m in measures if m.model is not None]
    # One split after the other, so that models that are adjacent in memory stay adjacent in the batch.
    outcomes = _of_models([(m, split) for split in SPLITS for m in with_model], trainer, evaluation)
    of_models = iter(zip(outcomes[: len(with_model)], outcomes[len(with_model) :], strict=True))
    _predict_members([m for m in measures if m.ensembles], trainer)
    predictors: list[dict[str, list[_Outcome]]] = []  # by measure, then by name: on each split
    for m in measures:
        by_name = {n: [_vote(m.me, one, split, evaluation) for split in SPLITS] for n, one in m.ensembles.items()}
        if m.model is not None:
            by_name[""] = [*next(of_models)]
        predictors.append(by_name)
    scores = iter(_further_scores(predictors, evaluation))
    return [
        _measured(by_name, {name: next(scores, None) for name in by_name}, evaluation) if by_name else None
        for by_name in predictors
    ]


def _of_models(measures: Sequence[tuple[Measure, str]], trainer: Trainer, evaluation: Evaluation) -> list[_Outcome]:
    jobs = [m.job(split) for m, split in measures]
    if not evaluation.needs_outputs:
        return [_Outcome(score) for score in trainer.evaluate(jobs)]
    measured = zip(measures, trainer.measure(jobs), strict=True)
    return [_Outcome(done.score, _outputs(m.me, done.answers, done.labels)) for (m, _), done in measured]


def _outputs(me: Peer, answers: Array, labels: Array) -> Outputs:
    """With numbers in their own unit."""
    scaling = _data(me).label_scaling
    return Outputs(answers, labels) if scaling is None else Outputs(scaling.restored(answers), scaling.restored(labels))


def _further_scores(predictors: Sequence[dict[str, list[_Outcome]]], evaluation: Evaluation) -> list[ByMetric]:
    """The metrics other than accuracy of all predictors, in their order; empty if there are none."""
    if not evaluation.metrics:
        return []
    pairs = [[o.outputs for o in outcomes] for by_name in predictors for outcomes in by_name.values()]
    return scores_of(evaluation, [(v, t) for v, t in pairs if v is not None and t is not None])


def _measured(
    by_name: dict[str, list[_Outcome]], scores: dict[str, ByMetric | None], evaluation: Evaluation
) -> Measured:
    validation, test = by_name.pop("")
    beside: dict[str, dict[str, Any]] = {}
    for name, both in by_name.items():
        beside[name] = dict(zip(SPLITS, [_accuracy(o.score) for o in both], strict=True))
        if scores[name]:
            beside[name]["scores"] = scores[name]
    predicted = None
    if evaluation.predictions and validation.outputs and test.outputs:
        # Numbers keep their digits: they may differ little in comparison to their size.
        kind = np.float32 if evaluation.classes else np.float64
        predicted = validation.outputs.values.astype(kind), test.outputs.values.astype(kind)
    return Measured(validation.score, test.score, beside, scores[""], predicted)


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
        _data(me).predicted[key] = prediction.logits.new_empty(0) if prediction.trouble else prediction.answers


def _vote(me: Peer, ensemble: Ensemble, split: str, evaluation: Evaluation) -> _Outcome:
    """The score of an ensemble's voted answers; a vote without members predicts nothing."""
    answers = [_data(me).predicted[member.name, split] for member in ensemble.members]
    voting = [i for i, of_member in enumerate(answers) if len(of_member)]
    labels = _split(me, split).y
    if not voting:
        accuracy = math.nan if evaluation.task == REGRESSION else 0.0
        nothing = np.full((len(labels), evaluation.classes) if evaluation.classes else len(labels), np.nan)
        return _Outcome(Score(math.nan, accuracy), _outputs(me, nothing, labels.cpu().numpy()))
    weights = [ensemble.weights[i] for i in voting] if ensemble.weights else ()
    vote = voted([answers[i] for i in voting], ensemble.vote, weights)
    if not evaluation.needs_outputs:
        return _Outcome(score(vote, labels))
    return _Outcome(score(vote, labels), _outputs(me, _exact(vote), labels.cpu().numpy()))


def _exact(vote: Tensor) -> Array:
    """In double precision: float32 probabilities sum to 1 only approximately."""
    exact = vote.double()
    if task_of(vote.shape[1]) == REGRESSION:
        return exact.squeeze(1).cpu().numpy()
    return (exact / exact.sum(1, keepdim=True)).cpu().numpy()
