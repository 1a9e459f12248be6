"""When others come: who may call, what they may have, and what is taken from them.

Every call is bound to the name in its caller's certificate. What is wrong with it is its caller's offence.
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
from coterie.network import compression
from coterie.network.agreement import difference, with_names
from coterie.network.framing import aside, opened, stream
from coterie.network.keys import Credential, IdentityError, credential_of
from coterie.network.wire import (
    CHUNK,
    LARGEST_MESSAGE,
    PROTOCOL,
    ArtifactHeader,
    Ask,
    Assembly,
    Meeting,
    ProtocolError,
    Receipt,
    WireError,
    digest_of,
    plain,
)

if TYPE_CHECKING:
    from coterie.network.node import Node

SERVICE = "coterie.Peer"
AT_ONCE = 8  # calls of one peer that are served at a time: each may hold an artifact; an honest one has three
BREAKS_OFF = 0.5  # seconds at most from the end of a stream to the news that it was not meant to end

OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second process on the same port would get half of the calls
    ("grpc.max_receive_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_send_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_concurrent_streams", 4 * AT_ONCE),
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),  # less than the others' keepalive
]

T = TypeVar("T")


class Host(Protocol):
    """What the engine does when others come: it has the shelf and the letter box."""

    def may_exchange_with(self, number: int) -> bool: ...

    async def find(self, name: str, round: int, wait: float) -> Artifact | None: ...

    def bytes_of(self, artifact: Artifact) -> bytes: ...

    def take(self, letter: Artifact, data: bytes, sender: str, number: str) -> None: ...


class Service:
    """The three calls that a peer answers: meetings, fetches and letters."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.calls: Counter[str] = Counter()  # that are being served, by who called
        self.senders: dict[tuple[str, str], compression.Sender] = {}  # by recipient and artifact

    async def meeting(self, request: bytes, context: Any) -> bytes:
        holder = await self._holder(context)
        if self.node.book.roster.refuses(holder.serial):
            return await self._dismissed(holder, request, context)
        return await self._served(context, lambda caller: self._answer_meeting(caller, request, context))

    async def fetch(self, request: bytes, context: Any) -> None:
        await self._served(context, lambda caller: self._answer_fetch(caller, request, context))

    async def push(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return await self._served(context, lambda caller: self._answer_push(caller, requests, context))

    async def _served(self, context: Any, answer: Callable[[Credential], Awaitable[T]]) -> T:
        """Answer a call, if its caller may call; what is wrong with it is its caller's offence."""
        caller = await self._holder(context)
        await self._admit(caller, context)
        self.calls[caller.name] += 1
        try:
            try:
                return await answer(caller)
            except ProtocolError as error:
                refusal = grpc.StatusCode.FAILED_PRECONDITION, str(error)
            except (WireError, ArtifactError, IdentityError) as error:
                self.node.conduct.offended(caller.name, str(error))
                refusal = grpc.StatusCode.INVALID_ARGUMENT, plain(str(error))
            except TimeoutError:
                refusal = grpc.StatusCode.DEADLINE_EXCEEDED, f"'{caller.name}' was too slow"
            # Not in the clauses above, where the error keeps what was received or read: this waits for the caller.
            await context.abort(*refusal)
        finally:
            self.calls[caller.name] -= 1
        raise AssertionError  # (abort raises)

    async def _holder(self, context: Any) -> Credential:
        """Whose certificate this call came with."""
        pem = next(iter(context.auth_context().get("x509_pem_cert", [])), b"")
        try:
            return credential_of(pem, self.node.identity.authority)
        except IdentityError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        raise AssertionError  # (abort raises)

    async def _admit(self, caller: Credential, context: Any) -> None:
        """Turn away who is revoked, who is ignored, and who has too many calls here."""
        if self.node.book.roster.refuses(caller.serial):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{caller.name}' was revoked")
        if self.node.conduct.ignores(caller.name):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{caller.name}' is ignored for a while")
        if self.calls[caller.name] >= AT_ONCE:
            text = f"'{caller.name}' has {AT_ONCE} calls here already"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def _dismissed(self, caller: Credential, request: bytes, context: Any) -> bytes:
        """Who was revoked gets the roster if it has an older one, so that it can know; and nothing else."""
        roster = self.node.book.roster
        with suppress(WireError):
            if Meeting.from_bytes(request).roster_version < roster.version:
                return Meeting(PROTOCOL, {}, {}, [], [], roster.to_bytes().decode(), roster.version).to_bytes()
        await self._admit(caller, context)
        raise AssertionError  # (it is not admitted)

    async def _agree(self, context: Any, agreement: str) -> None:
        if agreement != self.node.agreement:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another method, labels or shapes: meet first")

    async def _answer_meeting(self, caller: Credential, request: bytes, context: Any) -> bytes:
        meeting = Meeting.from_bytes(request)
        differs = difference(self.node.terms, meeting.agreement, caller.name, self.node.identity.name)
        if differs:
            self.node.say_once(caller.name, f"'{caller.name}' was refused: {with_names(differs, self.node.columns)}")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, differs)
        self.node.heard(caller.name, meeting)
        self.node.book.answered(caller.name)
        news, certificates = self.node.book.news_for(meeting.known)
        roster = self.node.book.roster
        newer = roster.to_bytes().decode() if roster.version > meeting.roster_version else ""
        return Meeting(
            PROTOCOL, self.node.terms, self.node.book.known(), news, certificates, newer, roster.version
        ).to_bytes()

    async def _answer_fetch(self, caller: Credential, request: bytes, context: Any) -> None:
        ask = Ask.from_bytes(request)
        await self._agree(context, ask.agreement)
        self._check_edge(caller)
        self.node.book.answered(caller.name)
        artifact = await self.node.host.find(ask.name, ask.round, min(max(ask.wait, 0.0), self.node.settings.patience))
        if artifact is None:
            text = f"nothing called '{plain(ask.name, 80)}' of round {ask.round}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
            raise AssertionError  # (abort raises)
        encoding, data = await aside(artifact.nbytes, lambda: self._encoded(caller.name, artifact, ask))
        checksum = await aside(len(data), lambda: digest_of(data))
        parcel = ArtifactHeader(
            PROTOCOL, self.node.agreement, artifact.name, artifact.round, self.node.identity.name, caller.name,
            len(data), checksum, encoding, keep=self.node.settings.compress == "topk",
        )  # fmt: skip
        self.node.record(caller.name, "fetch", parcel, artifact)
        self.node.sent(caller.name, artifact.name, len(data))
        async with asyncio.timeout(self.node.settings.patience):  # some read slowly, or not at all
            async for message in stream(parcel, data):
                await context.write(message)

    def _encoded(self, to: str, artifact: Artifact, ask: Ask) -> tuple[str, bytes]:
        """As this peer would like to send it, if the other understands that."""
        wanted = self.node.settings.compress if self.node.settings.compress in ask.accepts else "none"
        if wanted == "none":
            return wanted, self.node.host.bytes_of(artifact)
        if wanted == "topk":
            sender = self.senders.setdefault((to, artifact.name), compression.Sender(self.node.settings.share))
            return sender.encode(artifact, ask.have)
        return wanted, compression.encode(artifact, wanted)

    def _check_edge(self, caller: Credential) -> None:
        """Who is not next to this peer in the [graph] gets nothing here. Honest peers do not ask: they know it too."""
        if not self.node.host.may_exchange_with(caller.number):
            raise WireError(f"'{caller.name}' (number {caller.number}) has no edge to '{self.node.identity.name}'")

    async def _answer_push(self, caller: Credential, requests: AsyncIterator[bytes], context: Any) -> bytes:
        self._check_edge(caller)
        parcel, author, data = await self._incoming(caller, requests, context)
        decode, number = compression.decode, author.number
        artifact = await aside(len(data), lambda: opened(parcel, data, number, decode, self.node.largest))
        try:
            self.node.host.take(artifact, data, author.name, parcel.number)
        except RunError as error:
            self.node.broken = error
            await context.abort(grpc.StatusCode.INTERNAL, "this peer cannot keep letters")
        self.node.book.answered(caller.name)
        return Receipt(True).to_bytes()

    async def _incoming(
        self, caller: Credential, requests: AsyncIterator[bytes], context: Any
    ) -> tuple[ArtifactHeader, Credential, bytes]:
        """A letter: who made it, and its bytes; what its first message says is checked before the rest arrives."""
        assembly = author = None
        async with asyncio.timeout(self.node.settings.patience):
            async for message in requests:
                if assembly is not None:
                    assembly.add(message)
                    continue
                parcel = ArtifactHeader.from_bytes(message)
                await self._agree(context, parcel.agreement)
                author, assembly = self._author_of(parcel, caller), Assembly(parcel, self.node.largest)
        if assembly is None or not assembly.complete:
            await asyncio.sleep(BREAKS_OFF)
        if assembly is None or author is None:
            raise WireError("a parcel without a beginning")
        return assembly.parcel, author, assembly.whole()

    def _author_of(self, parcel: ArtifactHeader, caller: Credential) -> Credential:
        """Who made it: the sender, or somebody else whose signature it carries."""
        what = f"'{plain(parcel.name, 80)}' is said to be by '{plain(parcel.author, 80)}'"
        entry = self.node.book.entries.get(parcel.author)
        author = caller if parcel.author == caller.name else entry.credential if entry else None
        if author is None:
            raise WireError(f"{what}, whom nobody knows")
        if not author.signed(parcel.signed_part(), parcel.signature):
            raise WireError(f"{what}, and is not signed by it")
        if parcel.to != self.node.identity.name:
            raise WireError(f"{what}, and is for '{plain(parcel.to, 80)}'")
        if parcel.encoding != "none":  # it is kept as it came
            raise WireError(f"{what}, and a letter cannot be encoded as '{plain(parcel.encoding, 80)}'")
        return author


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Which function serves which call; without serialisers, requests and answers are bytes."""

    def __init__(self, service: Service) -> None:
        self._handlers = {
            f"/{SERVICE}/Meet": grpc.unary_unary_rpc_method_handler(service.meeting),
            f"/{SERVICE}/Fetch": grpc.unary_stream_rpc_method_handler(service.fetch),
            f"/{SERVICE}/Push": grpc.stream_unary_rpc_method_handler(service.push),
        }

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)
