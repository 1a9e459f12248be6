"""What passes between a stage, where participants act, and whoever directs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie.core.artifact import Artifact
from coterie.core.requests import Request


class Computed:
    """The answer to what was asked to be computed: the stage has it."""


class Messages(NamedTuple):
    """The answer to who waits for letters: so many of those that have come for it."""

    name: str
    many: int


class Turn(NamedTuple):
    """Who goes on, and how: with a new round, or with the answer to what it asked for."""

    peer: int
    round: int | None = None
    answer: Any = None


@dataclass(frozen=True, eq=False)
class Working(Request[Any]):
    """Somebody asks for something to be computed: the stage keeps what, and says what it is worth."""

    samples: float  # of training, in simulated time
    training: bool


@dataclass(eq=False)
class Reply:
    """What somebody did when it went on, and what it asks for; no request: it is done with what it began."""

    peer: int
    request: Request[Any] | None = None
    shelved: list[Artifact] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)  # the names of letters that it took out of its inbox
    notes: dict[str, Any] = field(default_factory=dict)  # of a round that it is done with
