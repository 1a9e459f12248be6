"""A model as it travels when its recipient need not know its architecture: the bytes of an ONNX file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Portable:
    """One model: inputs (N, ...) of one's own shape to probabilities (N, classes). Only a sandbox runs it."""

    content: Tensor  # one dimension of uint8: what an artifact carries, and a checkpoint keeps
    kind: str = ""  # what it is ("forest"), for reports: its maker's word

    @classmethod
    def of(cls, content: bytes, kind: str = "") -> Portable:
        return cls(torch.frombuffer(bytearray(content), dtype=torch.uint8), kind)

    @cached_property
    def bytes(self) -> bytes:
        return self.content.cpu().numpy().tobytes()

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.bytes).hexdigest()
