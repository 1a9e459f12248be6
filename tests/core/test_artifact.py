"""Artifacts: their sizes, their byte form, and malicious bytes."""

from __future__ import annotations

import io
import json
import pickle
import struct
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from coterie.core.artifact import MAX_HEADER, Artifact
from coterie.core.errors import ArtifactError
from coterie.core.weights import Weights

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
    torch.int8, torch.uint8, torch.bool,
]  # fmt: skip

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
shapes = st.lists(st.integers(0, 3), max_size=3)
fact_values = (
    st.text(st.characters(exclude_categories=["Cs"])) | st.integers() | st.floats(allow_nan=False) | st.booleans()
)
tensors = st.builds(
    lambda shape, dtype, seed: (9 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype),
    shapes,
    st.sampled_from(DTYPES),
    st.integers(0, 99),
)
names = text.filter(lambda key: key != "__metadata__")
artifacts = st.builds(
    Artifact.snapshot,
    text,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.dictionaries(names, tensors, max_size=5),
    st.dictionaries(text, fact_values, max_size=4),
)
SMALL = Artifact.snapshot("model", 3, 7, {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(5)}, {"loss": 0.25})


def same(a: Artifact, b: Artifact) -> bool:
    return (
        (a.name, a.author, a.round) == (b.name, b.author, b.round)
        and a.facts == b.facts
        and {k: type(v) for k, v in a.facts.items()} == {k: type(v) for k, v in b.facts.items()}
        and a.content.keys() == b.content.keys()
        and all(a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]) for k in a)
    )


# -- sizes and the way there and back -----------------------------------------------------------


@given(artifacts)
@example(Artifact.snapshot("", 0, 0, {}, {}))
@example(Artifact.snapshot('é\n"\\\u2028', 1, 2, {"日本.w": torch.zeros(2, 0), "": torch.tensor(1.0)}, {"ключ": "ü\t"}))
def test_nbytes_is_the_length_of_the_bytes_and_they_read_back(artifact: Artifact) -> None:
    data = artifact.to_bytes()
    assert artifact.nbytes == len(data)
    assert same(Artifact.from_bytes(data), artifact)


@given(st.dictionaries(names, shapes, max_size=5), st.sampled_from([torch.float32, torch.float64]))
def test_nbytes_of_weights_in_one_vector(wanted: dict[str, list[int]], dtype: torch.dtype) -> None:
    weights = Weights.of({name: torch.ones(shape) for name, shape in wanted.items()})
    artifact = Artifact.snapshot("model", 1, 2, Weights(weights.layout, weights.vector.to(dtype)), {"n": 1})
    data = artifact.to_bytes()
    assert artifact.nbytes == len(data)
    assert same(Artifact.from_bytes(data), artifact)


def test_a_tensor_that_is_not_contiguous_keeps_its_values() -> None:
    turned = torch.arange(6.0).view(2, 3).t()
    artifact = Artifact.snapshot("m", 0, 0, {"w": turned}, {})
    assert artifact.nbytes == len(artifact.to_bytes())
    assert Artifact.from_bytes(artifact.to_bytes())["w"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_equal_artifacts_have_equal_bytes_whatever_their_order() -> None:
    a, b = torch.ones(2), torch.zeros(3)
    one = Artifact.snapshot("m", 0, 1, {"a": a, "b": b}, {"x": 1, "y": 2})
    other = Artifact.snapshot("m", 0, 1, {"b": b.clone(), "a": a.clone()}, {"y": 2, "x": 1})
    in_one_vector = Artifact.snapshot("m", 0, 1, Weights.of({"a": a, "b": b}), {"x": 1, "y": 2})
    assert one.to_bytes() == other.to_bytes() == in_one_vector.to_bytes()
    assert one.to_bytes() != Artifact.snapshot("m", 0, 2, {"a": a, "b": b}, {"x": 1, "y": 2}).to_bytes()


def test_it_reads_like_its_tensors() -> None:
    assert list(SMALL) == ["w", "n"]
    assert len(SMALL) == 2
    assert SMALL["n"].item() == 5


# -- snapshots ---------------------------------------------------------------------------------


def test_a_snapshot_does_not_see_later_changes() -> None:
    plain, weights, facts = {"w": torch.ones(2)}, Weights.of({"w": torch.ones(2)}), {"n": 1}
    frozen = [Artifact.snapshot("m", 0, 0, source, facts) for source in (plain, weights)]
    again = Artifact.snapshot("m", 0, 0, frozen[0], {})
    plain["w"].zero_()
    plain["more"] = torch.ones(1)
    weights.vector.zero_()
    facts["n"] = 2
    for artifact in (*frozen, again):
        assert list(artifact) == ["w"]
        assert artifact["w"].tolist() == [1, 1]
    assert frozen[0].facts == {"n": 1}


def test_a_snapshot_carries_no_graph() -> None:
    parameter = torch.ones(2, requires_grad=True)
    assert not Artifact.snapshot("m", 0, 0, {"w": parameter * 2}, {})["w"].requires_grad


def test_what_is_neither_tensor_nor_fact_is_named() -> None:
    with pytest.raises(ArtifactError, match="'m': 'w' is a list"):
        Artifact.snapshot("m", 0, 0, {"w": [1, 2]}, {})  # type: ignore[dict-item]
    with pytest.raises(ArtifactError, match="'m': fact 'who' must be a number or text, not \\[1\\]"):
        Artifact.snapshot("m", 0, 0, {}, {"who": [1]})  # type: ignore[dict-item]


# -- bytes that are no artifact -----------------------------------------------------------------


def labelled(label: str, tensors: dict[str, Tensor] | None = None) -> bytes:
    return safetensors.torch.save(tensors or {"w": torch.zeros(2)}, metadata={"artifact": label})


def with_header(header: Any, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def test_every_truncation_is_refused() -> None:
    data = SMALL.to_bytes()
    for length in range(len(data)):
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(data[:length])


def test_bytes_after_the_end_are_refused() -> None:
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(SMALL.to_bytes() + b"\0")


def read_or_refuse(data: bytes) -> Artifact | None:
    """Only two ends are allowed; any other exception fails the test that called."""
    try:
        return Artifact.from_bytes(data)
    except ArtifactError:
        return None


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert read_or_refuse(data) is None


@settings(max_examples=300)
@given(st.binary(max_size=120))
def test_random_headers_are_refused(data: bytes) -> None:
    assert read_or_refuse(with_header(data)) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_json_of_any_form_as_header_is_refused(header: Any) -> None:
    assume(not (isinstance(header, dict) and "__metadata__" in header))
    assert read_or_refuse(with_header(header)) is None


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("name", "author", "round", "facts"), json_values)))
def test_labels_of_any_form_give_an_artifact_or_a_refusal(label: dict[str, Any]) -> None:
    assume(not any(isinstance(label.get(key), float) for key in ("author", "round")))  # see the next test
    artifact = read_or_refuse(labelled(json.dumps(label)))
    if artifact is not None:
        assert artifact.round >= 0
        assert all(isinstance(fact, str | int | float | bool) for fact in artifact.facts.values())
        assert artifact.nbytes == len(artifact.to_bytes())


@pytest.mark.parametrize("number", ["1e400", "-1e400", "Infinity", "NaN"])
@pytest.mark.parametrize("key", ["author", "round"])
def test_numbers_without_end_in_the_label_are_refused(key: str, number: str) -> None:
    label = json.dumps({"name": "m", "author": 0, "round": 0, "facts": {}}).replace(f'"{key}": 0', f'"{key}": {number}')
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(labelled(label))


@settings(max_examples=400)
@given(st.lists(st.integers(0, 8 * len(SMALL.to_bytes()) - 1), min_size=1, max_size=3, unique=True))
def test_flipped_bits_give_an_artifact_or_a_refusal(bits: list[int]) -> None:
    data = bytearray(SMALL.to_bytes())
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    artifact = read_or_refuse(bytes(data))
    if artifact is not None:  # the flip hit a value or a name
        assert not same(artifact, SMALL)
        assert artifact.nbytes == len(artifact.to_bytes())


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**32, MAX_HEADER + 1, len(SMALL.to_bytes()) - 7])
def test_a_header_longer_than_the_data_is_rejected_before_it_is_read(length: int) -> None:
    data = struct.pack("<Q", length) + SMALL.to_bytes()[8:]
    with pytest.raises(ArtifactError, match=f"declares a header of {length} bytes"):
        Artifact.from_bytes(data)


def test_a_header_above_the_limit_is_refused_even_if_it_is_all_there() -> None:
    with pytest.raises(ArtifactError, match="declares a header"):
        Artifact.from_bytes(with_header(b"{}" + b" " * MAX_HEADER))


def test_huge_announced_shapes_are_refused() -> None:
    for shape in ([2**40], [2**32, 2**32], [2**62, 4]):
        header = {
            "__metadata__": {"artifact": '{"name":"m","author":0,"round":0,"facts":{}}'},
            "w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]},
        }
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(with_header(header, b"\0" * 8))


@pytest.mark.parametrize("opening", ["[", '{"name":'])
def test_deep_nesting_is_refused(opening: str) -> None:
    deep = opening * 100_000
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(with_header(deep.encode()))
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(labelled(deep))


@pytest.mark.parametrize(
    "label",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"name":"m","author":"x","round":0,"facts":{}}',
        '{"name":"m","author":0,"round":-1,"facts":{}}',
        '{"name":"m","author":0,"round":null,"facts":{}}',
        '{"name":"m","author":0,"round":0,"facts":[]}',
        '{"name":"m","author":0,"round":0,"facts":{"a":[1]}}',
        '{"name":"m","author":0,"round":0,"facts":{"a":null}}',
        '{"name":"m","author":0,"round":0}',
    ],
)
def test_incomplete_labels_are_refused(label: str) -> None:
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(labelled(label))


def test_a_tensor_name_that_the_byte_form_reserves_is_refused_when_shared() -> None:
    """Safetensors writes it without complaint, but the result cannot be read: the sender should hear of it."""
    with pytest.raises(ArtifactError, match="__metadata__"):
        Artifact.snapshot("m", 0, 0, {"__metadata__": torch.zeros(2)}, {})


def test_safetensors_without_a_label_are_refused() -> None:
    with pytest.raises(ArtifactError):
        Artifact.from_bytes(safetensors.torch.save({"w": torch.zeros(1)}))


def test_pickles_are_neither_read_nor_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("pickle was used")

    stored, torch_stored = pickle.dumps({"w": 1}), io.BytesIO()
    torch.save({"w": torch.zeros(1)}, torch_stored)
    for name in ("load", "loads", "dump", "dumps", "Unpickler", "Pickler"):
        monkeypatch.setattr(pickle, name, never)
    monkeypatch.setattr(torch, "load", never)
    monkeypatch.setattr(torch, "save", never)
    assert same(Artifact.from_bytes(SMALL.to_bytes()), SMALL)
    for data in (stored, torch_stored.getvalue()):
        with pytest.raises(ArtifactError):
            Artifact.from_bytes(data)


@pytest.mark.parametrize(("worst", "wrong"), [(3e38, ""), (float("inf"), "b"), (float("nan"), "b")])
def test_non_finite_numbers_are_distinguished_from_a_sum_that_overflows(worst: float, wrong: str) -> None:
    """Twice 3e38 is more than float32 has; each of them is a number all the same."""
    weights = Weights.of({"a": torch.full((2,), 3e38), "b": torch.full((2,), worst)})
    assert Artifact.snapshot("model", 0, 1, weights, {}).not_finite == wrong
