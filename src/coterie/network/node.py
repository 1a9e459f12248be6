"""One peer on the network: it meets others, serves what is on its shelf, takes letters, and fetches from others.

gRPC over mutual TLS with raw bytes (no generated code): every channel is bound to the one name that the other side's
certificate must carry (where artifacts pass: to that very certificate), and every call to the name of its caller's.
Channels are shared, and closed while running only when nobody uses them any more: closing cancels who awaits.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
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
    CHUNK,
    LARGEST_MESSAGE,
    LARGEST_NUMBER,
    PROTOCOL,
    Ask,
    Assembly,
    Meeting,
    Parcel,
    ProtocolError,
    Receipt,
    WireError,
    chunks,
    digest_of,
    plain,
)
from coterie.shelf import Artifact

SERVICE = "coterie.Peer"
LARGE = 1 << 20  # bytes
TRY_AGAIN = 0.2  # seconds after a connection broke
GRACE = 2.0  # seconds on top of a wait that was asked for, and between two chunks: the network's own delays
MEETING_TAKES = 3.0  # seconds at most
FANOUT = 2  # of those who answered lately, and as many of those who did not
GATHERING_INTERVAL = 0.25  # seconds between exchanges before the first round: everybody is eager to start
BREAKS_OFF = 0.5  # seconds at most from the end of a stream to the news that it was not meant to end
AT_ONCE = 8  # calls of one peer that are served at a time: each may hold an artifact; an honest one has three
MOST_CHANNELS = 8  # to one name: a peer that moves leaves some behind
LONGEST_DETAILS = 2000  # characters of why a call was refused: both values of three settings
MOST_SAID = 20  # lines about one peer: it cannot fill a log, nor keep others out of it
LONGEST_KNOWN = 80  # characters of a version and a serial
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_send_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 3000),  # in truth how long an attempt may take: four times there and back
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
    ("grpc.max_receive_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_send_message_length", LARGEST_MESSAGE + CHUNK),
    ("grpc.max_concurrent_streams", 4 * AT_ONCE),
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
        self._channels: dict[tuple[str, str, str], grpc.aio.Channel] = {}  # by name, endpoint and serial
        self._retired: dict[asyncio.Task[None], grpc.aio.Channel] = {}
        self._calls: Counter[str] = Counter()  # that are being served, by who called
        self._unlike: set[str] = set()  # who refused us, because we do not run the same
        self._they_know: dict[str, dict[str, str]] = {}  # by peer, what it said it knew
        self._senders: dict[tuple[str, str], compression.Sender] = {}
        self._receivers: dict[tuple[str, str], compression.Receiver] = {}
        self._talking: asyncio.Task[None] | None = None
        self._said: dict[str, set[str]] = {}
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
        for closing in self._retired:
            closing.cancel()
        for channel in (*self._channels.values(), *self._retired.values()):
            await channel.close()

    # -- who is where --------------------------------------------------------------------------

    async def _talk(self) -> None:
        """For ever: exchange announcements with a few peers, those who fell silent among them."""
        try:
            while True:
                began = time.monotonic()
                self._look_for_roster()
                await self._meet_some()
                gathering = self.book.mine.round == 0
                pause = min(GATHERING_INTERVAL, self.settings.interval) if gathering else self.settings.interval
                # Where somebody does not answer, waiting for that was pause enough.
                await asyncio.sleep(max(0.0, pause * random.uniform(0.5, 1.5) - (time.monotonic() - began)))
        except Exception as error:  # nobody awaits this: the engine finds it, instead of a peer that fell silent
            self.broken = error

    async def _meet_some(self) -> None:
        there, silent = self.book.there(), [e for e in self.book.companions() if e.silent]
        chosen = random.sample(there, min(FANOUT, len(there))) + random.sample(silent, min(FANOUT, len(silent)))
        unmet = [seed for seed in self.seeds if seed[0] not in self.book.entries]
        await self._meet_all([*map(_place, chosen), *unmet])
        if any(not e.silent for e in silent):  # what cut it off is over: most likely for the others, too
            await self._meet_all([_place(e) for e in silent if e.silent])

    async def _meet_all(self, places: Iterable[tuple[str, str]]) -> None:
        wanted = [(name, endpoint) for name, endpoint in places if not self.conduct.ignores(name)]
        await asyncio.gather(*(self.meet(name, endpoint) for name, endpoint in wanted))

    async def meet(self, name: str, endpoint: str) -> bool:
        """Tell a peer what is new, and hear what is new there; whether it answered."""
        call = self._channel(name, endpoint).unary_unary(f"/{SERVICE}/Meet")
        try:
            answer = await call(self._meeting(name).to_bytes(), timeout=MEETING_TAKES)
            self._heard(name, Meeting.from_bytes(answer))
        except grpc.aio.AioRpcError as error:
            if broke_off(error) or error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                self.book.unheard(name)  # a busy machine, perhaps: fetches decide
            else:
                self._failed(name, error)
            return False
        except ProtocolError as error:
            self._disagrees(name, str(error))
            return False
        except (WireError, IdentityError) as error:
            self.conduct.offended(name, str(error))
            return False
        self._unlike.discard(name)
        self.book.answered(name)
        return True

    def _meeting(self, to: str) -> Meeting:
        news, certificates = self.book.news_for(self._they_know.get(to, {}))
        return Meeting(
            PROTOCOL, self.terms, self.book.known(), news, certificates,
            self.book.roster.to_bytes().decode(), self.book.roster.version,
        )  # fmt: skip

    def _heard(self, name: str, meeting: Meeting) -> None:
        self.book.hear(meeting.news, meeting.certificates)
        known = self.book.known()  # of whom nobody else has heard, nobody needs to remember what is known
        self._they_know[name] = {n: said[:LONGEST_KNOWN] for n, said in meeting.known.items() if n in known}
        if meeting.roster_version > self.book.roster.version:
            roster = Roster.from_bytes(meeting.roster.encode(), self.identity.authority)
            if self._take_roster(roster, f"was heard from '{name}'"):
                with suppress(OSError):
                    write_whole(self.identity.folder / ROSTER, roster.to_bytes())

    def _look_for_roster(self) -> None:
        """A newer roster that somebody put into the folder of keys counts from now on."""
        path = self.identity.folder / ROSTER
        with suppress(OSError, IdentityError):
            changed = path.stat().st_mtime
            if changed != self._roster_time:
                self._roster_time = changed
                self._take_roster(Roster.from_bytes(path.read_bytes(), self.identity.authority), f"was put into {path}")

    def _take_roster(self, roster: Roster, whence: str) -> bool:
        """The newest counts from now on: for others, and for oneself."""
        if not self.book.take_roster(roster):
            return False
        self.say(f"a newer roster, version {roster.version}, {whence}")
        if roster.refuses(self.identity.credential.serial):
            self.broken = IdentityError(
                f"'{self.identity.name}' was revoked: nobody in the circle talks to it any more. "
                "Only the keeper of the circle's authority can issue another certificate"
            )
        return True

    # -- fetching and sending ------------------------------------------------------------------

    def entry(self, number: int) -> Entry | None:
        """Whom to ask under this number, if there is somebody and it is worth asking."""
        entry = self.book.entries.get(self.book.by_number.get(number, ""))
        if entry is None or entry.trouble or entry.announcement.agreement != self.agreement:
            return None
        return None if self.conduct.ignores(entry.announcement.name) else entry

    async def fetch(self, number: int, name: str, round: int, wait: float) -> Delivery | None:
        """An artifact of one peer, checked; None if it has none, is not there, or sent something else.

        A refused connection means that nobody is there. One that breaks may only be a busy machine: that is tried
        again, as long as there is time.
        """
        until = time.monotonic() + wait
        while True:
            entry = self.entry(number)
            if entry is None or entry.silent:
                return None
            left = until - time.monotonic()
            try:
                return await self._fetch_once(entry, name, round, max(left, 0.0))
            except ConnectionError:
                if left <= 0:
                    self.book.failed(entry.announcement.name)
                    return None
                await asyncio.sleep(min(TRY_AGAIN, left))

    async def _fetch_once(self, entry: Entry, name: str, round: int, wait: float) -> Delivery | None:
        author = entry.announcement.name
        receiver = self._receivers.get((author, name)) or compression.Receiver()
        accepts = list(compression.ENCODINGS)
        ask = Ask(PROTOCOL, self.agreement, name, round, wait, accepts, receiver.have)
        open_call = self._channel_to(entry).unary_stream(f"/{SERVICE}/Fetch")
        call = open_call(ask.to_bytes(), timeout=wait + self.settings.patience + GRACE)
        try:
            parcel, data = await self._arriving(call, wait, lambda parcel: self._check_answer(parcel, entry, name))
            decode = receiver.decode if parcel.keep else compression.decode
            number = entry.credential.number
            artifact = await aside(len(data), lambda: opened(parcel, data, number, decode, self.largest))
        except grpc.aio.AioRpcError as error:
            if broke_off(error):
                raise ConnectionError(author) from error
            self._failed(author, error)
            return None
        except TimeoutError:
            self.book.failed(author)
            return None
        except ProtocolError as error:
            self._disagrees(author, str(error))
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
        traffic.received_bytes += len(data)
        return Delivery(artifact, len(data))

    async def _arriving(self, call: Any, wait: float, check: Callable[[Parcel], None]) -> tuple[Parcel, bytes]:
        """Read a stream: the first message by the deadline, the others without a pause."""
        async with asyncio.timeout(wait + self.settings.patience):  # also of one that drips
            async with asyncio.timeout(wait + GRACE):
                first = await call.read()
            if not isinstance(first, bytes):
                raise WireError("an answer without a beginning")
            parcel = Parcel.from_bytes(first)
            check(parcel)  # before the rest arrives
            assembly = Assembly(parcel, self.largest)
            while True:
                async with asyncio.timeout(GRACE + self.settings.patience / 10):
                    chunk = await call.read()
                if not isinstance(chunk, bytes):
                    return parcel, assembly.whole()
                assembly.add(chunk)

    def _check_answer(self, parcel: Parcel, entry: Entry, name: str) -> None:
        asked = name, entry.announcement.name, self.identity.name, self.agreement
        if (parcel.name, parcel.author, parcel.to, parcel.agreement) != asked:
            came = f"'{plain(parcel.name, 80)}' of '{plain(parcel.author, 80)}' for '{plain(parcel.to, 80)}'"
            raise WireError(f"'{name}' was asked for, and {came} came")

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
        call = self._channel_to(entry).stream_unary(f"/{SERVICE}/Push")
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
            self._say_once(name, f"'{name}' did not take '{artifact.name}': {plain(receipt.reason)}")
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

    def _channel_to(self, entry: Entry) -> grpc.aio.Channel:
        """For artifacts: with nobody but the holder of this certificate. An older one of its name may be revoked."""
        return self._channel(entry.announcement.name, entry.announcement.endpoint, entry.credential)

    def _channel(self, name: str, endpoint: str, credential: Credential | None = None) -> grpc.aio.Channel:
        """For meetings any certificate of this name will do: all that is told there is signed, and brings the next."""
        key = name, endpoint, credential.serial if credential else ""
        if key not in self._channels:
            self._retire_channels(name)
            trusted = credential.certificate if credential else self.identity.authority
            credentials = grpc.ssl_channel_credentials(
                trusted, self.identity.private_key, self.identity.credential.certificate
            )
            options = [*_CHANNEL_OPTIONS, ("grpc.ssl_target_name_override", name)]
            self._channels[key] = grpc.aio.secure_channel(endpoint, credentials, options=options)
        return self._channels[key]

    def _retire_channels(self, name: str) -> None:
        """Make room for one more to this name; the oldest goes, when all of its calls have ended by themselves."""
        to_it = [key for key in self._channels if key[0] == name]
        for key in to_it[: len(to_it) + 1 - MOST_CHANNELS]:
            channel = self._channels.pop(key)
            longest_call = 2 * self.settings.patience + self.settings.deadline + GRACE
            closing = asyncio.ensure_future(channel.close(longest_call))
            self._retired[closing] = channel
            closing.add_done_callback(lambda task: self._retired.pop(task, None))

    def _failed(self, name: str, error: grpc.aio.AioRpcError) -> None:
        """What a call that did not succeed says of the other side."""
        code, details = error.code(), plain(str(error.details() or ""), LONGEST_DETAILS)
        if code == grpc.StatusCode.NOT_FOUND:  # it is there, and has nothing
            self.book.answered(name)
            return
        if code == grpc.StatusCode.FAILED_PRECONDITION:
            self._disagrees(name, details)
            return
        self.book.failed(name)
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
            self.conduct.offended(name, details)
        elif code not in GONE:
            self._say_once(name, f"'{name}' refused: {details}")
        elif is_about_certificates(details):
            text = f"'{name}' cannot be talked to: its certificate, or this peer's, is refused ({details})"
            self._say_once(name, text)

    def _disagrees(self, name: str, details: str) -> None:
        """Somebody does not run the same. If all seeds say so it is us, and there is nobody to work with."""
        self._say_once(name, f"'{name}' does not run the same: {details}")
        if name in self.book.entries:
            self.book.entries[name].trouble = details
        self._unlike.add(name)
        if self.seeds and self.book.mine.round == 0 and all(seed in self._unlike for seed, _ in self.seeds):
            self.refused = AgreementError(f"'{name}' does not run the same: {details}")

    def _say_once(self, name: str, text: str) -> None:
        """Something about this peer."""
        said = self._said.setdefault(name, set())
        if text not in said and len(said) < MOST_SAID:
            said.add(text)
            self.say(text)

    # -- when others come ----------------------------------------------------------------------

    async def serve_meeting(self, request: bytes, context: Any) -> bytes:
        holder = await self._holder(context)
        if self.book.roster.refuses(holder.serial):
            return await self._dismissed(holder, request, context)
        return await self._served(context, lambda caller: self._answer_meeting(caller, request, context))

    async def serve_fetch(self, request: bytes, context: Any) -> None:
        await self._served(context, lambda caller: self._answer_fetch(caller, request, context))

    async def serve_push(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return await self._served(context, lambda caller: self._answer_push(caller, requests, context))

    async def _served(self, context: Any, answer: Callable[[Credential], Awaitable[T]]) -> T:
        """Answer a call, if its caller may call; what is wrong with it is its caller's offence."""
        caller = await self._holder(context)
        await self._admit(caller, context)
        self._calls[caller.name] += 1
        try:
            try:
                return await answer(caller)
            except ProtocolError as error:
                refusal = grpc.StatusCode.FAILED_PRECONDITION, str(error)
            except (WireError, ArtifactError, IdentityError) as error:
                self.conduct.offended(caller.name, str(error))
                refusal = grpc.StatusCode.INVALID_ARGUMENT, plain(str(error))
            except TimeoutError:
                refusal = grpc.StatusCode.DEADLINE_EXCEEDED, f"'{caller.name}' was too slow"
            # Not in the clauses above, where the error keeps what was received or read: this waits for the caller.
            await context.abort(*refusal)
        finally:
            self._calls[caller.name] -= 1
        raise AssertionError  # (abort raises)

    async def _holder(self, context: Any) -> Credential:
        """Whose certificate this call came with."""
        pem = next(iter(context.auth_context().get("x509_pem_cert", [])), b"")
        try:
            return credential_of(pem, self.identity.authority)
        except IdentityError as error:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
        raise AssertionError  # (abort raises)

    async def _admit(self, caller: Credential, context: Any) -> None:
        """Turn away who is revoked, who is ignored, and who has too many calls here."""
        if self.book.roster.refuses(caller.serial):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{caller.name}' was revoked")
        if self.conduct.ignores(caller.name):
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"'{caller.name}' is ignored for a while")
        if self._calls[caller.name] >= AT_ONCE:
            text = f"'{caller.name}' has {AT_ONCE} calls here already"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    async def _dismissed(self, caller: Credential, request: bytes, context: Any) -> bytes:
        """Who was revoked gets the roster if it has an older one, so that it can know; and nothing else."""
        roster = self.book.roster
        with suppress(WireError):
            if Meeting.from_bytes(request).roster_version < roster.version:
                return Meeting(PROTOCOL, {}, {}, [], [], roster.to_bytes().decode(), roster.version).to_bytes()
        await self._admit(caller, context)
        raise AssertionError  # (it is not admitted)

    async def _agree(self, context: Any, agreement: str) -> None:
        if agreement != self.agreement:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "another method, labels or shapes: meet first")

    async def _answer_meeting(self, caller: Credential, request: bytes, context: Any) -> bytes:
        meeting = Meeting.from_bytes(request)
        differs = difference(self.terms, meeting.agreement, caller.name)
        if differs:
            self._say_once(caller.name, f"'{caller.name}' was refused: {differs}")
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, differs)
        self._heard(caller.name, meeting)
        self.book.answered(caller.name)
        news, certificates = self.book.news_for(meeting.known)
        roster = self.book.roster
        newer = roster.to_bytes().decode() if roster.version > meeting.roster_version else ""
        return Meeting(PROTOCOL, self.terms, self.book.known(), news, certificates, newer, roster.version).to_bytes()

    async def _answer_fetch(self, caller: Credential, request: bytes, context: Any) -> None:
        ask = Ask.from_bytes(request)
        await self._agree(context, ask.agreement)
        self.book.answered(caller.name)
        artifact = await self.host.find(ask.name, ask.round, min(max(ask.wait, 0.0), self.settings.patience))
        if artifact is None:
            text = f"nothing called '{plain(ask.name, 80)}' of round {ask.round}"
            await context.abort(grpc.StatusCode.NOT_FOUND, text)
            raise AssertionError  # (abort raises)
        encoding, data = await aside(artifact.nbytes, lambda: self._encoded(caller.name, artifact, ask))
        checksum = await aside(len(data), lambda: digest_of(data))
        parcel = Parcel(
            PROTOCOL, self.agreement, artifact.name, artifact.round, self.identity.name, caller.name, len(data),
            checksum, encoding, keep=self.settings.compress == "topk",
        )  # fmt: skip
        self._audit(caller.name, "fetch", parcel, artifact)
        self._sent(caller.name, artifact.name, len(data))
        async with asyncio.timeout(self.settings.patience):  # some read slowly, or not at all
            async for message in _stream(parcel, data):
                await context.write(message)

    def _encoded(self, to: str, artifact: Artifact, ask: Ask) -> tuple[str, bytes]:
        """As this peer would like to send it, if the other understands that."""
        wanted = self.settings.compress if self.settings.compress in ask.accepts else "none"
        if wanted == "none":
            return wanted, self.host.bytes_of(artifact)
        if wanted == "topk":
            sender = self._senders.setdefault((to, artifact.name), compression.Sender(self.settings.share))
            return sender.encode(artifact, ask.have)
        return wanted, compression.encode(artifact, wanted)

    async def _answer_push(self, caller: Credential, requests: AsyncIterator[bytes], context: Any) -> bytes:
        parcel, author, data = await self._incoming(caller, requests, context)
        decode, number = compression.decode, author.number
        artifact = await aside(len(data), lambda: opened(parcel, data, number, decode, self.largest))
        try:
            self.host.take(artifact, data, author.name, parcel.number)
        except RunError as error:
            self.broken = error
            await context.abort(grpc.StatusCode.INTERNAL, "this peer cannot keep letters")
        self.book.answered(caller.name)
        return Receipt(True).to_bytes()

    async def _incoming(
        self, caller: Credential, requests: AsyncIterator[bytes], context: Any
    ) -> tuple[Parcel, Credential, bytes]:
        """A letter: who made it, and its bytes; what its first message says is checked before the rest arrives."""
        assembly = author = None
        async with asyncio.timeout(self.settings.patience):
            async for message in requests:
                if assembly is not None:
                    assembly.add(message)
                    continue
                parcel = Parcel.from_bytes(message)
                await self._agree(context, parcel.agreement)
                author, assembly = self._author_of(parcel, caller), Assembly(parcel, self.largest)
        if assembly is None or not assembly.complete:
            await asyncio.sleep(BREAKS_OFF)
        if assembly is None or author is None:
            raise WireError("a parcel without a beginning")
        return assembly.parcel, author, assembly.whole()

    def _author_of(self, parcel: Parcel, caller: Credential) -> Credential:
        """Who made it: the sender, or somebody else whose signature it carries."""
        what = f"'{plain(parcel.name, 80)}' is said to be by '{plain(parcel.author, 80)}'"
        entry = self.book.entries.get(parcel.author)
        author = caller if parcel.author == caller.name else entry.credential if entry else None
        if author is None:
            raise WireError(f"{what}, whom nobody knows")
        try:
            signature = bytes.fromhex(parcel.signature)
        except ValueError:
            signature = b""
        if not author.verify(parcel.signed_part(), signature):
            raise WireError(f"{what}, and is not signed by it")
        if parcel.to != self.identity.name:
            raise WireError(f"{what}, and is for '{plain(parcel.to, 80)}'")
        if parcel.encoding != "none":  # it is kept as it came
            raise WireError(f"{what}, and a letter cannot be encoded as '{plain(parcel.encoding, 80)}'")
        return author


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


def opened(
    parcel: Parcel, data: bytes, number: int, decode: Callable[[bytes, str, int], Artifact], largest: int
) -> Artifact:
    """The artifact in a parcel, checked. What torch cannot make anything of (types, shapes) is its author's fault."""
    try:
        artifact = decode(data, parcel.encoding, largest)
        check_label(artifact, parcel, number)
    except RuntimeError as error:
        raise ArtifactError(f"'{plain(parcel.name, 80)}' is not a readable artifact: {error}") from error
    return artifact


def check_label(artifact: Artifact, parcel: Parcel, number: int) -> None:
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


def _place(entry: Entry) -> tuple[str, str]:
    return entry.announcement.name, entry.announcement.endpoint


def broke_off(error: grpc.aio.AioRpcError) -> bool:
    """Whether a connection was lost or not made in time, other than by a refusal: of the port, or of a certificate."""
    details = str(error.details() or "").lower()
    return error.code() == grpc.StatusCode.UNAVAILABLE and not ("refused" in details or is_about_certificates(details))


def is_about_certificates(details: str) -> bool:
    """Whether TLS did not come about, by what gRPC says: of another authority, expired, or of another name."""
    return any(word in details.lower() for word in ("ssl handshake", "certificate", "verification"))


async def aside(size: int, work: Callable[[], T]) -> T:
    """Large artifacts are packed, hashed and unpacked in a thread: nobody else should wait for that."""
    return await asyncio.to_thread(work) if size > LARGE else work()


async def _stream(parcel: Parcel, data: bytes) -> AsyncIterator[bytes]:
    yield parcel.to_bytes()
    for chunk in chunks(data):
        yield chunk
