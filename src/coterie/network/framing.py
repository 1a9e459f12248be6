"""Converts artifacts to bytes on the wire and back, with every check that does not depend on the method."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError
from coterie.core.formatting import plain
from coterie.network.wire import LARGEST_NUMBER, ArtifactHeader, chunks

LARGE = 1 << 20  # bytes

T = TypeVar("T")


def opened(
    header: ArtifactHeader, data: bytes, number: int, decode: Callable[[bytes, str, int], Artifact], largest: int
) -> Artifact:
    """Decode and check a received artifact. If torch cannot read its types or shapes, the author is at fault."""
    try:
        artifact = decode(data, header.encoding, largest)
        check_label(artifact, header, number)
    except RuntimeError as error:
        raise ArtifactError(f"'{plain(header.name, 80)}' is not a readable artifact: {error}") from error
    return artifact


def check_label(artifact: Artifact, header: ArtifactHeader, number: int) -> None:
    """Check that an artifact matches its header and its author, and contains only finite numbers."""
    inside = (artifact.name, artifact.round, artifact.author)
    if inside != (header.name, header.round, number):
        raise ArtifactError(
            f"the header says '{plain(header.name, 80)}' of round {header.round} by {number}, but the artifact says "
            f"'{plain(inside[0], 80)}' of round {plain(str(inside[1]), 20)} by {plain(str(inside[2]), 20)}"
        )
    if artifact.not_finite:
        raise ArtifactError(f"'{artifact.name}': '{plain(artifact.not_finite, 80)}' has numbers that are not finite")
    for key, fact in artifact.facts.items():
        if not isinstance(fact, str) and not abs(fact) < LARGEST_NUMBER:
            raise ArtifactError(f"'{artifact.name}': the fact '{plain(key, 80)}' is not a finite number")


async def in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Encode, hash and decode large artifacts in a thread, so that other calls do not wait."""
    return await asyncio.to_thread(work) if size > LARGE else work()


async def stream(header: ArtifactHeader, data: bytes) -> AsyncIterator[bytes]:
    yield header.to_bytes()
    for chunk in chunks(data):
        yield chunk
