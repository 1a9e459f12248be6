"""Measuring a peer's model at the end of a round: for whoever reads the report, never for the method."""

from __future__ import annotations

from dataclasses import replace

from coterie.events import PeerRound
from coterie.peer import Peer
from coterie.training import EvaluateJob
from coterie.training.jobs import Score


def is_due(round: int, every: int, rounds: int) -> bool:
    return round % every == 0 or round == rounds


def jobs_of(me: Peer) -> list[EvaluateJob]:
    """Its model as it is now, on its validation and on its test data; a server has neither."""
    if me.data is None:
        return []
    model = me.model.copy()
    return [EvaluateJob(model, me.data.validation), EvaluateJob(model, me.data.test)]


def measured(record: PeerRound, validation: Score, test: Score) -> PeerRound:
    return replace(record, validation=validation.accuracy, test=test.accuracy, loss=validation.finite_loss)
