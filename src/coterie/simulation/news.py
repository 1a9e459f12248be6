"""What there is to tell those who wait for news, and when: how much has been shelved, and that nothing more will come.

A checkpoint has each participant as it was when *it* ended a round, the slow ones later than the fast. So what happened
before the slow ended theirs may lie ahead of the fast, who must hear of it neither earlier nor later than before.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Shelving(NamedTuple):
    time: float
    round: int  # of its author


class Silence(NamedTuple):
    """A time at which all waited for news, and were told that there is none."""

    time: float
    number: int


class _Beginning(NamedTuple):
    """Of a checkpoint, when the first participant has ended its round."""

    time: float
    shelved: int


class Bulletin:
    def __init__(self) -> None:
        self.shelvings_ahead: list[Shelving] = []  # after a resume: those that the checkpoint has and are to come
        self.silences_ahead: list[Silence] = []
        self._shelved = 0  # things, up to now
        self._silences = 0
        self._last_silence: list[Silence] = []
        # while a checkpoint is gathered
        self._begun: dict[int, _Beginning] = {}
        self._kept_shelvings: list[tuple[int, Shelving]] = []
        self._kept_silences: list[Silence] = []

    def shelve(self, time: float, round: int) -> None:
        self.shelved_by(time)
        self._count(Shelving(time, round))

    def shelved_by(self, time: float) -> int:
        """How many things have been shelved; time never goes back."""
        while self.shelvings_ahead and self.shelvings_ahead[0].time <= time:
            self._count(self.shelvings_ahead.pop(0))
        return self._shelved

    def _count(self, shelving: Shelving) -> None:
        self._shelved += 1
        if self._begun:
            self._kept_shelvings.append((self._shelved, shelving))

    def silence(self, time: float) -> Silence:
        """Now: all wait for news."""
        return self._note(Silence(time, self._silences + 1))

    def silence_ahead(self) -> Silence:
        """The next one that the checkpoint has: its time has come."""
        return self._note(self.silences_ahead.pop(0))

    def _note(self, silence: Silence) -> Silence:
        self._silences, self._last_silence = max(self._silences, silence.number), [silence]
        if self._begun:
            self._kept_silences.append(silence)
        return silence

    # -- checkpoints ---------------------------------------------------------------------------

    def begin_cut(self, round: int, time: float) -> None:
        if not self._begun:
            self._kept_silences = list(self._last_silence)  # it may be of this very time
        self._begun[round] = _Beginning(time, self.shelved_by(time))

    def of_cut(self, round: int) -> dict[str, Any]:
        """What a run that goes on after this round needs. What is shelved in later rounds, it will shelve again."""
        begun = self._begun[round]
        kept = [shelving for number, shelving in self._kept_shelvings if number > begun.shelved]
        shelvings = [shelving for shelving in [*kept, *self.shelvings_ahead] if shelving.round <= round]
        silences = [s for s in [*self._kept_silences, *self.silences_ahead] if s.time >= begun.time]
        return {
            "shelved": begun.shelved, "shelvings": [list(one) for one in sorted(shelvings)],
            "silences": [list(one) for one in silences],
        }  # fmt: skip

    def end_cut(self, round: int) -> None:
        del self._begun[round]
        if not self._begun:
            self._kept_shelvings, self._kept_silences = [], []

    def restore(self, saved: dict[str, Any], silences: int) -> None:
        """`silences` is how many anybody has been told of."""
        self._shelved, self._silences = saved["shelved"], silences
        self.shelvings_ahead = [Shelving(*one) for one in saved["shelvings"]]
        self.silences_ahead = [Silence(*one) for one in saved["silences"]]
