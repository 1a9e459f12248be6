"""Encodes artifacts for the network: unchanged, compressed, in half precision, or only the largest changes.

The stateless encodings are the functions `encode` and `decode`. "topk" depends on what the receiver already has: each
pair of peers has a `Sender` and a matching `Receiver` for each artifact name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

import numpy as np
import torch
import zstandard
from torch import Tensor

from coterie.config.sections import ENCODINGS
from coterie.core.artifact import Artifact
from coterie.core.errors import ArtifactError, ConfigError, unknown
from coterie.core.weights import Weights

LEVEL = 3  # of zstd; higher levels gain almost nothing on weights
LARGEST_HALF = 65504.0
MAX_WINDOW = 2**23  # bytes that zstd may buffer; at our level it needs a quarter
MAX_INDEX = 2**31 - 1
DIGEST_BYTES = 16
_AS_IS, _HALVED = "=", "h"  # prefixes of a tensor's name: sent unchanged, or in half precision


def encode(artifact: Artifact, encoding: str) -> bytes:
    """The bytes to send, in a stateless encoding."""
    if encoding == "none":
        return artifact.to_bytes()
    if encoding == "zstd":
        return _compressed(artifact)
    if encoding == "fp16":
        return _compressed(replace(artifact, content=dict(map(_halved, artifact, artifact.values()))))
    raise _wrong_encoding(encoding, "Sender")


def decode(data: bytes, encoding: str, limit: int) -> Artifact:
    """The artifact, if it is well-formed and at most `limit` bytes, which is checked before any allocation."""
    if encoding == "none":
        _refuse_above(limit, len(data))
        return Artifact.from_bytes(data)
    if encoding == "zstd":
        return _decompressed(data, limit)
    if encoding == "fp16":
        artifact = _decompressed(data, limit)
        _refuse_above(limit, sum(t.nbytes * (2 if key.startswith(_HALVED) else 1) for key, t in artifact.items()))
        return replace(artifact, content=_restored(artifact))
    raise _wrong_encoding(encoding, "Receiver")


class Sender:
    """Top-k with error feedback (EF21), for one receiver and artifact name. Not for two threads at once.

    It tracks the receiver's state and sends only the entries that differ most from the artifact. The rest stays in the
    difference and is sent later.
    """

    def __init__(self, share: float) -> None:
        if not 0 < share <= 1:
            raise ConfigError(f"the share of entries that top-k sends must be above 0 and at most 1, not {share}")
        self._share = share
        # The receiver's state before and after the last answer. The next request names one of the two and so tells
        # whether that answer arrived. Keeping both avoids resending the whole artifact after a lost answer.
        self._before: _State | None = None
        self._after: _State | None = None

    def encode(self, artifact: Artifact, have: str) -> tuple[str, bytes]:
        """The encoding and the bytes for a receiver with the state `have`; the whole artifact if that is unknown."""
        base = next((state for state in (self._after, self._before) if state and state.digest == have), None)
        truth = _State.of(artifact)
        if base is not None and base.can_become(truth):
            count = math.ceil(self._share * truth.vector.numel())
            indices = base.furthest_from(truth, count)
            values = truth.vector[indices]
            after, encoding, data = base.moved(indices, values), "topk", _change(artifact, base, indices, values)
        else:
            after, encoding, data = truth, "zstd", encode(artifact, "zstd")
        self._before, self._after = base, after
        return encoding, data


class Receiver:
    """The counterpart of a `Sender`, for one author and artifact name. Not for two threads at once."""

    def __init__(self) -> None:
        self._state: _State | None = None

    @property
    def have(self) -> str:
        """The digest of the current state, for the next request; "" if there is none."""
        return self._state.digest if self._state else ""

    def decode(self, data: bytes, encoding: str, limit: int) -> Artifact:
        """The artifact as currently known. If this raises, the state is unchanged."""
        if encoding != "topk":
            artifact = decode(data, encoding, limit)
            self._state = _State.of(artifact)
            return artifact
        change = _decompressed(data, limit)
        if self._state is None:
            raise ArtifactError(f"received a change of '{change.name}' without having the artifact: fetch it whole")
        state, others = self._state.changed_by(change)
        artifact = replace(change, content={**state.weights.copy(), **others})
        self._state = state
        return artifact


@dataclass(frozen=True, eq=False)
class _State:
    """The float32 tensors of an artifact, which top-k sends in parts. All other tensors are sent whole."""

    weights: Weights

    @classmethod
    def of(cls, artifact: Artifact) -> _State:
        floats = {key: artifact[key].cpu() for key in sorted(artifact) if artifact[key].dtype == torch.float32}
        return cls(Weights.of(floats))

    @property
    def vector(self) -> Tensor:
        return self.weights.vector

    @cached_property
    def digest(self) -> str:
        shapes = [[slot.name, slot.shape] for slot in self.weights.layout.slots]
        hash = sha256(json.dumps(shapes).encode())
        hash.update(self.vector.numpy().data)
        return hash.digest()[:DIGEST_BYTES].hex()

    @property
    def label(self) -> Tensor:
        """The digest as a tensor, as a change carries it."""
        return torch.tensor(list(bytes.fromhex(self.digest)), dtype=torch.uint8)

    def can_become(self, truth: _State) -> bool:
        """Whether a change can lead there: the same tensors, not empty, all finite (receivers refuse others)."""
        same = self.weights.layout == truth.weights.layout
        return same and 0 < truth.vector.numel() <= MAX_INDEX and bool(torch.isfinite(truth.vector).all())

    def furthest_from(self, truth: _State, count: int) -> Tensor:
        gap = (truth.vector - self.vector).abs_().numpy()
        start = len(gap) - count
        return torch.from_numpy(np.sort(np.argpartition(gap, start)[start:]))

    def moved(self, indices: Tensor, values: Tensor) -> _State:
        vector = self.vector.clone()
        vector[indices] = values
        return _State(Weights(self.weights.layout, vector))

    def changed_by(self, change: Artifact) -> tuple[_State, dict[str, Tensor]]:
        """The state after a change, and the tensors sent whole. Nothing in the change is trusted."""
        parts = dict(change.content)
        base, steps, values = (parts.pop(key, torch.empty(0)) for key in ("base", "steps", "values"))
        if base.dtype != torch.uint8 or not torch.equal(base, self.label):
            raise ArtifactError(
                f"a change of '{change.name}' does not apply to the local state ({self.digest}): fetch it whole"
            )
        others = _restored(parts)
        if any(t.dtype == torch.float32 or key in self.weights for key, t in others.items()):
            raise ArtifactError(f"a change of '{change.name}' contains a whole tensor that must be sent in parts")
        return self.moved(_checked_indices(steps, values, self.vector.numel()), values), others


def _change(artifact: Artifact, base: _State, indices: Tensor, values: Tensor) -> bytes:
    """The bytes of a change: the state that it applies to, and the new values of some entries.

    Values instead of differences: without additions there is no rounding, and both sides agree exactly. Indices are
    sent as steps from one to the next: small numbers compress to less than half.
    """
    others = {_AS_IS + key: t for key, t in artifact.items() if t.dtype != torch.float32}
    steps = torch.diff(indices, prepend=indices.new_zeros(1)).to(torch.int32)
    return _compressed(replace(artifact, content={"base": base.label, "steps": steps, "values": values, **others}))


def _checked_indices(steps: Tensor, values: Tensor, size: int) -> Tensor:
    well_typed = steps.dtype == torch.int32 and values.dtype == torch.float32
    if not well_typed or steps.dim() != 1 or steps.shape != values.shape or not 0 < len(steps) <= size:
        raise ArtifactError(f"a change needs as many steps (int32) as values (float32), from 1 to {size} of them")
    indices = steps.to(torch.int64).cumsum(0)
    if steps[0] < 0 or (steps[1:] < 1).any() or indices[-1] >= size:
        raise ArtifactError(f"a change has indices that are not ascending, or beyond the {size} entries there are")
    if not torch.isfinite(values).all():
        raise ArtifactError("a change has values that are not finite")
    return indices


# -- tensors and bytes ---------------------------------------------------------------------------


def _halved(key: str, tensor: Tensor) -> tuple[str, Tensor]:
    """Convert to half precision, unless the tensor has another type or values beyond the range of halves."""
    if tensor.dtype != torch.float32 or (tensor.abs() > LARGEST_HALF).any():
        return _AS_IS + key, tensor
    return _HALVED + key, tensor.half()


def _restored(marked: Mapping[str, Tensor]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, tensor in marked.items():
        mark, key = name[:1], name[1:]
        halved = mark == _HALVED and tensor.dtype == torch.float16
        if not (halved or mark == _AS_IS) or key in tensors or key == "__metadata__":
            raise ArtifactError(f"an encoded artifact has a tensor '{name}' that no encoder makes")
        tensors[key] = tensor.float() if halved else tensor
    return tensors


def _compressed(artifact: Artifact) -> bytes:
    return zstandard.ZstdCompressor(level=LEVEL).compress(artifact.to_bytes())


def _decompressed(data: bytes, limit: int) -> Artifact:
    """Decompress a frame. Its declared size is checked first, so that a decompression bomb is refused unopened."""
    try:
        # An undeclared size is reported as the largest number.
        _refuse_above(limit, zstandard.get_frame_parameters(data).content_size)
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        whole = decompressor.decompress(data, max_output_size=limit, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ArtifactError(f"not a readable artifact: {error}") from error
    return Artifact.from_bytes(whole)


def _refuse_above(limit: int, size: int) -> None:
    if size > limit:
        raise ArtifactError(f"an artifact of {size} bytes exceeds the limit of {limit}")


def _wrong_encoding(encoding: str, stateful: str) -> ArtifactError:
    if encoding == "topk":
        return ArtifactError(f"the encoding 'topk' has state: use a {stateful}")
    return ArtifactError(unknown("encoding", encoding, ENCODINGS))
