"""Portable models: the bytes of an ONNX file, for recipients that do not know the architecture."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Portable:
    """A model from inputs (N, ...) to probabilities (N, classes). Only a sandbox runs it."""

    content: Tensor  # the bytes as one dimension of uint8, for artifacts and checkpoints
    kind: str = ""  # such as "forest", for reports; as its sender declares it

    @classmethod
    def of(cls, content: bytes, kind: str = "") -> Portable:
        return cls(torch.frombuffer(bytearray(content), dtype=torch.uint8), kind)

    @cached_property
    def bytes(self) -> bytes:
        return self.content.cpu().numpy().tobytes()

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.bytes).hexdigest()
