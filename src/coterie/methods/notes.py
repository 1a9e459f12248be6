"""Notes that a method declares: which have no curve over rounds, which enter summary.json, and their words.

A method lists them in `notes`. A number that it does not declare is a curve over rounds, and not in summary.json.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from coterie.core.errors import MethodError, unknown
from coterie.core.summary import Summary

MEAN, LAST, BESIDE = "mean", "last", "beside"
# How a note enters summary.json.
SUMMARIES = {
    "": "not at all",
    MEAN: "its mean over rounds and peers",
    LAST: "the mean over peers of the last number that each noted",
    BESIDE: "the mean over peers at the last measured round of each, in the table `beside`",
}
TAKEN = frozenset(f.name for f in fields(Summary))


@dataclass(frozen=True)
class Note:
    """A number that peers note, or one for each of several things: then the name ends in a dot, `loss.`."""

    name: str
    curve: bool = True  # whether it is drawn over rounds, also in TensorBoard; false for a number that is an identifier
    summary: str = ""  # one of SUMMARIES
    label: str = ""  # before the figure in the results on the terminal; default: it is not printed
    form: str = ".3g"  # the figure's format specification there: `.0%` for a share

    def __post_init__(self) -> None:
        if self.summary not in SUMMARIES:
            raise MethodError(unknown(f"summary of Note('{self.name}')", self.summary, SUMMARIES))
        if self.summary in (MEAN, LAST) and self.key in TAKEN:
            raise MethodError(f"Note('{self.name}'): summary.json has a field '{self.key}' already. Rename the note")
        if self.summary == BESIDE and self.key != self.name:
            raise MethodError(f"Note('{self.name}'): the table `beside` has single numbers. Use summary = 'last'")
        try:
            format(0.0, self.form)
        except ValueError as error:
            raise MethodError(f"Note('{self.name}'): form = '{self.form}' formats no number, as '.3g' does") from error

    @property
    def key(self) -> str:
        """Its name in summary.json."""
        return self.name.removesuffix(".")


@dataclass(frozen=True)
class Predictor:
    """The words for an ensemble in `me.beside`: "with `label`". Without a declaration, the words are its name."""

    name: str
    label: str


Declared = Note | Predictor
