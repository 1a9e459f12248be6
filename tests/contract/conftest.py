"""Runs this short are over before a recorded gradient pays for its recording (which changes no number)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coterie.training.batched import Gradients


@pytest.fixture(autouse=True, scope="package")
def no_recording() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gradients, "USES_BEFORE_RECORDING", 1_000_000)
        yield
