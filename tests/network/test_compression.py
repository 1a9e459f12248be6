"""Encodings: what comes back, how far it may be off, what both sides of top-k agree on, and bytes that lie."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
import zstandard
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, ConfigError
from coterie.core.weights import Weights
from coterie.network.compression import ENCODINGS, LARGEST_HALF, Receiver, Sender, decode, encode

LIMIT = 10_000_000
WITHOUT_MEMORY = ENCODINGS[:3]
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8,
    torch.bool,
]  # fmt: skip

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
names = text.filter(lambda key: key != "__metadata__")
tensors = st.builds(
    lambda shape, dtype, seed: (9 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(DTYPES),
    st.integers(0, 99),
)
artifacts = st.builds(
    Artifact.snapshot,
    text,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.dictionaries(names, tensors, max_size=5),
    st.dictionaries(text, text | st.integers() | st.booleans(), max_size=3),
)


def model(values: Any, round: int = 0, **others: Tensor) -> Artifact:
    """An artifact with these float entries, in two tensors whose names sort otherwise than they came."""
    flat = torch.as_tensor(np.asarray(values, dtype=np.float32))
    half = len(flat) // 2
    return Artifact.snapshot("model", 3, round, {"w": flat[:half], "b": flat[half:], **others}, {"n": 5})


def entries(artifact: Artifact) -> NDArray[np.float32]:
    """The inverse of `model`."""
    return torch.cat([artifact["w"], artifact["b"]]).numpy()


def random_values(seed: int, size: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def same_tensors(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)


def same_label(a: Artifact, b: Artifact) -> bool:
    return (a.name, a.author, a.round, a.facts) == (b.name, b.author, b.round, b.facts)


def same(a: Artifact, b: Artifact) -> bool:
    return same_label(a, b) and same_tensors(a, b)


def answer(sender: Sender, receiver: Receiver, artifact: Artifact) -> tuple[str, Artifact]:
    encoding, data = sender.encode(artifact, receiver.have)
    return encoding, receiver.decode(data, encoding, LIMIT)


# -- there and back -----------------------------------------------------------------------------


@given(artifacts, st.sampled_from(["none", "zstd"]))
def test_without_loss(artifact: Artifact, encoding: str) -> None:
    assert same(decode(encode(artifact, encoding), encoding, LIMIT), artifact)


@given(artifacts)
def test_halves_keep_the_label_the_types_and_whatever_is_not_float32(artifact: Artifact) -> None:
    back = decode(encode(artifact, "fp16"), "fp16", LIMIT)
    assert same_label(back, artifact)
    expected = {k: t.half().float() if t.dtype == torch.float32 else t for k, t in artifact.items()}
    assert same_tensors(back, expected)


def test_none_is_the_byte_form_and_zstd_is_plain_zstd() -> None:
    artifact = model(random_values(0, 100))
    assert encode(artifact, "none") == artifact.to_bytes()
    assert zstandard.ZstdDecompressor().decompress(encode(artifact, "zstd")) == artifact.to_bytes()


@given(st.lists(st.floats(-LARGEST_HALF, LARGEST_HALF, width=32), min_size=2, max_size=20))
def test_halves_are_off_by_no_more_than_rounding(values: list[float]) -> None:
    back = entries(decode(encode(model(values), "fp16"), "fp16", LIMIT))
    for value, got in zip(np.float32(values).astype(float), back.astype(float), strict=True):
        smallest_normal = 2.0**-14
        bound = abs(value) * 2.0**-11 if abs(value) >= smallest_normal else 2.0**-25
        assert abs(got - value) <= bound


@pytest.mark.parametrize("large", [65504.004, -65505.0, 65519.0, 65520.0, 3e38, -3e38, math.inf, -math.inf])
def test_a_tensor_beyond_the_range_of_halves_stays_as_it_is(large: float) -> None:
    artifact = Artifact.snapshot("m", 0, 0, {"w": torch.tensor([large, 1 / 3]), "v": torch.tensor([1 / 3])}, {})
    back = decode(encode(artifact, "fp16"), "fp16", LIMIT)
    assert torch.equal(back["w"], artifact["w"])
    assert back["v"].item() == torch.tensor(1 / 3).half().float().item() != artifact["v"].item()


def test_the_largest_half_and_nan_travel_as_halves() -> None:
    back = decode(encode(model([LARGEST_HALF, -LARGEST_HALF, math.nan, 1 / 3]), "fp16"), "fp16", LIMIT)
    values = entries(back)
    assert values[:2].tolist() == [LARGEST_HALF, -LARGEST_HALF]
    assert math.isnan(values[2])


def test_sizes() -> None:
    """What is saved, on numbers that are like weights: half for halves, and little without loss."""
    artifact = model(random_values(1, 100_000) * 0.05)
    whole, zstd, fp16 = (len(encode(artifact, encoding)) for encoding in WITHOUT_MEMORY)
    assert whole == artifact.nbytes
    assert zstd < 0.95 * whole
    assert fp16 < 0.48 * whole
    sender, receiver = Sender(0.01), Receiver()
    answer(sender, receiver, artifact)
    encoding, data = sender.encode(model(random_values(2, 100_000)), receiver.have)
    assert encoding == "topk"
    assert len(data) < 7 * 1000  # bytes for each of the entries: four of the value, the rest of the index


def test_unknown_encodings_are_named() -> None:
    artifact = model([1, 2])
    with pytest.raises(ArtifactError, match=r"unknown encoding 'zst'\. Did you mean 'zstd'"):
        encode(artifact, "zst")
    with pytest.raises(ArtifactError, match="unknown encoding 'gzip'"):
        decode(b"", "gzip", LIMIT)
    with pytest.raises(ArtifactError, match="unknown encoding 'gzip'"):
        Receiver().decode(b"", "gzip", LIMIT)
    with pytest.raises(ArtifactError, match="use a Sender"):
        encode(artifact, "topk")
    with pytest.raises(ArtifactError, match="use a Receiver"):
        decode(b"", "topk", LIMIT)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, math.nan])
def test_impossible_shares_are_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="share"):
        Sender(share)


# -- top-k: what both sides come to ---------------------------------------------------------------


@settings(max_examples=50)
@given(st.integers(2, 60), st.integers(1, 40), st.integers(0, 99))
def test_a_constant_target_is_reached_exactly(size: int, parts: int, seed: int) -> None:
    share = Fraction(1, parts)
    sender, receiver = Sender(float(share)), Receiver()
    answer(sender, receiver, model(random_values(seed, size) * 1e6))
    target = model(random_values(seed + 1, size) * 1e-3)
    for _ in range(math.ceil(1 / share)):
        encoding, got = answer(sender, receiver, target)
        assert encoding == "topk"
    assert same(got, target)


@settings(max_examples=60)
@given(st.integers(2, 40), st.floats(0.01, 1), st.integers(0, 10**6), st.integers(1, 8))
def test_a_moving_target_against_plain_numpy(size: int, share: float, seed: int, rounds: int) -> None:
    """EF21 by hand: the k largest differences move, and all that was not sent stays in the difference."""
    draw = np.random.default_rng(seed)
    sender, receiver = Sender(share), Receiver()
    twin = draw.normal(size=size).astype(np.float32)
    answer(sender, receiver, model(twin))
    for t in range(1, rounds + 1):
        target = twin + draw.normal(size=size).astype(np.float32)
        difference = target - twin
        assume(len(np.unique(np.abs(difference))) == size)  # among equals, any may be sent
        sent = np.argsort(-np.abs(difference))[: math.ceil(share * size)]
        unsent = np.delete(np.arange(size), sent)
        twin[sent] = target[sent]
        _, got = answer(sender, receiver, model(target, t))
        assert np.array_equal(entries(got), twin)
        assert got.round == t
        assert np.array_equal((target - entries(got))[unsent], difference[unsent])
        assert (target - entries(got)).sum(dtype=float) == pytest.approx(difference[unsent].sum(dtype=float), abs=1e-5)


def test_a_small_change_has_its_turn_later() -> None:
    sender, receiver = Sender(0.25), Receiver()
    answer(sender, receiver, model([0, 0, 0, 0]))
    seen = [entries(answer(sender, receiver, model([9, 1, 3, 2]))[1]).tolist() for _ in range(4)]
    assert seen == [[9, 0, 0, 0], [9, 0, 3, 0], [9, 0, 3, 2], [9, 1, 3, 2]]


def test_other_types_are_sent_whole_each_time() -> None:
    sender, receiver = Sender(0.5), Receiver()
    others = {"count": torch.tensor([7, 8]), "fine": torch.tensor([0.1], dtype=torch.float64), "on": torch.tensor(True)}
    answer(sender, receiver, model([0, 0, 0, 0], 0, **others))
    others = {"count": torch.tensor([9]), "half": torch.tensor([0.5], dtype=torch.float16)}
    encoding, got = answer(sender, receiver, model([1, 2, 3, 4], 1, **others))
    assert encoding == "topk"
    assert same(got, model([0, 0, 3, 4], 1, **others))


@pytest.mark.parametrize(
    "artifact",
    [
        Artifact.snapshot("model", 3, 1, {}, {}),
        Artifact.snapshot("model", 3, 1, {"n": torch.tensor([1])}, {}),
        Artifact.snapshot("model", 3, 1, {"w": torch.zeros(0, 3)}, {}),
        model([math.nan, 1, 2, 3]),
        model([math.inf, 1, 2, 3]),
    ],
)
def test_what_has_no_finite_numbers_to_choose_from_goes_whole(artifact: Artifact) -> None:
    sender, receiver = Sender(0.5), Receiver()
    for _ in range(3):
        encoding, got = answer(sender, receiver, artifact)
        assert encoding == "zstd"
        assert got.to_bytes() == artifact.to_bytes()
    assert answer(sender, receiver, model([1, 2, 3, 4]))[0] in ("zstd", "topk")


def test_from_nan_back_to_numbers() -> None:
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, model([math.nan, 1, math.inf, 3]))
    encoding, got = answer(sender, receiver, model([5, 1.5, 6, 9]))
    assert encoding == "topk"
    assert entries(got).tolist() == [5, 1, 6, 3]


def test_another_shape_or_name_goes_whole_and_on_from_there() -> None:
    sender, receiver = Sender(0.5), Receiver()
    for artifact in (
        model([0, 0, 0, 0]),
        model([1, 2]),
        Artifact.snapshot("model", 3, 1, {"w": torch.ones(1), "c": torch.ones(1)}, {}),
        Artifact.snapshot("model", 3, 1, {"w": torch.ones(1), "c": torch.ones(1, 1)}, {}),
        Artifact.snapshot("model", 3, 1, {"w": torch.ones(1), "c": torch.ones(1, 1).double()}, {}),
    ):
        encoding, got = answer(sender, receiver, artifact)
        assert encoding == "zstd"
        assert same(got, artifact)
        assert answer(sender, receiver, artifact)[0] == "topk"


def test_weights_in_one_vector_and_named_tensors_are_the_same_state() -> None:
    values = {"w": torch.randn(3), "b": torch.randn(2, 2)}
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, Artifact.snapshot("model", 3, 0, Weights.of(values), {}))
    encoding, got = answer(sender, receiver, Artifact.snapshot("model", 3, 1, values, {}))
    assert encoding == "topk"
    assert same_tensors(got, values)


def test_what_was_handed_out_is_the_methods_own() -> None:
    sender, receiver = Sender(0.5), Receiver()
    for expected, target in (("zstd", [0, 0, 0, 0]), ("topk", [0, 0, 9, 9]), ("topk", [0, 0, 5, 5])):
        encoding, got = answer(sender, receiver, model(target))
        assert (encoding, entries(got).tolist()) == (expected, target)
        got["w"].fill_(99)


# -- top-k: what gets lost ------------------------------------------------------------------------


def test_first_contact_and_restarts_send_the_whole() -> None:
    sender, receiver = Sender(0.25), Receiver()
    assert receiver.have == ""
    assert answer(sender, receiver, model([1, 2, 3, 4]))[0] == "zstd"
    assert answer(sender, receiver, model([2, 2, 3, 4]))[0] == "topk"
    receiver = Receiver()
    assert answer(sender, receiver, model([2, 2, 3, 5]))[0] == "zstd"
    assert answer(sender, receiver, model([2, 2, 3, 6]))[0] == "topk"
    sender = Sender(0.25)
    assert answer(sender, receiver, model([2, 2, 3, 7]))[0] == "zstd"
    encoding, got = answer(sender, receiver, model([2, 2, 3, 8]))
    assert encoding == "topk"
    assert entries(got).tolist() == [2, 2, 3, 8]


def test_lost_answers_cost_no_whole() -> None:
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, model([0, 0, 0, 0]))
    for t in range(5):
        sender.encode(model([1, 2, 3, t]), receiver.have)  # nobody gets it
    encoding, got = answer(sender, receiver, model([1, 2, 9, 8]))
    assert encoding == "topk"
    assert entries(got).tolist() == [0, 0, 9, 8]


def test_a_lost_whole_with_the_same_numbers_under_other_names() -> None:
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, model([1, 2, 3, 4]))
    renamed = Artifact.snapshot("model", 3, 1, {"x": torch.tensor([3.0, 4.0]), "y": torch.tensor([1.0, 2.0])}, {})
    assert sender.encode(renamed, receiver.have)[0] == "zstd"  # nobody gets it
    encoding, got = answer(sender, receiver, renamed)
    assert encoding == "zstd"
    assert same(got, renamed)


def test_an_answer_that_comes_late_is_refused_or_right() -> None:
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, model([0, 0, 0, 0]))
    early = sender.encode(model([1, 2, 3, 4]), receiver.have)
    answer(sender, receiver, model([1, 2, 9, 8]))
    have = receiver.have
    with pytest.raises(ArtifactError, match="does not apply to the local state"):
        receiver.decode(early[1], early[0], LIMIT)
    assert receiver.have == have
    # And of two requests with one `have`, the earlier answer may be the one that is taken.
    first, _ = (sender.encode(model([5, 6, 7, t]), have) for t in (1, 2))
    receiver.decode(first[1], first[0], LIMIT)
    encoding, got = answer(sender, receiver, model([5, 6, 7, 3]))
    assert encoding == "zstd"
    assert entries(got).tolist() == [5, 6, 7, 3]


@given(
    st.lists(st.sampled_from(["arrives", "arrives", "lost", "sender restarts", "receiver restarts"]), max_size=25),
    st.floats(0.05, 1),
    st.integers(0, 10**6),
)
def test_both_sides_agree_whatever_gets_lost(fates: list[str], share: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    sender, receiver = Sender(share), Receiver()
    contact = False  # whether both remember the last state that arrived
    believed: NDArray[np.float32] | None = None  # what the receiver has, by a plain twin
    for t, fate in enumerate(fates):
        if fate == "sender restarts":
            sender, contact = Sender(share), False
        elif fate == "receiver restarts":
            receiver, contact, believed = Receiver(), False, None
        target = draw.normal(size=12).astype(np.float32)
        encoding, data = sender.encode(model(target, t), receiver.have)
        assert encoding == ("topk" if contact else "zstd")
        if fate == "lost":
            continue
        got = receiver.decode(data, encoding, LIMIT)
        if encoding == "zstd" or believed is None:
            believed = target
        else:
            sent = np.argsort(-np.abs(target - believed))[: math.ceil(share * 12)]
            believed[sent] = target[sent]
        contact = True
        assert np.array_equal(entries(got), believed)
        assert sender._after is not None
        assert sender._after.digest == receiver.have


# -- bytes that lie -------------------------------------------------------------------------------


def packed(content: Mapping[str, Tensor]) -> bytes:
    artifact = Artifact("model", 3, 1, content, {})
    return zstandard.ZstdCompressor().compress(artifact.to_bytes())


@pytest.fixture
def pair() -> tuple[Sender, Receiver]:
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, model([1, 2, 3, 4], 0, n=torch.tensor([1])))
    return sender, receiver


def honest(receiver: Receiver) -> dict[str, Tensor]:
    return {
        "base": torch.tensor(list(bytes.fromhex(receiver.have)), dtype=torch.uint8),
        "steps": torch.tensor([1, 2], dtype=torch.int32),
        "values": torch.tensor([8.0, 9.0]),
        "=n": torch.tensor([2]),
    }


def test_the_form_of_a_change(pair: tuple[Sender, Receiver]) -> None:
    """The lies below are changes to this, which is true: entries 1 and 3 in the order of names (b, w) are set."""
    got = pair[1].decode(packed(honest(pair[1])), "topk", LIMIT)
    assert (got["b"].tolist(), got["w"].tolist(), got["n"].tolist()) == ([3, 8], [1, 9], [2])


def lie(**parts: Any) -> Any:
    return pytest.param(parts, id="-".join(f"{k}={v}".replace(" ", "") for k, v in parts.items()))


@pytest.mark.parametrize(
    "parts",
    [
        lie(steps=torch.tensor([1, 3], dtype=torch.int32)),
        lie(steps=torch.tensor([1, 2**31 - 1], dtype=torch.int32)),
        lie(steps=torch.tensor([-1, 2], dtype=torch.int32)),
        lie(steps=torch.tensor([1, 0], dtype=torch.int32)),
        lie(steps=torch.tensor([3, -1], dtype=torch.int32)),
        lie(steps=torch.tensor([1, 2])),
        lie(steps=torch.tensor([1.0, 2.0])),
        lie(steps=torch.tensor([1], dtype=torch.int32)),
        lie(steps=torch.tensor([[1, 2]], dtype=torch.int32), values=torch.tensor([[8.0, 9.0]])),
        lie(steps=torch.tensor(1, dtype=torch.int32), values=torch.tensor(8.0)),
        lie(steps=torch.zeros(0, dtype=torch.int32), values=torch.zeros(0)),
        lie(steps=torch.ones(5, dtype=torch.int32), values=torch.zeros(5)),
        lie(steps=None),
        lie(values=torch.tensor([8.0, math.nan])),
        lie(values=torch.tensor([8.0, -math.inf])),
        lie(values=torch.tensor([8.0, 9.0], dtype=torch.float64)),
        lie(values=torch.tensor([8.0, 9.0], dtype=torch.float16)),
        lie(values=torch.tensor([8, 9], dtype=torch.int32)),
        lie(values=None),
        lie(base=None),
        lie(base=torch.zeros(16, dtype=torch.uint8)),
        lie(base=torch.zeros(0, dtype=torch.uint8)),
        lie(base=torch.zeros(16)),
        lie(base=torch.zeros(1000, 1000, dtype=torch.uint8)),
        lie(**{"=w": torch.tensor([1, 2])}),
        lie(**{"=more": torch.tensor([1.0])}),
        lie(**{"hmore": torch.tensor([1.0]).half()}),
        lie(**{"=__metadata__": torch.tensor([1])}),
        lie(**{"more": torch.tensor([1])}),
        lie(**{"": torch.tensor([1])}),
    ],
)
def test_a_change_that_lies_is_refused_and_changes_nothing(
    pair: tuple[Sender, Receiver], parts: dict[str, Tensor | None]
) -> None:
    sender, receiver = pair
    have = receiver.have
    content = {key: tensor for key, tensor in {**honest(receiver), **parts}.items() if tensor is not None}
    with pytest.raises(ArtifactError):
        receiver.decode(packed(content), "topk", LIMIT)
    assert receiver.have == have
    encoding, got = answer(sender, receiver, model([1, 2, 30, 40], 1))
    assert encoding == "topk"
    assert entries(got).tolist() == [1, 2, 30, 40]


def test_a_change_of_nothing_is_refused(pair: tuple[Sender, Receiver]) -> None:
    with pytest.raises(ArtifactError, match="without having the artifact: fetch it whole"):
        Receiver().decode(packed(honest(pair[1])), "topk", LIMIT)


@pytest.mark.parametrize(
    "content",
    [
        {"w": torch.zeros(2)},
        {"": torch.zeros(2)},
        {"hw": torch.zeros(2)},
        {"hw": torch.zeros(2, dtype=torch.int16)},
        {"hw": torch.zeros(2).half(), "=w": torch.zeros(2)},
        {"=__metadata__": torch.zeros(2)},
    ],
)
def test_halves_that_no_encoder_makes_are_refused(content: dict[str, Tensor]) -> None:
    with pytest.raises(ArtifactError, match="no encoder makes"):
        decode(packed(content), "fp16", LIMIT)


@pytest.mark.parametrize("encoding", WITHOUT_MEMORY)
def test_the_limit_is_exact(encoding: str) -> None:
    artifact = model(np.zeros(1000))
    data = encode(artifact, encoding)
    largest = artifact.nbytes if encoding != "fp16" else 4000
    decode(data, encoding, largest)
    with pytest.raises(ArtifactError, match="exceeds the limit"):
        decode(data, encoding, largest - 1)


BOMBS = """
import resource, torch, zstandard
from coterie.core.errors import ArtifactError
from coterie.network.compression import Receiver, decode
from coterie.core.artifact import Artifact

def size_unknown(data):
    press = zstandard.ZstdCompressor().compressobj()
    return press.compress(data) + press.flush()

frames = [zstandard.ZstdCompressor().compress(bytes(300_000_000)), size_unknown(bytes(300_000_000))]
lying = bytearray(frames[0])  # the last bytes of the header are the size: say 1 kB
place = lying.index((300_000_000).to_bytes(4, "little"))
lying[place:place + 4] = (1000).to_bytes(4, "little")
torch.zeros(1000).half().float()
# The process has no more than 50 MB to grow by, and each of these asks for 300.
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 50_000_000, resource.RLIM_INFINITY))
for frame in [*frames, bytes(lying)]:
    assert len(frame) < 100_000
    for read in (lambda e: decode(frame, e, 1_000_000), lambda e: Receiver().decode(frame, e, 1_000_000)):
        for encoding in ("zstd", "fp16", "topk"):
            try:
                read(encoding)
            except ArtifactError:
                print("refused")
"""


def test_bombs_are_refused_without_the_memory_they_ask_for() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", BOMBS], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout.split() == ["refused"] * 18, done.stderr


def test_halves_count_as_what_they_become() -> None:
    """Compressed twice over: zeros to nothing, and halves to singles."""
    data = packed({"hw": torch.zeros(1_000_000).half()})
    with pytest.raises(ArtifactError, match="an artifact of 4000000 bytes exceeds the limit of 3000000"):
        decode(data, "fp16", 3_000_000)


def test_two_frames_are_refused() -> None:
    data = encode(model([1, 2]), "zstd")
    for more in (data, b"\0", zstandard.ZstdCompressor().compress(b"")):
        with pytest.raises(ArtifactError):
            decode(data + more, "zstd", LIMIT)


@settings(max_examples=200)
@given(st.sampled_from(ENCODINGS), st.binary(max_size=100), st.booleans())
def test_random_bytes_are_refused(encoding: str, data: bytes, compressed: bool) -> None:
    if compressed:
        data = zstandard.ZstdCompressor().compress(data)
    with pytest.raises(ArtifactError):
        decode(data, encoding, LIMIT)
    receiver = Receiver()
    receiver.decode(encode(model([1, 2]), "zstd"), "zstd", LIMIT)
    have = receiver.have
    with pytest.raises(ArtifactError):
        receiver.decode(data, encoding, LIMIT)
    assert receiver.have == have


@settings(max_examples=400)
@given(st.sampled_from(["zstd", "fp16", "topk"]), st.data())
def test_flipped_bits_give_an_artifact_or_a_refusal(encoding: str, data: st.DataObject) -> None:
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, model([1, 2, 3, 4]))
    artifact = model([1, 2, 30, 40])
    sent = sender.encode(artifact, receiver.have)[1] if encoding == "topk" else encode(artifact, encoding)
    changed = bytearray(sent)
    for bit in data.draw(st.lists(st.integers(0, 8 * len(changed) - 1), min_size=1, max_size=3)):
        changed[bit // 8] ^= 1 << bit % 8
    have = receiver.have
    try:
        got = receiver.decode(bytes(changed), encoding, LIMIT)
    except ArtifactError:
        assert receiver.have == have
    else:
        assert got.nbytes == len(got.to_bytes())


@pytest.mark.parametrize("encoding", ["none", "zstd", "fp16", "topk"])
def test_every_truncation_is_refused(encoding: str) -> None:
    sender, receiver = Sender(0.5), Receiver()
    answer(sender, receiver, model([1, 2, 3, 4]))
    artifact = replace(model([1, 2, 30, 40]), round=9)
    sent = sender.encode(artifact, receiver.have)[1] if encoding == "topk" else encode(artifact, encoding)
    for length in range(len(sent)):
        with pytest.raises(ArtifactError):
            receiver.decode(sent[:length], encoding, LIMIT)
    assert receiver.decode(sent, encoding, LIMIT).round == 9
