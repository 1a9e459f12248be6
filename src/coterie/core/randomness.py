"""Randomness by key: every draw depends on (seed, peer, round, purpose), never on the order of execution."""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_DRAWING = threading.RLock()


def number(*keys: object) -> int:
    """A 64-bit number that depends only on the keys."""
    text = "/".join(map(str, keys))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def generator(*keys: object) -> np.random.Generator:
    """A separate random stream for these keys, the same everywhere and at any time."""
    return np.random.Generator(np.random.Philox(key=number(*keys)))


class _Reused(threading.local):
    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        self.fresh = self.bits.state  # before the first draw


_REUSED = _Reused()


def reused_generator(*keys: object) -> np.random.Generator:
    """The stream of `generator`, for immediate draws only: this thread's next call resets it.

    Creating a generator costs more than ten times as much as resetting one.
    """
    _REUSED.fresh["state"]["key"][0] = number(*keys)
    _REUSED.bits.state = _REUSED.fresh
    return _REUSED.generator


FEW = 12  # up to so many numbers, drawing in Python is faster than calling NumPy


def distinct(count: int, population: int, *keys: object, shuffled: bool = True) -> list[int]:
    """`count` distinct numbers below `population`, equal to `generator(*keys).choice` without replacement.

    A few are drawn in Python, from the same stream by the same algorithm (Floyd's, then a shuffle), because NumPy's
    call overhead exceeds the cost of drawing them. Not shuffled: the same numbers, in an order that depends on them.
    """
    reused_generator(*keys)
    if count > FEW:
        return [*map(int, _REUSED.generator.choice(population, count, replace=False))]
    below = _Bounded(_REUSED.bits, count).below
    chosen: dict[int, None] = {}
    for last in range(population - count, population):
        number = below(last + 1)
        chosen[last if number in chosen else number] = None
    drawn = list(chosen)
    for place in range(count - 1, 0, -1) if shuffled else ():
        other = below(place + 1)
        drawn[place], drawn[other] = drawn[other], drawn[place]
    return drawn


class _Bounded:
    """Unbiased numbers below a bound (Lemire 2019), from a stream of 32-bit words."""

    def __init__(self, bits: np.random.Philox, at_a_time: int) -> None:
        self._bits, self._at_a_time = bits, max(1, at_a_time)
        self._words: list[int] = []  # the next one last

    def below(self, bound: int) -> int:
        if bound == 1:
            return 0  # without a draw, as in NumPy
        while True:
            if not self._words:
                raw = self._bits.random_raw(self._at_a_time).tolist()
                self._words = [half for word in reversed(raw) for half in (word >> 32, word & 0xFFFFFFFF)]
            product = self._words.pop() * bound
            left = product & 0xFFFFFFFF
            if left >= bound or left >= (1 << 32) % bound:
                return product >> 32


def permutations(keys: Sequence[int], count: int, size: int) -> np.ndarray:
    """For each key, `count` permutations of range(size): (keys, count, size), independent of the other keys.

    Each is the sort order of random numbers.
    """
    order: np.ndarray = _numbers(keys, count * size).reshape(len(keys), count, size).argsort(axis=-1)
    return order


def uniforms(keys: Sequence[int], count: int) -> np.ndarray:
    """For each key, `count` numbers in [0, 1): (keys, count), independent of the other keys."""
    kept = _numbers(keys, count) >> np.uint64(40)  # as many bits as a float32 has
    return kept.astype(np.float32) * np.float32(2**-24)


def _numbers(keys: Sequence[int], count: int) -> np.ndarray:
    """64 random bits, (keys, count): splitmix64, a counter through a mixing function, as one array operation for all
    keys."""
    with np.errstate(over="ignore"):
        start = np.array(keys, dtype=np.uint64)[:, None]
        z = start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    numbers: np.ndarray = z
    return numbers


@contextmanager
def torch_seeded(*keys: object) -> Iterator[None]:
    """Run a block (building a module, dropout) with torch's global generator seeded by the keys, then restore it.

    Torch has one generator for all threads, so other threads that want to draw wait here.
    """
    import torch

    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(number(*keys) % 2**63)
        yield


@contextmanager
def watching_draws() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether the block has drawn from torch's global generator. Other threads that want
    to draw by key wait meanwhile."""
    import torch

    with _DRAWING:
        before = torch.random.get_rng_state()
        yield lambda: not torch.equal(before, torch.random.get_rng_state())
