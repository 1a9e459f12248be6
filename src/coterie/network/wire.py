"""What peers say to each other, as bytes: small JSON messages, and artifacts as a header and chunks.

Everything read here comes from somebody else. It is bounded before it is read, and nothing in it is believed
before its type is checked; whatever is wrong is a WireError that says what.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from coterie.core.errors import CoterieError

PROTOCOL = 3
CHUNK = 1 << 20  # bytes of an artifact in one message: measured best for gRPC
LARGEST_MESSAGE = 4 << 20  # of JSON: the announcements of some thousand peers
LARGEST_NUMBER = 2**63  # what others count in: no sum or product of two of these surprises anybody
LONGEST_SAID = 300  # characters of what others wrote that go into a log


class WireError(CoterieError):
    """Bytes that are not the message they should be."""


class ProtocolError(WireError):
    """A message of another version of Coterie: nobody's offence, and no reason to look at the rest of it."""


M = TypeVar("M", bound="Message")


@dataclass(frozen=True)
class Message:
    """A flat JSON object whose keys and types are those of the class; anything else is refused."""

    def to_bytes(self) -> bytes:
        return canonical(dataclasses.asdict(self))

    @classmethod
    def from_bytes(cls: type[M], data: bytes) -> M:
        if len(data) > LARGEST_MESSAGE:
            raise WireError(f"a message of {len(data)} bytes is larger than the {LARGEST_MESSAGE} allowed")
        try:
            table = json.loads(data, parse_constant=_no_such_number)
        except (ValueError, RecursionError) as error:
            raise WireError(f"not a message of kind {cls.__name__}: {plain(str(error), 100)}") from error
        return cls.from_table(table)

    @classmethod
    def from_table(cls: type[M], table: object) -> M:
        kinds: Mapping[str, Any] = _kinds(cls)  # type: ignore[arg-type]
        if not isinstance(table, dict):
            raise WireError(f"not a message of kind {cls.__name__}, but a {type(table).__name__}")
        if "protocol" in kinds:  # first: of another version, the rest may be anything
            _same_protocol(table.get("protocol"))
        if table.keys() != kinds.keys():
            keys = plain(", ".join(sorted(table)[:8]), 100)
            raise WireError(f"not a message of kind {cls.__name__}: it has {keys}, and should have {sorted(kinds)}")
        for key, kind in kinds.items():
            if not _is(table[key], kind):
                raise WireError(f"{cls.__name__}.{key} should be {_kind_name(kind)}, and is {_shown(table[key])}")
        return cls(**table)


@dataclass(frozen=True)
class Meeting(Message):
    """Peers exchange this on contact, in both directions: who I am, what I run, and what I know of others."""

    protocol: int
    agreement: dict[str, str]  # what must be equal at both, by name
    known: dict[str, str]  # by peer, the version of its announcement that I have
    news: list[dict[str, Any]]  # announcements that are newer than what you said you know
    certificates: list[str]  # of those whom you do not know
    roster: str  # the newest that I have, where yours is older; else empty
    roster_version: int


@dataclass(frozen=True)
class Ask(Message):
    """A fetch: this artifact, of this round or later, waiting for it so long."""

    protocol: int
    agreement: str  # its digest
    name: str
    round: int
    wait: float
    accepts: list[str]  # encodings, besides "none"
    have: str  # for top-k: the state that I already have


@dataclass(frozen=True)
class ArtifactHeader(Message):
    """What comes before the bytes of an artifact."""

    protocol: int
    agreement: str
    name: str
    round: int
    author: str
    to: str  # the recipient: what was meant for one cannot be passed on to another
    size: int  # bytes that follow
    digest: str  # of those bytes
    encoding: str
    keep: bool = False  # the next answer may be a difference from this one
    number: str = ""  # of a letter: tells it from its twin
    signature: str = ""  # by its author, over `signed_part`: who passes it on cannot change it

    def signed_part(self) -> bytes:
        return canonical({**dataclasses.asdict(self), "signature": ""})


@dataclass(frozen=True)
class Receipt(Message):
    """What the recipient of a parcel answers."""

    taken: bool
    reason: str = field(default="")


def canonical(value: object) -> bytes:
    """One form for equal values: what is signed and compared."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def plain(text: str, longest: int = LONGEST_SAID) -> str:
    """What others wrote, fit for one line of a log or a terminal: short, and without anything that acts there."""
    short = text if len(text) <= longest else text[:longest] + "..."
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in short)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def chunks(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(data), CHUNK):
        yield bytes(view[at : at + CHUNK])


class Assembly:
    """An artifact's bytes as they arrive: never more than announced, and never more than allowed."""

    def __init__(self, parcel: ArtifactHeader, largest: int) -> None:
        if not 0 <= parcel.size <= largest:
            what = f"'{plain(parcel.name, 80)}' is announced with {parcel.size} bytes"
            raise WireError(f"{what}, and at most {largest} are taken")
        self.parcel = parcel
        self._name = plain(parcel.name, 80)
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        if len(self._data) + len(chunk) > self.parcel.size:
            raise WireError(f"'{self._name}' has more than the {self.parcel.size} bytes announced")
        self._data += chunk

    @property
    def complete(self) -> bool:
        return len(self._data) == self.parcel.size

    def whole(self) -> bytes:
        data = bytes(self._data)
        if len(data) != self.parcel.size:
            raise WireError(f"'{self._name}' ends after {len(data)} of {self.parcel.size} bytes")
        if digest_of(data) != self.parcel.digest:
            raise WireError(f"'{self._name}' is not what was announced: another digest")
        return data


@cache
def _kinds(message: type[Any]) -> Mapping[str, Any]:
    return typing.get_type_hints(message)


def _is(value: object, kind: Any) -> bool:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin is list:
        return isinstance(value, list) and all(_is(v, inside[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is(k, inside[0]) and _is(v, inside[1]) for k, v in value.items())
    if kind is float:
        return type(value) in (int, float) and abs(value) < LARGEST_NUMBER  # type: ignore[arg-type]  # nor infinite
    if kind is int:
        return type(value) is int and abs(value) < LARGEST_NUMBER
    if kind is str:
        return type(value) is str and _is_text(value)
    return type(value) is kind


def _is_text(value: str) -> bool:
    """JSON can spell halves of characters, which no file or terminal takes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _same_protocol(spoken: object) -> None:
    if type(spoken) is int and spoken != PROTOCOL:
        there = plain(str(spoken), 20)
        raise ProtocolError(f"protocol {there} is spoken there and {PROTOCOL} here: update Coterie on the older side")


def _kind_name(kind: Any) -> str:
    return str(kind) if typing.get_origin(kind) else str(kind.__name__)


def _shown(value: object) -> str:
    """A value of somebody else in few characters; the inside of a collection may be anything, at any depth."""
    return type(value).__name__ if isinstance(value, list | dict) else plain(repr(value), 50)


def _no_such_number(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")
