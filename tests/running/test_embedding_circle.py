"""Peers with embeddings of categories: in the simulation, in processes and on a network; predictions and ONNX."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from circle_support import Circle

from coterie.cli.main import main
from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.core.errors import ModelError
from coterie.running import simulated
from coterie.running.real_peer import read_file, take_part
from coterie.running.saved_models import Personal, read

SCHEMA = """
[label]
column = "label"
classes = ["no", "yes"]
[columns.dose]
type = "number"
[columns.ward]
type = "category"
values = ["a", "b", "c", "d"]
[columns.sex]
type = "category"
values = ["f", "m"]
fill = "most frequent"
"""
FEATURES = 1 + (4 + 2) + (2 + 1)  # with unknown and missing wards, and unknown sexes


def write_table(path: Path, seed: int, rows: int = 60) -> None:
    """The ward decides the label, except in one row."""
    rng = np.random.default_rng(seed)
    wards = rng.choice(["a", "b", "c", "d", ""], rows)
    lines = [f"{rng.normal():.3f},{w},{rng.choice(['f', 'm', ''])},{'yes' if w in 'ab' else 'no'}" for w in wards]
    path.write_text("dose,ward,sex,label\n" + "\n".join([*lines, "0.0,a,f,no"]) + "\n")


@pytest.fixture
def two(tmp_path: Path) -> Circle:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for seed, name in enumerate(("north", "south")):
        write_table(tmp_path / f"{name}.csv", seed)
    return Circle(tmp_path, ("north", "south"))


def experiment(folder: Path, *words: str) -> Experiment:
    given = [
        f"data.name={folder / 'north.csv'}", f"data.schema={folder / 'schema.toml'}", "data.partition=iid",
        "data.train=0.6", "data.validation=0.2", "data.test=0.2", "peers=3", "method.name=gossip", "method.k=1",
        "rounds=2", "baseline=", "model.zoo=mlp-embedding", "model.hidden=[4]",
    ]  # fmt: skip
    return loading.load("panm-digits", [*given, *words])


def saved(folder: Path, peer: int) -> Personal:
    return read(folder / "models" / f"peer-{peer}.safetensors")


def weights(folder: Path, peer: int) -> dict[str, np.ndarray]:
    content = saved(folder, peer).contents[0]
    assert isinstance(content, dict)
    return content


def test_processes_compute_the_same_and_the_plain_loop_nearly(two: Circle, tmp_path: Path) -> None:
    """Stacked models (the default for dense layers) and one model at a time agree up to rounding."""
    assert two.names == ("north", "south")
    runs = {"one": (), "several": ("engine.name=processes", "engine.workers=2"), "plain": ("engine.batching=never",)}
    for name, words in runs.items():
        simulated.run(experiment(tmp_path, *words), tmp_path / name)
    for peer in range(3):
        one, several, plain = (weights(tmp_path / name, peer) for name in runs)
        assert one["backbone.0.tables.0.weight"].shape == (3, 6)
        assert one["backbone.0.tables.1.weight"].shape == (2, 3)
        for key, tensor in one.items():
            np.testing.assert_array_equal(several[key], tensor)
            np.testing.assert_allclose(plain[key], tensor, atol=1e-5)


def test_real_peers_exchange_embeddings(two: Circle) -> None:
    for name in two.names:
        two.file(name, data=f"{name}.csv", more='schema = "schema.toml"')
    words = ["method.k=1", "model.zoo=mlp-embedding"]
    files = {name: read_file(two.folder / f"{name}.toml", words) for name in two.names}

    async def work() -> list[Any]:
        return await asyncio.gather(*(take_part(file, say=lambda _: None) for file in files.values()))

    for summary in asyncio.run(asyncio.wait_for(work(), 60)):
        assert summary["messages"] == 2


def test_a_model_without_embeddings_may_be_at_other_peers(two: Circle, tmp_path: Path) -> None:
    """FedPAE sends networks of the zoo as weights: each peer opens those of the others."""
    assert two.names == ("north", "south")
    e = experiment(tmp_path, "model.zoo=mlp-embedding,mlp", "method.name=fedpae", "method.k=2", "rounds=1")
    summary = simulated.run(e, tmp_path / "run")
    assert summary["messages"]["total"] == 3 * 2 * 2  # each peer fetches both models of two others
    parts = [part for peer in range(3) for part in saved(tmp_path / "run", peer).manifest.parts]
    assert {part.architecture for part in parts} == {"mlp-embedding", "mlp"}


def test_raw_rows_go_into_predict_and_into_the_exported_model(
    two: Circle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert two.names == ("north", "south")
    simulated.run(experiment(tmp_path), tmp_path / "run")
    wards, sexes, doses = ["a", "", "x", "d"], ["f", "m", "", "m"], [0.5, -1.0, 2.0, 0.0]
    rows = [f"{ward},{sex},{dose}" for ward, sex, dose in zip(wards, sexes, doses, strict=True)]
    (tmp_path / "new.csv").write_text("ward,sex,dose\n" + "\n".join(rows) + "\n")
    assert main(["predict", str(tmp_path / "run"), "--peer", "1", "--input", str(tmp_path / "new.csv")]) == 0
    by_coterie = [[float(p) for p in line.split(",")[2:]] for line in capsys.readouterr().out.splitlines()[1:]]
    assert main(["export", str(tmp_path / "run"), "--peer", "1", "--out", str(tmp_path / "model")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "model" / "model-columns.onnx")
    inputs = {
        "ward": np.array(wards, dtype=object)[:, None],
        "sex": np.array(sexes, dtype=object)[:, None],
        "dose": np.array(doses, dtype=np.float32)[:, None],
    }
    np.testing.assert_allclose(session.run(None, inputs)[0], by_coterie, atol=1e-5)
    # The indicators of a row go in as they are, and only the dose is scaled: a missing ward is the last of its six.
    manifest = saved(tmp_path / "run", 1).manifest
    assert (len(manifest.features), manifest.blocks) == (FEATURES, ((1, 7), (7, 10)))
    assert manifest.scaling.mean[1:] == (0.0,) * 9
    assert manifest.scaling.deviation[1:] == (1.0,) * 9
    assert main(["predict", str(tmp_path / "model"), "--input", str(tmp_path / "new.csv")]) == 0
    again = [[float(p) for p in line.split(",")[2:]] for line in capsys.readouterr().out.splitlines()[-4:]]
    np.testing.assert_allclose(again, by_coterie, atol=1e-5)


def test_data_without_a_schema_are_refused(tmp_path: Path) -> None:
    e = loading.load("panm-digits", ["model.zoo=mlp-embedding", "method.name=local", "rounds=1", "baseline="])
    with pytest.raises(ModelError, match=r"categories that a schema declares \(data\.schema\), .* use 'linear', 'mlp'"):
        simulated.run(e, tmp_path / "run")
