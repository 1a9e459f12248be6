"""Peers whose tables have free text: they run, predict and export, and no word of a cell reaches another peer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from circle_support import Circle

from coterie.cli.main import main
from coterie.config import loading
from coterie.data.schema import read_schema
from coterie.data.texts import hashed
from coterie.network.agreement import agreement
from coterie.running import real_peer, simulated
from coterie.running.real_peer import take_part

SCHEMA = """
[label]
column = "outcome"
classes = ["benign", "malignant"]
[columns.note]
type = "text"
features = 16
"""
WORDS = {"benign": "harmlosigkeit", "malignant": "wucherung"}  # each decides its class, and stands nowhere else


def write_table(path: Path, seed: int, rows: int = 40) -> None:
    rng = np.random.default_rng(seed)
    classes = rng.choice(["benign", "malignant"], rows).tolist()
    classes[:2] = ["benign", "malignant"]
    cells = [f"Befund {rng.integers(100)} zeigt {WORDS[c]},{c}" for c in classes]
    path.write_text("note,outcome\n" + "\n".join(cells) + "\n,benign\n")


@pytest.fixture
def two(tmp_path: Path) -> Circle:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for seed, name in enumerate(("north", "south")):
        write_table(tmp_path / f"{name}.csv", seed)
    return Circle(tmp_path, ("north", "south"))


def test_no_word_of_a_cell_is_in_anything_that_leaves_a_peer(
    two: Circle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the terms that peers exchange, nor in any file that a run writes: models, audit log, events, logs."""
    files = {name: two.file(name, data=f"{name}.csv", more='schema = "schema.toml"') for name in two.names}
    said: list[str] = []
    exchanged: list[dict[str, str]] = []

    def recorded(*given: Any) -> dict[str, str]:
        exchanged.append(agreement(*given))
        return exchanged[-1]

    monkeypatch.setattr(real_peer, "agreement", recorded)

    async def work() -> list[Any]:
        return await asyncio.gather(*(take_part(file, say=said.append) for file in files.values()))

    for summary in asyncio.run(asyncio.wait_for(work(), 60)):
        assert summary["messages"] == 2
    assert len(exchanged) == 2
    terms = json.dumps(exchanged)
    assert "schema, column 'note'" in terms
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".csv"}
    assert {"audit.jsonl", "events.jsonl"} <= {path.name for path in written}
    assert any(path.parent.name == "models" for path in written)
    for word in (*WORDS.values(), "Befund", "zeigt"):
        assert word not in terms
        assert not any(word in line for line in said)
        assert [path for path, content in written.items() if word.encode() in content] == []


def test_a_run_on_texts_predicts_and_exports(two: Circle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert two.names == ("north", "south")
    words = [
        f"data.name={tmp_path / 'north.csv'}", f"data.schema={tmp_path / 'schema.toml'}", "data.partition=iid",
        "data.train=0.6", "data.validation=0.2", "data.test=0.2", "peers=2", "method.name=gossip", "method.k=1",
        "rounds=2", "baseline=", "model.hidden=[4]",
    ]  # fmt: skip
    simulated.run(loading.load("panm-digits", words), tmp_path / "run")
    texts = ["Befund 7 zeigt wucherung", "", "harmlosigkeit"]
    (tmp_path / "new.csv").write_text("note\n" + "\n".join(f'"{text}"' for text in texts) + "\n")
    assert main(["predict", str(tmp_path / "run"), "--peer", "1", "--input", str(tmp_path / "new.csv")]) == 0
    by_coterie = [[float(p) for p in line.split(",")[2:]] for line in capsys.readouterr().out.splitlines()[1:]]
    out = tmp_path / "model"
    assert main(["export", str(tmp_path / "run"), "--peer", "1", "--out", str(out)]) == 0
    assert (
        "no file takes the raw columns: ONNX cannot hash texts (note); model.onnx takes the features"
        in capsys.readouterr().out
    )
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "model.onnx"]
    assert len(read_schema(tmp_path / "schema.toml").features) == 16
    session = onnxruntime.InferenceSession(out / "model.onnx")
    features = hashed(texts, 16).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"input": features})[0], by_coterie, atol=1e-5)
    assert main(["predict", str(out), "--input", str(tmp_path / "new.csv")]) == 0
    again = [[float(p) for p in line.split(",")[2:]] for line in capsys.readouterr().out.splitlines()[1:]]
    np.testing.assert_allclose(again, by_coterie, atol=1e-5)
    assert (
        main(["export", str(tmp_path / "run"), "--peer", "1", "--format", "safetensors", "--out", str(tmp_path / "st")])
        == 0
    )
    assert "raw columns" not in capsys.readouterr().out
