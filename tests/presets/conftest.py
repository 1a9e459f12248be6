"""The data of all presets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tiny import stand_ins


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stand_ins(tmp_path_factory.mktemp("data")):
        yield
