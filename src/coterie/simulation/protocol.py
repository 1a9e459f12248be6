"""The messages between the director and a stage, which runs the participants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie.core.artifact import Artifact
from coterie.core.requests import Request


class Computed:
    """The answer to a request for computation: the stage has the result."""


class Messages(NamedTuple):
    """The answer to a participant that waits for messages: how many of them to take from its inbox."""

    name: str
    many: int


class Turn(NamedTuple):
    """Lets a participant continue: with a new round, or with the answer to its request."""

    peer: int
    round: int | None = None
    answer: Any = None


@dataclass(frozen=True, eq=False)
class Working(Request[Any]):
    """A participant's request for computation, as the director sees it: the stage keeps the request itself."""

    samples: float  # simulated cost, in samples of training
    training: bool


@dataclass(eq=False)
class Reply:
    """What a participant did in its turn, and its next request; None: it has finished its setup or round."""

    peer: int
    request: Request[Any] | None = None
    shelved: list[Artifact] = field(default_factory=list)
    emptied: list[str] = field(default_factory=list)  # the names of messages that it took from its inbox
    notes: dict[str, Any] = field(default_factory=dict)  # of a finished round
