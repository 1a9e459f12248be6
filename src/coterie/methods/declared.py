"""What methods declare for their reports, by the method's name: its figures and its notes."""

from __future__ import annotations

from contextlib import suppress

from coterie.core.errors import CoterieError
from coterie.methods import METHODS, Method, find
from coterie.methods.figures import Described, Lines
from coterie.methods.notes import Declared, Note, Predictor

PACKAGE: tuple[Described, ...] = tuple(dict.fromkeys(figure for kind in METHODS.values() for figure in kind.figures))
PACKAGE_NOTES: tuple[Declared, ...] = tuple(dict.fromkeys(note for kind in METHODS.values() for note in kind.notes))


def figures_of(method: str) -> tuple[Described, ...]:
    """The method's own figures, then those of the package's methods: any method may note the same things.

    A method whose code is gone has only the latter.
    """
    own = _found(method).figures
    taken = frozenset[str]().union(*(figure.reads for figure in own))
    return (*own, *(figure for figure in PACKAGE if not figure.reads & taken))


def notes_of(method: str) -> tuple[Note, ...]:
    """The method's own notes, then those of the package's methods, as for figures."""
    own = [note for note in _found(method).notes if isinstance(note, Note)]
    taken = {note.key for note in own}
    package = (note for note in PACKAGE_NOTES if isinstance(note, Note))
    return (*own, *(note for note in package if note.key not in taken))


def predictor_label(method: str, name: str) -> str:
    """The words for a predictor that peers measured beside their own; its name if no method declares it."""
    declared = [note for note in (*_found(method).notes, *PACKAGE_NOTES) if isinstance(note, Predictor)]
    return next((predictor.label for predictor in declared if predictor.name == name), name)


def no_curves(method: str) -> frozenset[str]:
    """The notes that are not drawn as curves: another kind of figure shows them, or the method declares it."""
    shown = (figure.reads for figure in figures_of(method) if not isinstance(figure, Lines))
    return frozenset(note.name for note in notes_of(method) if not note.curve).union(*shown)


def _found(method: str) -> type[Method]:
    with suppress(CoterieError):
        return find(method)
    return Method
