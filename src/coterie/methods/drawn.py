"""Which figures the report of a method has, by the method's name."""

from __future__ import annotations

from contextlib import suppress

from coterie.core.errors import CoterieError
from coterie.methods import METHODS, find
from coterie.methods.figures import Described

PACKAGE: tuple[Described, ...] = tuple(dict.fromkeys(figure for kind in METHODS.values() for figure in kind.figures))


def figures_of(method: str) -> tuple[Described, ...]:
    """The method's own figures, then those of the package's methods: any method may note the same things.

    A method whose code is gone has only the latter.
    """
    own: tuple[Described, ...] = ()
    with suppress(CoterieError):
        own = find(method).figures
    taken = frozenset[str]().union(*(figure.reads for figure in own))
    return (*own, *(figure for figure in PACKAGE if not figure.reads & taken))
