"""Messages as bytes: what goes out comes in again, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
import sys
from itertools import pairwise
from typing import Any, get_type_hints

import pytest
from fuzz_decoding import MOST_GROWTH, SLOWEST, Fuzzer, report
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core.errors import CoterieError
from coterie.core.formatting import plain
from coterie.network.agreement import LONGEST_VALUE, _text, difference
from coterie.network.membership import Announcement
from coterie.network.wire import (
    CHUNK,
    LARGEST_MESSAGE,
    LARGEST_NUMBER,
    PROTOCOL,
    ArtifactHeader,
    Assembly,
    FetchRequest,
    Meeting,
    Message,
    ProtocolError,
    Receipt,
    WireError,
    canonical,
    chunks,
    digest_of,
)

KINDS: list[type[Message]] = [Meeting, FetchRequest, ArtifactHeader, Receipt, Announcement]
EXAMPLES: dict[type[Message], Message] = {
    Meeting: Meeting(PROTOCOL, {"seed": "1"}, {"ada": "1.1/ff"}, [{"name": "ada"}], ["pem"], "{}", 3),
    FetchRequest: FetchRequest(PROTOCOL, "0123", "model", 4, 2.5, ["zstd"], "have"),
    ArtifactHeader: ArtifactHeader(PROTOCOL, "0123", "model", 4, "ada", "bob", 3, "digest", "none", True, "e.1", "ff"),
    Receipt: Receipt(False, "no room"),
    Announcement: Announcement("ada", "ada.example:7400", 1, 2, "running", 3, 4, "0123", "ff", 5, "00"),
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INTEGERS = st.integers(1 - LARGEST_NUMBER, LARGEST_NUMBER - 1)
OF_KIND: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: INTEGERS,
    float: st.floats(-1e18, 1e18) | INTEGERS,
    str: TEXT,
    list[str]: st.lists(TEXT, max_size=3),
    dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=3),
    list[dict[str, object]]: st.lists(
        st.dictionaries(TEXT, st.none() | TEXT | st.lists(INTEGERS), max_size=3), max_size=2
    ),
}


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from(KINDS))
    fields = {key: draw(OF_KIND[hint]) for key, hint in get_type_hints(kind).items()}
    return kind(**{**fields, **({"protocol": PROTOCOL} if "protocol" in fields else {})})


def table_of(message: Message) -> dict[str, Any]:
    return dataclasses.asdict(message)


def encoded(table: Any) -> bytes:
    return json.dumps(table).encode()


# -- there and back --------------------------------------------------------------------------------


@given(messages())
def test_what_is_sent_arrives(message: Message) -> None:
    assert type(message).from_bytes(message.to_bytes()) == message


@given(messages())
def test_equal_messages_have_equal_bytes(message: Message) -> None:
    """In any order of keys, on the way there or back."""
    table = table_of(message)
    backwards = encoded(dict(reversed(table.items())))
    assert type(message).from_bytes(backwards).to_bytes() == message.to_bytes()
    assert message.to_bytes().isascii()


@pytest.mark.parametrize("kind", [ArtifactHeader, Announcement])
def test_a_signature_covers_every_field(kind: Any) -> None:
    message = EXAMPLES[kind]
    for key, value in table_of(message).items():
        other = {bool: not value, int: 9, str: f"{value}x"}[type(value)]
        same = dataclasses.replace(message, **{key: other}).signed_part() == message.signed_part()  # type: ignore[attr-defined]
        assert same == (key == "signature"), key


# -- what is no message ------------------------------------------------------------------------------


FITTING: dict[Any, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}
NEVER = ("\ud800", LARGEST_NUMBER, 10**30)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_its_type(kind: type[Message]) -> None:
    table = table_of(EXAMPLES[kind])
    wrong = [None, True, 1, 1.5, "x", [1], {"a": 1}, [["a"]], {"a": None}, ["\ud800"], *NEVER]
    for key, hint in get_type_hints(kind).items():
        for value in wrong:
            if key == "protocol" or (type(value) in FITTING.get(hint, ()) and value not in NEVER):
                continue
            with pytest.raises(WireError, match=rf"^{kind.__name__}\.{key} should be ") as refused:
                kind.from_bytes(encoded({**table, key: value}))
            assert len(str(refused.value)) < 200


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_is_missing_and_none_is_new(kind: type[Message]) -> None:
    table = table_of(EXAMPLES[kind])
    for key in table:
        with pytest.raises(WireError, match=f"not a message of kind {kind.__name__}: it has"):
            kind.from_bytes(encoded({k: v for k, v in table.items() if k != key}))
    with pytest.raises(WireError, match=f"not a message of kind {kind.__name__}: it has __class__"):
        kind.from_bytes(encoded({**table, "__class__": "x"}))


@pytest.mark.parametrize("kind", [Meeting, FetchRequest, ArtifactHeader])
@pytest.mark.parametrize("spoken", [0, PROTOCOL + 1, -1, 10**100])
def test_another_protocol_comes_before_all_else(kind: type[Message], spoken: int) -> None:
    for table in ({"protocol": spoken}, {**table_of(EXAMPLES[kind]), "protocol": spoken, "new": []}):
        with pytest.raises(ProtocolError) as refused:
            kind.from_bytes(encoded(table))
        assert f"protocol {str(spoken)[:19]}" in str(refused.value)
        assert f"there, {PROTOCOL} here: update Coterie on the older side" in str(refused.value)
    for no_number in ("1", 1.0, True, None, [1]):
        with pytest.raises(WireError) as error:
            kind.from_bytes(encoded({**table_of(EXAMPLES[kind]), "protocol": no_number}))
        assert not isinstance(error.value, ProtocolError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0", b"\xff\xfe", b"null", b"[]", b'"x"', b"1", b"{", b"{}x", b"NaN", b"Infinity",
        b"[" * 1_000_000, b'{"a":' * 200_000, b"9" * 1_000_000, b"-" * 1000, b'"' + b"\\u0000" * 100_000,
        b" " * (LARGEST_MESSAGE + 1), b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'{"protocol":1e999}',
    ],
    ids=lambda data: repr(data[:8]),
)  # fmt: skip
def test_bytes_made_to_harm(kind: type[Message], data: bytes) -> None:
    with pytest.raises(WireError) as refused:
        kind.from_bytes(data)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


def test_any_depth_in_what_is_not_looked_at() -> None:
    """News are read later, as announcements: until then they may be anything, and must not hurt."""
    limit = sys.getrecursionlimit()
    for depth in (10, limit // 2, limit - 100, limit - 30, limit, 2 * limit):
        data = encoded({**table_of(EXAMPLES[Meeting]), "news": "?"}).replace(
            b'"?"', b'[{"name":' + b"[" * depth + b"]" * depth + b"}]"
        )
        try:
            [news] = Meeting.from_bytes(data).news
        except WireError:
            continue
        with pytest.raises(WireError):
            Announcement.from_table({**table_of(EXAMPLES[Announcement]), **news})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e19", "9" * 4000])
def test_numbers_are_finite(number: str) -> None:
    data = EXAMPLES[FetchRequest].to_bytes().replace(b'"wait":2.5', f'"wait":{number}'.encode())
    with pytest.raises(WireError):
        FetchRequest.from_bytes(data)


@given(st.sampled_from(KINDS), st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(kind: type[Message], data: bytes) -> None:
    with pytest.raises(WireError):
        kind.from_bytes(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(KINDS), st.data())
def test_any_json_in_any_field_is_a_message_or_refused(kind: type[Message], data: st.DataObject) -> None:
    table = table_of(EXAMPLES[kind])
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(table)), JSON, max_size=3))
    said = ""
    try:
        message = kind.from_bytes(encoded({**table, **changes}))
    except WireError as refused:
        said = str(refused)
    else:
        assert kind.from_bytes(message.to_bytes()) == message
    assert said.isprintable()


# -- text ----------------------------------------------------------------------------------------------


@given(st.text(), st.integers(1, 50))
def test_plain_text_is_short_and_harmless(text: str, longest: int) -> None:
    shown = plain(text, longest)
    assert shown.isprintable()
    assert len(shown) <= longest
    shown.encode()
    if text.isprintable() and len(text) <= longest:
        assert shown == text


def test_what_plain_text_looks_like() -> None:
    assert plain("a\nb\x1b[2J\u202e\ud800é") == r"a\nb\x1b[2J\u202e\ud800é"
    assert plain("abcdef", 3) == "ab…"
    assert plain("a\n", 3) == r"a\n"
    assert plain("ab\n", 3) == "ab…"


def test_canonical_has_no_form_for_what_is_no_number() -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical([value])


# -- the bytes of an artifact ----------------------------------------------------------------------------


def announced(data: bytes, **changes: Any) -> ArtifactHeader:
    header = ArtifactHeader(PROTOCOL, "", "model", 1, "ada", "bob", len(data), digest_of(data), "none")
    return dataclasses.replace(header, **changes)


@given(st.binary(max_size=100), st.lists(st.integers(0, 100), max_size=8))
def test_in_whatever_pieces_it_comes(data: bytes, cuts: list[int]) -> None:
    assembly = Assembly(announced(data), 100)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, stop in pairwise(places):
        assert assembly.complete == (start == len(data))
        assembly.add(data[start:stop])
    assert assembly.complete
    assert assembly.whole() == data


@given(st.binary(max_size=50), st.binary(min_size=1, max_size=50))
def test_never_more_and_never_less_than_announced(data: bytes, more: bytes) -> None:
    assembly = Assembly(announced(data), 100)
    assembly.add(data)
    with pytest.raises(WireError, match=f"'model' has more than the {len(data)} bytes announced"):
        assembly.add(more)
    assert assembly.whole() == data  # what was too much was never taken
    shorter = Assembly(announced(data + more), 100)
    shorter.add(data)
    assert not shorter.complete
    with pytest.raises(WireError, match=f"'model' ends after {len(data)} of {len(data + more)} bytes"):
        shorter.whole()


@pytest.mark.parametrize("size", [-1, 101, 10 << 30, LARGEST_NUMBER - 1])
def test_what_is_announced_too_large_is_refused_at_once(size: int) -> None:
    with pytest.raises(WireError, match=f"'model' is announced with {size} bytes, but at most 100 are allowed"):
        Assembly(announced(b"", size=size), 100)


def test_another_digest() -> None:
    for digest in (digest_of(b"abd"), "", digest_of(b"abc").upper()):
        assembly = Assembly(announced(b"abc", digest=digest), 100)
        assembly.add(b"abc")
        with pytest.raises(WireError, match="does not match its announced digest"):
            assembly.whole()


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_chunks(size: int) -> None:
    pieces = list(chunks(bytes(size)))
    assert b"".join(pieces) == bytes(size)
    assert all(0 < len(piece) <= CHUNK for piece in pieces)


# -- what must be equal at both --------------------------------------------------------------------------


def test_a_difference_names_both_values() -> None:
    mine = {"seed": "1", "rounds": "10", "model": '"mlp"'}
    assert difference(mine, mine, "bob", "ann") == ""
    assert difference(mine, {**mine, "rounds": "20"}, "bob", "ann") == "rounds is 10 at 'ann' and 20 at 'bob'"
    assert difference({**mine, "d_z": "8"}, mine, "bob", "ann") == "d_z is 8 at 'ann' and missing at 'bob'"
    assert difference(mine, {**mine, "d_z": "8"}, "bob", "ann") == "d_z is missing at 'ann' and 8 at 'bob'"
    said = difference(mine, {}, "bob", "ann")
    assert said == "model is \"mlp\" at 'ann' and missing at 'bob'; rounds is 10 at 'ann' and missing at 'bob'; " + (
        "seed is 1 at 'ann' and missing at 'bob'"
    )
    assert difference({**mine, "a": "1", "b": "2"}, {}, "bob", "ann").endswith("; and 2 more")


def test_long_values_that_differ_only_at_the_end_are_told_apart() -> None:
    labels = [f"label {i}" for i in range(100)]
    mine, theirs = _text(labels), _text([*labels[:-1], "another"])
    assert len(mine) > LONGEST_VALUE
    said = difference({"labels": mine}, {"labels": theirs}, "bob", "ann")
    assert mine != theirs
    assert mine in said
    assert theirs in said


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5)), st.dictionaries(st.text(max_size=5), st.text()))
def test_a_difference_with_anything(mine: dict[str, str], theirs: dict[str, str]) -> None:
    said = difference(mine, theirs, "bob", "ann")
    assert (said == "") == (mine == theirs)
    assert said.isprintable()


def test_a_difference_is_short_whatever_the_other_says() -> None:
    assert len(difference({}, {"x" * 10_000: "\n" * 10_000, "y": "z" * 10_000}, "bob", "ann")) < 5000


# -- the fuzzer ------------------------------------------------------------------------------------------

FUZZER = Fuzzer(1)
BY_NAME = {target.name: target for target in FUZZER.targets}
OF_ARTIFACTS = [name for name in BY_NAME if name == "Artifact" or name.startswith(("decode", "Receiver"))]


@pytest.mark.parametrize("name", [name for name in BY_NAME if name != "decode topk"])
def test_what_the_fuzzer_damages_is_valid(name: str) -> None:
    for sample in BY_NAME[name].samples:
        if name != "Node.opened" or b"empty" not in sample:  # which is of another name than its header says
            BY_NAME[name].decode(sample)


def fuzzed(inputs: int, *names: str) -> None:
    """As `python tests/network/fuzz_decoding.py` does, with fewer of them."""
    outcome = Fuzzer(1, *names).run(inputs)
    assert not outcome.failures, report(outcome)
    assert outcome.slowest < SLOWEST
    assert outcome.growth < MOST_GROWTH
    assert outcome.taken.total() > inputs / 50  # else it is not damage, but noise
    assert outcome.refused.total() > inputs / 2


def test_damaged_messages_are_taken_or_refused() -> None:
    fuzzed(4000, *(name for name in BY_NAME if name not in OF_ARTIFACTS))


def test_damaged_artifacts_are_taken_or_refused() -> None:
    fuzzed(4000, *OF_ARTIFACTS)


@settings(max_examples=300)
@given(st.sampled_from(sorted(BY_NAME)), st.binary(max_size=300))
def test_any_bytes_are_refused_by_everything_that_decodes(name: str, data: bytes) -> None:
    with pytest.raises(CoterieError):
        BY_NAME[name].decode(data)


def test_an_input_of_the_fuzzer_is_always_the_same() -> None:
    again = Fuzzer(1)
    assert all(FUZZER.input(i)[1] == again.input(i)[1] for i in range(500))
    assert any(FUZZER.input(i)[1] != Fuzzer(2).input(i)[1] for i in range(10))
