"""Membership by gossip: announcements that each peer signs for itself, and the address book of the newest ones.

An announcement counts only with its owner's signature, so no peer can add, move or remove another. The book does not
decide that a peer is dead: it records which peers answered recently, as a hint for whom to ask. Deadlines decide.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.core.formatting import plain
from coterie.network.keys import Credential, Identity, IdentityError, Roster, credential_of, issued_by
from coterie.network.wire import Message, WireError, canonical

GATHERING, READY, RUNNING, LISTENING, DONE = "gathering", "ready", "running", "listening", "done"
STATES = (GATHERING, READY, RUNNING, LISTENING, DONE)
LONGEST_ENDPOINT = 300
# A host name or address, and a port: gRPC takes other forms for files or name servers.
ENDPOINT = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Za-z.:%_-]+\]):[0-9]{1,5}")
MOST_ENTRIES = 10_000
SILENCE = 10.0  # seconds of unanswered meetings after which a peer counts as gone
# Seconds of refused meetings that mean the same. Not 0: if the other peer was not listening at the first attempt, gRPC
# keeps failing until its reconnect delay is over, and round 1 would begin without that peer.
REFUSAL = 2.5
MOST_NEWS = 1_000  # announcements in one message, to limit its size; the next message has the rest


@dataclass(frozen=True)
class Announcement(Message):
    """What a peer announces of itself: name, address and progress. A newer announcement replaces an older one."""

    name: str
    endpoint: str
    incarnation: int  # increases at every start of the process
    sequence: int  # increases at every change
    state: str
    round: int  # the current one; 0 before the first
    knows: int  # number of known peers, itself included: all must know all before round 1
    agreement: str  # digest of the terms that must be equal
    serial: str  # of its certificate
    shelved: int = 0  # number of artifacts shelved so far: whether to fetch again
    signature: str = ""

    @property
    def version(self) -> str:
        """A text that sorts by age."""
        return f"{self.incarnation:020d}.{self.sequence:010d}"

    def signed_part(self) -> bytes:
        return canonical({**dataclasses.asdict(self), "signature": ""})

    def signed_by(self, identity: Identity) -> Announcement:
        return dataclasses.replace(self, signature=identity.sign(self.signed_part()).hex())

    def check(self, credential: Credential) -> None:
        """Raises WireError unless it is well-formed and the owner of this certificate signed it."""
        subject = f"an announcement of '{plain(self.name, 80)}'"
        if self.state not in STATES or not 0 <= self.round < 10**9 or not 0 <= self.knows < 10**9:
            raise WireError(f"{subject} has an invalid state or round")
        if not 0 <= self.shelved < 10**12:
            raise WireError(f"{subject} claims {self.shelved} shelved artifacts")
        if not 0 <= self.incarnation < 10**20 or not 0 <= self.sequence < 10**10:
            raise WireError(f"{subject} has an invalid version")
        if len(self.endpoint) > LONGEST_ENDPOINT or not ENDPOINT.fullmatch(self.endpoint):
            raise WireError(f"{subject} has an invalid endpoint: {plain(self.endpoint, 50)!r} is not HOST:PORT")
        if (credential.name, credential.serial) != (self.name, self.serial):
            raise WireError(f"{subject} comes with the certificate of '{credential.name}'")
        if not credential.signed(self.signed_part(), self.signature):
            raise WireError(f"{subject} is not signed by that peer")


@dataclass
class PeerEntry:
    """What one peer knows of another."""

    announcement: Announcement
    credential: Credential
    answered: float | None = None  # when it last answered or called
    failed: float | None = None  # when it failed to answer, if it has not answered since
    unheard: float | None = None  # since when meetings go unanswered, if they do
    trouble: str = ""  # why it is not asked, such as other terms; cleared when it announces other ones

    @property
    def silent(self) -> bool:
        return self.failed is not None


@dataclass
class AddressBook:
    """The newest announcement of each peer. Pure bookkeeping, without network access."""

    identity: Identity
    roster: Roster
    mine: Announcement
    now: Callable[[], float]
    entries: dict[str, PeerEntry] = field(default_factory=dict)
    by_number: dict[int, str] = field(default_factory=dict)

    # -- this peer -----------------------------------------------------------------------------

    def announce(self, **changes: Any) -> None:
        """Update and sign this peer's own announcement."""
        changed = dataclasses.replace(self.mine, **changes, signature="")
        if changed != dataclasses.replace(self.mine, signature="") or not self.mine.signature:
            changed = dataclasses.replace(changed, sequence=self.mine.sequence + 1)
            self.mine = changed.signed_by(self.identity)

    # -- exchanging ----------------------------------------------------------------------------

    def known(self) -> dict[str, str]:
        """By peer, the version of its announcement and the serial of its certificate."""
        return {a.name: f"{a.version}/{a.serial}" for a in self._announcements()}

    def news_for(self, known: Mapping[str, str]) -> tuple[list[dict[str, object]], list[str]]:
        """The announcements and certificates missing at a peer that knows these versions."""
        has = {name: said.partition("/")[::2] for name, said in known.items()}
        newer = [a for a in self._announcements() if a.version > has.get(a.name, ("", ""))[0]][:MOST_NEWS]
        lacking = [a.name for a in newer if has.get(a.name, ("", ""))[1] != a.serial]
        return [dataclasses.asdict(a) for a in newer], [self._certificate(name).decode("ascii") for name in lacking]

    def hear(self, news: Iterable[object], certificates: Iterable[str]) -> list[str]:
        """Store announcements that are newer and signed by their owners; returns their names. Raises WireError."""
        announcements = _check_unique([Announcement.from_table(item) for item in news])
        known = {e.credential.serial: e.credential for e in self.entries.values()} | self._received(certificates)
        others = (a for a in announcements if a.name != self.identity.name)
        return [a.name for a in others if self._take(a, known)]

    def _received(self, certificates: Iterable[str]) -> dict[str, Credential]:
        """Received certificates by serial, without expired ones, which are no offence of the sender."""
        received: dict[str, Credential] = {}
        for pem in certificates:
            try:
                credential, _ = issued_by(pem.encode(), self.identity.authority)
            except (IdentityError, UnicodeEncodeError) as error:
                raise WireError(f"a certificate among the news: {error}") from error
            if credential.serial in received:  # each costs a signature check
                raise WireError(f"a certificate of '{credential.name}' is twice among the news")
            received[credential.serial] = credential
        return {serial: c for serial, c in received.items() if _is_valid_now(c, self.identity.authority)}

    def _take(self, announcement: Announcement, known: Mapping[str, Credential]) -> bool:
        entry = self.entries.get(announcement.name)
        if entry and announcement.version <= entry.announcement.version:
            return False
        credential = known.get(announcement.serial)
        if credential is None or self.roster.refuses(announcement.serial):
            return False  # without the certificate it is sent again; a revoked peer is ignored
        if entry is None and len(self.entries) >= MOST_ENTRIES:
            raise WireError(f"more than {MOST_ENTRIES} peers are announced")
        announcement.check(credential)
        if entry is None:
            self.entries[announcement.name] = PeerEntry(announcement, credential)
        else:
            moved = entry.announcement.endpoint != announcement.endpoint
            differs = entry.announcement.agreement != announcement.agreement
            entry.announcement, entry.credential = announcement, credential
            entry.trouble = "" if differs else entry.trouble
            entry.failed = None if moved else entry.failed  # it has moved: try it again
        self.by_number[credential.number] = announcement.name
        return True

    def take_roster(self, roster: Roster) -> bool:
        """Store a newer roster and forget the peers that it revokes; False if it is not newer."""
        if roster.version <= self.roster.version:
            return False
        self.roster = roster
        for name in [n for n, e in self.entries.items() if roster.refuses(e.credential.serial)]:
            self.by_number.pop(self.entries.pop(name).credential.number, None)
        return True

    # -- liveness ------------------------------------------------------------------------------

    def answered(self, name: str) -> None:
        if name in self.entries:
            entry = self.entries[name]
            entry.answered, entry.failed, entry.unheard = self.now(), None, None

    def failed(self, name: str) -> None:
        if name in self.entries and self.entries[name].failed is None:
            self.entries[name].failed = self.now()

    def unheard(self, name: str, refused: bool = False) -> None:
        """A meeting timed out or was refused. The peer counts as failed only if this persists."""
        entry = self.entries.get(name)
        if entry is None:
            return
        entry.unheard = entry.unheard or self.now()
        if self.now() - entry.unheard > (REFUSAL if refused else SILENCE):
            self.failed(name)

    def companions(self) -> list[PeerEntry]:
        """The peers with the same terms and without trouble."""
        same = (e for e in self.entries.values() if e.announcement.agreement == self.mine.agreement)
        return sorted((e for e in same if not e.trouble), key=lambda e: e.credential.number)

    def there(self) -> list[PeerEntry]:
        """The companions that answered last time."""
        return [e for e in self.companions() if not e.silent]

    def _announcements(self) -> list[Announcement]:
        return [self.mine, *(e.announcement for e in self.entries.values())]

    def _certificate(self, name: str) -> bytes:
        if name == self.identity.name:
            return self.identity.credential.certificate
        return self.entries[name].credential.certificate


def _check_unique(announcements: list[Announcement]) -> list[Announcement]:
    """A peer has only one newest announcement, and each costs a signature check."""
    if len({a.name for a in announcements}) < len(announcements):
        raise WireError("two announcements of one peer among the news")
    return announcements


def _is_valid_now(credential: Credential, authority: bytes) -> bool:
    try:
        credential_of(credential.certificate, authority)
    except IdentityError:
        return False
    return True
