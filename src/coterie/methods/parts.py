"""The parts that the package's methods add to models, by name: a method of a user's may ask for one by its name."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from coterie.methods import find
from coterie.methods.components.projection import PROJECTOR, PROTOTYPES
from coterie.methods.fedrod import PRIVATE
from coterie.methods.mentees import ADAPTER, MENTEE
from coterie.models.parts import Part

BY_NAME = {part.name: part for part in (PROJECTOR, PROTOTYPES, MENTEE, ADAPTER, PRIVATE)}


def resolved(parts: Iterable[str | Part]) -> tuple[str | Part, ...]:
    """A method's parts, with the names of the package's parts replaced by these.

    Named ones come first, in the order of `BY_NAME` whatever the method's: the initial weights depend on the order.
    """
    named = [part for part in parts if isinstance(part, str)]
    # An adapter maps a mentee's features: without a mentee, the name means a part of the user's net.
    known = [name for name in BY_NAME if name in named and (name != ADAPTER.name or MENTEE.name in named)]
    return (
        *(BY_NAME[name] for name in known),
        *(part for part in parts if part not in known),
    )


def predicting(method: str, wanted: Collection[str]) -> list[Part]:
    """Those parts of a method, named by `method.name`, that its saved models need for predictions.

    The method's code is read only for a part that is not one of the package's: the file may be gone.
    """
    if all(name in BY_NAME for name in wanted):
        return [BY_NAME[name] for name in BY_NAME if name in wanted]
    return [part for part in resolved(find(method).parts) if isinstance(part, Part) and part.name in wanted]


def names(parts: Iterable[str | Part]) -> list[str]:
    """The names of a method's parts."""
    return [part if isinstance(part, str) else part.name for part in parts]
