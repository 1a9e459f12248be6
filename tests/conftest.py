"""For all tests: one torch thread (they share the machine); property tests that repeat, without a deadline."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

import coterie  # noqa: F401  (sets MKL's mode, before anything is computed)

settings.register_profile(
    "coterie", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("coterie")


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
