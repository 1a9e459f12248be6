"""Serves the calls of other peers: checks the caller, answers meetings and fetches, and accepts pushed messages.

Every call is bound to the name in the caller's certificate. An invalid call is an offence of the caller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, RunError
from coterie.core.formatting import plain
from coterie.network import compression
from coterie.network.agreement import difference, with_names
from coterie.network.framing import in_thread_if_large, opened, stream
from coterie.network.keys import Credential, IdentityError, credential_of
from coterie.network.wire import (
    CHUNK,
    LARGEST_MESSAGE,
    PROTOCOL,
    ArtifactHeader,
    Assembly,
    FetchRequest,
    Meeting,
    ProtocolError,
    Receipt,
    WireError,
    digest_of,
)

if TYPE_CHECKING:
    from coterie.network.node import Node

SERVICE = "coterie.Peer"
AT_ONCE = 8  # concurrent calls of one peer: each may hold an artifact; an honest peer makes three
BREAKS_OFF = 0.5  # maximum seconds from the end of a stream to the notice that it was aborted

OPTIONS = [
    ("grpc.so_reuseport", 0),  # otherwise a second process on the same port gets half of the calls
    ("grpc.max_receive_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_send_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_concurrent_streams", 4 * AT_ONCE),
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),  # less than the keepalive of channels
]

T = TypeVar("T")


class Host(Protocol):
    """What the engine provides to serve other peers: the shelf and the mailbox."""

    def may_exchange_with(self, number: int) -> bool: ...

    async def find(self, name: str, round: int, wait: float) -> Artifact | None: ...

    def bytes_of(self, artifact: Artifact) -> bytes: ...

    def take(self, message: Artifact, data: bytes, sender: str, number: str) -> None: ...


class Service:
    """The three calls that a peer answers: meetings, fetches and pushes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.calls: Counter[str] = Counter()  # being served, by caller
        self.senders: dict[tuple[str, str], compression.Sender] = {}  # by recipient and artifact

    async def meeting(self, request: bytes, context: Any) -> bytes:
        caller = await self._caller(context)
        if self.node.book.roster.refuses(caller.serial):
            return await self._answer_revoked(caller, request, context)
        return await self._serve(context, lambda caller: self._answer_meeting(caller, request, context))

    async def fetch(self, request: bytes, context: Any) -> None:
        await self._serve(context, lambda caller: self._answer_fetch(caller, request, context))

    async def push(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return await self._serve(context, lambda caller: self._answer_push(caller, requests, context))

    async def _serve(self, context: Any, answer: Callable[[Credential], Awaitable[T]]) -> T:
        """Answer a call if the caller is admitted; an invalid call is an offence of the caller."""
        caller = await self._caller(context)
        await self._admit(caller, context)
        self.calls[caller.name] += 1
        try:
            try:
                return await answer(caller)
            except ProtocolError as error:
                refusal = grpc.StatusCode.FAILED_PRECONDITION, str(error)
            except (WireError, ArtifactError, IdentityError) as error:
                self.node.penalties.record(caller.name, str(error))
                refusal = grpc.StatusCode.INVALID_ARGUMENT, plain(str(error))
            except TimeoutError:
                refusal = grpc.StatusCode.DEADLINE_EXCEEDED, f"'{caller.name}' was too slow"
            # Outside the except clauses, where the error would keep the received data alive: this waits for the caller.
            await context.abort(*refusal)
        finally:
            self.calls[caller.name] -= 1
        raise AssertionError  # (abort raises)

    async def _caller(self, context: Any) -> Credential:
        """The credential in the caller's certificate."""
        pem = next(iter(context.auth_context().get("x509_pem_cert", [])), b"")
        try:
            return credential_of(pem, self.node.identity.authority)
        except IdentityError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        raise AssertionError  # (abort raises)

    async def _admit(self, caller: Credential, context: Any) -> None:
        """Refuse a caller that is revoked, ignored, or has too many open calls."""
        if self.node.book.roster.refuses(caller.serial):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{caller.name}' was revoked")
        if self.node.penalties.ignores(caller.name):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{caller.name}' is ignored for a while")
        if self.calls[caller.name] >= AT_ONCE:
            text = f"'{caller.name}' already has {AT_ONCE} open calls"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def _answer_revoked(self, caller: Credential, request: bytes, context: Any) -> bytes:
        """Send a revoked peer a newer roster, so that it learns of it, and nothing else."""
        roster = self.node.book.roster
        with suppress(WireError):
            if Meeting.from_bytes(request).roster_version < roster.version:
                return Meeting(PROTOCOL, {}, {}, [], [], roster.to_bytes().decode(), roster.version).to_bytes()
        await self._admit(caller, context)
        raise AssertionError  # (it is not admitted)

    async def _check_agreement(self, context: Any, agreement: str) -> None:
        if agreement != self.node.agreement:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "different terms (method, labels or shapes): meet first"
            )

    async def _answer_meeting(self, caller: Credential, request: bytes, context: Any) -> bytes:
        meeting = Meeting.from_bytes(request)
        differences = difference(self.node.terms, meeting.agreement, caller.name, self.node.identity.name)
        if differences:
            self.node.say_once(
                caller.name, f"'{caller.name}' was refused: {with_names(differences, self.node.columns)}"
            )
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, differences)
        self.node.merge(caller.name, meeting)
        self.node.book.answered(caller.name)
        news, certificates = self.node.book.news_for(meeting.known)
        roster = self.node.book.roster
        newer = roster.to_bytes().decode() if roster.version > meeting.roster_version else ""
        return Meeting(
            PROTOCOL, self.node.terms, self.node.book.known(), news, certificates, newer, roster.version
        ).to_bytes()

    async def _answer_fetch(self, caller: Credential, request: bytes, context: Any) -> None:
        fetch = FetchRequest.from_bytes(request)
        await self._check_agreement(context, fetch.agreement)
        self._check_edge(caller)
        self.node.book.answered(caller.name)
        artifact = await self.node.host.find(
            fetch.name, fetch.round, min(max(fetch.wait, 0.0), self.node.settings.patience)
        )
        if artifact is None:
            text = f"no artifact '{plain(fetch.name, 80)}' of round {fetch.round}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
            raise AssertionError  # (abort raises)
        encoding, data = await in_thread_if_large(artifact.nbytes, lambda: self._encoded(caller.name, artifact, fetch))
        checksum = await in_thread_if_large(len(data), lambda: digest_of(data))
        header = ArtifactHeader(
            PROTOCOL, self.node.agreement, artifact.name, artifact.round, self.node.identity.name, caller.name,
            len(data), checksum, encoding, keep=self.node.settings.compress == "topk",
        )  # fmt: skip
        self.node.record(caller.name, "fetch", header, artifact)
        self.node.sent(caller.name, artifact.name, len(data))
        async with asyncio.timeout(self.node.settings.patience):  # a caller may read slowly or not at all
            async for message in stream(header, data):
                await context.write(message)

    def _encoded(self, to: str, artifact: Artifact, fetch: FetchRequest) -> tuple[str, bytes]:
        """Encode with this peer's setting if the caller accepts it."""
        wanted = self.node.settings.compress if self.node.settings.compress in fetch.accepts else "none"
        if wanted == "none":
            return wanted, self.node.host.bytes_of(artifact)
        if wanted == "topk":
            sender = self.senders.setdefault((to, artifact.name), compression.Sender(self.node.settings.share))
            return sender.encode(artifact, fetch.have)
        return wanted, compression.encode(artifact, wanted)

    def _check_edge(self, caller: Credential) -> None:
        """Refuse a peer that is not a neighbour in the [graph]. Honest peers know the graph and do not ask."""
        if not self.node.host.may_exchange_with(caller.number):
            raise WireError(f"'{caller.name}' (number {caller.number}) has no edge to '{self.node.identity.name}'")

    async def _answer_push(self, caller: Credential, requests: AsyncIterator[bytes], context: Any) -> bytes:
        self._check_edge(caller)
        header, author, data = await self._receive_push(caller, requests, context)
        decode, number = compression.decode, author.number
        artifact = await in_thread_if_large(len(data), lambda: opened(header, data, number, decode, self.node.largest))
        try:
            self.node.host.take(artifact, data, author.name, header.number)
        except RunError as error:
            self.node.broken = error
            await context.abort(grpc.StatusCode.INTERNAL, "this peer cannot store messages")
        self.node.book.answered(caller.name)
        return Receipt(True).to_bytes()

    async def _receive_push(
        self, caller: Credential, requests: AsyncIterator[bytes], context: Any
    ) -> tuple[ArtifactHeader, Credential, bytes]:
        """A pushed artifact: header, author and bytes. The header is checked before the rest is read."""
        assembly = author = None
        async with asyncio.timeout(self.node.settings.patience):
            async for message in requests:
                if assembly is not None:
                    assembly.add(message)
                    continue
                header = ArtifactHeader.from_bytes(message)
                await self._check_agreement(context, header.agreement)
                author, assembly = self._author_of(header, caller), Assembly(header, self.node.largest)
        if assembly is None or not assembly.complete:
            await asyncio.sleep(BREAKS_OFF)
        if assembly is None or author is None:
            raise WireError("a push without a header")
        return assembly.header, author, assembly.whole()

    def _author_of(self, header: ArtifactHeader, caller: Credential) -> Credential:
        """The author: the caller, or another peer whose signature the header carries."""
        what = f"'{plain(header.name, 80)}' names '{plain(header.author, 80)}' as its author"
        entry = self.node.book.entries.get(header.author)
        author = caller if header.author == caller.name else entry.credential if entry else None
        if author is None:
            raise WireError(f"{what}, which is not a known peer")
        if not author.signed(header.signed_part(), header.signature):
            raise WireError(f"{what}, but is not signed by that peer")
        if header.to != self.node.identity.name:
            raise WireError(f"{what}, but is addressed to '{plain(header.to, 80)}'")
        if header.encoding != "none":  # the bytes are stored unchanged
            raise WireError(f"{what}, but a message cannot be encoded as '{plain(header.encoding, 80)}'")
        return author


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Maps calls to methods of the service. Without serialisers, requests and answers are bytes."""

    def __init__(self, service: Service) -> None:
        self._handlers = {
            f"/{SERVICE}/Meet": grpc.unary_unary_rpc_method_handler(service.meeting),
            f"/{SERVICE}/Fetch": grpc.unary_stream_rpc_method_handler(service.fetch),
            f"/{SERVICE}/Push": grpc.stream_unary_rpc_method_handler(service.push),
        }

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)
