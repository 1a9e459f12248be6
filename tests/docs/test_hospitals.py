"""The tables that stand in for the hospitals' real ones fit the schema, and differ as the tutorial says."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs_support import ROOT
from hospitals_support import ROWS, similar

from coterie.data.schema import read_schema
from coterie.data.untidy import read_by_schema


@pytest.mark.parametrize("name", ROWS)
def test_tables_like_the_real_ones_fit_the_schema(name: str, tmp_path: Path) -> None:
    similar(name, 0).to_csv(tmp_path / "t.csv", index=False)
    coded = read_by_schema(tmp_path / "t.csv", read_schema(ROOT / "examples/heart_disease/schema.toml"))
    assert not coded.reading.faults
    assert len(coded.x) == ROWS[name]
    assert coded.y is not None
    assert coded.y.mean() > 0.85 if name == "switzerland" else 0.25 < coded.y.mean() < 0.85
