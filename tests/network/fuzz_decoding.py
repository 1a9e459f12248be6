"""A fuzzer over everything that decodes what others sent: each input must be taken, or be a CoterieError.

    python tests/network/fuzz_decoding.py --inputs 1000000 --seed 0

It starts from valid samples and damages them. Input number I of seed S is always the same: `--only I` repeats one. It
fails if anything else is raised, if an input takes longer than a second, or if the memory in use grows.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import json
import math
import os
import random
import re
import resource
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import zstandard

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, CoterieError
from coterie.network import compression
from coterie.network.compression import Receiver, Sender
from coterie.network.framing import opened
from coterie.network.keys import Identity, Roster, credential_of, issued_by
from coterie.network.membership import AddressBook, Announcement
from coterie.network.wire import PROTOCOL, ArtifactHeader, Assembly, FetchRequest, Meeting, Message, Receipt, digest_of

LIMIT = 1 << 20  # bytes of an artifact
SLOWEST = 1.0  # seconds for one input, on a machine that has other things to do
HANGS = 600  # seconds for a twentieth of the inputs: then the process ends with a traceback, wherever it is
MOST_GROWTH = 64 << 20  # bytes, after the first tenth of the inputs
FAILURES_SHOWN = 20

# -- valid samples, always the same: of a circle whose private keys nobody has any more -------------

AUTHORITY = (
    "MIIBhzCCAS6gAwIBAgIUPEj3nIq3aRsBJSFD4CKQgnvLQn8wCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEZnV6ejAgFw0yMDAxMDEwMDAwMDBaGA"
    "8yMTE5MTIwODAxMDAwMFowDzENMAsGA1UEAwwEZnV6ejBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDCwofWI21EqClvdj0BzvEws34v2Qqu+"
    "iFUznBHW0/SNzTTLpKfXV6JfFMzuBtolf/5kPUj6Hh6Rqdsy4i1e1A2jZjBkMB0GA1UdDgQWBBTqhxtFJUS9eTLt7LhD7Kqy+MmyWjASBgNVHR"
    "MBAf8ECDAGAQH/AgEAMA4GA1UdDwEB/wQEAwICBDAfBgNVHSMEGDAWgBTqhxtFJUS9eTLt7LhD7Kqy+MmyWjAKBggqhkjOPQQDAgNHADBEAiBT"
    "EwCX28dz1PkhgtHZ92wWnAoSxhKjCYK78EabGofShAIgYcnEh4mKoh/E8MqXCbsV5zpT7L17fNNDrQgzv8Ip32g="
)
ADA = (
    "MIIBvjCCAWSgAwIBAgIUN7ege22MzfHDbbAUK1uu6yxNHxAwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEZnV6ejAgFw0yMDAxMDEwMDAwMDBaGA"
    "8yMTE5MTIwODAxMDAwMFowGjEMMAoGA1UEAwwDYWRhMQowCAYDVQQFEwEwMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEOtX5OpYgP84d0aiY"
    "CcwfIsB45sG/HQP0gg5Xbvq2xcSU5cHk/kZkxCfmDiRspKja8dj+1Jo4G9PuverbtOzG+6OBkDCBjTAdBgNVHQ4EFgQUmlQdMexrw3tjvRCRPO"
    "Gf86WnHXQwDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwHQYDVR0lBBYwFAYIKwYBBQUHAwEGCCsGAQUFBwMCMA4GA1UdEQQHMAWCA2Fk"
    "YTAfBgNVHSMEGDAWgBTqhxtFJUS9eTLt7LhD7Kqy+MmyWjAKBggqhkjOPQQDAgNIADBFAiAjj9y5qW91SVaA/HHmTHfAZ/HycTF9p7p0YNrIR+"
    "BO/QIhALjP/r1KaUiABp70W7amqIqWxuuNfPtISRV66fQGr1Fd"
)
BOB = (
    "MIIBvTCCAWSgAwIBAgIUQF73h5gEeK05pBBOvVL2iat+PUkwCgYIKoZIzj0EAwIwDzENMAsGA1UEAwwEZnV6ejAgFw0yMDAxMDEwMDAwMDBaGA"
    "8yMTE5MTIwODAxMDAwMFowGjEMMAoGA1UEAwwDYm9iMQowCAYDVQQFEwExMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE+JhfBusg5pycbdyJ"
    "8Z7Nx/DwY9DUH38ryr8x5YxpCqAOglSA0UJIUSfLRdeWOVDN6JfZuDHMn2L7jTVbXdteAqOBkDCBjTAdBgNVHQ4EFgQUBUAuOLn6rZq4aZBbCu"
    "93fJEk0H0wDAYDVR0TAQH/BAIwADAOBgNVHQ8BAf8EBAMCB4AwHQYDVR0lBBYwFAYIKwYBBQUHAwEGCCsGAQUFBwMCMA4GA1UdEQQHMAWCA2Jv"
    "YjAfBgNVHSMEGDAWgBTqhxtFJUS9eTLt7LhD7Kqy+MmyWjAKBggqhkjOPQQDAgNHADBEAiA6xTgDbrauUS8NdwqLi+iea8R8YKdewEg8y1bL9u"
    "VqHwIgEDEFuwDV8AEoxCJuPlcrJbexuZEzmZUCw1sf3jTRIuU="
)
ROSTER = (
    '{"circle":"fuzz","revoked":[{"name":"carol","serial":"6d375391f8f1229483589cec460763b732426a19"}],"signature":'
    '"3046022100c81bcc6f55eebde6d775b367e3172245d0df123ca92cfa1bf3d789a70d1007e7022100d3f1ad7dbe61afbe1da6f6839a36c'
    'd359e16ad870b5fc72bfc9cc78d671c2e05","time":"2026-11-16T09:26:54Z","version":2}'
)
ANNOUNCEMENT = (
    '{"name":"bob","endpoint":"bob.example:7400","incarnation":1,"sequence":2,"state":"running","round":3,"knows":4'
    ',"agreement":"0123456789abcdef","serial":"405ef787980478ad39a4104ebd52f689ab7e3d49","shelved":5,"signature":"3'
    "04402205f3f6151fa0258ee383e93b72ce13c1ffc38b8b69b9d98804befa5da9442c10c022012e25e1a207823a47b668268da2fc6403e1"
    '49fbb35f342e1188d52fffc586bb7"}'
)


def pem(body: str) -> bytes:
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n".encode()


def artifact(size: int = 6, **facts: float | str) -> Artifact:
    tensors = {
        "head.weight": torch.arange(size, dtype=torch.float32).reshape(2, -1),
        "head.bias": torch.ones(2),
        "count": torch.tensor([3]),
        "half": torch.ones(3).half(),
        "mask": torch.tensor([True, False]),
        "nothing": torch.zeros(0),
    }
    return Artifact("model", 1, 3, tensors, {"samples": 12, "name": "bob", "share": 0.5, **facts})


FIRST, SECOND = artifact(), artifact(samples=13)
LIKE = dict(FIRST.content)
NEWS = json.loads(ANNOUNCEMENT)
MEETING = Meeting(
    PROTOCOL, {"seed": "1", "rounds": "10"}, {"ada": "1.1/ff"}, [NEWS], [pem(BOB).decode()], ROSTER, 2
)  # fmt: skip
PARCEL = ArtifactHeader(PROTOCOL, "0123", "model", 3, "bob", "ada", 100, "0" * 64, "none", False, "e.1", "ff" * 70)
IDENTITY = Identity(
    issued_by(pem(ADA), pem(AUTHORITY))[0], b"", pem(AUTHORITY), Roster.from_bytes(ROSTER.encode(), pem(AUTHORITY)),
    Path(),
)  # fmt: skip


def a_pair() -> tuple[Sender, Receiver]:
    sender, receiver = Sender(0.5), Receiver()
    encoding, data = sender.encode(FIRST, receiver.have)
    receiver.decode(data, encoding, LIMIT)
    return sender, receiver


SENDER, RECEIVER = a_pair()
CHANGE = SENDER.encode(artifact(samples=14), RECEIVER.have)[1]


def packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


def unpacked(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


# -- what is fuzzed ------------------------------------------------------------------------------------


class Target(NamedTuple):
    name: str
    samples: tuple[bytes, ...]
    decode: Callable[[bytes], object]  # returns what was taken; raises CoterieError


def message(kind: type[Message], *samples: Message) -> Target:
    def decode(data: bytes) -> Message:
        taken = kind.from_bytes(data)
        if kind is not Meeting:  # whose news are read later, as announcements
            assert kind.from_bytes(taken.to_bytes()) == taken
        return taken

    return Target(kind.__name__, tuple(sample.to_bytes() for sample in samples), decode)


def heard(data: bytes) -> list[str]:
    meeting = Meeting.from_bytes(data)
    mine = Announcement("ada", "ada:1", 1, 1, "running", 1, 1, "", IDENTITY.credential.serial)
    book = AddressBook(IDENTITY, IDENTITY.roster, mine, lambda: 0.0)
    changed = book.hear(meeting.news, meeting.certificates)
    assert set(changed) == set(book.entries) <= {"bob"}
    return changed


def used(taken: Artifact) -> Artifact:
    """As a method would: nothing that was taken may hurt later."""
    assert taken.nbytes == len(taken.to_bytes())
    taken.misfit(LIKE, ["samples"])
    taken.misfit(None, ["share"])
    return taken


def decoded(encoding: str) -> Callable[[bytes], object]:
    return lambda data: used(compression.decode(data, encoding, LIMIT))


def received(encoding: str) -> Callable[[bytes], object]:
    def decode(data: bytes) -> Artifact:
        receiver = copy.copy(RECEIVER)
        try:
            return used(receiver.decode(data, encoding, LIMIT))
        except ArtifactError:
            assert receiver.have == RECEIVER.have
            raise

    return decode


def inside(decode: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Damage what is compressed, not the compressed: that is seldom more than a frame that cannot be read."""
    return lambda data: decode(packed(data))


def parcel_of(data: bytes) -> Artifact:
    """All that a node does with an artifact that has arrived."""
    header = ArtifactHeader(PROTOCOL, "", "model", 3, "bob", "ada", len(data), digest_of(data), "none")
    assembly = Assembly(header, LIMIT)
    assembly.add(data)
    taken = opened(header, assembly.whole(), 1, compression.decode, LIMIT)
    assert all(torch.isfinite(t).all() for t in taken.values())
    assert all(isinstance(fact, str) or math.isfinite(fact) for fact in taken.facts.values())
    return taken


def targets() -> list[Target]:
    plain = (FIRST.to_bytes(), SECOND.to_bytes(), Artifact("empty", 0, 0, {}, {}).to_bytes())
    zstd, fp16 = (tuple(compression.encode(a, e) for a in (FIRST, SECOND)) for e in ("zstd", "fp16"))
    halves = tuple(map(unpacked, fp16))
    return [
        message(Meeting, MEETING),
        message(FetchRequest, FetchRequest(PROTOCOL, "0123", "model", 4, 2.5, ["zstd", "topk"], "have")),
        message(ArtifactHeader, PARCEL),
        message(Receipt, Receipt(True), Receipt(False, "no room")),
        message(Announcement, Announcement(**NEWS)),
        Target("AddressBook.hear", (MEETING.to_bytes(),), heard),
        Target("Roster", (ROSTER.encode(),), lambda data: Roster.from_bytes(data, pem(AUTHORITY))),
        Target("credential_of", (pem(BOB), pem(ADA)), lambda data: credential_of(data, pem(AUTHORITY))),
        Target("Artifact", plain, lambda data: used(Artifact.from_bytes(data))),
        Target("Node.opened", plain, parcel_of),
        Target("decode none", plain, decoded("none")),
        Target("decode zstd", zstd, decoded("zstd")),
        Target("decode zstd, inside", plain, inside(decoded("zstd"))),
        Target("decode fp16", fp16, decoded("fp16")),
        Target("decode fp16, inside", halves, inside(decoded("fp16"))),
        Target("decode topk", (CHANGE,), refused_topk),
        Target("Receiver none", plain, received("none")),
        Target("Receiver zstd, inside", plain, inside(received("zstd"))),
        Target("Receiver fp16, inside", halves, inside(received("fp16"))),
        Target("Receiver topk", (CHANGE,), received("topk")),
        Target("Receiver topk, inside", (unpacked(CHANGE),), inside(received("topk"))),
    ]


def refused_topk(data: bytes) -> object:
    """Needs memory: it is a change of nothing."""
    taken = compression.decode(data, "topk", LIMIT)
    raise AssertionError(f"{taken} was taken")


# -- damage ----------------------------------------------------------------------------------------------

NUMBER = re.compile(rb"-?[0-9]+")
NUMBERS = [
    b"0", b"1", b"-1", b"7", b"64", b"255", b"65536", b"2147483647", b"2147483648", b"4294967296", b"1099511627776",
    b"4611686018427387904", b"9223372036854775807", b"9223372036854775808", b"18446744073709551615", b"1e3", b"1e999",
    b"-0.0", b"0.5", b"NaN", b"Infinity", b"null", b"true", b'"1"', b"[]", b"{}", b"9" * 400, b"9" * 5000,
]  # fmt: skip
TOKENS = [
    b'"F8_E4M3"', b'"F8_E5M2"', b'"F8_E8M0"', b'"F4"', b'"F16"', b'"BF16"', b'"F64"', b'"I8"', b'"U64"', b'"C64"',
    b'"BOOL"', b'"I32"', b'"__metadata__"', b'"artifact"', b'"\\ud800"', b'\\"\\\\ud800\\"', b'"\\u0000"', b'"\x7f"',
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\0", b"\n", b"\xff", b"\xef\xbb\xbf", b"[" * 2000, b"0," * 64,
    b'{"a":' * 500, b'"shape":[0,1099511627776,1099511627776]', b'"data_offsets":[0,0]', b"-----BEGIN CERTIFICATE",
]  # fmt: skip
LENGTHS = [0, 1, 7, 8, 100, 2**16, 2**31, 2**32, 2**62, 2**63, 2**64 - 1]


def flip(draw: random.Random, data: bytearray, _: bytes) -> None:
    for _bit in range(draw.choice((1, 1, 2, 8))):
        place = draw.randrange(len(data))
        data[place] ^= 1 << draw.randrange(8)


def set_bytes(draw: random.Random, data: bytearray, _: bytes) -> None:
    place = draw.randrange(len(data))
    data[place : place + draw.choice((1, 1, 2, 4, 8))] = draw.randbytes(draw.choice((1, 1, 2, 4, 8)))


def cut(draw: random.Random, data: bytearray, _: bytes) -> None:
    place = draw.randrange(len(data))
    del data[place : place + draw.choice((1, 2, 8, 64, len(data)))]


def double(draw: random.Random, data: bytearray, _: bytes) -> None:
    start, place = draw.randrange(len(data)), draw.randrange(len(data))
    data[place:place] = data[start : start + draw.choice((1, 4, 16, 64))] * draw.choice((1, 1, 2, 100))


def splice(draw: random.Random, data: bytearray, other: bytes) -> None:
    start, place = draw.randrange(len(other)), draw.randrange(len(data))
    data[place : place + draw.choice((0, 8, 64))] = other[start : start + draw.choice((4, 16, 64, len(other)))]


def renumber(draw: random.Random, data: bytearray, _: bytes) -> None:
    found = list(NUMBER.finditer(data))
    if found:
        start, stop = draw.choice(found).span()
        data[start:stop] = draw.choice(NUMBERS)


def put_token(draw: random.Random, data: bytearray, _: bytes) -> None:
    place = draw.randrange(len(data))
    data[place : place + draw.choice((0, 1, 5))] = draw.choice(TOKENS)


def retype(draw: random.Random, data: bytearray, _: bytes) -> None:
    """One text for another: keys, types, values."""
    found = list(re.finditer(rb'"[^"]*"', data))
    if found:
        start, stop = draw.choice(found).span()
        data[start:stop] = draw.choice(TOKENS) if draw.random() < 0.5 else draw.choice(found).group()


def relength(draw: random.Random, data: bytearray, _: bytes) -> None:
    """The field that says how long a header is; the right one for a header that was changed, half of the time."""
    header = data.find(b"}", data.rfind(b"__metadata__")) + 2
    length = header - 8 if draw.random() < 0.5 else draw.choice(LENGTHS) + draw.randrange(-1, 2)
    data[:8] = struct.pack("<Q", max(0, length) % 2**64)


DAMAGE = [flip, set_bytes, cut, double, splice, renumber, renumber, put_token, retype, retype, relength]


# -- damage that leaves the form: one value of a document is another ----------------------------------

VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 10**400, 0.5, -0.0, 1e308, math.inf,
    math.nan, "", "x", "0", "model", "bob", "none", "\ud800", "\0", "x" * 1000, [], [0], [[]], {}, {"a": 1}, [{}] * 9,
]  # fmt: skip
SAME_SIZE = [
    ["BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"], ["F16", "BF16", "I16", "U16"], ["F32", "I32", "U32"],
    ["F64", "I64", "U64", "C64"],
]  # fmt: skip
EMPTY = [[0] * 64, [0] * 65, [0, 2**40, 2**40], [2**40, 2**40, 0], [0, 2**62], [0, 2**63], [1, 0], [0, -1]]


def rewritten(draw: random.Random, document: Any) -> Any:
    """Change, drop, double or move one value, anywhere inside."""
    if not isinstance(document, dict | list) or not document or draw.random() < 0.2:
        return draw.choice(VALUES)
    places = list(document) if isinstance(document, dict) else list(range(len(document)))
    place = draw.choice(places)
    what = draw.random()
    if what < 0.1:
        del document[place]
    elif what < 0.2:
        document[place] = copy.deepcopy(document[draw.choice(places)])
    elif what < 0.3 and isinstance(document, list):
        document.extend([document[place]] * draw.choice((1, 2, 100)))
    elif what < 0.3:
        document[str(draw.choice(VALUES))] = document[place]
    else:
        document[place] = rewritten(draw, document[place])
    return document


def retensored(draw: random.Random, header: dict[str, Any]) -> dict[str, Any]:
    """Another type of the same size, or another shape with as many entries: both fit the bytes."""
    tensor = header[draw.choice([key for key in header if key != "__metadata__"])]
    if draw.random() < 0.5:
        tensor["dtype"] = draw.choice(next(types for types in SAME_SIZE if tensor["dtype"] in types))
    elif 0 in tensor["shape"]:
        tensor["shape"] = draw.choice(EMPTY)
    else:
        ones = [1] * draw.choice((1, 62, 63, 64, 65))
        tensor["shape"] = tensor["shape"] + ones if draw.random() < 0.5 else ones + tensor["shape"]
    return header


def reheaded(draw: random.Random, sample: bytes) -> bytes:
    """A safetensors file with another header, whose length is true: the only way past the first check."""
    (length,) = struct.unpack("<Q", sample[:8])
    header, what = json.loads(sample[8 : 8 + length]), draw.random()
    if what < 0.4 and len(header) > 1:
        header = retensored(draw, header)
    elif what < 0.7:
        label = rewritten(draw, json.loads(header["__metadata__"]["artifact"]))
        header["__metadata__"]["artifact"] = json.dumps(label)
    else:
        header = rewritten(draw, header)
    text = bytearray(json.dumps(header).encode())
    if draw.random() < 0.2:
        draw.choice((renumber, retype, double, put_token))(draw, text, sample)
    return struct.pack("<Q", len(text)) + text + sample[8 + length :]


def in_form(draw: random.Random, sample: bytes) -> bytes:
    if sample[8:9] == b"{" and len(sample) >= 8 + struct.unpack("<Q", sample[:8])[0]:
        return reheaded(draw, sample)
    if sample[:1] == b"{":
        return json.dumps(rewritten(draw, json.loads(sample))).encode()
    return in_pieces(draw, sample, sample)


def in_pieces(draw: random.Random, sample: bytes, other: bytes) -> bytes:
    data = bytearray(sample)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 5, 8))):
        if data:
            draw.choice(DAMAGE)(draw, data, other)
    return bytes(data)


def damaged(draw: random.Random, samples: Sequence[bytes], all_samples: Sequence[bytes]) -> bytes:
    sample, what = draw.choice(samples), draw.random()
    if what < 0.02:
        return draw.randbytes(draw.randrange(200))
    return in_form(draw, sample) if what < 0.5 else in_pieces(draw, sample, draw.choice(all_samples))


# -- a run -------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    inputs: int = 0
    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)  # by what was raised where; the first input with it
    failed: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_input: int = -1
    growth: int = 0  # bytes in use at the end, more than after the first tenth
    peak: int = 0  # bytes at most, more than at the start


class Fuzzer:
    def __init__(self, seed: int, *names: str) -> None:
        """Of these targets, or of all."""
        self.seed, every = seed, targets()
        self.targets = [target for target in every if not names or target.name in names]
        self.all_samples = [sample for target in every for sample in target.samples]

    def input(self, index: int) -> tuple[Target, bytes]:
        target = self.targets[index % len(self.targets)]
        return target, damaged(random.Random(self.seed << 40 | index), target.samples, self.all_samples)

    def run(self, inputs: int, say: Callable[[str], None] = lambda _: None) -> Outcome:
        outcome, began, start, settled = Outcome(), time.perf_counter(), resident(), 0
        for index in range(inputs):
            self._one(index, outcome)
            if index == inputs // 10:
                settled = resident()
            if inputs > 20 and index % (inputs // 20) == 0:
                faulthandler.dump_traceback_later(HANGS, exit=True)
                say(f"{index:>9,} inputs, {time.perf_counter() - began:6.0f} s, {resident() >> 20} MB in use")
        faulthandler.cancel_dump_traceback_later()
        outcome.seconds = time.perf_counter() - began
        outcome.growth, outcome.peak = resident() - settled, peak() - start
        return outcome

    def _one(self, index: int, outcome: Outcome) -> None:
        target, data = self.input(index)
        outcome.inputs += 1
        began = time.perf_counter()
        try:
            target.decode(data)
            outcome.taken[target.name] += 1
        except CoterieError:
            outcome.refused[target.name] += 1
        except Exception as error:
            outcome.failed += 1
            outcome.failures.setdefault(_where(target, error), f"--only {index}: {data[:2000]!r}")
        took = time.perf_counter() - began
        if took > outcome.slowest:
            outcome.slowest, outcome.slowest_input = took, index


def _where(target: Target, error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{target.name}: {type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {str(error)[:100]!r}"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def report(outcome: Outcome) -> str:
    lines = [f"{name:<24} {outcome.taken[name]:>9,} taken {outcome.refused[name]:>9,} refused" for name in sorted(
        {*outcome.taken, *outcome.refused}
    )]  # fmt: skip
    rate = outcome.inputs / max(outcome.seconds, 1e-9)
    lines += [
        f"{outcome.inputs:,} inputs in {outcome.seconds:.0f} s ({rate:,.0f} a second), {outcome.failed} failures",
        f"slowest {1000 * outcome.slowest:.1f} ms (--only {outcome.slowest_input})",
        f"memory in use grew by {outcome.growth / (1 << 20):.1f} MB, and at most by {outcome.peak / (1 << 20):.1f} MB",
    ]
    return "\n".join(
        lines + [f"{where}\n    {what}" for where, what in list(outcome.failures.items())[:FAILURES_SHOWN]]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one input, to be repeated with its traceback")
    options = parser.parse_args()
    torch.set_num_threads(1)
    fuzzer = Fuzzer(options.seed)
    if options.only is not None:
        target, data = fuzzer.input(options.only)
        print(f"{target.name}: {len(data)} bytes\n{data!r}")
        print(target.decode(data))
        return 0
    outcome = fuzzer.run(options.inputs, lambda text: print(text, flush=True))
    print(report(outcome))
    return int(bool(outcome.failures) or outcome.slowest > SLOWEST or outcome.growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
