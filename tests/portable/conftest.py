from __future__ import annotations

from collections.abc import Iterator

import pytest

from coterie.portable.sandbox import Sandbox


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """Shared by the tests that do not break it: a child takes half a second to start."""
    shared = Sandbox()
    yield shared
    shared.close()
