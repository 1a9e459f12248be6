"""The files of predictions: what is in them, for which data they are written, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from coterie.config import loading
from coterie.core.errors import CoterieError
from coterie.report.predictions import read
from coterie.running import simulated
from coterie.wiring import gather

SMALL = (
    "method.name=local", "peers=3", "rounds=2", "baseline=", "data.partition=iid", "model.hidden=[4]", "train.batch=6",
    "data.train=8", "data.validation=4", "data.test=6", "engine.threads=1", "model.zoo=mlp",
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Row i has the feature i; the label is yes from row 30 on."""
    lines = ["number,other,label", *(f"{i},{i % 7},{'yes' if i >= 30 else 'no'}" for i in range(60))]
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_has_scores_and_predictions_by_default(table: Path, tmp_path: Path) -> None:
    e = loading.load("panm-digits", [*SMALL, f"data.name={table}"])
    summary = simulated.run(e, tmp_path / "run")
    assert list(summary["scores"]) == ["balanced_accuracy", "auroc"]
    last = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()][-3:]
    for peer in range(3):
        saved = read(tmp_path / "run" / "predictions" / f"peer-{peer}.npz")
        assert saved.classes == ("no", "yes")
        assert saved.last_round == 2
        assert saved.test.last.dtype == np.float32
        np.testing.assert_allclose(saved.test.last.sum(1), 1, atol=1e-6)
        assert saved.test.labels.tolist() == [int(row >= 30) for row in saved.test.rows]
        right = saved.test.last.argmax(1) == saved.test.labels
        assert last[peer]["test"] == pytest.approx(right.mean())
        rows = {*saved.test.rows.tolist(), *saved.validation.rows.tolist()}
        assert len(rows) == len(saved.test.rows) + len(saved.validation.rows)


def test_rows_are_those_of_the_file(table: Path) -> None:
    circle = gather(loading.load("panm-digits", [*SMALL, f"data.name={table}", "data.scale=none"]))
    np.testing.assert_array_equal(circle.pooled.x[:, 0], circle.pooled.rows)


@pytest.mark.parametrize(("words", "saves"), [((), True), (("evaluate.predictions=never",), False)])
def test_when_they_are_saved(table: Path, words: tuple[str, ...], saves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    e = loading.load("panm-digits", [*SMALL, f"data.name={table}", *words])
    assert gather(e).evaluation.predictions is saves
    images = loading.load("panm-digits", [*SMALL, *words])
    assert not gather(images).evaluation.predictions
    assert gather(loading.load("panm-digits", [*SMALL, "evaluate.predictions=always"])).evaluation.predictions
    monkeypatch.setattr("coterie.wiring.MOST_PREDICTED", 59)  # 30 held out rows of two classes are 60 numbers
    assert not gather(e).evaluation.predictions


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "peer-0.npz"
    path.write_bytes(b"not an archive")
    with pytest.raises(CoterieError, match=r"peer-0\.npz: not a readable"):
        read(path)
    with path.open("wb") as file:
        np.savez(file, classes=np.array(["a"]))
    with pytest.raises(CoterieError, match=r"peer-0\.npz is not a file of predictions: it has no array"):
        read(path)
