"""data.scale = "pooled" on every engine: one scaling at all peers, and the same models, messages and bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch
from contract_support import PAE, PATIENT, in_processes, network, same, simulate

from coterie.cli.main import main
from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.core.artifact import Artifact
from coterie.core.errors import Interrupted
from coterie.core.peer import held_by
from coterie.data.scaling import Scaling
from coterie.running import simulated
from coterie.running.saved_models import find, read
from coterie.simulation.director import Simulation
from coterie.wiring import gather

TABLE = (
    "data.name=wine", "data.partition=dirichlet", "data.train=0.6", "data.validation=0.2", "data.test=0.2", "peers=3",
    "rounds=2", "baseline=", "model.zoo=mlp", "model.hidden=[4]", "train.batch=6", "engine.threads=1",
    "engine.batching=never", "engine.checkpoint=0", "data.scale=pooled",
)  # fmt: skip


def on_a_table(method: str, *words: str) -> Experiment:
    return loading.load("panm-digits", [f"method.name={method}", *TABLE, *PATIENT, *words])


@pytest.mark.parametrize(
    ("method", "words"),
    [("gossip", ("method.k=1",)), ("fedavg", ()), ("fedpae", PAE)],
    ids=["gossip", "fedavg", "fedpae"],
)
def test_real_peers_equal_the_simulation(method: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Without a server, with one (which takes no part), and asynchronous."""
    e = on_a_table(method, *words)
    real, expected = network(e, tmp_path / "real"), simulate(e, tmp_path / "simulated")
    for mine, theirs in zip(real.vectors, expected.vectors, strict=True):
        assert torch.equal(mine, theirs)
    assert real.summary["messages"] == expected.summary["messages"]
    assert real.summary["messages"]["by_artifact"]["feature sums"] == 3 * 2
    assert real.summary["bytes"] == expected.summary["bytes"]
    scalings = [read(find(tmp_path / run, str(i))).manifest.scaling for run in ("real", "simulated") for i in range(3)]
    assert scalings == [scaling_of(e)] * 6


SCHEMA = """
[label]
column = "ill"
classes = ["no", "yes"]
[columns.age]
type = "number"
[columns.chol]
type = "number"
optional = true
[columns.sex]
type = "category"
values = ["f", "m"]
"""


def write_sites(folder: Path) -> None:
    """Three sites. South lacks a column; the others have it in part."""
    (folder / "schema.toml").write_text(SCHEMA)
    for number, name in enumerate(("north", "south", "west")):
        rng = np.random.default_rng(number)
        age, chol = rng.normal(50 + 10 * number, 8, 40), rng.normal(200 + 30 * number, 20, 40)
        chol[::3] = np.nan
        ill = np.where(age > 50 + 10 * number, "yes", "no")
        table = pandas.DataFrame({"age": age, "chol": chol, "sex": rng.choice(["f", "m", ""], 40), "ill": ill})
        table.drop(columns=["chol"] if name == "south" else []).to_csv(folder / f"{name}.csv", index=False)


def test_sites_with_untidy_tables_equal_their_simulation(tmp_path: Path) -> None:
    write_sites(tmp_path)
    words = [word for word in TABLE if not word.startswith(("data.name", "data.partition", "peers"))]
    files = (f"data.name={tmp_path}/*.csv", "data.partition=files", f"data.schema={tmp_path / 'schema.toml'}")
    e = loading.load("panm-digits", ["method.name=gossip", "method.k=1", *words, *files, *PATIENT])
    real, expected = network(e, tmp_path / "real"), simulate(e, tmp_path / "simulated")
    for mine, theirs in zip(real.vectors, expected.vectors, strict=True):
        assert torch.equal(mine, theirs)
    for number in range(3):
        mine, theirs = (read(find(tmp_path / run, str(number))).manifest for run in ("real", "simulated"))
        assert (mine.scaling, mine.preparation) == (theirs.scaling, theirs.preparation)


def scaling_of(e: Experiment) -> Scaling:
    found = [data.scaling for peer in gather(e).participants if (data := held_by(peer))]
    assert found[0] is not None
    assert found == [found[0]] * 3
    return found[0]


@pytest.mark.parametrize("encoding", ["fp16", "topk"])
def test_lossy_compression_does_not_touch_the_sums(encoding: str, tmp_path: Path) -> None:
    e = on_a_table("gossip", "method.k=1", f"network.compress={encoding}")
    network(e, tmp_path / "real")
    assert [read(find(tmp_path / "real", str(i))).manifest.scaling for i in range(3)] == [scaling_of(e)] * 3


def test_processes_equal_the_simulation() -> None:
    e = on_a_table("gossip", "method.k=1")
    same(in_processes(e), simulate(e))


def test_a_resumed_simulation_counts_the_sums_once(tmp_path: Path) -> None:
    e = on_a_table("gossip", "method.k=1", "engine.checkpoint=1")
    whole = simulate(e, tmp_path / "whole")
    with pytest.raises(Interrupted):
        simulated.run(e, tmp_path / "parts", on_start=Simulation.stop)
    same(simulate(e, tmp_path / "parts", resume=True), whole)


def test_a_plan_counts_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "panm-digits", "method.name=gossip", "method.k=1", *TABLE]) == 0
    assert "feature sums" in capsys.readouterr().out


def test_the_bytes_are_those_of_the_artifacts() -> None:
    """Three peers, each with the sums of two others: 13 features, three float64 numbers for each."""
    artifact = Artifact(
        "feature sums", 0, 0, {k: torch.zeros(13, dtype=torch.float64) for k in ("count", "mean", "squares")}
    )
    counted = simulate(on_a_table("gossip", "method.k=1")).summary["bytes"]["by_artifact"]["feature sums"]
    assert counted == 3 * 2 * len(artifact.to_bytes())
