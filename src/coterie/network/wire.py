"""The wire format: small JSON messages, and artifacts as a header and chunks.

Never trust received data: its size is limited before it is read, and its types are checked before it is used.
Anything invalid raises a WireError that says what is wrong.
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
from coterie.core.formatting import plain

PROTOCOL = 3
CHUNK = 1 << 20  # bytes of an artifact in one message: the fastest size measured with gRPC
LARGEST_MESSAGE = 4 << 20  # bytes of JSON: announcements of some thousand peers
LARGEST_NUMBER = 2**63  # bound on received numbers, so that sums and products of two stay harmless


class WireError(CoterieError):
    """Received bytes are not a valid message."""


class ProtocolError(WireError):
    """A message of another protocol version: not an offence, and the rest of it is not examined."""


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
        types: Mapping[str, Any] = _field_types(cls)  # type: ignore[arg-type]
        if not isinstance(table, dict):
            raise WireError(f"not a message of kind {cls.__name__}, but a {type(table).__name__}")
        if "protocol" in types:  # first: the rest of another version may be anything
            _check_protocol(table.get("protocol"))
        if table.keys() != types.keys():
            keys = plain(", ".join(sorted(table)[:8]), 100)
            raise WireError(f"not a message of kind {cls.__name__}: it has {keys}, but should have {sorted(types)}")
        for key, kind in types.items():
            if not _is_a(table[key], kind):
                raise WireError(f"{cls.__name__}.{key} should be {_kind_name(kind)}, but is {_short(table[key])}")
        return cls(**table)


@dataclass(frozen=True)
class Meeting(Message):
    """Exchanged on contact, in both directions: the sender's terms, and what it knows of other peers."""

    protocol: int
    agreement: dict[str, str]  # the terms that must be equal, by name
    known: dict[str, str]  # by peer, the version of its announcement that the sender has
    news: list[dict[str, object]]  # announcements newer than those known to the recipient
    certificates: list[str]  # of peers unknown to the recipient
    roster: str  # the sender's, if the recipient's is older; otherwise empty
    roster_version: int


@dataclass(frozen=True)
class FetchRequest(Message):
    """A fetch: this artifact, of this round or later, waiting for at most `wait` seconds."""

    protocol: int
    agreement: str  # digest of the terms
    name: str
    round: int
    wait: float
    accepts: list[str]  # encodings, besides "none"
    have: str  # for top-k: the state that the caller has


@dataclass(frozen=True)
class ArtifactHeader(Message):
    """Precedes the bytes of an artifact."""

    protocol: int
    agreement: str
    name: str
    round: int
    author: str
    to: str  # the recipient: prevents forwarding to another peer
    size: int  # bytes that follow
    digest: str  # of those bytes
    encoding: str
    keep: bool = False  # the next answer may be a difference from this one
    number: str = ""  # of a pushed message: identifies duplicates
    signature: str = ""  # by the author, over `signed_part`: a forwarding peer cannot change it

    def signed_part(self) -> bytes:
        return canonical({**dataclasses.asdict(self), "signature": ""})


@dataclass(frozen=True)
class Receipt(Message):
    """The answer to a push."""

    taken: bool
    reason: str = field(default="")


def canonical(value: object) -> bytes:
    """Equal values have the same bytes: the form that is signed and compared."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def chunks(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    for at in range(0, len(data), CHUNK):
        yield bytes(view[at : at + CHUNK])


class Assembly:
    """Collects an artifact's bytes as they arrive: never more than announced or allowed."""

    def __init__(self, header: ArtifactHeader, largest: int) -> None:
        if not 0 <= header.size <= largest:
            what = f"'{plain(header.name, 80)}' is announced with {header.size} bytes"
            raise WireError(f"{what}, but at most {largest} are allowed")
        self.header = header
        self._name = plain(header.name, 80)
        self._data = bytearray()

    def add(self, chunk: bytes) -> None:
        if len(self._data) + len(chunk) > self.header.size:
            raise WireError(f"'{self._name}' has more than the {self.header.size} bytes announced")
        self._data += chunk

    @property
    def complete(self) -> bool:
        return len(self._data) == self.header.size

    def whole(self) -> bytes:
        data = bytes(self._data)
        if len(data) != self.header.size:
            raise WireError(f"'{self._name}' ends after {len(data)} of {self.header.size} bytes")
        if digest_of(data) != self.header.digest:
            raise WireError(f"'{self._name}' does not match its announced digest")
        return data


@cache
def _field_types(message: type[Any]) -> Mapping[str, Any]:
    return typing.get_type_hints(message)


def _is_a(value: object, kind: Any) -> bool:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is object:
        return True
    if origin is list:
        return isinstance(value, list) and all(_is_a(v, inside[0]) for v in value)
    if origin is dict:
        return isinstance(value, dict) and all(_is_a(k, inside[0]) and _is_a(v, inside[1]) for k, v in value.items())
    if kind is float:
        return type(value) in (int, float) and abs(value) < LARGEST_NUMBER  # type: ignore[arg-type]  # nor infinite
    if kind is int:
        return type(value) is int and abs(value) < LARGEST_NUMBER
    if kind is str:
        return type(value) is str and _is_text(value)
    return type(value) is kind


def _is_text(value: str) -> bool:
    """JSON can contain lone surrogates, which files and terminals reject."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_protocol(version: object) -> None:
    if type(version) is int and version != PROTOCOL:
        theirs = plain(str(version), 20)
        raise ProtocolError(f"protocol {theirs} there, {PROTOCOL} here: update Coterie on the older side")


def _kind_name(kind: Any) -> str:
    return str(kind) if typing.get_origin(kind) else str(kind.__name__)


def _short(value: object) -> str:
    """A received value in few characters; only the type of a collection, which may be nested to any depth."""
    return type(value).__name__ if isinstance(value, list | dict) else plain(repr(value), 50)


def _no_such_number(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")
