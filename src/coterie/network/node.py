"""One peer on the network: meets other peers, fetches from them and sends to them. (`serving` answers their calls.)

gRPC over mutual TLS with raw bytes, without generated code. Meetings accept any certificate of the peer's name.
Artifacts are exchanged only with the holder of the announced certificate, because an older one may be revoked.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import grpc.aio

from coterie.config.sections import ENCODINGS, NetworkSettings
from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, CoterieError
from coterie.core.files import write_whole
from coterie.core.formatting import plain
from coterie.network import compression, serving
from coterie.network.agreement import AgreementError, digest, with_names
from coterie.network.audit import AuditLog
from coterie.network.channels import Channels
from coterie.network.framing import in_thread_if_large, opened, stream
from coterie.network.keys import PUBLIC, ROSTER, Identity, IdentityError, Roster
from coterie.network.membership import AddressBook, PeerEntry
from coterie.network.penalties import Penalties
from coterie.network.serving import SERVICE, Handlers, Host, Service
from coterie.network.wire import (
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

TRY_AGAIN = 0.2  # seconds before a retry after a lost connection
GRACE = 2.0  # extra seconds for network delays, on top of a requested wait and between two chunks
MEETING_TAKES = 3.0  # timeout in seconds
FANOUT = 2  # peers to meet among those that answered recently, and among those that did not
GATHERING_INTERVAL = 0.25  # seconds between meetings before the first round, to start quickly
LONGEST_DETAILS = 2000  # characters of the reason for a refusal: both values of three settings
MOST_LINES = 20  # about one peer, so that it cannot flood the log
LONGEST_KNOWN = 80  # characters of a version and a serial
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


@dataclass
class Traffic:
    """The artifacts exchanged with one peer, and their bytes on the wire."""

    received: Counter[str] = field(default_factory=Counter)
    received_bytes: int = 0
    sent: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0


@dataclass(frozen=True)
class Delivery:
    artifact: Artifact
    bytes: int  # on the wire


class Node:
    def __init__(
        self,
        identity: Identity,
        book: AddressBook,
        terms: dict[str, str],
        settings: NetworkSettings,
        host: Host,
        audit: AuditLog,
        penalties: Penalties,
        say: Callable[[str], None],
        seeds: Iterable[tuple[str, str]] = (),
        columns: Sequence[str] = (),
    ) -> None:
        self.columns = columns  # of this peer's own table: to name a differing column, only locally
        self.identity, self.book, self.terms, self.settings = identity, book, terms, settings
        self.host, self.audit, self.penalties, self.say = host, audit, penalties, say
        self.seeds = [(name, endpoint) for name, endpoint in seeds if name != identity.name]
        self.agreement = digest(terms)
        self.largest = settings.largest << 20
        self.traffic: dict[str, Traffic] = {}
        self.refused: AgreementError | None = None  # by all seeds: there is no peer to work with
        self.broken: Exception | None = None  # a fatal error, such as an audit log that cannot be written
        self.service = Service(self)
        self._server: grpc.aio.Server | None = None
        self.channels = Channels(identity, 2 * settings.patience + settings.deadline + GRACE)
        self._disagreeing: set[str] = set()  # peers with other terms
        self._known_by: dict[str, dict[str, str]] = {}  # by peer, the versions that it knows
        self._receivers: dict[tuple[str, str], compression.Receiver] = {}
        self._gossip_task: asyncio.Task[None] | None = None
        self._printed: dict[str, set[str]] = {}
        self._roster_time = 0.0

    # -- start and stop ------------------------------------------------------------------------

    async def start(self, listen: str) -> int:
        """Start the server; returns the port."""
        keys = [(self.identity.private_key, self.identity.credential.certificate)]
        credentials = grpc.ssl_server_credentials(keys, self.identity.authority, require_client_auth=True)
        self._server = grpc.aio.server(options=serving.OPTIONS)
        self._server.add_generic_rpc_handlers((Handlers(self.service),))
        try:
            port = self._server.add_secure_port(listen, credentials)
        except RuntimeError as error:
            raise CoterieError(f"peer.listen = '{listen}' cannot be used ({error}): is the port taken?") from error
        await self._server.start()
        return int(port)

    def talk(self) -> None:
        """Start to exchange announcements in the background."""
        self._gossip_task = asyncio.create_task(self._gossip())

    async def stop(self) -> None:
        if self._gossip_task:
            self._gossip_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._gossip_task
        if self._server:
            await self._server.stop(grace=0.5)
        await self.channels.close()

    # -- membership ----------------------------------------------------------------------------

    async def _gossip(self) -> None:
        """Exchange announcements with a few peers, including silent ones, until cancelled."""
        try:
            while True:
                began = time.monotonic()
                self._look_for_roster()
                await self._meet_sample()
                gathering = self.book.mine.round == 0
                pause = min(GATHERING_INTERVAL, self.settings.interval) if gathering else self.settings.interval
                # A timeout of an unanswered meeting counts towards the pause.
                await asyncio.sleep(max(0.0, pause * random.uniform(0.5, 1.5) - (time.monotonic() - began)))
        except Exception as error:  # the task is never awaited: the engine checks `broken`
            self.broken = error

    async def _meet_sample(self) -> None:
        there, silent = self.book.there(), [e for e in self.book.companions() if e.silent]
        chosen = random.sample(there, min(FANOUT, len(there))) + random.sample(silent, min(FANOUT, len(silent)))
        unmet = [seed for seed in self.seeds if seed[0] not in self.book.entries]
        await self._meet_all([*map(_address, chosen), *unmet])
        if any(not e.silent for e in silent):  # an outage is over, probably for the other silent peers too
            await self._meet_all([_address(e) for e in silent if e.silent])

    async def _meet_all(self, addresses: Iterable[tuple[str, str]]) -> None:
        admitted = [(name, endpoint) for name, endpoint in addresses if not self.penalties.ignores(name)]
        await asyncio.gather(*(self.meet(name, endpoint) for name, endpoint in admitted))

    async def meet(self, name: str, endpoint: str) -> bool:
        """Exchange news with a peer; returns whether it answered."""
        call = self.channels.to(name, endpoint).unary_unary(f"/{SERVICE}/Meet")
        try:
            answer = await call(self._meeting(name).to_bytes(), timeout=MEETING_TAKES)
            self.merge(name, Meeting.from_bytes(answer))
        except grpc.aio.AioRpcError as error:
            if is_lost_connection(error) or error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                self.book.unheard(name)  # perhaps a busy machine: fetches decide
            elif error.code() == grpc.StatusCode.UNAVAILABLE and not is_about_certificates(str(error.details() or "")):
                self.book.unheard(name, refused=True)
            else:
                self._failed(name, error)
            return False
        except ProtocolError as error:
            self._disagrees(name, str(error))
            return False
        except (WireError, IdentityError) as error:
            self.penalties.record(name, str(error))
            return False
        self._disagreeing.discard(name)
        self.book.answered(name)
        return True

    def _meeting(self, to: str) -> Meeting:
        news, certificates = self.book.news_for(self._known_by.get(to, {}))
        return Meeting(
            PROTOCOL, self.terms, self.book.known(), news, certificates,
            self.book.roster.to_bytes().decode(), self.book.roster.version,
        )  # fmt: skip

    def merge(self, name: str, meeting: Meeting) -> None:
        """Store the news that a peer sent."""
        self.book.hear(meeting.news, meeting.certificates)
        known = self.book.known()  # keep only known peers: the sender could name any number of others
        self._known_by[name] = {n: version[:LONGEST_KNOWN] for n, version in meeting.known.items() if n in known}
        if meeting.roster_version > self.book.roster.version:
            roster = Roster.from_bytes(meeting.roster.encode(), self.identity.authority)
            if self._take_roster(roster, f"received from '{name}'"):
                with suppress(OSError):
                    write_whole(self.identity.folder / ROSTER, roster.to_bytes(), mode=PUBLIC)

    def _look_for_roster(self) -> None:
        """Load a newer roster that was copied into the folder of keys."""
        path = self.identity.folder / ROSTER
        with suppress(OSError, IdentityError):
            changed = path.stat().st_mtime
            if changed != self._roster_time:
                self._roster_time = changed
                self._take_roster(Roster.from_bytes(path.read_bytes(), self.identity.authority), f"found in {path}")

    def _take_roster(self, roster: Roster, origin: str) -> bool:
        """Apply a newer roster, to other peers and to this one."""
        if not self.book.take_roster(roster):
            return False
        self.say(f"newer roster, version {roster.version}, {origin}")
        if roster.refuses(self.identity.credential.serial):
            self.broken = IdentityError(
                f"'{self.identity.name}' was revoked: no peer in the circle accepts it any more. "
                "Only the keeper of the circle's authority can issue a new certificate"
            )
        return True

    # -- fetching and sending ------------------------------------------------------------------

    def entry(self, number: int) -> PeerEntry | None:
        """The peer with this number, if it is known and may be asked."""
        entry = self.book.entries.get(self.book.by_number.get(number, ""))
        if entry is None or entry.trouble or entry.announcement.agreement != self.agreement:
            return None
        return None if self.penalties.ignores(entry.announcement.name) else entry

    async def fetch(self, number: int, name: str, round: int, wait: float) -> Delivery | None:
        """A checked artifact of one peer; None if the peer has none, is absent, or sent something invalid.

        A refused connection means that the peer is down. A lost connection may only mean a busy machine, so it is
        retried until the deadline.
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

    async def _fetch_once(self, entry: PeerEntry, name: str, round: int, wait: float) -> Delivery | None:
        author = entry.announcement.name
        receiver = self._receivers.get((author, name)) or compression.Receiver()
        accepts = list(ENCODINGS)
        request = FetchRequest(PROTOCOL, self.agreement, name, round, wait, accepts, receiver.have)
        open_call = self.channels.to(*_address(entry), entry.credential).unary_stream(f"/{SERVICE}/Fetch")
        call = open_call(request.to_bytes(), timeout=wait + self.settings.patience + GRACE)
        try:
            header, data = await self._read_stream(call, wait, lambda header: self._check_answer(header, entry, name))
            decode = receiver.decode if header.keep else compression.decode
            number = entry.credential.number
            artifact = await in_thread_if_large(len(data), lambda: opened(header, data, number, decode, self.largest))
        except grpc.aio.AioRpcError as error:
            if is_lost_connection(error):
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
            self.penalties.record(author, str(error))
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

    async def _read_stream(
        self, call: Any, wait: float, check: Callable[[ArtifactHeader], None]
    ) -> tuple[ArtifactHeader, bytes]:
        """Read a stream: the header by the deadline, then the chunks without long pauses."""
        async with asyncio.timeout(wait + self.settings.patience):  # in all, against a slow trickle
            async with asyncio.timeout(wait + GRACE):
                first = await call.read()
            if not isinstance(first, bytes):
                raise WireError("an answer without a header")
            header = ArtifactHeader.from_bytes(first)
            check(header)  # before the rest is read
            assembly = Assembly(header, self.largest)
            while True:
                async with asyncio.timeout(GRACE + self.settings.patience / 10):
                    chunk = await call.read()
                if not isinstance(chunk, bytes):
                    return header, assembly.whole()
                assembly.add(chunk)

    def _check_answer(self, header: ArtifactHeader, entry: PeerEntry, name: str) -> None:
        expected = name, entry.announcement.name, self.identity.name, self.agreement
        if (header.name, header.author, header.to, header.agreement) != expected:
            received = f"'{plain(header.name, 80)}' of '{plain(header.author, 80)}' for '{plain(header.to, 80)}'"
            raise WireError(f"requested '{name}', but received {received}")

    async def send(self, number: int, artifact: Artifact, message_number: str, wait: float) -> int:
        """Push an artifact to one peer; returns the bytes sent, or 0 if the peer did not accept it."""
        entry = self.entry(number)
        if entry is None:
            return 0
        name = entry.announcement.name
        data = self.host.bytes_of(artifact)
        header = ArtifactHeader(
            PROTOCOL, self.agreement, artifact.name, artifact.round, self.identity.name, name, len(data),
            digest_of(data), "none", number=message_number,
        )  # fmt: skip
        header = self._signed(header)
        self.record(name, "push", header, artifact)
        call = self.channels.to(*_address(entry), entry.credential).stream_unary(f"/{SERVICE}/Push")
        try:
            answer = await call(stream(header, data), timeout=wait + GRACE, wait_for_ready=True)
            receipt = Receipt.from_bytes(answer)
        except grpc.aio.AioRpcError as error:
            self._failed(name, error)
            return 0
        except WireError as error:
            self.penalties.record(name, str(error))
            return 0
        self.book.answered(name)
        if not receipt.taken:
            self.say_once(name, f"'{name}' did not accept '{artifact.name}': {plain(receipt.reason)}")
            return 0
        self.sent(name, artifact.name, len(data))
        return len(data)

    def _signed(self, header: ArtifactHeader) -> ArtifactHeader:
        return replace(header, signature=self.identity.sign(header.signed_part()).hex())

    def sent(self, to: str, name: str, size: int) -> None:
        traffic = self.traffic.setdefault(to, Traffic())
        traffic.sent[name] += 1
        traffic.sent_bytes += size

    def record(self, to: str, how: str, header: ArtifactHeader, artifact: Artifact) -> None:
        """Log an artifact before it is sent. If that fails, it is not sent and the run ends."""
        digest = header.digest if header.encoding == "none" else digest_of(self.host.bytes_of(artifact))
        try:
            self.audit.record(
                to=to, how=how, name=header.name, round=header.round, bytes=header.size, digest=digest,
                encoding=header.encoding,
            )  # fmt: skip
        except CoterieError as error:
            self.broken = error
            raise

    def _failed(self, name: str, error: grpc.aio.AioRpcError) -> None:
        """Draw conclusions about a peer from a failed call."""
        code, details = error.code(), plain(str(error.details() or ""), LONGEST_DETAILS)
        if code == grpc.StatusCode.NOT_FOUND:  # it is up, but has no such artifact
            self.book.answered(name)
            return
        if code == grpc.StatusCode.FAILED_PRECONDITION:
            self._disagrees(name, details)
            return
        self.book.failed(name)
        if code == grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
            self.penalties.record(name, details)
        elif code not in GONE:
            self.say_once(name, f"'{name}' refused: {details}")
        elif is_about_certificates(details):
            text = f"cannot connect to '{name}': its certificate or this peer's is refused ({details})"
            self.say_once(name, text)

    def _disagrees(self, name: str, details: str) -> None:
        """A peer has other terms. If all seeds do, this peer has no one to work with."""
        details = with_names(details, self.columns)
        self.say_once(name, f"'{name}' runs a different experiment: {details}")
        if name in self.book.entries:
            self.book.entries[name].trouble = details
        self._disagreeing.add(name)
        if self.seeds and self.book.mine.round == 0 and all(seed in self._disagreeing for seed, _ in self.seeds):
            self.refused = AgreementError(f"'{name}' runs a different experiment: {details}")

    def say_once(self, name: str, text: str) -> None:
        """Print a line about a peer, once."""
        printed = self._printed.setdefault(name, set())
        if text not in printed and len(printed) < MOST_LINES:
            printed.add(text)
            self.say(text)


def _address(entry: PeerEntry) -> tuple[str, str]:
    return entry.announcement.name, entry.announcement.endpoint


def is_lost_connection(error: grpc.aio.AioRpcError) -> bool:
    """Whether a connection was lost or timed out, rather than refused because of the port or a certificate."""
    details = str(error.details() or "").lower()
    return error.code() == grpc.StatusCode.UNAVAILABLE and not ("refused" in details or is_about_certificates(details))


def is_about_certificates(details: str) -> bool:
    """Whether gRPC reports a failed TLS handshake: another authority, an expired certificate, or another name."""
    return any(word in details.lower() for word in ("ssl handshake", "certificate", "verification"))
