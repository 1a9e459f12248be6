"""Counts what has been shelved, and the times when nothing more would come, for participants that wait for news.

A checkpoint holds each participant as it was when *it* ended a round, slow ones later than fast ones. So events before
the slow ones ended may lie in the future of the fast ones, which must be told of them at the same time as before.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict


class Shelving(NamedTuple):
    time: float
    round: int  # of its author


class Silence(NamedTuple):
    """A time when all participants waited for news and were told that there is none."""

    time: float
    number: int


class _CutStart(NamedTuple):
    """The start of a checkpoint, when the first participant has ended its round."""

    time: float
    shelved: int


class SavedNews(TypedDict):
    shelved: int
    shelvings: list[list[float]]  # of each, its time and the round of its author
    silences: list[list[float]]  # of each, its time and number


class NewsLog:
    def __init__(self) -> None:
        self.shelvings_ahead: list[Shelving] = []  # after a resume: future ones that the checkpoint recorded
        self.silences_ahead: list[Silence] = []
        self._shelved = 0  # artifacts, up to now
        self._silences = 0
        self._last_silence: list[Silence] = []
        # while a checkpoint is collected
        self._cuts: dict[int, _CutStart] = {}
        self._kept_shelvings: list[tuple[int, Shelving]] = []
        self._kept_silences: list[Silence] = []

    def shelve(self, time: float, round: int) -> None:
        self.shelved_by(time)
        self._count(Shelving(time, round))

    def shelved_by(self, time: float) -> int:
        """How many artifacts have been shelved by this time, which must not decrease between calls."""
        while self.shelvings_ahead and self.shelvings_ahead[0].time <= time:
            self._count(self.shelvings_ahead.pop(0))
        return self._shelved

    def _count(self, shelving: Shelving) -> None:
        self._shelved += 1
        if self._cuts:
            self._kept_shelvings.append((self._shelved, shelving))

    def silence(self, time: float) -> Silence:
        """Record that all participants wait for news now."""
        return self._record(Silence(time, self._silences + 1))

    def silence_ahead(self) -> Silence:
        """The next silence of the checkpoint, whose time has come."""
        return self._record(self.silences_ahead.pop(0))

    def _record(self, silence: Silence) -> Silence:
        self._silences, self._last_silence = max(self._silences, silence.number), [silence]
        if self._cuts:
            self._kept_silences.append(silence)
        return silence

    # -- checkpoints ---------------------------------------------------------------------------

    def begin_cut(self, round: int, time: float) -> None:
        if not self._cuts:
            self._kept_silences = list(self._last_silence)  # it may have the same time
        self._cuts[round] = _CutStart(time, self.shelved_by(time))

    def of_cut(self, round: int) -> SavedNews:
        """What a run resumed after this round needs. It will repeat the shelvings of later rounds."""
        start = self._cuts[round]
        kept = [shelving for number, shelving in self._kept_shelvings if number > start.shelved]
        shelvings = [shelving for shelving in [*kept, *self.shelvings_ahead] if shelving.round <= round]
        silences = [s for s in [*self._kept_silences, *self.silences_ahead] if s.time >= start.time]
        return {
            "shelved": start.shelved, "shelvings": [list(one) for one in sorted(shelvings)],
            "silences": [list(one) for one in silences],
        }  # fmt: skip

    def end_cut(self, round: int) -> None:
        del self._cuts[round]
        if not self._cuts:
            self._kept_shelvings, self._kept_silences = [], []

    def restore(self, saved: SavedNews, silences: int) -> None:
        """`silences` is the largest number that any participant has been told of."""
        self._shelved, self._silences = saved["shelved"], silences
        self.shelvings_ahead = [Shelving(time, int(round)) for time, round in saved["shelvings"]]
        self.silences_ahead = [Silence(time, int(number)) for time, number in saved["silences"]]
