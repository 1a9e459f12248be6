from __future__ import annotations

from collections.abc import Iterator

import pytest

from coterie.portable.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """For the tests that do it no harm: a child takes half a second to start."""
    shared = Sandbox()
    yield shared
    shared.close()
