"""Randomness by key."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.randomness import distinct, generator, number, permutations, reused_generator, torch_seeded, uniforms

keys = st.lists(st.integers() | st.sampled_from(["train", "sample", "speed", "a", "aa"]), min_size=1, max_size=4)


def test_the_number_is_pinned() -> None:
    """Results of old runs stay repeatable: a change here must be meant."""
    digest = hashlib.blake2b(b"0/3/train", digest_size=8).digest()
    assert number(0, 3, "train") == sum(byte << 8 * i for i, byte in enumerate(digest))


@given(keys)
def test_the_same_key_gives_the_same_stream(key: list[object]) -> None:
    one, other = generator(*key), generator(*key)
    assert one.integers(2**62, size=3).tolist() == other.integers(2**62, size=3).tolist()
    assert 0 <= number(*key) < 2**64


@given(keys, keys)
def test_different_keys_give_different_streams(a: list[object], b: list[object]) -> None:
    alike = list(map(str, a)) == list(map(str, b))
    assert (number(*a) == number(*b)) == alike
    assert (generator(*a).integers(2**62) == generator(*b).integers(2**62)) == alike


def test_the_parts_of_a_key_are_kept_apart() -> None:
    assert len({number(1, 23), number(12, 3), number(123), number("1", "2", "3")}) == 4


def test_streams_do_not_share_state() -> None:
    alone = generator("a").random(4).tolist()
    a, b = generator("a"), generator("b")
    mixed = []
    for _ in range(4):
        mixed.append(a.random())
        b.random()
    assert mixed == alone


@given(keys, st.integers(1, 300) | st.sampled_from([9_999, 10_000, 10_001, 60_000]), st.data())
def test_different_numbers_are_those_that_numpy_draws(key: list[object], population: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, min(population, 15)) | st.integers(0, min(population, 250)))
    expected = generator(*key).choice(population, count, replace=False).tolist()
    assert distinct(count, population, *key) == expected
    assert sorted(distinct(count, population, *key, shuffled=False)) == sorted(expected)


def test_a_draw_that_would_favour_some_numbers_is_repeated() -> None:
    """Below 3 * 2**30, a quarter of all 32-bit words is refused: NumPy's rule, by many draws."""
    population = 3 * 2**30
    for key in range(200):
        assert distinct(4, population, key) == generator(key).choice(population, 4, replace=False).tolist()


@given(keys, keys)
def test_a_passing_stream_is_the_lasting_one_whatever_was_drawn_before(a: list[object], b: list[object]) -> None:
    reused_generator(*a).integers(7, size=3, dtype=np.int32)  # leaves half of a number behind
    drawn = reused_generator(*b).choice(50, 5, replace=False).tolist()
    assert drawn == generator(*b).choice(50, 5, replace=False).tolist()


def test_torch_seeded_repeats_and_restores() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with torch_seeded(0, "x"):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with torch_seeded(0, "x"):
        assert torch.equal(torch.rand(3), first)
    with torch_seeded(0, "y"):
        assert not torch.equal(torch.rand(3), first)


def test_torch_seeded_restores_after_an_error() -> None:
    before = torch.random.get_rng_state()

    def draws_and_fails() -> None:
        with torch_seeded(0):
            torch.rand(1)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        draws_and_fails()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_permutations_are_by_splitmix64() -> None:
    """The generator written out with Python's whole numbers; its first value for key 0 is a published one."""

    def splitmix64(key: int, at: int) -> int:
        z = (key + at * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    assert splitmix64(0, 1) == 0xE220A8397B1DCDAF
    keys = [0, 2**64 - 1, 12345]
    for key, (first, second) in zip(keys, permutations(keys, 2, 5).tolist(), strict=True):
        values = [splitmix64(key, i) for i in range(1, 11)]
        assert first == sorted(range(5), key=lambda i: values[i])
        assert second == sorted(range(5), key=lambda i: values[5 + i])


def test_every_order_is_as_likely() -> None:
    """All 6 orders of 3 over 6,000 keys: each within five standard deviations (29 each) of 1,000."""
    orders = permutations([number("order", i) for i in range(6000)], 1, 3)
    counts = Counter(tuple(order) for (order,) in orders.tolist())
    assert len(counts) == 6
    assert all(abs(count - 1000) < 5 * 29 for count in counts.values())


def test_uniforms_are_each_keys_own_and_spread_evenly() -> None:
    """Mean 1/2 and variance 1/12 over 100,000 numbers: within five standard errors."""
    keys = [number("u", i) for i in range(50)]
    u = uniforms(keys, 2000)
    assert u.dtype == np.float32
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(float(u.mean()) - 0.5) < 5 * math.sqrt(1 / 12 / u.size)
    assert abs(float(u.var()) - 1 / 12) < 5 * math.sqrt(1 / 180 / u.size)
    assert np.array_equal(uniforms(keys[3:4], 2000)[0], u[3])
    assert np.array_equal(uniforms(keys, 100), u[:, :100])
