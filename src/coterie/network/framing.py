"""From an artifact to the bytes on the wire, and back with every check that needs no knowledge of the method."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError
from coterie.network.wire import LARGEST_NUMBER, ArtifactHeader, chunks, plain

LARGE = 1 << 20  # bytes

T = TypeVar("T")


def opened(
    parcel: ArtifactHeader, data: bytes, number: int, decode: Callable[[bytes, str, int], Artifact], largest: int
) -> Artifact:
    """The artifact in a parcel, checked. What torch cannot make anything of (types, shapes) is its author's fault."""
    try:
        artifact = decode(data, parcel.encoding, largest)
        check_label(artifact, parcel, number)
    except RuntimeError as error:
        raise ArtifactError(f"'{plain(parcel.name, 80)}' is not a readable artifact: {error}") from error
    return artifact


def check_label(artifact: Artifact, parcel: ArtifactHeader, number: int) -> None:
    """An artifact must be what its parcel says, by who sent it, and of finite numbers."""
    said = (artifact.name, artifact.round, artifact.author)
    if said != (parcel.name, parcel.round, number):
        raise ArtifactError(
            f"'{plain(parcel.name, 80)}' of round {parcel.round} by {number} came, and inside it says "
            f"'{plain(said[0], 80)}' of round {plain(str(said[1]), 20)} by {plain(str(said[2]), 20)}"
        )
    if artifact.not_finite:
        raise ArtifactError(f"'{artifact.name}': '{plain(artifact.not_finite, 80)}' has numbers that are not finite")
    for key, fact in artifact.facts.items():
        if not isinstance(fact, str) and not abs(fact) < LARGEST_NUMBER:
            raise ArtifactError(f"'{artifact.name}': the fact '{plain(key, 80)}' is not a finite number")


async def aside(size: int, work: Callable[[], T]) -> T:
    """Large artifacts are packed, hashed and unpacked in a thread: nobody else should wait for that."""
    return await asyncio.to_thread(work) if size > LARGE else work()


async def stream(parcel: ArtifactHeader, data: bytes) -> AsyncIterator[bytes]:
    yield parcel.to_bytes()
    for chunk in chunks(data):
        yield chunk
