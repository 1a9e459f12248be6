"""Predicting numbers: every method that declares it, on every engine; resuming, planning, predict and export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pandas
import pytest
import torch
from contract_support import PAE, PATIENT, in_processes, network, on_ray, same, simulate, slow_unless
from sklearn.datasets import load_diabetes

from coterie.cli.main import main
from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.core.errors import ConfigError, Interrupted
from coterie.core.events import PeerRound, of_kind, read
from coterie.core.task import REGRESSION
from coterie.methods import METHODS
from coterie.report.predictions import read as read_predictions
from coterie.report.summary import read_summary
from coterie.running import simulated
from coterie.simulation.director import Simulation
from coterie.terminal.display import results

TABLE = (
    "data.name=diabetes", "data.partition=iid", "data.train=0.6", "data.validation=0.2", "data.test=0.2", "peers=3",
    "rounds=2", "baseline=", "model.zoo=mlp", "model.hidden=[4]", "train.batch=16", "train.lr=0.02",
    "engine.threads=1", "engine.checkpoint=0",
)  # fmt: skip
OWN = {
    "gossip": ("method.k=2",), "fixed": ("method.k=2",), "oracle": ("method.k=1",),
    "pens": ("method.l=2", "method.k=1", "method.t1=1"), "ifca": ("method.c=2",), "dfedavgm": ("method.k=2",),
    "panm": ("method.l=2", "method.k=1", "method.t1=1", "method.tau=2"), "fedrep": ("method.head_epochs=1",),
    "pfedsim": ("method.t_warm=1",), "flt": ("method.embeddings=5",), "fedpae": PAE,
    "local-ensemble": ("method.models=1",),
}  # fmt: skip
CAPABLE = [name for name, method in METHODS.items() if REGRESSION in method.tasks and not method.needs_truth]
REAL = ("gossip", "fedavg", "fedpae", "panm")  # of each family


def experiment(method: str, *words: str) -> Experiment:
    return loading.load("panm-digits", [f"method.name={method}", *TABLE, *OWN.get(method, ()), *words])


def test_which_methods_predict_numbers() -> None:
    named = {"local", "fedavg", "gossip", "pens", "panm", "dfedavgm", "ditto", "fedper", "fedrep", "fedpae"}
    assert named <= set(CAPABLE)
    assert not {"mapl", "mapl+", "compfl", "fedrod", "fedproto", "feddistill", "fedgh", "fml", "fedkd"} & set(CAPABLE)


@pytest.mark.parametrize("method", CAPABLE)
def test_every_capable_method_learns(method: str) -> None:
    summary = simulate(experiment(method)).summary
    assert 0 < summary["scores"]["rmse"]["last"]["mean"] < 150  # labels deviate by 77 from their mean
    assert "accuracy" not in summary
    assert summary["main"] == "rmse"


@pytest.mark.parametrize("method", slow_unless(REAL.__contains__, CAPABLE))
def test_processes_equal_the_simulation(method: str) -> None:
    same(simulate(experiment(method)), in_processes(experiment(method)))


@pytest.mark.parametrize("method", REAL)
def test_real_peers_equal_the_simulation(method: str) -> None:
    e = experiment(method, "engine.batching=never", *PATIENT)
    real, expected = network(e), simulate(e)
    for mine, theirs in zip(real.vectors, expected.vectors, strict=True):
        assert torch.equal(mine, theirs)
    assert real.summary["scores"] == expected.summary["scores"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gossip", "fedpae"])
def test_on_ray(method: str) -> None:
    e = experiment(method)
    same(on_ray(e), simulate(e))


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(CAPABLE) - {"oracle"}))
def test_others_refuse_before_training_by_name(method: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"method.name = {method.replace('+', '.')} is not for regression.*use local"):
        simulated.run(experiment(method), tmp_path / "run")


def test_figures_equal_an_independent_computation(tmp_path: Path) -> None:
    """From the saved predictions, and the labels of scikit-learn's own table."""
    simulated.run(experiment("gossip", "rounds=6"), tmp_path / "run")
    last = {r.peer: r for r in of_kind(list(read(tmp_path / "run" / "events.jsonl")), PeerRound)}
    labels = load_diabetes().target
    for peer in range(3):
        saved = read_predictions(tmp_path / "run" / "predictions" / f"peer-{peer}.npz")
        np.testing.assert_allclose(saved.test.labels, labels[saved.test.rows], rtol=1e-6)
        errors = saved.test.last - labels[saved.test.rows]
        expected = {
            "rmse": np.sqrt((errors**2).mean()), "mae": np.abs(errors).mean(),
            "r2": 1 - (errors**2).sum() / ((labels[saved.test.rows] - labels[saved.test.rows].mean()) ** 2).sum(),
        }  # fmt: skip
        for metric, value in expected.items():
            assert last[peer].value(metric) == pytest.approx(value, rel=1e-5)
        assert last[peer].value("r2") > 0  # better than the mean of the test labels


def test_a_natural_split_beats_the_mean_predictor(tmp_path: Path) -> None:
    """Women and men as two sites: the model's error is below that of each site's mean training label."""
    table = load_diabetes(as_frame=True, scaled=False).frame
    table["target"] += 0.5  # with fractions, so that the task is clear
    table.to_csv(tmp_path / "diabetes.csv", index=False)
    words = [
        f"data.name={tmp_path / 'diabetes.csv'}", "data.label=target", "data.partition=column", "data.column=sex",
        "peers=2", "rounds=10", "method.k=1", "model.hidden=[16]",
    ]  # fmt: skip
    summary = simulated.run(experiment("gossip", *words), tmp_path / "run")
    for peer, rmse in enumerate(summary["scores"]["rmse"]["last"]["per_peer"]):
        saved = read_predictions(tmp_path / "run" / "predictions" / f"peer-{peer}.npz")
        others = table["target"].to_numpy()[np.setdiff1d(np.flatnonzero(table["sex"] == peer + 1), saved.test.rows)]
        assert rmse < np.sqrt(np.mean((saved.test.labels - others.mean()) ** 2))


def test_a_run_that_is_stopped_ends_the_same(tmp_path: Path) -> None:
    e = experiment("fedpae", "rounds=4")
    with pytest.raises(Interrupted, match="stopped after round"):
        simulated.run(e, tmp_path / "run", on_start=Simulation.stop)
    same(simulate(e), simulate(e, tmp_path / "run", resume=True))


def test_plan_predict_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A schema with missing cells: raw rows go into predict and into the ONNX file, numbers in their unit come out."""
    (tmp_path / "schema.toml").write_text(
        '[label]\ncolumn = "dose"\ntype = "number"\nunit = "mg"\n[columns.age]\ntype = "number"\n'
        '[columns.sex]\ntype = "category"\nvalues = ["f", "m"]\n'
    )
    rng = np.random.default_rng(0)
    age, sex = rng.uniform(20, 80, 90).round(1), rng.choice(["f", "m", ""], 90)
    dose = (1000 + 5 * age + 20 * (sex == "m")).round(2)
    pandas.DataFrame({"age": age, "sex": sex, "dose": dose}).to_csv(tmp_path / "t.csv", index=False)
    words = [f"data.name={tmp_path / 't.csv'}", f"data.schema={tmp_path / 'schema.toml'}", "rounds=30"]
    e = experiment("gossip", *words, "model.zoo=linear", "train.lr=0.1")
    run = str(tmp_path / "run")
    simulated.run(e, Path(run))
    assert "seed 0; regression (data.task)" in results(read_summary(Path(run)), Path(run))
    (tmp_path / "e.toml").write_text(e.toml())
    assert main(["plan", str(tmp_path / "e.toml")]) == 0
    rows = pandas.DataFrame({"sex": ["m", ""], "age": [50.0, 30.0]})
    rows.to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert main(["predict", run, "--peer", "1", "--input", str(tmp_path / "new.csv")]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "row,prediction (mg)"
    predicted = [float(line.split(",")[1]) for line in lines]
    assert predicted == pytest.approx([1270, 1150], abs=15)  # 1000 + 5 * 50 + 20 and 1000 + 5 * 30
    for form in ("onnx", "safetensors"):
        assert main(["export", run, "--peer", "1", "--format", form, "--out", str(tmp_path / form)]) == 0
        capsys.readouterr()
        assert main(["predict", str(tmp_path / form), "--input", str(tmp_path / "new.csv")]) == 0
        again = [float(line.split(",")[1]) for line in capsys.readouterr().out.splitlines()[1:]]
        assert again == pytest.approx(predicted, rel=1e-5)
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model-columns.onnx")
    inputs = {"age": np.array([[50.0], [30.0]], np.float32), "sex": np.array([["m"], [""]], dtype=object)}
    [given] = session.get_outputs()
    assert given.name.endswith("prediction")
    assert session.run(None, inputs)[0][:, 0] == pytest.approx(predicted, rel=1e-5)


def test_ensembles_of_any_models_are_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = experiment("fedpae", "model.zoo=mlp,ridge,tree", "method.models=0", "method.k=3")
    simulated.run(e, tmp_path / "run")
    rows = pandas.DataFrame(load_diabetes(scaled=False).data[:5], columns=["age", "sex", "bmi", "bp", *"123456"])
    rows.columns = ["age", "sex", "bmi", "bp", *(f"s{i}" for i in range(1, 7))]
    rows.to_csv(tmp_path / "new.csv", index=False)
    answers = []
    assert main(["export", str(tmp_path / "run"), "--peer", "0", "--out", str(tmp_path / "model")]) == 0
    capsys.readouterr()
    for where in (["run", "--peer", "0"], ["model"]):
        assert main(["predict", str(tmp_path / where[0]), *where[1:], "--input", str(tmp_path / "new.csv")]) == 0
        answers.append([float(line.split(",")[1]) for line in capsys.readouterr().out.splitlines()[1:]])
    assert answers[0] == pytest.approx(answers[1], rel=1e-5)
    assert all(25 < answer < 346 for answer in answers[0])  # within the labels' range


def test_numbers_with_a_large_offset_keep_their_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels around a billion: the saved predictions, `predict` and the report agree with the measured error."""
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 80, 120)
    table = pandas.DataFrame({"age": age, "site": np.arange(120) % 3, "dose": 1e9 + 5 * age + rng.normal(size=120)})
    table.to_csv(tmp_path / "t.csv", index=False)
    words = [f"data.name={tmp_path / 't.csv'}", "data.label=dose", "data.partition=column", "data.column=site"]
    run = str(tmp_path / "run")
    summary = simulated.run(experiment("local", *words, "rounds=20", "model.zoo=linear", "train.lr=0.1"), Path(run))
    saved = read_predictions(tmp_path / "run" / "predictions" / "peer-0.npz")
    rmse = summary["scores"]["rmse"]["last"]["per_peer"][0]
    assert np.sqrt(np.mean((saved.test.last - saved.test.labels) ** 2)) == pytest.approx(rmse, rel=1e-6)
    # The same table, with the column of the site, which is no feature, and the label, which is ignored.
    assert main(["predict", run, "--peer", "0", "--input", str(tmp_path / "t.csv")]) == 0
    predicted = [float(line.split(",")[1]) for line in capsys.readouterr().out.splitlines()[1:]]
    np.testing.assert_allclose(
        np.array(predicted)[saved.test.rows], saved.test.last, atol=0.6
    )  # ten digits of a billion
    assert main(["export", run, "--peer", "0", "--out", str(tmp_path / "model")]) == 0


def test_without_scaling_predict_does_not_guess_units(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("data.scale=none", "train.lr=1e-9", "model.zoo=linear")
    simulated.run(experiment("local", *words), tmp_path / "run")
    columns = ["age", "sex", "bmi", "bp", *(f"s{i}" for i in range(1, 7))]
    pandas.DataFrame(load_diabetes(scaled=False).data, columns=columns).to_csv(tmp_path / "t.csv", index=False)
    assert main(["predict", str(tmp_path / "run"), "--peer", "0", "--input", str(tmp_path / "t.csv")]) == 0
    assert "other units" not in capsys.readouterr().err


def test_real_peers_judge_in_the_pooled_unit_of_the_label(tmp_path: Path) -> None:
    """What FedPAE notes of its vote is the negative of the measured error on its validation data."""
    e = experiment("fedpae", "data.scale=pooled", *PATIENT)
    network(e, tmp_path / "run")
    records = of_kind(list(read(tmp_path / "run" / "events.jsonl")), PeerRound)
    last = {r.peer: r for r in records if "together" in r.notes and r.is_measured}
    assert len(last) == 3
    for record in last.values():
        assert -record.notes["together"] == pytest.approx(record.value("rmse", "validation"), rel=1e-4)
