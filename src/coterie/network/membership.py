"""Where everybody is: announcements that each peer signs for itself, and the book that keeps the newest of each.

An entry counts only with its owner's signature, so nobody can introduce, move or bury another. Nothing here decides
that a peer is dead: the book says who was announced and who answered lately, a hint for whom to ask; deadlines decide.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.network.keys import Credential, Identity, IdentityError, Roster, credential_of, issued_by
from coterie.network.wire import Message, WireError, canonical, plain

GATHERING, READY, RUNNING, LISTENING, DONE = "gathering", "ready", "running", "listening", "done"
STATES = (GATHERING, READY, RUNNING, LISTENING, DONE)
LONGEST_ENDPOINT = 300
# A host's name or address, and a port: to gRPC, other forms are files, or servers to ask for names.
ENDPOINT = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Za-z.:%_-]+\]):[0-9]{1,5}")
MOST_ENTRIES = 10_000
SILENCE = 10.0  # seconds without an answer to greetings after which somebody is taken to be gone
# Seconds of refused greetings that mean the same. Not at once: who tried before the other listened hears of that for
# a while (gRPC waits before it tries again), and would begin the first round without it.
REFUSAL = 2.5
MOST_NEWS = 1_000  # in one message, so that it is never too large to be taken; the next one brings the rest


@dataclass(frozen=True)
class Announcement(Message):
    """A peer of itself: who, where, and how far. Newer ones of a peer replace older ones."""

    name: str
    endpoint: str
    incarnation: int  # grows at every start of the process
    sequence: int  # grows at every change
    state: str
    round: int  # the one it is in; 0 before the first
    knows: int  # how many peers it knows of, itself included: all must know all before round 1
    agreement: str  # the digest of what must be equal
    serial: str  # of its certificate
    shelved: int = 0  # how many things it has put on its shelf so far: whether it is worth asking again
    signature: str = ""

    @property
    def version(self) -> str:
        """Sorts by age."""
        return f"{self.incarnation:020d}.{self.sequence:010d}"

    def signed_part(self) -> bytes:
        return canonical({**dataclasses.asdict(self), "signature": ""})

    def signed_by(self, identity: Identity) -> Announcement:
        return dataclasses.replace(self, signature=identity.sign(self.signed_part()).hex())

    def check(self, credential: Credential) -> None:
        """Raises WireError unless it is well-formed and the owner of this certificate signed it."""
        of = f"an announcement of '{plain(self.name, 80)}'"
        if self.state not in STATES or not 0 <= self.round < 10**9 or not 0 <= self.knows < 10**9:
            raise WireError(f"{of} has an impossible state or round")
        if not 0 <= self.shelved < 10**12:
            raise WireError(f"{of} says that it has shelved {self.shelved} things")
        if not 0 <= self.incarnation < 10**20 or not 0 <= self.sequence < 10**10:
            raise WireError(f"{of} has an impossible version")
        if len(self.endpoint) > LONGEST_ENDPOINT or not ENDPOINT.fullmatch(self.endpoint):
            raise WireError(f"{of} has no possible endpoint: {plain(self.endpoint, 50)!r} is not HOST:PORT")
        if (credential.name, credential.serial) != (self.name, self.serial):
            raise WireError(f"{of} comes with the certificate of '{credential.name}'")
        if not credential.signed(self.signed_part(), self.signature):
            raise WireError(f"{of} is not signed by it")


@dataclass
class PeerEntry:
    """What one peer knows of another."""

    announcement: Announcement
    credential: Credential
    answered: float | None = None  # when it last answered, or came to ask
    failed: float | None = None  # when it last did not, if that is the newer
    unheard: float | None = None  # since when greetings get no answer, if they get none
    trouble: str = ""  # why it is not asked: another agreement, say; until it announces something else

    @property
    def silent(self) -> bool:
        return self.failed is not None


@dataclass
class AddressBook:
    """The newest announcement of everybody. Pure bookkeeping: what is heard comes in, what to tell goes out."""

    identity: Identity
    roster: Roster
    mine: Announcement
    now: Callable[[], float]
    entries: dict[str, PeerEntry] = field(default_factory=dict)
    by_number: dict[int, str] = field(default_factory=dict)

    # -- oneself -------------------------------------------------------------------------------

    def announce(self, **changes: Any) -> None:
        """Change what one says of oneself, and sign it."""
        changed = dataclasses.replace(self.mine, **changes, signature="")
        if changed != dataclasses.replace(self.mine, signature="") or not self.mine.signature:
            changed = dataclasses.replace(changed, sequence=self.mine.sequence + 1)
            self.mine = changed.signed_by(self.identity)

    # -- hearing -------------------------------------------------------------------------------

    def known(self) -> dict[str, str]:
        """By peer, which announcement and which certificate one has."""
        return {a.name: f"{a.version}/{a.serial}" for a in self._announcements()}

    def news_for(self, known: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[str]]:
        """What somebody who knows these versions lacks, and the certificates that it lacks."""
        has = {name: said.partition("/")[::2] for name, said in known.items()}
        newer = [a for a in self._announcements() if a.version > has.get(a.name, ("", ""))[0]][:MOST_NEWS]
        lacking = [a.name for a in newer if has.get(a.name, ("", ""))[1] != a.serial]
        return [dataclasses.asdict(a) for a in newer], [self._certificate(name).decode("ascii") for name in lacking]

    def hear(self, news: Iterable[object], certificates: Iterable[str]) -> list[str]:
        """Take over what is newer and signed by its owner; returns the names that changed. Raises WireError."""
        announcements = _one_each([Announcement.from_table(item) for item in news])
        known = {e.credential.serial: e.credential for e in self.entries.values()} | self._brought(certificates)
        others = (a for a in announcements if a.name != self.identity.name)
        return [a.name for a in others if self._take(a, known)]

    def _brought(self, certificates: Iterable[str]) -> dict[str, Credential]:
        """By serial. One that has expired is left out: who passes it on may not know, and did nothing wrong."""
        brought: dict[str, Credential] = {}
        for pem in certificates:
            try:
                credential, _ = issued_by(pem.encode(), self.identity.authority)
            except (IdentityError, UnicodeEncodeError) as error:
                raise WireError(f"a certificate that came with the news: {error}") from error
            if credential.serial in brought:  # each costs a check of its signature
                raise WireError(f"a certificate of '{credential.name}' came twice with the news")
            brought[credential.serial] = credential
        return {serial: c for serial, c in brought.items() if _is_valid_now(c, self.identity.authority)}

    def _take(self, announcement: Announcement, known: Mapping[str, Credential]) -> bool:
        entry = self.entries.get(announcement.name)
        if entry and announcement.version <= entry.announcement.version:
            return False
        credential = known.get(announcement.serial)
        if credential is None or self.roster.refuses(announcement.serial):
            return False  # will come again, with the certificate; or is not wanted
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
            entry.failed = None if moved else entry.failed  # it is somewhere else now: worth asking
        self.by_number[credential.number] = announcement.name
        return True

    def take_roster(self, roster: Roster) -> bool:
        """The newest wins; whoever it refuses is forgotten."""
        if roster.version <= self.roster.version:
            return False
        self.roster = roster
        for name in [n for n, e in self.entries.items() if roster.refuses(e.credential.serial)]:
            self.by_number.pop(self.entries.pop(name).credential.number, None)
        return True

    # -- who is there --------------------------------------------------------------------------

    def answered(self, name: str) -> None:
        if name in self.entries:
            entry = self.entries[name]
            entry.answered, entry.failed, entry.unheard = self.now(), None, None

    def failed(self, name: str) -> None:
        if name in self.entries and self.entries[name].failed is None:
            self.entries[name].failed = self.now()

    def unheard(self, name: str, refused: bool = False) -> None:
        """A greeting got no answer in time, or nobody took it. That counts only if it goes on for a while."""
        entry = self.entries.get(name)
        if entry is None:
            return
        entry.unheard = entry.unheard or self.now()
        if self.now() - entry.unheard > (REFUSAL if refused else SILENCE):
            self.failed(name)

    def companions(self) -> list[PeerEntry]:
        """Those with whom one can work: the same agreement, no trouble."""
        same = (e for e in self.entries.values() if e.announcement.agreement == self.mine.agreement)
        return sorted((e for e in same if not e.trouble), key=lambda e: e.credential.number)

    def there(self) -> list[PeerEntry]:
        """Of those, who has not just failed to answer."""
        return [e for e in self.companions() if not e.silent]

    def _announcements(self) -> list[Announcement]:
        return [self.mine, *(e.announcement for e in self.entries.values())]

    def _certificate(self, name: str) -> bytes:
        if name == self.identity.name:
            return self.identity.credential.certificate
        return self.entries[name].credential.certificate


def _one_each(announcements: list[Announcement]) -> list[Announcement]:
    """Nobody has two newest announcements; and each costs a check of its signature."""
    if len({a.name for a in announcements}) < len(announcements):
        raise WireError("news that have two announcements of one peer")
    return announcements


def _is_valid_now(credential: Credential, authority: bytes) -> bool:
    try:
        credential_of(credential.certificate, authority)
    except IdentityError:
        return False
    return True
