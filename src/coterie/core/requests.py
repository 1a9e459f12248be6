"""The requests that a method awaits and the engine answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Generic, NamedTuple, TypeVar

from coterie.core.artifact import Artifact
from coterie.core.jobs import AnyJob, FitJob, Prediction, Score

T = TypeVar("T")
# Modules that drive methods: their calls are not calls of a method.
ENGINES = ("coterie.engines.", "coterie.simulation.", "coterie.network.")


class Request(Generic[T]):
    """Something that a method awaits and the engine answers."""

    def __await__(self) -> Generator[Request[T], T, T]:
        return (yield self)


class Call(NamedTuple):
    """A call in a method's code, and its location."""

    text: str  # as written in code: me.train()
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}, line {self.line}"


def called(verb: str, caller: FrameType) -> Call:
    """Where a verb was called: in the user's method, or else in the built-in method."""
    frame: FrameType | None = caller
    while frame is not None and (module := frame.f_globals.get("__name__", "")).startswith("coterie."):
        frame = None if module.startswith(ENGINES) else frame.f_back
    frame = frame or caller
    return Call(f"me.{verb}()", frame.f_code.co_filename, frame.f_lineno)


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
    """Answered with the return value of the function, which depends on no other peer."""

    function: Callable[[], T]
    samples: int  # simulated cost, in samples of training


@dataclass(frozen=True, eq=False)
class Fetch(Request[dict[int, Artifact]]):
    """Answered with the artifacts that arrived, by peer; peers that are gone or have nothing are absent."""

    peers: tuple[int, ...]
    name: str
    round: int
    fitting: Callable[[dict[int, Artifact]], dict[int, Artifact]]  # keeps the valid ones of the artifacts that arrived

    def __await__(self) -> Generator[Request[dict[int, Artifact]], dict[int, Artifact], dict[int, Artifact]]:
        return self.fitting((yield self))


@dataclass(frozen=True, eq=False)
class Send(Request[bool]):
    """Answered with whether the artifact is or will be delivered."""

    to: int
    artifact: Artifact


@dataclass(frozen=True, eq=False)
class Receive(Request[list[Artifact]]):
    """Answered as soon as there is a message of this name; with none if the wait times out."""

    name: str


@dataclass(frozen=True, eq=False)
class News(Request[bool]):
    """Answered with True when another peer has shelved something since the last answer; False if no peer ever will."""
