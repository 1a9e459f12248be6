"""Every preset, for one tiny round: what ships is what runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import run, tiny

from coterie.config.loading import load, presets


@pytest.mark.parametrize("name", sorted(presets()))
def test_every_preset_runs(name: str, tmp_path: Path) -> None:
    whole = load(name)
    e = tiny(whole)
    assert (e.model, e.method_name, e.data.name) == (whole.model, whole.method_name, whole.data.name)
    run(e, tmp_path / "run")
