"""What a method awaits: each request says what it asks for, and the engine answers it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from coterie.core.artifact import Artifact
from coterie.core.jobs import AnyJob, FitJob, Prediction, Score

T = TypeVar("T")
# Modules that drive methods: what they call is not a method's own call.
ENGINES = ("coterie.engines.", "coterie.simulation.", "coterie.network.")


class Request(Generic[T]):
    """Something a method awaits; the engine answers it."""

    def __await__(self) -> Generator[Request[T], T, T]:
        return (yield self)


class Call(NamedTuple):
    """Something that a method called, and where."""

    text: str  # as one would write it: me.train()
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}"


@dataclass(frozen=True, eq=False)
class Train(Request[float]):
    """Answered with the mean training loss."""

    job: FitJob


@dataclass(frozen=True, eq=False)
class Evaluate(Request[list[Score]]):
    jobs: Sequence[AnyJob]


@dataclass(frozen=True, eq=False)
class Predict(Request[list[Prediction]]):
    jobs: Sequence[AnyJob]


@dataclass(frozen=True, eq=False)
class Compute(Request[T]):
    """Answered with what the function returns: it depends on nothing that others do."""

    function: Callable[[], T]
    samples: int  # of training that it is worth, in simulated time


@dataclass(frozen=True, eq=False)
class Fetch(Request[dict[int, Artifact]]):
    """Answered with what arrived, by peer; who is gone or has nothing is absent."""

    peers: tuple[int, ...]
    name: str
    round: int
    fitting: Callable[[dict[int, Artifact]], dict[int, Artifact]]  # of what arrived, what is as it should be

    def __await__(self) -> Generator[Request[dict[int, Artifact]], dict[int, Artifact], dict[int, Artifact]]:
        return self.fitting((yield self))


@dataclass(frozen=True, eq=False)
class Send(Request[bool]):
    """Answered with whether it was delivered, or will be."""

    to: int
    artifact: Artifact


@dataclass(frozen=True, eq=False)
class Receive(Request[list[Artifact]]):
    """Answered as soon as there is a message of this name; with none, where nobody can be waited for any longer."""

    name: str


@dataclass(frozen=True, eq=False)
class News(Request[bool]):
    """Answered with True when somebody else has shelved something since the last answer; False if nobody will."""
