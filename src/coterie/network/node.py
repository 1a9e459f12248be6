"""One peer on the network: it meets others, fetches from them, and sends to them. (What it serves: see `serving`.)

gRPC over mutual TLS with raw bytes, no generated code. Meetings are with whoever has a certificate of that name;
artifacts pass with the holder of that very certificate, for an older one of its name may be revoked.
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
from coterie.network import compression, serving
from coterie.network.agreement import AgreementError, digest, with_names
from coterie.network.audit import AuditLog
from coterie.network.channels import Channels
from coterie.network.framing import aside, opened, stream
from coterie.network.keys import ROSTER, Identity, IdentityError, Roster, write_whole
from coterie.network.membership import AddressBook, PeerEntry
from coterie.network.penalties import Conduct
from coterie.network.serving import SERVICE, Handlers, Host, Service
from coterie.network.wire import (
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

TRY_AGAIN = 0.2  # seconds after a connection broke
GRACE = 2.0  # seconds on top of a wait that was asked for, and between two chunks: the network's own delays
MEETING_TAKES = 3.0  # seconds at most
FANOUT = 2  # of those who answered lately, and as many of those who did not
GATHERING_INTERVAL = 0.25  # seconds between exchanges before the first round: everybody is eager to start
LONGEST_DETAILS = 2000  # characters of why a call was refused: both values of three settings
MOST_SAID = 20  # lines about one peer: it cannot fill a log, nor keep others out of it
LONGEST_KNOWN = 80  # characters of a version and a serial
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


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
        columns: Sequence[str] = (),
    ) -> None:
        self.columns = columns  # of this peer's own table: to say which one differs, here alone
        self.identity, self.book, self.terms, self.settings = identity, book, terms, settings
        self.host, self.audit, self.conduct, self.say = host, audit, conduct, say
        self.seeds = [(name, endpoint) for name, endpoint in seeds if name != identity.name]
        self.agreement = digest(terms)
        self.largest = settings.largest << 20
        self.traffic: dict[str, Traffic] = {}
        self.refused: AgreementError | None = None  # by a seed: there is nobody to work with
        self.broken: Exception | None = None  # something that must end the run: an audit that cannot be written
        self.service = Service(self)
        self._server: grpc.aio.Server | None = None
        self.channels = Channels(identity, 2 * settings.patience + settings.deadline + GRACE)
        self._unlike: set[str] = set()  # who refused us, because we do not run the same
        self._they_know: dict[str, dict[str, str]] = {}  # by peer, what it said it knew
        self._receivers: dict[tuple[str, str], compression.Receiver] = {}
        self._talking: asyncio.Task[None] | None = None
        self._said: dict[str, set[str]] = {}
        self._roster_time = 0.0

    # -- being there ---------------------------------------------------------------------------

    async def start(self, listen: str) -> int:
        """Listen, and begin to tell and hear who is where; returns the port."""
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
        self._talking = asyncio.create_task(self._talk())

    async def stop(self) -> None:
        if self._talking:
            self._talking.cancel()
            with suppress(asyncio.CancelledError):
                await self._talking
        if self._server:
            await self._server.stop(grace=0.5)
        await self.channels.close()

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
        call = self.channels.to(name, endpoint).unary_unary(f"/{SERVICE}/Meet")
        try:
            answer = await call(self._meeting(name).to_bytes(), timeout=MEETING_TAKES)
            self.heard(name, Meeting.from_bytes(answer))
        except grpc.aio.AioRpcError as error:
            if broke_off(error) or error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                self.book.unheard(name)  # a busy machine, perhaps: fetches decide
            elif error.code() == grpc.StatusCode.UNAVAILABLE and not is_about_certificates(str(error.details() or "")):
                self.book.unheard(name, refused=True)
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

    def heard(self, name: str, meeting: Meeting) -> None:
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

    def entry(self, number: int) -> PeerEntry | None:
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

    async def _fetch_once(self, entry: PeerEntry, name: str, round: int, wait: float) -> Delivery | None:
        author = entry.announcement.name
        receiver = self._receivers.get((author, name)) or compression.Receiver()
        accepts = list(ENCODINGS)
        ask = Ask(PROTOCOL, self.agreement, name, round, wait, accepts, receiver.have)
        open_call = self.channels.to(*_place(entry), entry.credential).unary_stream(f"/{SERVICE}/Fetch")
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

    async def _arriving(
        self, call: Any, wait: float, check: Callable[[ArtifactHeader], None]
    ) -> tuple[ArtifactHeader, bytes]:
        """Read a stream: the first message by the deadline, the others without a pause."""
        async with asyncio.timeout(wait + self.settings.patience):  # also of one that drips
            async with asyncio.timeout(wait + GRACE):
                first = await call.read()
            if not isinstance(first, bytes):
                raise WireError("an answer without a beginning")
            parcel = ArtifactHeader.from_bytes(first)
            check(parcel)  # before the rest arrives
            assembly = Assembly(parcel, self.largest)
            while True:
                async with asyncio.timeout(GRACE + self.settings.patience / 10):
                    chunk = await call.read()
                if not isinstance(chunk, bytes):
                    return parcel, assembly.whole()
                assembly.add(chunk)

    def _check_answer(self, parcel: ArtifactHeader, entry: PeerEntry, name: str) -> None:
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
        parcel = ArtifactHeader(
            PROTOCOL, self.agreement, artifact.name, artifact.round, self.identity.name, name, len(data),
            digest_of(data), "none", number=letter,
        )  # fmt: skip
        parcel = self._signed(parcel)
        self.record(name, "push", parcel, artifact)
        call = self.channels.to(*_place(entry), entry.credential).stream_unary(f"/{SERVICE}/Push")
        try:
            answer = await call(stream(parcel, data), timeout=wait + GRACE, wait_for_ready=True)
            receipt = Receipt.from_bytes(answer)
        except grpc.aio.AioRpcError as error:
            self._failed(name, error)
            return 0
        except WireError as error:
            self.conduct.offended(name, str(error))
            return 0
        self.book.answered(name)
        if not receipt.taken:
            self.say_once(name, f"'{name}' did not take '{artifact.name}': {plain(receipt.reason)}")
            return 0
        self.sent(name, artifact.name, len(data))
        return len(data)

    def _signed(self, parcel: ArtifactHeader) -> ArtifactHeader:
        return replace(parcel, signature=self.identity.sign(parcel.signed_part()).hex())

    def sent(self, to: str, name: str, size: int) -> None:
        traffic = self.traffic.setdefault(to, Traffic())
        traffic.sent[name] += 1
        traffic.sent_bytes += size

    def record(self, to: str, how: str, parcel: ArtifactHeader, artifact: Artifact) -> None:
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
            self.say_once(name, f"'{name}' refused: {details}")
        elif is_about_certificates(details):
            text = f"'{name}' cannot be talked to: its certificate, or this peer's, is refused ({details})"
            self.say_once(name, text)

    def _disagrees(self, name: str, details: str) -> None:
        """Somebody does not run the same. If all seeds say so it is us, and there is nobody to work with."""
        details = with_names(details, self.columns)
        self.say_once(name, f"'{name}' does not run the same: {details}")
        if name in self.book.entries:
            self.book.entries[name].trouble = details
        self._unlike.add(name)
        if self.seeds and self.book.mine.round == 0 and all(seed in self._unlike for seed, _ in self.seeds):
            self.refused = AgreementError(f"'{name}' does not run the same: {details}")

    def say_once(self, name: str, text: str) -> None:
        """Something about this peer."""
        said = self._said.setdefault(name, set())
        if text not in said and len(said) < MOST_SAID:
            said.add(text)
            self.say(text)


def _place(entry: PeerEntry) -> tuple[str, str]:
    return entry.announcement.name, entry.announcement.endpoint


def broke_off(error: grpc.aio.AioRpcError) -> bool:
    """Whether a connection was lost or not made in time, other than by a refusal: of the port, or of a certificate."""
    details = str(error.details() or "").lower()
    return error.code() == grpc.StatusCode.UNAVAILABLE and not ("refused" in details or is_about_certificates(details))


def is_about_certificates(details: str) -> bool:
    """Whether TLS did not come about, by what gRPC says: of another authority, expired, or of another name."""
    return any(word in details.lower() for word in ("ssl handshake", "certificate", "verification"))
