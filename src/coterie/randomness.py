"""Randomness by key: every draw belongs to (seed, who, round, purpose), never to the order of execution."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator


def number(*keys: object) -> int:
    """A 64-bit number that depends on the keys alone."""
    text = "/".join(map(str, keys))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*keys: object) -> np.random.Generator:
    """A stream of its own for these keys, the same wherever and whenever it is asked for."""
    return np.random.Generator(np.random.Philox(key=number(*keys)))


@contextmanager
def torch_seeded(*keys: object) -> Iterator[None]:
    """Run a block (building a module, dropout) with torch's own generator seeded by the keys, then restore it."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(number(*keys) % 2**63)
        yield
