"""One peer on the network: it meets others, serves what is on its shelf, takes letters, and fetches from others.

gRPC over mutual TLS with raw bytes (no generated code): every channel is bound to the one name that the other side's
certificate must carry, and every call to the name of its caller's. Channels are shared and never closed while
running: closing one would cancel everybody who awaits it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import grpc
import grpc.aio

from coterie.errors import ArtifactError, CoterieError, RunError
from coterie.network import compression
from coterie.network.agreement import AgreementError, difference, digest
from coterie.network.audit import AuditLog
from coterie.network.conduct import Conduct
from coterie.network.keys import ROSTER, Credential, Identity, IdentityError, Roster, credential_of, write_whole
from coterie.network.membership import AddressBook, Entry
from coterie.network.settings import NetworkSettings
from coterie.network.wire import (
    LARGEST_MESSAGE,
    PROTOCOL,
    Ask,
    Assembly,
    Meeting,
    Parcel,
    Receipt,
    WireError,
    chunks,
    digest_of,
)
from coterie.shelf import Artifact

SERVICE = "coterie.Peer"
LARGE = 1 << 20  # bytes
GRACE = 2.0  # seconds on top of a wait that was asked for, and between two chunks: the network's own delays
MEETING_TAKES = 3.0  # seconds at most
FANOUT = 2  # of those who answered lately, and as many of those who did not
GATHERING_INTERVAL = 0.25  # seconds between exchanges before the first round: everybody is eager to start
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 2 * LARGEST_MESSAGE),
    ("grpc.max_send_message_length", 2 * LARGEST_MESSAGE),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 3000),  # in truth: how long an attempt may take, three or four times there and back
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A connection over a cut cable is given up, for a new one. Else TCP would try it ever more rarely, and still be
    # waiting long after the cable was mended.
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # two names behind one address are two channels
    ("grpc.enable_http_proxy", 0),
]
_SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),  # else a second process on the same port would get half of the calls
    ("grpc.max_receive_message_length", 2 * LARGEST_MESSAGE),
    ("grpc.max_send_message_length", 2 * LARGEST_MESSAGE),
    ("grpc.max_concurrent_streams", 256),
    ("grpc.http2.min_ping_interval_without_data_ms", 2000),  # less than the others' keepalive
]


T = TypeVar("T")


class Host(Protocol):
    """What the engine does when others come: it has the shelf and the letter box."""

    async def find(self, name: str, round: int, wait: float) -> Artifact | None: ...

    def bytes_of(self, artifact: Artifact) -> bytes: ...

    def take(self, letter: Artifact, data: bytes, sender: str, number: str) -> None: ...


@dataclass
class Traffic:
    """What was exchanged with one peer, as bytes on the wire."""

    received: Counter[str] = field(default_factory=Counter)
    received_bytes: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0


@dataclass(frozen=True)
class Delivery:
    artifact: Artifact
    bytes: int  # as they came over the wire


class Node:
    def __init__(
        self,
        identity: Identity,
        book: AddressBook,
        terms: dict[str, str],
        settings: NetworkSettings,
        host: Host,
        audit: AuditLog,
        conduct: Conduct,
        say: Callable[[str], None],
        seeds: Iterable[tuple[str, str]] = (),
    ) -> None:
        self.identity, self.book, self.terms, self.settings = identity, book, terms, settings
        self.host, self.audit, self.conduct, self.say = host, audit, conduct, say
        self.seeds = [(name, endpoint) for name, endpoint in seeds if name != identity.name]
        self.agreement = digest(terms)
        self.largest = settings.largest << 20
        self.traffic: dict[str, Traffic] = {}
        self.refused: AgreementError | None = None  # by a seed: there is nobody to work with
        self.broken: Exception | None = None  # something that must end the run: an audit that cannot be written
        self._server: grpc.aio.Server | None = None
        self._channels: dict[tuple[str, str], grpc.aio.Channel] = {}
        self._they_know: dict[str, dict[str, str]] = {}  # by peer, what it said it knew
        self._senders: dict[tuple[str, str], compression.Sender] = {}
        self._receivers: dict[tuple[str, str], compression.Receiver] = {}
        self._talking: asyncio.Task[None] | None = None
        self._said: set[str] = set()
        self._roster_time = 0.0

    # -- being there ---------------------------------------------------------------------------

    async def start(self, listen: str) -> int:
        """Listen, and begin to tell and hear who is where; returns the port."""
        keys = [(self.identity.private_key, self.identity.credential.certificate)]
        credentials = grpc.ssl_server_credentials(keys, self.identity.authority, require_client_auth=True)
        self._server = grpc.aio.server(options=_SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((_Handlers(self),))
        try:
            port = self._server.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise CoterieError(f"peer.listen = '{listen}' cannot be used ({error}): is the port taken?") from error
        await self._server.start()
        return int(port)

    def talk(self) -> None:
        self._talking = asyncio.create_task(self._talk())

    async def stop(self) -> None:
        if self._talking:
            self._talking.cancel()
            with suppress(asyncio.CancelledError):
                await self._talking
        if self._server:
            await self._server.stop(grace=0.5)
        for channel in self._channels.values():
            await channel.close()

    # -- who is where --------------------------------------------------------------------------

    async def _talk(self) -> None:
        """For ever: exchange announcements with a few peers, those who fell silent among them."""
        while True:
            self._look_for_roster()
            await asyncio.gather(*(self.meet(name, endpoint) for name, endpoint in self._whom_to_meet()))
            gathering = self.book.mine.round == 0
            pause = min(GATHERING_INTERVAL, self.settings.interval) if gathering else self.settings.interval
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))

    def _whom_to_meet(self) -> list[tuple[str, str]]:
        there, silent = self.book.there(), [e for e in self.book.companions() if e.silent]
        chosen = random.sample(there, min(FANOUT, len(there))) + random.sample(silent, min(FANOUT, len(silent)))
        places = {e.announcement.name: e.announcement.endpoint for e in chosen}
        unmet = [seed for seed in self.seeds if seed[0] not in self.book.entries]
        return [*places.items(), *unmet]

    async def meet(self, name: str, endpoint: str) -> bool:
        """Tell a peer what is new, and hear what is new there; whether it answered."""
        call = self._channel(name, endpoint).unary_unary(f"/{SERVICE}/Meet")
        try:
            answer = await call(self._meeting(name).to_bytes(), timeout=MEETING_TAKES)
            self._heard(name, Meeting.from_bytes(answer))
        except grpc.aio.AioRpcError as error:
            self._failed(name, error)
            return False
        except (WireError, IdentityError) as error:
            self.conduct.offended(name, str(error))
            return False
        self.book.answered(name)
        return True

    def _meeting(self, to: str) -> Meeting:
        news, certificates = self.book.news_for(self._they_know.get(to, {}))
        return Meeting(
            PROTOCOL, self.terms, self.book.known(), news, certificates,
            self.book.roster.to_bytes().decode(), self.book.roster.version,
        )  # fmt: skip

    def _heard(self, name: str, meeting: Meeting) -> None:
        self._they_know[name] = {**meeting.known}
        self.book.hear(meeting.news, meeting.certificates)
        if meeting.roster_version > self.book.roster.version:
            roster = Roster.from_bytes(meeting.roster.encode(), self.identity.authority)
            if self.book.take_roster(roster):
                self._keep_roster()

    def _look_for_roster(self) -> None:
        """A newer roster that somebody put into the folder of keys counts from now on."""
        path = self.identity.folder / ROSTER
        with suppress(OSError, IdentityError):
            changed = path.stat().st_mtime
            if changed != self._roster_time:
                self._roster_time = changed
                if self.book.take_roster(Roster.from_bytes(path.read_bytes(), self.identity.authority)):
                    self.say(f"a newer roster, version {self.book.roster.version}, was put into {path}")

    def _keep_roster(self) -> None:
        self.say(f"heard of a newer roster, version {self.book.roster.version}")
        with suppress(OSError):
            write_whole(self.identity.folder / ROSTER, self.book.roster.to_bytes())
        if self.book.roster.refuses(self.identity.credential.serial):
            self.broken = IdentityError(
                f"'{self.identity.name}' was revoked: nobody in the circle talks to it any more"
            )

    # -- fetching and sending ------------------------------------------------------------------

    def entry(self, number: int) -> Entry | None:
        """Whom to ask under this number, if there is somebody and it is worth asking."""
        entry = self.book.entries.get(self.book.by_number.get(number, ""))
        if entry is None or entry.trouble or entry.announcement.agreement != self.agreement:
            return None
        return None if self.conduct.ignores(entry.announcement.name) else entry

    async def fetch(self, number: int, name: str, round: int, wait: float) -> Delivery | None:
        """An artifact of one peer, checked; None if it has none, is not there, or sent something else."""
        entry = self.entry(number)
        if entry is None or entry.silent:
            return None
        author = entry.announcement.name
        receiver = self._receivers.get((author, name)) or compression.Receiver()
        accepts = list(compression.ENCODINGS)
        ask = Ask(PROTOCOL, self.agreement, name, round, wait, accepts, receiver.have)
        open_call = self._channel(author, entry.announcement.endpoint).unary_stream(f"/{SERVICE}/Fetch")
        call = open_call(ask.to_bytes(), timeout=wait + self.settings.patience + GRACE)
        try:
            parcel, data = await self._arriving(call, wait)
            delivery = await aside(len(data), lambda: self._opened(parcel, data, entry, name, receiver))
        except grpc.aio.AioRpcError as error:
            self._failed(author, error)
            return None
        except TimeoutError:
            self.book.failed(author)
            return None
        except (WireError, ArtifactError) as error:
            self.conduct.offended(author, str(error))
            return None
        finally:
            call.cancel()
        if receiver.have:
            self._receivers[author, name] = receiver
        self.book.answered(author)
        traffic = self.traffic.setdefault(author, Traffic())
        traffic.received[name] += 1
        traffic.received_bytes += delivery.bytes
        return delivery

    async def _arriving(self, call: Any, wait: float) -> tuple[Parcel, bytes]:
        """Read a stream: the first message by the deadline, the others without a pause."""
        async with asyncio.timeout(wait + self.settings.patience):  # also of one that drips
            async with asyncio.timeout(wait + GRACE):
                first = await call.read()
            if not isinstance(first, bytes):
                raise WireError("an answer without a beginning")
            parcel = Parcel.from_bytes(first)
            assembly = Assembly(parcel, self.largest)
            while True:
                async with asyncio.timeout(GRACE + self.settings.patience / 10):
                    chunk = await call.read()
                if not isinstance(chunk, bytes):
                    return parcel, assembly.whole()
                assembly.add(chunk)

    def _opened(self, parcel: Parcel, data: bytes, entry: Entry, name: str, receiver: compression.Receiver) -> Delivery:
        if parcel.protocol != PROTOCOL or parcel.name != name or parcel.author != entry.announcement.name:
            raise WireError(f"'{name}' was asked for, and '{parcel.name}' of '{parcel.author}' came")
        decode = receiver.decode if parcel.keep else compression.decode
        artifact = decode(data, parcel.encoding, self.largest)
        check_label(artifact, parcel, entry.credential.number)
        return Delivery(artifact, len(data))

    async def send(self, number: int, artifact: Artifact, letter: str, wait: float) -> int:
        """Push an artifact to one peer; how many bytes it took, or 0 if it did not take it."""
        entry = self.entry(number)
        if entry is None:
            return 0
        name = entry.announcement.name
        data = self.host.bytes_of(artifact)
        parcel = Parcel(
            PROTOCOL, self.agreement, artifact.name, artifact.round, self.identity.name, name, len(data),
            digest_of(data), "none", number=letter,
        )  # fmt: skip
        parcel = self._signed(parcel)
        self._audit(name, "push", parcel, artifact)
        call = self._channel(name, entry.announcement.endpoint).stream_unary(f"/{SERVICE}/Push")
        try:
            answer = await call(_stream(parcel, data), timeout=wait + GRACE, wait_for_ready=True)
            receipt = Receipt.from_bytes(answer)
        except grpc.aio.AioRpcError as error:
            self._failed(name, error)
            return 0
        except WireError as error:
            self.conduct.offended(name, str(error))
            return 0
        self.book.answered(name)
        if not receipt.taken:
            self._say_once(f"'{name}' did not take '{artifact.name}': {receipt.reason[:200]}")
            return 0
        self._sent(name, artifact.name, len(data))
        return len(data)

    def _signed(self, parcel: Parcel) -> Parcel:
        return replace(parcel, signature=self.identity.sign(parcel.signed_part()).hex())

    def _sent(self, to: str, name: str, size: int) -> None:
        traffic = self.traffic.setdefault(to, Traffic())
        traffic.sent[name] += 1
        traffic.sent_bytes += size

    def _audit(self, to: str, how: str, parcel: Parcel, artifact: Artifact) -> None:
        """Before anything leaves. What cannot be recorded does not leave, and the run ends."""
        as_shelved = parcel.digest if parcel.encoding == "none" else digest_of(self.host.bytes_of(artifact))
        try:
            self.audit.record(
                to=to, how=how, name=parcel.name, round=parcel.round, bytes=parcel.size, digest=as_shelved,
                encoding=parcel.encoding,
            )  # fmt: skip
        except CoterieError as error:
            self.broken = error
            raise

    def _channel(self, name: str, endpoint: str) -> grpc.aio.Channel:
        key = name, endpoint
        if key not in self._channels:
            credentials = grpc.ssl_channel_credentials(
                self.identity.authority, self.identity.private_key, self.identity.credential.certificate
            )
            options = [*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name)]
            self._channels[key] = grpc.aio.secure_channel(endpoint, credentials, options=options)
        return self._channels[key]

    def _failed(self, name: str, error: grpc.aio.AioRpcError) -> None:
        """What a call that did not succeed says of the other side."""
        code, details = error.code(), str(error.details() or "")[:300]
        if code == grpc.StatusCode.NOT_FOUND:  # it is there, and has nothing
            self.book.answered(name)
            return
        if code == grpc.StatusCode.FAILED_PRECONDITION:
            self._disagrees(name, details)
            return
        self.book.failed(name)
        if code not in GONE:
            self._say_once(f"'{name}' refused: {details}")
        elif "handshake" in details.lower() or "certificate" in details.lower():
            self._say_once(f"'{name}' cannot be talked to: its certificate, or this peer's, is refused ({details})")

    def _disagrees(self, name: str, details: str) -> None:
        self._say_once(f"'{name}' does not run the same: {details}")
        if name in self.book.entries:
            self.book.entries[name].trouble = details
        if any(name == seed for seed, _ in self.seeds) and self.book.mine.round == 0:
            self.refused = AgreementError(f"'{name}' does not run the same: {details}")

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < 1000:
            self._said.add(text)
            self.say(text)

    # -- when others come ----------------------------------------------------------------------

    async def caller(self, context: Any) -> Credential:
        """Whose certificate this call came with; who is revoked or ignored is turned away."""
        pem = next(iter(context.auth_context().get("x509_pem_cert", [])), b"")
        try:
            credential = credential_of(pem, self.identity.authority)
        except IdentityError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        if self.book.roster.refuses(credential.serial):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{credential.name}' was revoked")
        if self.conduct.ignores(credential.name):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{credential.name}' is ignored for a while")
        return credential

    async def same(self, context: Any, protocol: int, agreement: str) -> None:
        if protocol != PROTOCOL:
            text = f"protocol {protocol} is spoken there and {PROTOCOL} here: update Coterie on the older side"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        if agreement != self.agreement:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another method, labels or shapes: meet first")

    async def serve_meeting(self, request: bytes, context: Any) -> bytes:
        caller = await self.caller(context)
        try:
            meeting = Meeting.from_bytes(request)
            if meeting.protocol != PROTOCOL:
                await self.same(context, meeting.protocol, "")
            differs = difference(self.terms, meeting.agreement, caller.name)
            if differs:
                self._say_once(f"'{caller.name}' was refused: {differs}")
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, differs)
            self._heard(caller.name, meeting)
        except (WireError, IdentityError) as error:
            await self._offence(caller, error, context)
        self.book.answered(caller.name)
        news, certificates = self.book.news_for(meeting.known)
        roster = self.book.roster
        newer = roster.to_bytes().decode() if roster.version > meeting.roster_version else ""
        return Meeting(PROTOCOL, self.terms, self.book.known(), news, certificates, newer, roster.version).to_bytes()

    async def serve_fetch(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        caller = await self.caller(context)
        try:
            ask = Ask.from_bytes(request)
        except WireError as error:
            await self._offence(caller, error, context)
        await self.same(context, ask.protocol, ask.agreement)
        self.book.answered(caller.name)
        artifact = await self.host.find(ask.name, ask.round, min(max(ask.wait, 0.0), self.settings.patience))
        if artifact is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"nothing called '{ask.name[:80]}' of round {ask.round}")
            raise AssertionError  # (abort raises)
        encoding, data = await aside(artifact.nbytes, lambda: self._encoded(caller.name, artifact, ask))
        checksum = await aside(len(data), lambda: digest_of(data))
        parcel = Parcel(
            PROTOCOL, self.agreement, artifact.name, artifact.round, self.identity.name, caller.name, len(data),
            checksum, encoding, keep=self.settings.compress == "topk",
        )  # fmt: skip
        self._audit(caller.name, "fetch", parcel, artifact)
        self._sent(caller.name, artifact.name, len(data))
        yield parcel.to_bytes()
        for chunk in chunks(data):
            yield chunk

    def _encoded(self, to: str, artifact: Artifact, ask: Ask) -> tuple[str, bytes]:
        """As this peer would like to send it, if the other understands that."""
        wanted = self.settings.compress if self.settings.compress in ask.accepts else "none"
        if wanted == "none":
            return wanted, self.host.bytes_of(artifact)
        if wanted == "topk":
            sender = self._senders.setdefault((to, artifact.name), compression.Sender(self.settings.share))
            return sender.encode(artifact, ask.have)
        return wanted, compression.encode(artifact, wanted)

    async def serve_push(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        caller = await self.caller(context)
        try:
            parcel, data = await self._incoming(requests)
            await self.same(context, parcel.protocol, parcel.agreement)
            author = self._author_of(parcel, caller)
            artifact = compression.decode(data, parcel.encoding, self.largest)
            check_label(artifact, parcel, author.number)
            self.host.take(artifact, data, author.name, parcel.number)
        except (WireError, ArtifactError) as error:
            await self._offence(caller, error, context)
        except RunError as error:
            self.broken = error
            await context.abort(grpc.StatusCode.INTERNAL, "this peer cannot keep letters")
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the parcel did not arrive whole in time")
        self.book.answered(caller.name)
        return Receipt(True).to_bytes()

    async def _incoming(self, requests: AsyncIterator[bytes]) -> tuple[Parcel, bytes]:
        async with asyncio.timeout(self.settings.patience):
            assembly = None
            async for message in requests:
                if assembly is None:
                    assembly = Assembly(Parcel.from_bytes(message), self.largest)
                else:
                    assembly.add(message)
        if assembly is None:
            raise WireError("a parcel without a beginning")
        return assembly.parcel, assembly.whole()

    def _author_of(self, parcel: Parcel, caller: Credential) -> Credential:
        """Who made it: the sender, or somebody else whose signature it carries."""
        entry = self.book.entries.get(parcel.author)
        author = caller if parcel.author == caller.name else entry.credential if entry else None
        if author is None:
            raise WireError(f"'{parcel.name}' is said to be by '{parcel.author[:64]}', whom nobody knows")
        try:
            signature = bytes.fromhex(parcel.signature)
        except ValueError:
            signature = b""
        if not author.verify(parcel.signed_part(), signature):
            raise WireError(f"'{parcel.name}' is said to be by '{parcel.author}', and is not signed by it")
        return author

    async def _offence(self, caller: Credential, error: Exception, context: Any) -> None:
        self.conduct.offended(caller.name, str(error))
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:300])


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Which function serves which call; without serialisers, requests and answers are bytes."""

    def __init__(self, node: Node) -> None:
        self._handlers = {
            f"/{SERVICE}/Meet": grpc.unary_unary_rpc_method_handler(node.serve_meeting),
            f"/{SERVICE}/Fetch": grpc.unary_stream_rpc_method_handler(node.serve_fetch),
            f"/{SERVICE}/Push": grpc.stream_unary_rpc_method_handler(node.serve_push),
        }

    def service(self, handler_call_details: Any) -> Any:
        return self._handlers.get(handler_call_details.method)


def check_label(artifact: Artifact, parcel: Parcel, number: int) -> None:
    """An artifact must be what its parcel says, by who sent it, and of finite numbers."""
    said = (artifact.name, artifact.round, artifact.author)
    if said != (parcel.name, parcel.round, number):
        raise ArtifactError(
            f"'{parcel.name}' of round {parcel.round} by {number} came, and inside it says '{said[0]}' of round "
            f"{said[1]} by {said[2]}"
        )
    if artifact.not_finite:
        raise ArtifactError(f"'{artifact.name}': '{artifact.not_finite}' has numbers that are not finite")


async def aside(size: int, work: Callable[[], T]) -> T:
    """Large artifacts are packed, hashed and unpacked in a thread: nobody else should wait for that."""
    return await asyncio.to_thread(work) if size > LARGE else work()


async def _stream(parcel: Parcel, data: bytes) -> AsyncIterator[bytes]:
    yield parcel.to_bytes()
    for chunk in chunks(data):
        yield chunk
