"""Keeps the predictions of each peer's last and selected round, also for checkpoints of earlier rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple, TypedDict

import torch
from torch import Tensor

from coterie.core.events import PeerRound
from coterie.metrics import Selection, selected_round
from coterie.metrics.metric import Array


class Predicted(NamedTuple):
    """A peer's probabilities on its validation and test data, at the end of a round."""

    record: PeerRound
    probabilities: tuple[Array, Array]  # by split, (samples, classes)


class SavedPrediction(TypedDict):
    """A prediction in a checkpoint, with what selects a round."""

    peer: int
    round: int
    validation: float | None
    loss: float | None
    scores: dict[str, list[float | None]]
    probabilities: list[Tensor]  # by split


class LastAndSelected(NamedTuple):
    last: Predicted
    selected: Predicted


class Predictions:
    """Of every peer: what it predicted in its last and its selected round, of all rounds and up to each checkpoint.

    Peers may be many rounds apart, so a checkpoint of a round comes when some have done later ones. A run that resumes
    from it must end with the same predictions, so it needs those up to that round.
    """

    def __init__(self, selection: Selection, checkpoint_every: int = 0) -> None:
        """`checkpoint_every` is the number of rounds between checkpoints; 0: there are none."""
        self.selection, self.checkpoint_every = selection, checkpoint_every
        self._saved = 0  # the round of the last checkpoint
        self._of_peer: dict[int, list[Predicted]] = defaultdict(list)  # in order of rounds

    def see(self, record: PeerRound, probabilities: tuple[Array, Array]) -> None:
        """A peer has been measured; its rounds come in order."""
        self._of_peer[record.peer].append(Predicted(record, probabilities))
        self._drop_unneeded(record.peer)

    def of(self, peer: int, until: int | None = None) -> LastAndSelected | None:
        """What a peer predicted up to this round; None if it was not measured."""
        seen = [one for one in self._of_peer.get(peer, ()) if until is None or one.record.round <= until]
        if not seen:
            return None
        selected = selected_round([one.record for one in seen], self.selection)
        return LastAndSelected(seen[-1], next(one for one in seen if one.record is selected))

    def _drop_unneeded(self, peer: int) -> None:
        latest = self._of_peer[peer][-1].record.round
        every = self.checkpoint_every
        ahead = range(every * (self._saved // every + 1), latest, every) if every else ()
        self._of_peer[peer] = self._distinct(peer, [*ahead, latest])

    def _distinct(self, peer: int, rounds: Iterable[int]) -> list[Predicted]:
        """What the checkpoints of these rounds need of a peer, each once, in order."""
        needed = [one for until in rounds for one in self.of(peer, until) or ()]
        by_round = {one.record.round: one for one in needed}
        return [by_round[round] for round in sorted(by_round)]

    # -- checkpoints ---------------------------------------------------------------------------

    def state(self, round: int) -> list[SavedPrediction]:
        """For a checkpoint of this round: the predictions up to it."""
        return [_packed(one) for peer in sorted(self._of_peer) for one in self._distinct(peer, [round])]

    def saved(self, round: int) -> None:
        """The checkpoint of this round has been written."""
        self._saved = round
        for peer in list(self._of_peer):
            self._drop_unneeded(peer)

    def restore(self, state: Iterable[SavedPrediction], round: int) -> None:
        self._saved = round
        for one in state:
            self.see(*_unpacked(one))


def _packed(one: Predicted) -> SavedPrediction:
    r = one.record
    return {
        "peer": r.peer, "round": r.round, "validation": r.validation, "loss": r.loss, "scores": r.scores,
        "probabilities": [torch.from_numpy(of_split) for of_split in one.probabilities],
    }  # fmt: skip


def _unpacked(saved: SavedPrediction) -> Predicted:
    record = PeerRound(
        saved["peer"], saved["round"], 0.0, validation=saved["validation"], loss=saved["loss"], scores=saved["scores"]
    )
    validation, test = (of_split.numpy() for of_split in saved["probabilities"])
    return Predicted(record, (validation, test))
