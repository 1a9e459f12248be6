"""What tests of the contract have in common: neither changes a number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coterie.training.recording import Repeated


@pytest.fixture(autouse=True, scope="package")
def no_recording() -> Iterator[None]:
    """Runs this short are over before a recorded gradient pays for its recording."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Repeated, "USES_BEFORE_RECORDING", 1_000_000)
        yield


@pytest.fixture(autouse=True, scope="package")
def ray_does_not_step_back() -> Iterator[None]:
    """Ray's processes let others go first, so beside other tests they would take minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")
        yield
