"""Figures that a method brings for its report: descriptions, as data, of how its notes are drawn.

A method lists them in `figures`. `report/` draws each kind; it knows no method and no note of a method.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Lines:
    """Numbers that peers note, over rounds, in one chart: a line each, the mean over the peers that noted it."""

    name: str  # of the file if it is saved
    title: str
    notes: tuple[tuple[str, str], ...]  # the name of a note and its words in the legend
    y_label: str
    caption: str = ""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(note for note, _ in self.notes)


@dataclass(frozen=True)
class Plane:
    """Vectors of each peer's classes, {class: vector}, projected onto their two principal components."""

    name: str  # of the file, before the round
    note: str
    title: str
    mark: str  # description of a mark
    vectors: str  # words for the vectors

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.note})


@dataclass(frozen=True)
class Front:
    """Pairs that each peer could choose from, as a line in a plane, the pair it chose, and another one to compare with.

    The first number of a pair is a merit: a value of the run's main metric, negated if lower is better. In `x_label`
    and `table_caption`, {metric} stands for that metric.
    """

    name: str
    title: str
    note: str  # a list of pairs
    chosen: str  # the note of the chosen pair
    other: str  # the note of the other pair
    chosen_label: str
    other_label: str
    other_words: str  # "peer 3's ... at 80%, 0.2"
    x_label: str
    y_label: str
    about: str  # label of the drawing, before "on 5 peers' Pareto fronts"
    caption: str
    missing: str  # what to say if there is none
    # The table of choices: its title and caption, and the notes of the chosen members (`peer/model`) and of merits.
    table: str
    table_caption: str
    members: str
    merits: tuple[tuple[str, str], ...]  # the name of a note and the head of its column

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.note, self.chosen, self.other, self.members, *(note for note, _ in self.merits)})


@dataclass(frozen=True)
class Routes:
    """Things that move from peer to peer: a peer notes `<note>.<thing>` with the number of its hop."""

    name: str
    title: str
    note: str
    restart: str  # the prefix of notes of peers that sent a lost one on again
    thing: str  # "expert"
    y_label: str
    caption: str
    restart_caption: str
    missing: str

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({f"{self.note}.", f"{self.restart}."})


Described = Lines | Plane | Front | Routes
