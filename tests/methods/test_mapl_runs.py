"""What MAPL does in whole runs on digits: minutes, so `scripts/test -m slow` runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import experiment, running

pytestmark = pytest.mark.slow


def run(preset: str, out: Path, *words: str) -> dict[str, Any]:
    return running.run(experiment.load(preset, ["baseline=", "evaluate.every=10", *words]), out)


@pytest.mark.parametrize("scenario", [1, 3])
def test_the_graph_separates_the_clusters_and_saves_messages(scenario: int, tmp_path: Path) -> None:
    preset = f"mapl-scenario{scenario}-digits"
    learned = run(preset, tmp_path / "learned")
    mesh = run(preset, tmp_path / "mesh", "method.graph=false")
    assert learned["neighbours"]["mass"] >= 0.98
    assert learned["neighbours"]["precision"] == 1
    assert learned["neighbours"]["recall"] > 0.9
    fetched, without = (s["messages"]["by_artifact"]["prototypes"] for s in (learned, mesh))
    assert without == 20 * 19 * 30
    assert fetched <= 0.7 * without
    # On 500 test images both are good to two points.
    assert learned["accuracy"]["last"]["mean"] >= mesh["accuracy"]["last"]["mean"] - 0.02


def test_exploring_is_as_good_as_a_full_mesh_at_a_fifth_of_its_messages(tmp_path: Path) -> None:
    preset = "mapl-explore-digits"
    alone = run(preset, tmp_path / "alone", "method.name=local")
    explored = run(preset, tmp_path / "explored")
    mesh = run(preset, tmp_path / "mesh", "method.explore=0")
    base = alone["accuracy"]["last"]["mean"]
    gain = mesh["accuracy"]["last"]["mean"] - base
    assert gain > 0
    assert explored["accuracy"]["last"]["mean"] - base >= 0.9 * gain
    assert explored["messages"]["total"] <= 0.2 * mesh["messages"]["total"]


def test_one_leaves_and_one_joins_at_mid_run(tmp_path: Path) -> None:
    """A round takes 0.4 simulated seconds: peer 7 comes in round 16 of 30, peer 2 has left by then."""
    gaps = []
    for seed in range(3):
        out = tmp_path / str(seed)
        words = ("method.name=mapl+", "peers=10", "data.test=20", f"seed={seed}")
        summary = run("mapl-scenario1-digits", out, *words, "clock.offline=[[7, 0, 6.1], [2, 6.1, inf]]")
        rows = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
        told = [row for row in rows if "weights" in (row.get("notes") or {})]
        assert all(sum(row["notes"]["weights"].values()) == pytest.approx(1) for row in told)
        assert min(row["round"] for row in told if row["peer"] == 7) == 16
        assert max(row["round"] for row in told if row["peer"] == 2) == 15
        assert summary["neighbours"]["mass"] >= 0.98
        accuracy = summary["accuracy"]["last"]["per_peer"]
        gaps.append(accuracy[7] - np.mean([accuracy[j] for j in (5, 6, 8, 9)]))
    assert np.mean(gaps) >= -0.02
