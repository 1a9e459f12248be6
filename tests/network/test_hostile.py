"""A hostile peer with a real certificate, over real sockets and TLS: what it sends is dropped, counted, and logged."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import math
import os
import random
import shutil
import socket
import struct
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import torch
import zstandard

from coterie.config import loading
from coterie.config.sections import NetworkSettings
from coterie.core.artifact import Artifact
from coterie.core.events import Offence, of_kind, read
from coterie.network import channels, node, serving
from coterie.network import penalties as penalties_module
from coterie.network.agreement import AgreementError, digest
from coterie.network.audit import AuditLog
from coterie.network.authority import create_authority, issue, revoke
from coterie.network.engine import NetworkEngine
from coterie.network.keys import Identity, IdentityError, Roster, authority_and_roster, issued_by
from coterie.network.mailbox import Mailbox
from coterie.network.membership import RUNNING, AddressBook, Announcement
from coterie.network.node import Node, Traffic
from coterie.network.penalties import FIRST_PAUSE, OFFENCES_UNTIL_IGNORED, Penalties
from coterie.network.serving import SERVICE
from coterie.network.wire import (
    LARGEST_MESSAGE,
    PROTOCOL,
    ArtifactHeader,
    FetchRequest,
    Meeting,
    Receipt,
    canonical,
    digest_of,
)
from coterie.running import peer_status
from coterie.running.local_circle import LocalCircle
from coterie.running.real_peer import read_file, take_part

NAMES = ("ada", "bob", "carol", "mallory")
TERMS = {"method.name": '"gossip"', "rounds": "10"}
ROUNDS = 10
WRONG, DENIED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED
UNLIKE, AWAY = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE
TOO_SLOW, TOO_MUCH = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED


def over_sockets(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """An asynchronous test in an event loop of its own; none of them can hang."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 60))

    return run


# -- the stage -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A circle that no test changes, with one whose certificate has expired; and beside it another circle."""
    folder = tmp_path_factory.mktemp("circles")
    for circle in ("circle", "other"):
        create_authority(folder / circle)
        for name in NAMES:
            issue(name, folder / circle)
    issue("late", folder / "circle", days=-1)
    return folder


@pytest.fixture
def circle(shared: Path, tmp_path: Path) -> Path:
    """A copy of it: a node may write into its folder of keys."""
    return shutil.copytree(shared / "circle", tmp_path / "circle")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that are fixed in the code, in tests that wait for their end."""
    monkeypatch.setattr(node, "GRACE", 0.2)
    monkeypatch.setattr(node, "MEETING_TAKES", 0.3)
    monkeypatch.setattr(serving, "BREAKS_OFF", 0.05)


def identity_in(folder: Path) -> Identity:
    """Also of somebody whom `Identity.load` would not let begin."""
    authority, roster = authority_and_roster(folder, "")
    credential, _ = issued_by((folder / "certificate.pem").read_bytes(), authority)
    return Identity(credential, (folder / "private.key").read_bytes(), authority, roster, folder)


def announcement(identity: Identity, endpoint: str = "127.0.0.1:1", **changes: Any) -> Announcement:
    plain = Announcement(identity.name, endpoint, 1, 1, RUNNING, 1, 1, digest(TERMS), identity.credential.serial)
    return dataclasses.replace(plain, **changes).signed_by(identity)


class Keeper:
    """A host with one shelf, and the letter box that the engine has."""

    def __init__(self, folder: Path) -> None:
        self.shelf: dict[str, Artifact] = {}
        self.box = Mailbox(folder)
        self.strangers: set[int] = set()  # who is not next to it in the graph

    def may_exchange_with(self, number: int) -> bool:
        return number not in self.strangers

    async def find(self, name: str, round: int, wait: float) -> Artifact | None:  # noqa: ARG002
        return self.shelf.get(name)

    def bytes_of(self, artifact: Artifact) -> bytes:
        return artifact.to_bytes()

    def take(self, letter: Artifact, data: bytes, sender: str, number: str) -> None:
        self.box.put(letter, data, sender, number)


@dataclass
class Site:
    """A real node, and what one can see of it."""

    node: Node
    keeper: Keeper
    port: int = 0
    seconds: float = 1000.0  # what its clock for offences shows
    said: list[str] = field(default_factory=list)
    offences: list[tuple[str, str]] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def knows(self, identity: Identity, endpoint: str, **changes: Any) -> None:
        """It heard the truth of somebody."""
        news = dataclasses.asdict(announcement(identity, endpoint, **changes))
        self.node.book.hear([news], [identity.credential.certificate.decode()])

    def endpoint_of(self, name: str) -> str:
        return self.node.book.entries[name].announcement.endpoint

    async def fetch(self, identity: Identity, name: str = "model", wait: float = 0.2) -> node.Delivery | None:
        return await self.node.fetch(identity.number, name, 1, wait)


@asynccontextmanager
async def site_of(
    identity: Identity, seeds: Iterable[tuple[str, str]] = (), terms: dict[str, str] = TERMS, **settings: Any
) -> AsyncIterator[Site]:
    folder = identity.folder / "run"
    folder.mkdir(exist_ok=True)
    mine = announcement(identity, "127.0.0.1:0", state="gathering", round=0, agreement=digest(terms))
    book = AddressBook(identity, identity.roster, mine, time.monotonic)
    site: Site
    penalties = Penalties(lambda: site.seconds, lambda name, what: site.offences.append((name, what)))
    wanted = NetworkSettings(**{"patience": 5.0, "interval": 0.05, "largest": 32, **settings})
    keeper, audit = Keeper(folder / "letters"), AuditLog(folder / "audit.jsonl", identity.name, "0", "gossip")
    said: list[str] = []
    made = Node(identity, book, terms, wanted, keeper, audit, penalties, said.append, seeds)
    site = Site(made, keeper, said=said)
    site.port = await made.start("127.0.0.1:0")
    book.announce(endpoint=site.endpoint)
    try:
        yield site
    finally:
        await made.stop()
        audit.close()


# -- the hostile peer, as a client -----------------------------------------------------------------


@dataclass
class Client:
    """Anybody who calls a node, with whatever credentials, and sends whatever bytes."""

    site: Site
    credentials: grpc.ChannelCredentials | None

    @classmethod
    def of(cls, site: Site, who: Identity, authority: bytes = b"") -> Client:
        own = who.private_key, who.credential.certificate
        return cls(site, grpc.ssl_channel_credentials(authority or who.authority, *own))

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        async with self._opened(grpc.aio) as channel:
            yield channel

    def _opened(self, kind: Any) -> Any:
        options = [("grpc.ssl_target_name_override", self.site.node.identity.name), ("grpc.enable_http_proxy", 0)]
        if self.credentials is None:
            return kind.insecure_channel(self.site.endpoint, options=options)
        return kind.secure_channel(self.site.endpoint, self.credentials, options=options)

    async def meet(self, request: bytes) -> bytes:
        async with self.channel() as channel:
            return bytes(await channel.unary_unary(f"/{SERVICE}/Meet")(request, timeout=20))

    async def ask(self, request: bytes) -> list[bytes]:
        async with self.channel() as channel:
            return [m async for m in channel.unary_stream(f"/{SERVICE}/Fetch")(request, timeout=20)]

    async def push(self, messages: Iterable[bytes], dripping: float = 0.0) -> bytes:
        """From a thread: an asyncio client that is refused while it still sends may only hear of a reset stream."""

        def stream() -> Iterator[bytes]:
            for message in messages:
                yield message
                time.sleep(dripping)

        def call() -> bytes:
            with self._opened(grpc) as channel:
                return bytes(channel.stream_unary(f"/{SERVICE}/Push")(stream(), timeout=20))

        return await asyncio.to_thread(call)

    async def each(self, request: bytes) -> list[tuple[grpc.StatusCode, str]]:
        """The same bytes as a request of each of the three calls: how they were refused."""
        return [
            await refused(self.meet(request)),
            await refused(self.ask(request)),
            await refused(self.push([request])),
        ]


async def refused(call: Coroutine[Any, Any, Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        await call
    return error.value.code(), str(error.value.details())


def meeting(news: Sequence[Announcement] = (), brings: Sequence[Identity] = (), **changes: Any) -> bytes:
    plain = Meeting(
        PROTOCOL, TERMS, {}, [dataclasses.asdict(a) for a in news],
        [i.credential.certificate.decode() for i in brings], "", 0,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes).to_bytes()


def ask(name: str = "model", **changes: Any) -> bytes:
    return dataclasses.replace(FetchRequest(PROTOCOL, digest(TERMS), name, 1, 0.0, [], ""), **changes).to_bytes()


def model(author: Identity, round: int = 1, **tensors: torch.Tensor) -> Artifact:
    return Artifact.snapshot("model", author.number, round, tensors or {"w": torch.ones(4)}, {})


def letter(by: Identity, for_: Identity, data: bytes | None = None, **changes: Any) -> list[bytes]:
    """A header with these changes, as its author signs it, and its bytes."""
    data = model(by).to_bytes() if data is None else data
    plain = ArtifactHeader(
        PROTOCOL, digest(TERMS), "model", 1, by.name, for_.name, len(data), digest_of(data), "none", number="e.1"
    )
    changed = dataclasses.replace(plain, **changes)
    signature = changes.get("signature", by.sign(changed.signed_part()).hex())
    return [dataclasses.replace(changed, signature=signature).to_bytes(), data]


# -- the hostile peer, as a server -----------------------------------------------------------------


class Trap(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers whatever it likes; and remembers who fell for it."""

    def __init__(self, meet: Any, fetch: Any, push: Any) -> None:
        self.calls: list[str] = []
        self._handlers = {
            "Meet": grpc.unary_unary_rpc_method_handler(meet),
            "Fetch": grpc.unary_stream_rpc_method_handler(fetch),
            "Push": grpc.stream_unary_rpc_method_handler(push),
        }

    def service(self, call: Any) -> Any:
        self.calls.append(call.method.rpartition("/")[2])
        return self._handlers[self.calls[-1]]


@asynccontextmanager
async def trap(
    who: Identity, answer: bytes = b"", stream: Iterable[bytes] = (), *, pause: float = 0.0, code: Any = None
) -> AsyncIterator[tuple[Trap, str]]:
    """A real server: what it answers to meetings and letters, and to fetches; with a pause before each message."""

    async def meet(_: bytes, context: Any) -> bytes:
        await asyncio.sleep(pause)
        if code is not None:
            await context.abort(code, answer.decode())
        return answer

    async def fetch(_: bytes, __: Any) -> AsyncIterator[bytes]:
        for message in stream:
            await asyncio.sleep(pause)
            yield message

    async def push(messages: AsyncIterator[bytes], _: Any) -> bytes:
        async for _message in messages:
            pass
        await asyncio.sleep(pause)
        return answer

    handlers, server = Trap(meet, fetch, push), grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers((handlers,))
    pair = who.private_key, who.credential.certificate
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair], who.authority, True))
    await server.start()
    try:
        yield handlers, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def identities(circle: Path) -> list[Identity]:
    return [Identity.load(circle / name) for name in NAMES]


# -- who comes -------------------------------------------------------------------------------------


@over_sockets
async def test_honest_peers_get_on(circle: Path) -> None:
    """Everything below is a change to this."""
    ada, bob, *_ = identities(circle)
    async with site_of(ada) as here, site_of(bob) as there:
        assert await there.node.meet("ada", here.endpoint)
        assert here.endpoint_of("bob") == there.endpoint
        here.keeper.shelf["model"] = model(ada)
        delivery = await there.fetch(ada)
        assert delivery is not None
        assert delivery.artifact["w"].tolist() == [1, 1, 1, 1]
        assert await there.node.send(ada.number, model(bob), "e.1", 1.0) > 0
        assert [a.author for a in here.keeper.box.take("model")] == [bob.number]
        assert Receipt.from_bytes(await Client.of(here, bob).push(letter(bob, ada, number="e.2"))).taken
        assert here.offences == there.offences == []


@over_sockets
async def test_who_is_not_next_to_a_peer_gets_nothing_there(circle: Path) -> None:
    """An honest peer would not ask: it knows the graph, too. Addresses go to everybody."""
    ada, bob, *_ = identities(circle)
    async with site_of(ada) as here:
        here.keeper.shelf["model"] = model(ada)
        here.keeper.strangers.add(bob.number)
        caller = Client.of(here, bob)
        assert await caller.meet(meeting([announcement(bob)], [bob]))
        expected = f"'bob' (number {bob.number}) has no edge to 'ada'"
        assert await refused(caller.ask(ask())) == (WRONG, expected)
        assert await refused(caller.push(letter(bob, ada))) == (WRONG, expected)
        assert here.offences == [("bob", expected)] * 2
        assert here.keeper.box.take("model") == []
        here.keeper.strangers.clear()
        assert await caller.ask(ask())


@over_sockets
async def test_no_certificate_of_this_circle_no_call(circle: Path, shared: Path) -> None:
    ada = Identity.load(circle / "ada")
    stranger, late = Identity.load(shared / "other" / "mallory"), identity_in(circle / "late")
    async with site_of(ada) as here:
        clients = {
            "in the clear": Client(here, None),
            "no certificate": Client(here, grpc.ssl_channel_credentials(ada.authority)),
            "of another authority": Client.of(here, stranger, ada.authority),
            "expired": Client.of(here, late),
        }
        for why, client in clients.items():
            for code, _ in await client.each(meeting()):
                assert code == AWAY, why
        assert here.node.book.entries == {}
        assert here.offences == []  # nobody knows whose they would be


@over_sockets
async def test_one_that_expires_while_connected(circle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS looks only once; so every call does."""
    ada, bob, *_ = identities(circle)
    async with site_of(ada) as here, Client.of(here, bob).channel() as channel:
        call = channel.unary_unary(f"/{SERVICE}/Meet")
        await call(meeting())
        monkeypatch.setattr("coterie.network.keys.utc_now", lambda: bob.credential.expires + timedelta(seconds=1))
        code, why = await refused(call(meeting()))
        assert code == grpc.StatusCode.UNAUTHENTICATED
        assert "bob's certificate expired" in why


@over_sockets
async def test_a_node_talks_to_no_server_of_another_authority_or_expired(circle: Path, shared: Path) -> None:
    ada = Identity.load(circle / "ada")
    stranger, late = Identity.load(shared / "other" / "mallory"), identity_in(circle / "late")
    async with site_of(ada) as here:
        for who in (stranger, late):
            async with trap(who, meeting()) as (caught, endpoint):
                assert not await here.node.meet(who.name, endpoint)
                assert caught.calls == []
            assert any(f"cannot connect to '{who.name}'" in text for text in here.said)


# -- revoked ---------------------------------------------------------------------------------------


async def refuses_mallory(here: Site, mallory: Identity) -> None:
    """Nothing is taken from it nor told to it; a meeting brings it the roster, if it has an older one."""
    client = Client.of(here, mallory)
    newest = here.node.book.roster.version
    assert await refused(client.ask(ask())) == (DENIED, "'mallory' was revoked")
    assert await refused(client.push(letter(mallory, here.node.identity))) == (DENIED, "'mallory' was revoked")
    news = meeting([announcement(mallory)], [mallory], roster_version=newest)
    assert await refused(client.meet(news)) == (DENIED, "'mallory' was revoked")
    told = Meeting.from_bytes(await client.meet(meeting([announcement(mallory)], [mallory])))
    assert (told.agreement, told.known, told.news, told.certificates) == ({}, {}, [], [])
    assert Roster.from_bytes(told.roster.encode(), mallory.authority).version == newest
    assert "mallory" not in here.node.book.entries
    assert await here.fetch(mallory) is None


@over_sockets
async def test_a_roster_in_the_folder_and_a_roster_heard(circle: Path) -> None:
    ada, bob, _, mallory = identities(circle)
    async with site_of(ada) as here, site_of(bob, [("ada", here.endpoint)]) as there, trap(mallory) as (caught, at):
        for site in (here, there):
            site.knows(mallory, at)
        roster, _ = revoke("mallory", circle)
        shutil.copy(circle / "roster.json", ada.folder / "roster.json")
        here.node.talk()
        there.node.talk()
        async with asyncio.timeout(10):
            while there.node.book.roster.version < roster.version:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)  # a meeting with mallory may have begun before
        caught.calls.clear()
        await refuses_mallory(here, mallory)
        await refuses_mallory(there, mallory)
        assert caught.calls == []
        assert f"newer roster, version {roster.version}, found in {ada.folder / 'roster.json'}" in here.said
        assert f"newer roster, version {roster.version}, received from 'ada'" in there.said
        assert (bob.folder / "roster.json").read_bytes() == roster.to_bytes()


@over_sockets
async def test_the_revoked_learns_it(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    revoke("mallory", circle)
    shutil.copy(circle / "roster.json", ada.folder / "roster.json")
    async with site_of(Identity.load(ada.folder)) as here, site_of(mallory) as there:
        await there.node.meet("ada", here.endpoint)
        assert isinstance(there.node.broken, IdentityError)
        assert "'mallory' was revoked" in str(there.node.broken)
    with pytest.raises(IdentityError, match="mallory's certificate was revoked"):
        Identity.load(mallory.folder)  # it does not start again


@over_sockets
async def test_the_revoked_learns_it_from_its_own_folder(circle: Path) -> None:
    mallory = Identity.load(circle / "mallory")
    async with site_of(mallory) as there:
        revoke("mallory", circle)
        shutil.copy(circle / "roster.json", mallory.folder / "roster.json")
        there.node.talk()
        async with asyncio.timeout(10):
            while there.node.broken is None:
                await asyncio.sleep(0.01)
        assert "'mallory' was revoked" in str(there.node.broken)


@over_sockets
async def test_nobody_can_say_of_another_that_it_was_revoked(circle: Path, shared: Path) -> None:
    """By words, by a roster of another authority, or by one that it signed itself."""
    ada, bob, _, mallory = identities(circle)
    revoke("bob", shutil.copytree(shared / "other", circle / "other"))
    rosters = [(circle / "other" / "roster.json").read_text(), ""]
    forged = dataclasses.replace(bob.roster, version=9, revoked=(("bob", bob.credential.serial),))
    rosters.append(dataclasses.replace(forged, signature=mallory.sign(b"")).to_bytes().decode())
    async with site_of(ada) as here:
        here.knows(bob, "127.0.0.1:2")
        for roster in rosters:
            code, why = await refused(Client.of(here, mallory).meet(meeting(roster=roster, roster_version=9)))
            assert (code, "not a roster" in why) == (WRONG, True)
        assert here.endpoint_of("bob") == "127.0.0.1:2"
        async with trap(mallory, b"'ada' was revoked", code=DENIED) as (_, at):
            assert not await here.node.meet("mallory", at)
        assert here.node.broken is None


@pytest.mark.usefixtures("hasty")
@over_sockets
async def test_a_revoked_key_cannot_stand_in_for_its_successor(circle: Path, tmp_path: Path) -> None:
    """The thief of bob's first key sits where bob's second one should be."""
    ada, thief, *_ = identities(circle)
    roster, _ = revoke("bob", circle)
    issue("bob", circle, out=tmp_path / "again")
    bob = Identity.load(tmp_path / "again")
    stolen = letter(thief, ada)
    async with site_of(ada) as here, trap(thief, Receipt(True).to_bytes(), stolen) as (caught, at):
        here.node.book.take_roster(roster)
        here.knows(bob, at)
        assert await here.fetch(bob) is None
        here.node.book.answered("bob")
        assert await here.node.send(bob.number, model(ada), "e.1", 0.2) == 0
        assert caught.calls == []


# -- speaking for another --------------------------------------------------------------------------


@over_sockets
async def test_a_server_with_the_certificate_of_another_name(circle: Path) -> None:
    ada, bob, _, mallory = identities(circle)
    async with trap(mallory, meeting()) as (caught, at), site_of(ada, [("bob", at)]) as here:
        assert not await here.node.meet("bob", at)
        assert "cannot connect to 'bob': its certificate or this peer's is refused" in here.said[-1]
        here.knows(bob, at)
        assert await here.fetch(bob) is None
        assert caught.calls == []


@over_sockets
async def test_announcements_of_another(circle: Path) -> None:
    ada, bob, _, mallory = identities(circle)
    true = announcement(bob, "127.0.0.1:2")
    lies = {
        "moved": dataclasses.replace(true, endpoint="127.0.0.1:666", sequence=2),
        "buried": dataclasses.replace(true, state="done", sequence=2),
        "by my key": dataclasses.replace(true, sequence=2).signed_by(mallory),
        "with my certificate": dataclasses.replace(true, serial=mallory.credential.serial, sequence=2).signed_by(
            mallory
        ),
        "without a signature": dataclasses.replace(true, sequence=2, signature=""),
        "no hexadecimal": dataclasses.replace(true, sequence=2, signature="zz"),
        "nowhere": announcement(bob, "unix:/run/docker.sock", sequence=2),
        "of the far future": announcement(bob, round=10**9, sequence=2),
    }
    async with site_of(ada) as here:
        here.node.book.hear([dataclasses.asdict(true)], [bob.credential.certificate.decode()])
        for why, lie in lies.items():
            code, _ = await refused(Client.of(here, mallory).meet(meeting([lie], [bob, mallory])))
            assert code == WRONG, why
            assert here.offences[-1][0] == "mallory"
            assert "'bob'" in here.offences[-1][1]
            here.seconds += 10_000
        assert here.node.book.entries["bob"].announcement == true
        assert len(here.offences) == len(lies)


@over_sockets
async def test_an_old_announcement_moves_nobody_back(circle: Path) -> None:
    ada, bob, _, mallory = identities(circle)
    async with site_of(ada) as here:
        here.knows(bob, "127.0.0.1:2", sequence=5)
        for sequence in (1, 4, 5):
            old = announcement(bob, "127.0.0.1:1", sequence=sequence)
            await Client.of(here, mallory).meet(meeting([old], [bob]))
        assert here.endpoint_of("bob") == "127.0.0.1:2"
        assert here.offences == []  # whoever passes on what it has may be late


@over_sockets
async def test_letters_in_the_name_of_another(circle: Path) -> None:
    ada, bob, carol, mallory = identities(circle)
    lies = {
        "unsigned": letter(bob, ada, signature=""),
        "no hexadecimal": letter(bob, ada, signature="zz"),
        "by my key": letter(mallory, ada, model(bob).to_bytes(), author="bob"),
        "of nobody": letter(mallory, ada, author="nobody"),
        "bob inside": letter(mallory, ada, model(bob).to_bytes()),
        "for carol": letter(bob, carol),
        "another round": letter(mallory, ada, round=2),
        "another name": letter(mallory, ada, name="head"),
    }
    signed = ArtifactHeader.from_bytes(letter(bob, ada)[0])
    for change in ({"number": "e.9"}, {"round": 3}, {"name": "x"}, {"to": "carol"}, {"agreement": signed.digest[:16]}):
        lies[f"changed {change}"] = [dataclasses.replace(signed, **change).to_bytes(), model(bob).to_bytes()]  # type: ignore[arg-type]
    async with site_of(ada) as here:
        here.knows(bob, "127.0.0.1:2")
        for why, lie in lies.items():
            code, _ = await refused(Client.of(here, mallory).push(lie))
            assert code == (UNLIKE if "agreement" in why else WRONG), why
            here.seconds += 10_000
        assert not here.keeper.box.has("model")
        assert {name for name, _ in here.offences} == {"mallory"}
        assert len(here.offences) == len(lies) - 1
        await Client.of(here, mallory).push(letter(bob, ada))  # as bob signed it, it is bob's, whoever brings it
        assert [a.author for a in here.keeper.box.take("model")] == [bob.number]


@over_sockets
async def test_a_letter_that_comes_again_is_taken_once(circle: Path) -> None:
    ada, bob, _, mallory = identities(circle)
    async with site_of(ada) as here:
        here.knows(bob, "127.0.0.1:2")
        for who in (bob, bob, mallory):
            assert Receipt.from_bytes(await Client.of(here, who).push(letter(bob, ada))).taken
        assert len(here.keeper.box.take("model")) == 1
        for number in ("", "e", "e.", ".1", "e.-1", "../x.1", "e.1.2", "\0.1", "e" * 33 + ".1", "e." + "1" * 13):
            code, _ = await refused(Client.of(here, bob).push(letter(bob, ada, number=number)))
            assert code == WRONG, number
            here.seconds += 10_000
        assert sorted(p.name for p in here.keeper.box.folder.iterdir()) == ["bob.e.000000000001.letter"]


# -- what an artifact can be ------------------------------------------------------------------------


def safetensors(label: str, data: bytes = b"", **tensors: dict[str, Any]) -> bytes:
    """A file as no library would write it."""
    header = json.dumps({**tensors, "__metadata__": {"artifact": label}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def label(who: Identity, name: str = "model", round: Any = 1, facts: str = "{}") -> str:
    return f'{{"author":{who.number},"facts":{facts},"name":"{name}","round":{round}}}'


def tensor(dtype: str, shape: list[int], size: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, size]}


def lying_data(who: Identity) -> dict[str, bytes]:
    """Bytes with a true header, but not an artifact that can be used."""
    good, number = model(who).to_bytes(), label(who)
    bad = torch.ones(4)
    return {
        "nothing": b"",
        "noise": random.Random(0).randbytes(1000),
        "a pickle": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x07touch /x\x85R.",
        "cut": good[:-1],
        "too long": good + b"\0",
        "nan": model(who, w=bad.index_fill(0, torch.tensor([2]), math.nan)).to_bytes(),
        "inf": model(who, w=bad.index_fill(0, torch.tensor([2]), math.inf)).to_bytes(),
        "a fact that is nan": safetensors(label(who, facts='{"samples":NaN}')),
        "a fact that is inf": safetensors(label(who, facts='{"samples":1e999}')),
        "a fact that is vast": safetensors(label(who, facts='{"samples":' + "9" * 4000 + "}")),
        "a table for a fact": safetensors(label(who, facts='{"samples":{}}')),
        "half a character": safetensors(label(who, name="\\ud800")),
        "control characters": safetensors(label(who, name="\\u001b[2J\\n03:04:05  all is well")),
        "a vast round": safetensors(label(who, round="9" * 4000)),
        "a negative round": safetensors(label(who, round=-1)),
        "eight bits": safetensors(number, bytes(8), w=tensor("F8_E4M3", [8], 8)),
        "many dimensions": safetensors(number, w=tensor("F32", [0] * 100, 0)),
        "vast strides": safetensors(number, w=tensor("F32", [0, 1 << 40, 1 << 40], 0)),
        "vast shape": safetensors(number, w=tensor("F32", [1 << 62, 1 << 62], 0)),
        "beyond the end": safetensors(number, w=tensor("F32", [1 << 30], 1 << 32)),
        "vast header": struct.pack("<Q", 1 << 62) + good[8:],
        "deep header": struct.pack("<Q", 200_000) + b"[" * 200_000,
        "deep label": safetensors("[" * 200_000),
    }


def lying_parcels(who: Identity, to: Identity) -> dict[str, list[bytes]]:
    """A header that does not describe the bytes after it; or bytes that no header may describe."""
    good, noise = model(who).to_bytes(), zstandard.ZstdCompressor().compress(bytes(1000))
    bomb = zstandard.ZstdCompressor().compress(bytes(100_000_000))
    first, data = letter(who, to)
    return {
        "10 GB": letter(who, to, good, size=10 << 30),
        "less than nothing": letter(who, to, good, size=-1),
        "more than announced": letter(who, to, good, size=len(good) - 1),
        "much more than announced": [first, *([data] * 1000)],
        "less than announced": [first, data[:-1]],
        "nothing at all": [],
        "no bytes": [first],
        "another digest": letter(who, to, good, digest=digest_of(b"")),
        "no digest": letter(who, to, good, digest=""),
        "an unknown encoding": letter(who, to, good, encoding="pickle"),
        "not zstd": letter(who, to, good, encoding="zstd"),
        "zstd of noise": letter(who, to, noise, encoding="zstd"),
        "a difference from nothing": letter(who, to, noise, encoding="topk", keep=True),
        "a bomb": letter(who, to, bomb, encoding="zstd"),
        "a bomb of halves": letter(who, to, bomb, encoding="fp16"),
        "a bomb of differences": letter(who, to, bomb, encoding="topk", keep=True),
        **{f"data: {why}": letter(who, to, data) for why, data in lying_data(who).items()},
    }


def is_one_harmless_line(text: str) -> bool:
    return 0 < len(text) <= 310 and text.isprintable()


@pytest.mark.usefixtures("hasty")
@over_sockets
async def test_letters_that_lie(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    async with site_of(ada) as here:
        for why, lie in lying_parcels(mallory, ada).items():
            code, text = await refused(Client.of(here, mallory).push(lie))
            assert code == WRONG, (why, text)
            assert is_one_harmless_line(text), (why, text)
            assert here.offences[-1][0] == "mallory", why
            assert is_one_harmless_line(here.offences.pop()[1]), why
            assert here.offences == []
            here.seconds += 10_000
        assert not here.keeper.box.folder.exists()
        assert here.node.broken is None


@over_sockets
async def test_answers_that_lie(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    answer: list[bytes] = []
    lies = lying_parcels(mallory, ada)
    lies["another artifact"] = letter(mallory, ada, name="head")
    lies["of another"] = letter(mallory, ada, author="bob")
    lies["for another"] = letter(mallory, ada, to="bob")
    lies["of another run"] = letter(mallory, ada, agreement="0" * 16)
    lies["vast messages"] = [bytes(2 * LARGEST_MESSAGE)]
    async with site_of(ada) as here, trap(mallory, stream=answer) as (_, at):
        here.knows(mallory, at)
        for why, lie in lies.items():
            answer[:] = lie
            here.node.book.answered("mallory")
            assert await here.fetch(mallory) is None, why
            assert [name for name, _ in here.offences] == ["mallory"], why
            assert is_one_harmless_line(here.offences.pop()[1]), why
            here.seconds += 10_000
        assert here.node.traffic.get("mallory", Traffic()).received_bytes == 0
        answer[:] = letter(mallory, ada)
        here.node.book.answered("mallory")
        assert await here.fetch(mallory) is not None  # (the rest of it was fine)


@over_sockets
async def test_ten_gigabytes_take_no_memory(circle: Path) -> None:
    """They are refused by what is announced, while the sender has only begun."""
    ada, _, _, mallory = identities(circle)

    def endless() -> Iterable[bytes]:
        yield letter(mallory, ada, size=10 << 30)[0]
        for _ in range(10_000):
            yield bytes(1 << 20)

    async with site_of(ada) as here, trap(mallory, stream=endless()) as (_, at):
        here.knows(mallory, at)
        tracemalloc.start()
        try:
            before = resident()
            code, why = await refused(Client.of(here, mallory).push(endless()))
            assert (code, "announced with 10737418240 bytes, but at most 33554432 are allowed" in why) == (WRONG, True)
            assert await here.fetch(mallory) is None
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
            assert resident() - before < 64 << 20
        finally:
            tracemalloc.stop()
        assert len(here.offences) == 2


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


# -- what a message can be ---------------------------------------------------------------------------


def lying_messages() -> dict[str, bytes]:
    number = b'{"protocol":%d,"round":%%s}' % PROTOCOL
    return {
        "nothing": b"",
        "noise": random.Random(1).randbytes(1000),
        "a number": b"1",
        "a table of nothing": b"{}",
        "other keys": b'{"protocol":%d,"__class__":"os.system"}' % PROTOCOL,
        "deep": b"[" * 1_000_000,
        "deep tables": b'{"protocol":' * 100_000,
        "a vast number": number % (b"9" * 100_000),
        "a long number": number % (b"9" * 4000),
        "an infinite number": number % b"1e999",
        "no number": number % b"NaN",
        "half a character": meeting(roster="x", roster_version=9).replace(b'"x"', b'"\\ud800"'),
        "the wrong types": meeting().replace(b'"news":[]', b'"news":{}'),
        "news of no kind": meeting().replace(b'"news":[]', b'"news":[{"name":"bob"}]'),
        "certificates of no kind": meeting().replace(b'"certificates":[]', b'"certificates":["x"]'),
        "too large": b" " * (LARGEST_MESSAGE + 1),
    }


@over_sockets
async def test_requests_that_are_none(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    async with site_of(ada) as here:
        for why, request in lying_messages().items():
            for code, text in await Client.of(here, mallory).each(request):
                assert (code, is_one_harmless_line(text)) == (WRONG, True), (why, text)
            assert [name for name, _ in here.offences] == ["mallory"] * 3, why
            assert all(is_one_harmless_line(what) for _, what in here.offences), why
            here.offences.clear()
            here.seconds += 10_000
        codes = [code for code, _ in await Client.of(here, mallory).each(bytes(4 * LARGEST_MESSAGE))]
        assert codes[:2] == [TOO_MUCH, TOO_MUCH]  # by gRPC, before it is there
        assert here.node.broken is None


@over_sockets
async def test_answers_that_are_none(circle: Path) -> None:
    """To a meeting, a fetch and a push."""
    ada, _, _, mallory = identities(circle)
    async with site_of(ada) as here:
        for why, answer in lying_messages().items():
            async with trap(mallory, answer, [answer]) as (caught, at):
                here.knows(mallory, at, sequence=int(here.seconds))
                assert not await here.node.meet("mallory", at), why
                assert await here.fetch(mallory) is None, why
                assert await here.node.send(mallory.number, model(ada), "e.1", 1.0) == 0, why
                assert caught.calls == ["Meet", "Fetch", "Push"], why
            assert [name for name, _ in here.offences] == ["mallory"] * 3, why
            assert all(is_one_harmless_line(what) for _, what in here.offences), why
            here.offences.clear()
            here.seconds += 10_000
        assert here.node.broken is None


@over_sockets
async def test_hostile_answers_do_not_end_the_talking(circle: Path) -> None:
    """All of them in turn, while the node goes about its own business."""
    ada, bob, _, mallory = identities(circle)
    answers = iter([*lying_messages().values()] * 100)

    async def meet(_: bytes, __: Any) -> bytes:
        return next(answers)

    async with trap(mallory) as (caught, at), site_of(ada, [("mallory", at)]) as here, site_of(bob) as there:
        caught._handlers["Meet"] = grpc.unary_unary_rpc_method_handler(meet)
        here.knows(bob, there.endpoint)
        here.node.talk()
        async with asyncio.timeout(30):
            while len(caught.calls) < 2 * len(lying_messages()):
                here.seconds += 10_000
                await asyncio.sleep(0.01)
        assert here.node.broken is None
        assert there.node.book.entries["ada"].answered is not None
        assert {name for name, _ in here.offences} == {"mallory"}


@over_sockets
async def test_an_unknown_call_and_a_known_one_of_another_form(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    async with site_of(ada) as here, Client.of(here, mallory).channel() as channel:
        for name in ("Reboot", "meet", ""):
            code, _ = await refused(call_of(channel.unary_unary(f"/{SERVICE}/{name}")(b"", timeout=5)))
            assert code == grpc.StatusCode.UNIMPLEMENTED
        assert not here.offences


async def call_of(call: Any) -> Any:
    return await call


# -- other versions, other experiments ----------------------------------------------------------------


@over_sockets
async def test_another_protocol_is_named_in_both_directions(circle: Path) -> None:
    """Its messages may look like anything else: it is no offence, and both sides are told both versions."""
    ada, bob, *_ = identities(circle)
    old = canonical({"protocol": 0, "who": "bob"})
    for request in (old, meeting(protocol=0), ask(protocol=0), letter(bob, ada, protocol=0)[0]):
        async with site_of(ada) as here:
            for answer in await Client.of(here, bob).each(request):
                said = f"protocol 0 there, {PROTOCOL} here: update Coterie on the older side"
                assert answer == (UNLIKE, said)
            assert here.offences == []
    new = canonical({"protocol": 7})
    async with trap(bob, new, [new]) as (_, at), site_of(ada) as here:
        here.knows(bob, at)
        assert await here.fetch(bob) is None
        assert here.node.book.entries["bob"].trouble.startswith(f"protocol 7 there, {PROTOCOL} here")
        assert not await here.node.meet("bob", at)
        [said] = here.said
        assert said.startswith(f"'bob' runs a different experiment: protocol 7 there, {PROTOCOL} here")
        assert here.offences == []


@over_sockets
async def test_another_experiment_is_refused_with_both_values(circle: Path) -> None:
    ada, bob, *_ = identities(circle)
    async with site_of(ada) as here, site_of(bob, [("ada", here.endpoint)], {**TERMS, "rounds": "20"}) as there:
        assert not await there.node.meet("ada", here.endpoint)
        said = "rounds is 10 at 'ada' and 20 at 'bob'"
        assert isinstance(there.node.refused, AgreementError)
        assert str(there.node.refused) == f"'ada' runs a different experiment: {said}"
        assert here.said == [f"'bob' was refused: {said}"]
        client = Client.of(here, bob)
        for call in (client.ask(ask(agreement="x")), client.push(letter(bob, ada, agreement="x"))):
            assert await refused(call) == (UNLIKE, "different terms (method, labels or shapes): meet first")
        assert here.offences == []
        assert here.node.book.entries == {}


@over_sockets
async def test_one_seed_that_refuses_does_not_end_a_run(circle: Path) -> None:
    """It may be the one that is wrong. If all do, we are."""
    ada, bob, _, mallory = identities(circle)
    async with trap(mallory, b"rounds is 1 here", code=UNLIKE) as (_, at), site_of(bob) as there:
        async with site_of(ada, [("mallory", at), ("bob", there.endpoint)]) as here:
            for name, endpoint in here.node.seeds:
                await here.node.meet(name, endpoint)
            assert here.node.refused is None
            assert list(here.node.book.entries) == ["bob"]
        async with site_of(ada, [("mallory", at)]) as here:
            await here.node.meet("mallory", at)
            assert isinstance(here.node.refused, AgreementError)


@over_sockets
async def test_what_others_say_cannot_act_in_a_terminal_or_fill_a_log(circle: Path) -> None:
    ada, bob, _, mallory = identities(circle)
    acting = "\x1b[2J\n03:04:05  'bob' sent wrong things\u202e" + "x" * 100_000
    async with site_of(ada) as here:
        for i in range(node.MOST_LINES + 5):
            await refused(Client.of(here, mallory).meet(meeting(agreement={acting: f"{acting}{i}"})))
            await refused(Client.of(here, mallory).meet(meeting(agreement={**TERMS, "rounds": f"1{i:03}"})))
        assert 1 <= len(here.said) <= node.MOST_LINES
        assert sum(map(len, here.said)) < 50_000
        async with trap(mallory, acting[:1000].encode(), code=grpc.StatusCode.INTERNAL) as (_, at):
            await here.node.meet("mallory", at)
        await refused(Client.of(here, bob).meet(meeting(agreement={"rounds": "20"})))
        assert here.said[-1].startswith("'bob' was refused")  # there is room for others
        assert all(text.isprintable() for text in here.said)


# -- taking one's time, and too much -------------------------------------------------------------------

SOON = 15.0  # seconds: on a busy machine, and much less than it takes to wait for those who take their time


@pytest.mark.usefixtures("hasty")
@over_sockets
async def test_a_server_that_drips(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    data = model(mallory).to_bytes()
    drops = [letter(mallory, ada)[0], *(bytes([b]) for b in data)]
    async with site_of(ada, patience=0.6) as here, trap(mallory, stream=drops, pause=0.05) as (_, at):
        here.knows(mallory, at)
        began = time.monotonic()
        assert await here.fetch(mallory) is None
        assert 0.5 < time.monotonic() - began < SOON  # the wait of 0.2 and the patience of 0.6 seconds
        assert here.node.book.entries["mallory"].silent


async def all_fail_soon(here: Site, mallory: Identity) -> None:
    """A meeting, a fetch and a push."""
    began = time.monotonic()
    assert not await here.node.meet("mallory", here.endpoint_of("mallory"))
    assert time.monotonic() - began < SOON
    here.node.book.answered("mallory")
    assert await here.fetch(mallory) is None
    assert here.node.book.entries["mallory"].silent
    here.node.book.answered("mallory")
    assert await here.node.send(mallory.number, model(here.node.identity), "e.1", 0.2) == 0
    assert here.node.book.entries["mallory"].silent
    assert time.monotonic() - began < 3 * SOON


@pytest.mark.usefixtures("hasty")
@over_sockets
async def test_a_server_that_never_answers(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    async with site_of(ada, patience=0.6) as here, trap(mallory, stream=[b""], pause=1000) as (caught, at):
        here.knows(mallory, at)
        await all_fail_soon(here, mallory)
        assert caught.calls == ["Meet", "Fetch", "Push"]


@pytest.mark.usefixtures("hasty")
@over_sockets
async def test_a_port_that_accepts_and_says_nothing(circle: Path) -> None:
    """Not even TLS."""
    ada, _, _, mallory = identities(circle)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system accepts; nobody else does
        at = f"127.0.0.1:{silent.getsockname()[1]}"
        async with site_of(ada, patience=0.6) as here:
            here.knows(mallory, at)
            await all_fail_soon(here, mallory)


@over_sockets
async def test_a_client_that_drips(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    first, data = letter(mallory, ada)
    drops = [first, *(bytes([b]) for b in data)]
    async with site_of(ada, patience=0.5) as here:
        began = time.monotonic()
        code, _ = await refused(Client.of(here, mallory).push(drops, dripping=0.05))
        assert code == TOO_SLOW
        assert time.monotonic() - began < SOON


@over_sockets
async def test_a_client_that_does_not_read(circle: Path) -> None:
    """It keeps its own calls from ending, and so itself from having more; others are served."""
    ada, bob, _, mallory = identities(circle)
    async with site_of(ada, patience=20) as here:
        here.keeper.shelf["model"] = model(ada, w=torch.ones(6 << 20))  # more than fits any window
        async with Client.of(here, mallory).channel() as channel:
            held = [channel.unary_stream(f"/{SERVICE}/Fetch")(ask()) for _ in range(serving.AT_ONCE)]
            for call in held:
                await call.read()
            assert (await refused(Client.of(here, mallory).meet(meeting())))[0] == TOO_MUCH
            here.keeper.shelf["model"] = model(ada)
            assert len(await Client.of(here, bob).ask(ask())) == 2
        async with asyncio.timeout(5):
            while here.node.service.calls["mallory"]:
                await asyncio.sleep(0.01)
        assert here.offences == []


@over_sockets
async def test_a_letter_that_breaks_off_is_no_offence(circle: Path) -> None:
    """Its sender ran out of time, or died: that looks at first like one that was cut short on purpose."""
    ada, bob, *_ = identities(circle)
    async with site_of(ada) as here:
        for how in ("cancelled", "late", "gone"):
            async with Client.of(here, bob).channel() as channel:
                call = channel.stream_unary(f"/{SERVICE}/Push")(timeout=0.3)
                await call.write(letter(bob, ada)[0])
                async with asyncio.timeout(5):
                    while not here.node.service.calls["bob"]:
                        await asyncio.sleep(0.01)
                if how == "cancelled":
                    call.cancel()
                elif how == "late":
                    await asyncio.sleep(0.4)
            async with asyncio.timeout(5):
                while here.node.service.calls["bob"]:
                    await asyncio.sleep(0.01)
        assert here.offences == []


@over_sockets
async def test_only_so_many_calls_at_once(circle: Path) -> None:
    """Each may hold an artifact. Those of others go on."""
    ada, bob, _, mallory = identities(circle)
    async with site_of(ada) as here:

        async def hold(channel: grpc.aio.Channel) -> Any:
            call = channel.stream_unary(f"/{SERVICE}/Push")()
            await call.write(letter(mallory, ada)[0])
            return call

        async with Client.of(here, mallory).channel() as channel:
            held = [await hold(channel) for _ in range(serving.AT_ONCE)]
            async with asyncio.timeout(5):
                while here.node.service.calls["mallory"] < serving.AT_ONCE:
                    await asyncio.sleep(0.01)
            code, why = await refused(Client.of(here, mallory).ask(ask()))
            assert (code, why) == (TOO_MUCH, f"'mallory' already has {serving.AT_ONCE} open calls")
            await Client.of(here, bob).meet(meeting())
            for call in held:
                call.cancel()
            async with asyncio.timeout(5):
                while here.node.service.calls["mallory"]:
                    await asyncio.sleep(0.01)
        await Client.of(here, mallory).meet(meeting())


@over_sockets
async def test_a_peer_that_moves_for_ever_leaves_no_channels_behind(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    async with site_of(ada, patience=0.1) as here:
        for port in range(1, 41):
            here.knows(mallory, f"127.0.0.1:{port}", sequence=port)
            assert not await here.node.meet("mallory", here.endpoint_of("mallory"))
            here.node.book.answered("mallory")
            assert await here.fetch(mallory) is None
            assert len(here.node.channels.open) <= channels.MOST_CHANNELS
        async with asyncio.timeout(10):
            while here.node.channels.retired:
                await asyncio.sleep(0.05)


# -- ignored, and forgiven ------------------------------------------------------------------------------


@over_sockets
async def test_after_three_offences_nobody_listens_for_a_while(circle: Path) -> None:
    ada, _, _, mallory = identities(circle)
    async with site_of(ada) as here, trap(mallory, meeting(), letter(mallory, ada)) as (caught, at):
        here.knows(mallory, at)
        client = Client.of(here, mallory)
        for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE):
            for _ in range(OFFENCES_UNTIL_IGNORED):
                assert (await refused(client.meet(b"?")))[0] == WRONG
            for call in (client.meet(meeting()), client.ask(ask()), client.push(letter(mallory, ada))):
                assert await refused(call) == (DENIED, "'mallory' is ignored for a while")
            caught.calls.clear()
            assert here.node.entry(mallory.number) is None
            assert await here.fetch(mallory) is None
            assert await here.node.send(mallory.number, model(ada), "e.1", 1.0) == 0
            await here.node._meet_sample()
            assert caught.calls == []
            here.seconds += pause - 1
            assert (await refused(client.meet(meeting())))[0] == DENIED
            here.seconds += 2
            await client.meet(meeting())
            await here.node._meet_sample()
            assert caught.calls == ["Meet"]
            assert await here.fetch(mallory) is not None
        assert here.node.penalties.offences["mallory"] == len(here.offences) == 3 * OFFENCES_UNTIL_IGNORED


# -- a whole run -----------------------------------------------------------------------------------------

RUN = (
    "peers=4", "rounds=7", "baseline=", "data.clusters=2", "data.train=12", "data.validation=5", "data.test=5",
    "model.hidden=[4]", "train.epochs=1", "train.batch=6", "train.lr=0.1", "engine.threads=1", "method.name=gossip",
    "method.k=3", "network.deadline=30", "network.interval=0.2", "network.linger=20",
)  # fmt: skip
HOSTILE = "peer-3"


def lie_of_round(true: Artifact) -> tuple[str, Artifact]:
    """What the hostile peer has on its shelf, and what the others must say of it."""
    tensors = {key: t.clone() for key, t in true.items()}
    first = next(iter(tensors))
    some = tensors[first]
    wrong: dict[int, tuple[str, dict[str, torch.Tensor]]] = {
        1: ("should be", {**tensors, first: some[:1]}),
        2: ("not finite", {**tensors, first: torch.full_like(some, math.nan)}),
        3: ("not finite", {**tensors, first: torch.full_like(some, math.inf)}),
        4: ("should not be there", {**tensors, "extra": some.clone()}),
        5: ("but is missing", {key: t for key, t in tensors.items() if key != first}),
        6: ("float64", {**tensors, first: some.double()}),
    }
    if true.round in wrong:
        what, content = wrong[true.round]
        return what, dataclasses.replace(true, content=content)
    return "of round 1000000 in round", dataclasses.replace(true, round=1_000_000)


def corrupt(engine: NetworkEngine) -> None:
    honest = engine.store.find

    async def find(name: str, round: int, wait: float) -> Artifact | None:
        found = await honest(name, round, wait)
        return None if found is None else lie_of_round(found)[1]

    engine.store.find = find  # type: ignore[method-assign]


def test_a_circle_with_one_hostile_peer_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(penalties_module, "FIRST_PAUSE", 0.0)  # so that every lie is heard
    circle = LocalCircle(loading.load("panm-digits", RUN), tmp_path / "run")
    circle.prepare()
    engines: dict[str, NetworkEngine] = {}

    def started(engine: NetworkEngine) -> None:
        engines[engine.node.identity.name] = engine
        if engine.node.identity.name == HOSTILE:
            corrupt(engine)

    async def everybody() -> None:
        files = [read_file(m.file) for m in circle.members]
        await asyncio.gather(*(take_part(file, say=lambda _: None, on_start=started) for file in files))

    asyncio.run(everybody())
    expected = [lie_of_round(dataclasses.replace(model_like(), round=t))[0] for t in range(1, 8)]
    for member in circle.members[:-1]:
        assert torch.isfinite(engines[member.name].me.model.vector).all()
        offences = of_kind(list(read(member.out / "events.jsonl")), Offence)
        assert {o.sender for o in offences} == {HOSTILE}
        assert [o.round for o in offences] == list(range(1, 8))
        assert all(part in o.what for part, o in zip(expected, offences, strict=True))
        said = json.loads((member.out / "status.json").read_text(encoding="utf-8"))
        assert {p["name"]: p["offences"] for p in said["peers"]} == {
            name: 7 * (name == HOSTILE) for name in engines if name != member.name
        }
        assert "7 offences" in peer_status.text(member.out)
        assert json.loads((member.out / "summary.json").read_text(encoding="utf-8"))["offences"] == 7


def model_like() -> Artifact:
    return Artifact("model", 3, 1, {"w": torch.zeros(2)}, {})
