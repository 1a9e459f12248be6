"""Artifacts: the named, versioned, typed tensors that leave a peer, and their byte form (safetensors).

The shelf is the privacy boundary: nothing reaches another peer except as an artifact. Communication is accounted in
bytes of artifacts.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from coterie.core.errors import ArtifactError
from coterie.core.weights import Weights, as_weights

Fact = str | int | float | bool
_UNREADABLE = (
    KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError, safetensors.SafetensorError,
)  # fmt: skip
LARGEST_FACT = 1e12  # no peer has more samples
TYPES = frozenset(("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL"))  # accepted tensor types
MOST_DIMENSIONS = 16
MOST_NUMBERS = 2**40
MAX_HEADER = 10_000_000  # bytes; a real header of the largest zoo model is under 100 kB


@dataclass(frozen=True, eq=False)
class Artifact(Mapping[str, Tensor]):
    """One version of something that a peer shared. It is a mapping of the tensors that it carries.

    Methods get artifacts from `me.fetch`, `me.inbox` and `me.receive`; `me.shelve` and `me.send` make them.

    Attributes:
        name: what it is, such as "model"; the method names it.
        author: the peer that shared it.
        round: the author's round.
        content: the tensors, by name.
        facts: numbers and texts that go with them, such as ``samples``.
    """

    name: str
    author: int
    round: int
    content: Mapping[str, Tensor]
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @classmethod
    def snapshot(
        cls, name: str, author: int, round: int, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]
    ) -> Artifact:
        """Copy the tensors as they are now: later changes by their owner do not affect the artifact."""
        content = as_weights(tensors)
        frozen: Mapping[str, Tensor]
        if isinstance(content, Weights):
            frozen = Weights(content.layout, content.vector.clone())
        else:
            frozen = {key: _checked(name, key, value) for key, value in content.items()}
        return cls(name, author, round, frozen, _checked_facts(name, facts))

    def __getitem__(self, key: str) -> Tensor:
        return self.content[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.content)

    def __len__(self) -> int:
        return len(self.content)

    @cached_property
    def nbytes(self) -> int:
        """The length of `to_bytes()`, without serialising."""
        if isinstance(self.content, Weights):
            header, data = _weights_sizes(self.content.layout, self.content.vector.dtype)
        else:
            header, data = _sizes(tuple((k, t.dtype, tuple(t.shape)) for k, t in self.content.items()))
        metadata = len(',"__metadata__":') + self._metadata_size()
        return 8 + math.ceil((header + metadata) / 8) * 8 + data

    def _metadata_size(self) -> int:
        if not self.facts:  # then only the author and the round differ between artifacts of one name
            return _size_of_label(self.name) + len(str(self.author)) + len(str(self.round))
        return len(_json(self._metadata()).encode())

    def misfit(self, like: Mapping[str, Tensor] | None, facts: Iterable[str]) -> str:
        """Why this is not as expected (exactly the tensors of `like`, finite; these facts), or an empty string."""
        if like is not None and (reason := self._unlike(as_weights(like))):
            return reason
        if self.not_finite:
            return f"'{self.not_finite}' has numbers that are not finite"
        for name in facts:
            value = self.facts.get(name)
            if not isinstance(value, int | float) or not 0 < value < LARGEST_FACT:
                return f"the fact '{name}' should be a number above 0, not {value!r}"
        return ""

    def _unlike(self, like: Mapping[str, Tensor]) -> str:
        content = self.content
        if isinstance(content, Weights) and isinstance(like, Weights) and content.layout == like.layout:
            return ""
        for key, expected in like.items():
            tensor = content.get(key)
            if tensor is None or tensor.shape != expected.shape or tensor.dtype != expected.dtype:
                actual = "missing" if tensor is None else _kind(tensor)
                return f"'{key}' should be {_kind(expected)} but is {actual}"
        unexpected = next((key for key in content if key not in like), None)
        return f"'{unexpected}' should not be there" if unexpected is not None else ""

    @cached_property
    def not_finite(self) -> str:
        """The name of the first tensor with a non-finite number, or an empty string; computed once per artifact."""
        content = self.content
        # A finite sum means that all numbers are finite; summing takes a tenth of the time of checking each.
        if isinstance(content, Weights) and math.isfinite(content.vector.sum().item()):
            return ""
        return next((key for key, t in content.items() if not torch.isfinite(t).all()), "")

    def to_bytes(self) -> bytes:
        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in self.content.items()}
        return safetensors.torch.save(tensors, metadata=self._metadata())

    @classmethod
    def from_bytes(cls, data: bytes) -> Artifact:
        """Read and check; raises ArtifactError for anything but a complete, well-formed artifact."""
        try:
            header = _read_header(data)
            label = json.loads(header.pop("__metadata__")["artifact"])
            for key, about in header.items():
                _check_form(key, about)
            name, author, round = str(label["name"]), int(label["author"]), int(label["round"])
            facts = _checked_facts(name, label["facts"])
            _json(label).encode()  # fails on unpaired surrogates
            tensors = safetensors.torch.load(data)
        except _UNREADABLE as error:
            raise ArtifactError(f"not a readable artifact: {error}") from error
        if round < 0:
            raise ArtifactError(f"artifact '{name}' has round {round}; rounds start at 0")
        return cls(name, author, round, tensors, facts)

    def _metadata(self) -> dict[str, str]:
        # One entry only: the library writes several in no fixed order, and equal artifacts must have equal bytes.
        label = {"author": self.author, "facts": self.facts, "name": self.name, "round": self.round}
        return {"artifact": _json(label)}


def sample_counts(artifacts: Mapping[int, Artifact]) -> dict[int, float]:
    """The fact "samples" of each artifact: the shares of an average by data. Fetch them with `facts=["samples"]`."""
    return {j: float(artifact.facts["samples"]) for j, artifact in artifacts.items()}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _checked(artifact: str, key: str, tensor: object) -> Tensor:
    if key == "__metadata__":
        raise ArtifactError(f"artifact '{artifact}': '{key}' is a reserved name; choose another")
    if not isinstance(tensor, Tensor):
        raise ArtifactError(f"artifact '{artifact}': '{key}' is a {type(tensor).__name__}, not a tensor")
    return tensor.detach().clone()


def _checked_facts(artifact: str, facts: Mapping[str, Any]) -> dict[str, Fact]:
    for key, value in facts.items():
        if not isinstance(value, str | int | float | bool):
            raise ArtifactError(f"artifact '{artifact}': fact '{key}' must be a number or text, not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ArtifactError(f"artifact '{artifact}': fact '{key}' must be finite, not {value}")
    return dict(facts)


def _check_form(key: str, about: Mapping[str, Any]) -> None:
    """Reject types and shapes that the format allows but torch cannot handle."""
    shape = [int(size) for size in about["shape"]]
    if (
        about["dtype"] not in TYPES
        or len(shape) > MOST_DIMENSIONS
        or math.prod(max(n, 1) for n in shape) > MOST_NUMBERS
    ):
        raise ArtifactError(f"not a readable artifact: '{key[:80]}' is {str(about['dtype'])[:10]} {str(shape)[:80]}")


def _read_header(data: bytes) -> dict[str, Any]:
    if len(data) < 8:
        raise ArtifactError(f"not a readable artifact: only {len(data)} bytes")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(MAX_HEADER, len(data) - 8):
        raise ArtifactError(f"not a readable artifact: it declares a header of {length} bytes")
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"not a readable artifact: {error}") from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise ArtifactError("not a readable artifact: its header is not a JSON object")
    return header


@lru_cache(maxsize=4096)
def _size_of_label(name: str) -> int:
    """Bytes of the metadata of an artifact without facts, excluding the digits of its author and round."""
    return len(_json(Artifact(name, 0, 0, {})._metadata()).encode()) - 2


Schema = tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]


@lru_cache(maxsize=4096)
def _sizes(schema: Schema) -> tuple[int, int]:
    """Bytes of the header (without metadata and padding) and of the data, measured once per schema."""
    whole = safetensors.torch.save({key: torch.zeros(shape, dtype=dtype) for key, dtype, shape in schema})
    (padded,) = struct.unpack("<Q", whole[:8])
    return len(whole[8 : 8 + padded].rstrip()) - (0 if schema else 1), len(whole) - 8 - padded


@lru_cache(maxsize=1024)
def _weights_sizes(layout: Any, dtype: torch.dtype) -> tuple[int, int]:
    return _sizes(tuple((slot.name, dtype, slot.shape) for slot in layout.slots))
