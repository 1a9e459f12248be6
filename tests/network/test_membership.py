"""Who is where: everybody comes to know the newest of everybody, and nobody can speak for another."""

from __future__ import annotations

import dataclasses
import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.network import membership
from coterie.network.authority import create_authority, issue, revoke
from coterie.network.deadlines import FACTOR, LEAST, RECENT, Deadline
from coterie.network.keys import Identity
from coterie.network.membership import GATHERING, RUNNING, AddressBook, Announcement
from coterie.network.penalties import FIRST_PAUSE, LONGEST_PAUSE, OFFENCES_UNTIL_IGNORED, Penalties
from coterie.network.wire import LARGEST_MESSAGE, Meeting, WireError

NAMES = ("ada", "bob", "carol", "dora")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for circle in ("circle", "other"):
        create_authority(folder / circle)
        for name in NAMES:
            issue(name, folder / circle)
    return folder


@pytest.fixture(scope="module")
def people(keys: Path) -> list[Identity]:
    return [Identity.load(keys / "circle" / name) for name in NAMES]


def book_of(identity: Identity, incarnation: int = 1, agreement: str = "same") -> AddressBook:
    mine = Announcement(
        identity.name, f"{identity.name}:1", incarnation, 0, GATHERING, 0, 1, agreement, identity.credential.serial
    )
    book = AddressBook(identity, identity.roster, mine, lambda: 5.0)
    book.announce()
    return book


def tell(teller: AddressBook, hearer: AddressBook) -> list[str]:
    """One direction of a meeting."""
    return hearer.hear(*teller.news_for(hearer.known()))


def says(identity: Identity, **changes: Any) -> Announcement:
    return dataclasses.replace(book_of(identity).mine, **changes).signed_by(identity)


def hears(book: AddressBook, *news: Announcement, brings: list[Identity]) -> list[str]:
    certificates = [identity.credential.certificate.decode() for identity in brings]
    return book.hear([dataclasses.asdict(a) for a in news], certificates)


# -- everybody comes to know -------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("move on"), st.integers(0, 3), st.integers(1, 50)),
        st.tuples(st.just("move away"), st.integers(0, 3), st.integers(1, 50)),
        st.tuples(st.just("restart"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("hear old news"), st.integers(0, 3), st.integers(0, 30)),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(STEPS)
def test_any_interleaving_comes_to_the_newest_of_each(
    people: list[Identity], steps: list[tuple[str, int, int]]
) -> None:
    books = [book_of(identity) for identity in people]
    told: list[tuple[list[Any], list[str]]] = []  # everything that was ever said, to be repeated at any time
    for what, i, j in steps:
        if what == "tell":
            told.append(books[i].news_for(books[j].known()))
            books[j].hear(*told[-1])
        elif what == "move on":
            books[i].announce(round=j, state=RUNNING)
        elif what == "move away":
            books[i].announce(endpoint=f"elsewhere:{j}")
        elif what == "restart":
            books[i] = book_of(people[i], books[i].mine.incarnation + 1)
        elif told:
            books[i].hear(*told[j % len(told)])
    for _ in range(len(books)):  # along a chain, there and back: the longest way that news can have
        for i in range(len(books) - 1):
            tell(books[i], books[i + 1])
            tell(books[i + 1], books[i])
    newest = {book.mine.name: book.mine for book in books}
    for book in books:
        known = {book.mine.name: book.mine, **{name: e.announcement for name, e in book.entries.items()}}
        assert known == newest
        assert book.by_number == {i: name for i, name in enumerate(NAMES) if name != book.mine.name}
        assert book.known() == books[0].known()
    assert all(books[i].news_for(books[j].known()) == ([], []) for i in range(4) for j in range(4))


def test_certificates_travel_once(people: list[Identity]) -> None:
    ada, bob, *_ = (book_of(p) for p in people)
    news, certificates = ada.news_for(bob.known())
    assert [n["name"] for n in news] == ["ada"]
    assert certificates == [people[0].credential.certificate.decode()]
    bob.hear(news, certificates)
    ada.announce(round=1)
    assert ada.news_for(bob.known())[1] == []
    assert tell(ada, bob) == ["ada"]
    assert tell(ada, bob) == []


def test_what_comes_without_its_certificate_comes_again(people: list[Identity]) -> None:
    ada, bob, *_ = (book_of(p) for p in people)
    assert bob.hear(ada.news_for({})[0], []) == []
    assert bob.entries == {}
    assert tell(ada, bob) == ["ada"]


def test_news_of_many_come_in_parts(people: list[Identity], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MOST_NEWS", 2)
    ada, bob, carol, dora = (book_of(p) for p in people)
    for other in (bob, carol):
        tell(other, ada)
    assert [len(tell(ada, dora)) for _ in range(3)] == [2, 1, 0]
    assert set(dora.entries) == {"ada", "bob", "carol"}


def test_the_largest_message_holds_the_most_news(people: list[Identity]) -> None:
    """The longest of everything that can be in one, except for the agreement: 10,000 peers with the longest names."""
    longest = dataclasses.replace(
        says(people[0]), name="n" * 63, endpoint="e" * membership.LONGEST_ENDPOINT, incarnation=2**63 - 1,
        sequence=10**10 - 1, round=10**9 - 1, knows=10**9 - 1, agreement="f" * 16, serial="f" * 40, signature="f" * 144,
    )  # fmt: skip
    pem = people[0].credential.certificate.decode()
    many = membership.MOST_NEWS
    known = {f"{i:063}": f"{longest.version}/{longest.serial}" for i in range(membership.MOST_ENTRIES)}
    meeting = Meeting(1, {}, known, [dataclasses.asdict(longest)] * many, [pem + 80 * "x"] * many, "", 1)
    assert len(meeting.to_bytes()) < LARGEST_MESSAGE - (1 << 16)


# -- nobody speaks for another -------------------------------------------------------------------------


def test_each_field_is_signed(people: list[Identity]) -> None:
    ada, bob, *_ = people
    book = book_of(ada)
    hears(book, says(bob), brings=[bob])
    before = book.entries["bob"].announcement
    true = says(bob, sequence=7)
    for key in ("endpoint", "incarnation", "sequence", "state", "round", "knows", "agreement"):
        old = getattr(true, key)
        other = {"endpoint": "evil:1", "state": RUNNING, "agreement": "other"}.get(key, 9)
        assert other != old
        with pytest.raises(WireError, match="an announcement of 'bob' is not signed by that peer"):
            hears(book, dataclasses.replace(true, **{key: other}), brings=[])
    assert book.entries["bob"].announcement == before
    assert hears(book, true, brings=[]) == ["bob"]


@pytest.mark.parametrize("signature", ["", "00", "zz", "ff" * 72, "é"])
def test_signatures_that_are_none(people: list[Identity], signature: str) -> None:
    ada, bob, *_ = people
    with pytest.raises(WireError, match="an announcement of 'bob' is not signed by that peer"):
        hears(book_of(ada), dataclasses.replace(says(bob), signature=signature), brings=[bob])


def test_no_name_but_that_of_the_certificate(people: list[Identity]) -> None:
    ada, bob, carol, _ = people
    for name in ("bob", "nobody", "x\n" * 1000):
        with pytest.raises(WireError, match="comes with the certificate of 'carol'") as refused:
            hears(book_of(ada), says(carol, name=name), brings=[bob, carol])
        assert str(refused.value).isprintable()


def test_nobody_is_told_about_oneself(people: list[Identity]) -> None:
    ada, *_ = people
    book = book_of(ada)
    assert hears(book, says(ada, sequence=99, endpoint="evil:1"), brings=[ada]) == []
    assert book.mine.endpoint == "ada:1"
    assert book.entries == {}


@pytest.mark.parametrize(
    "endpoint",
    ["", "x", ":1", "x:", "x:123456", "x:-1", "unix:/run/docker.sock", "unix:x:1", "dns://evil/x:1", "xds:///x:1",
     "http://x:1", "x y:1", "x\n:1", "x:1\n", "é:1", "[::1:1", "x/y:1", "u@x:1", "x" * 300 + ":1", "ipv4:1.2.3.4:1"],
)  # fmt: skip
def test_endpoints_that_are_none(people: list[Identity], endpoint: str) -> None:
    ada, bob, *_ = people
    with pytest.raises(WireError, match="an announcement of 'bob' has an invalid endpoint") as refused:
        hears(book_of(ada), says(bob, endpoint=endpoint), brings=[bob])
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "endpoint", ["x:1", "127.0.0.1:7400", "[::1]:7400", "[fe80::1%eth0]:1", "a-b.c_d.example:65535", "0.0.0.0:1"]
)
def test_endpoints_that_can_be(people: list[Identity], endpoint: str) -> None:
    ada, bob, *_ = people
    assert hears(book_of(ada), says(bob, endpoint=endpoint), brings=[bob]) == ["bob"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"state": "dead"}, "state or round"),
        ({"round": -1}, "state or round"),
        ({"round": 10**9}, "state or round"),
        ({"knows": -1}, "state or round"),
        ({"incarnation": -1}, "version"),
        ({"sequence": 10**10}, "version"),
    ],
)
def test_what_cannot_be(people: list[Identity], changes: dict[str, Any], why: str) -> None:
    ada, bob, *_ = people
    with pytest.raises(WireError, match=f"an announcement of 'bob' has an invalid {why}"):
        hears(book_of(ada), says(bob, **changes), brings=[bob])


def test_certificates_of_another_circle(people: list[Identity], keys: Path) -> None:
    ada, bob, *_ = people
    impostor = Identity.load(keys / "other" / "bob")
    with pytest.raises(WireError, match="a certificate among the news: not issued by this circle"):
        hears(book_of(ada), says(impostor), brings=[impostor])
    with pytest.raises(WireError, match="a certificate among the news: not a certificate in PEM form"):
        book_of(ada).hear([dataclasses.asdict(says(bob))], ["?"])


def test_an_expired_certificate_is_not_the_fault_of_who_passes_it_on(
    people: list[Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, carol, _ = people
    books = [book_of(ada), book_of(bob), book_of(carol)]
    tell(books[1], books[0])
    later = bob.credential.expires + timedelta(seconds=1)
    monkeypatch.setattr("coterie.network.keys.utc_now", lambda: later)
    assert tell(books[0], books[2]) == []
    assert books[2].entries == {}


def test_nothing_comes_twice_in_one_message(people: list[Identity]) -> None:
    """Each announcement and each certificate costs the check of a signature."""
    ada, bob, *_ = people
    with pytest.raises(WireError, match="two announcements of one peer"):
        hears(book_of(ada), says(bob), says(bob, sequence=9), brings=[bob])
    pem = bob.credential.certificate.decode()
    with pytest.raises(WireError, match="a certificate of 'bob' is twice"):
        book_of(ada).hear([dataclasses.asdict(says(bob))], [pem, f"again\n{pem}"])


def test_a_book_is_never_full_of_strangers(people: list[Identity], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "MOST_ENTRIES", 2)
    ada, bob, carol, dora = people
    book = book_of(ada)
    hears(book, says(bob), says(carol), brings=[bob, carol])
    with pytest.raises(WireError, match="more than 2 peers are announced"):
        hears(book, says(dora), brings=[dora])
    assert hears(book, says(bob, sequence=9), brings=[]) == ["bob"]  # those who are there go on


@settings(max_examples=200)
@given(st.lists(st.text() | st.dictionaries(st.text(), st.integers()) | st.none()), st.lists(st.text()))
def test_any_news_are_taken_or_refused(people: list[Identity], news: list[Any], certificates: list[str]) -> None:
    book = book_of(people[0])
    with suppress(WireError):
        assert book.hear(news, certificates) == []
    assert book.entries == {}


# -- rosters and renewal ---------------------------------------------------------------------------------


@pytest.fixture
def renewed(tmp_path: Path) -> Path:
    create_authority(tmp_path / "keys")
    for name in NAMES:
        issue(name, tmp_path / "keys")
    return tmp_path / "keys"


def test_who_is_revoked_is_forgotten_and_never_heard_again(renewed: Path) -> None:
    ada, bob, carol, _ = (Identity.load(renewed / name) for name in NAMES)
    book = book_of(ada)
    hears(book, says(bob), says(carol), brings=[bob, carol])
    roster, _ = revoke("bob", renewed)
    assert book.take_roster(roster)
    assert not book.take_roster(roster)
    assert not book.take_roster(ada.roster)
    assert book.roster == roster
    assert set(book.entries) == {"carol"}
    assert book.by_number == {carol.number: "carol"}
    assert hears(book, says(bob, incarnation=99), brings=[bob]) == []
    assert "bob" not in book.known()


def test_a_renewed_certificate_takes_over(renewed: Path, tmp_path: Path) -> None:
    """The name and the number stay; who only knew the old certificate is given the new one."""
    ada, bob, carol, _ = (Identity.load(renewed / name) for name in NAMES)
    here, elsewhere = book_of(ada), book_of(carol)
    for book in (here, elsewhere):
        hears(book, says(bob), brings=[bob])
    roster, _ = revoke("bob", renewed)
    issue("bob", renewed, out=tmp_path / "again")
    again = Identity.load(tmp_path / "again")
    here.take_roster(roster)
    assert tell(book_of(again, incarnation=2), here) == ["bob"]
    assert here.entries["bob"].credential == again.credential
    assert here.by_number[again.number] == "bob"
    assert again.number == bob.number
    assert tell(here, elsewhere) == ["ada", "bob"]  # also where the roster is not known yet
    assert elsewhere.entries["bob"].credential == again.credential
    assert elsewhere.take_roster(roster)
    assert elsewhere.entries["bob"].credential == again.credential


# -- who is there ----------------------------------------------------------------------------------------


def test_silence_and_trouble(people: list[Identity]) -> None:
    ada, bob, carol, _ = people
    book = book_of(ada)
    hears(book, says(bob), says(carol), brings=[bob, carol])
    entry = book.entries["bob"]
    assert [e.announcement.name for e in book.there()] == ["bob", "carol"]
    book.failed("bob")
    assert [e.announcement.name for e in book.there()] == ["carol"]
    assert [e.announcement.name for e in book.companions()] == ["bob", "carol"]
    hears(book, says(bob, sequence=5), brings=[])
    assert entry.silent  # that others heard of it does not mean that it answers here
    hears(book, says(bob, sequence=6, endpoint="elsewhere:1"), brings=[])
    assert not entry.silent
    book.failed("bob")
    book.answered("bob")
    assert (entry.silent, entry.answered) == (False, 5.0)
    entry.trouble = "runs something else"
    hears(book, says(bob, sequence=7), brings=[])
    assert [e.announcement.name for e in book.companions()] == ["carol"]
    hears(book, says(bob, sequence=8, agreement="other"), brings=[])
    assert entry.trouble == ""
    assert [e.announcement.name for e in book.companions()] == ["carol"]  # it says itself that it runs something else
    book.failed("nobody")
    book.answered("nobody")


def test_only_changes_are_announced(people: list[Identity]) -> None:
    book = book_of(people[0])
    first = book.mine
    book.announce(round=first.round)
    assert book.mine == first
    book.announce(round=3)
    assert (book.mine.round, book.mine.sequence) == (3, first.sequence + 1)
    assert book.mine.version > first.version
    book.mine.check(people[0].credential)


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**10 - 1), st.integers(0, 2**63 - 1), st.integers(0, 10**10 - 1))
def test_versions_sort_by_age(people: list[Identity], i: int, s: int, j: int, t: int) -> None:
    plain = book_of(people[0]).mine
    one = dataclasses.replace(plain, incarnation=i, sequence=s)
    other = dataclasses.replace(plain, incarnation=j, sequence=t)
    assert (one.version < other.version) == ((i, s) < (j, t))
    assert re.fullmatch(r"\d{20}\.\d{10}", one.version)


# -- who misbehaved ------------------------------------------------------------------------------------------


def test_three_offences_and_each_pause_is_longer() -> None:
    now, heard = [0.0], []
    penalties = Penalties(lambda: now[0], lambda name, what: heard.append((name, what)))
    assert not penalties.ignores("mallory")
    for pause in (FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE):
        for i in range(OFFENCES_UNTIL_IGNORED):
            assert not penalties.ignores("mallory"), i
            penalties.record("mallory", "nonsense")
        now[0] += pause * 0.999
        assert penalties.ignores("mallory")
        now[0] += pause * 0.001
        assert not penalties.ignores("mallory")
    assert not penalties.ignores("bob")
    assert penalties.offences == {"mallory": 3 * OFFENCES_UNTIL_IGNORED}
    assert heard == [("mallory", "nonsense")] * 3 * OFFENCES_UNTIL_IGNORED


def test_no_pause_is_for_ever() -> None:
    now = [-1e6]  # some machines' clocks begin below zero
    penalties = Penalties(lambda: now[0], lambda *_: None)
    for _ in range(20 * OFFENCES_UNTIL_IGNORED):
        penalties.record("mallory", "nonsense")
    assert penalties.ignores("mallory")
    now[0] += LONGEST_PAUSE
    assert not penalties.ignores("mallory")


def test_what_is_told_of_an_offence_is_harmless() -> None:
    heard: list[str] = []
    Penalties(lambda: 0.0, lambda _, what: heard.append(what)).record("mallory", "\x1b[2J\n\ud800" + "x" * 10**6)
    assert heard[0].startswith(r"\x1b[2J\n\ud800x")
    assert heard[0].isprintable()
    assert len(heard[0]) < 400


# -- how long to wait ------------------------------------------------------------------------------------------


def test_a_deadline_that_is_given_stays() -> None:
    deadline = Deadline(7.0, 60.0)
    deadline.learn(50.0)
    assert deadline.seconds == 7.0


def test_a_deadline_is_learned_from_the_slow_ones_of_late() -> None:
    deadline = Deadline(0.0, 60.0)
    assert deadline.seconds == 60.0
    deadline.learn(0.1)
    assert deadline.seconds == LEAST
    for _ in range(2):
        deadline.learn(5.0)
    assert deadline.seconds == FACTOR * 5.0
    for _ in range(RECENT):
        deadline.learn(1.0)
    assert deadline.seconds == FACTOR * 1.0  # the slow ones are forgotten


@given(st.lists(st.floats(0, 1e6)), st.floats(0.1, 1e6))
def test_nobody_can_make_it_longer_than_the_first(took: list[float], first: float) -> None:
    deadline = Deadline(0.0, first)
    for seconds in took:
        deadline.learn(seconds)
        assert min(LEAST, first) <= deadline.seconds <= first
