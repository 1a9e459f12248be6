"""Labels that are numbers: which columns are, how they are scaled, split and shown, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import data
from coterie.config.loading import load
from coterie.config.sections import Experiment
from coterie.core.errors import ConfigError, CoterieError, DataError
from coterie.data.drafting import draft
from coterie.data.labels import read_labels_as
from coterie.data.pool import pool_data
from coterie.data.scaling import Scaling
from coterie.data.schema import read_schema
from coterie.data.show import describe_shares, draw_shares
from coterie.data.untidy import read_by_schema
from coterie.wiring import divide

SCHEMA = """
[label]
column = "dose"
type = "number"
unit = "mg"
least = 0
most = 100
mean = 20.0
deviation = 5.0

[columns.age]
type = "number"
mean = 50.0
deviation = 10.0
"""


def experiment(*words: str) -> Experiment:
    usual = ("peers=3", "rounds=1", "baseline=", "data.partition=iid", "model.zoo=mlp", "method.name=local")
    return load("panm-digits", [*usual, "data.train=0.6", "data.validation=0.2", "data.test=0.2", *words])


def rows(count: int = 60) -> pandas.DataFrame:
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, count)
    return pandas.DataFrame({"age": age, "site": np.arange(count) % 3, "dose": age / 4 + rng.normal(size=count)})


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (np.linspace(0, 1, 40), "regression"),  # many different fractions
        (np.arange(40) % 3, "classification"),
        (np.array(["a", "b"] * 20), "classification"),
    ],
)
def test_the_task_follows_from_the_labels(labels: np.ndarray, task: str) -> None:
    y, classes = read_labels_as("auto", "t.csv", "column 'y'", labels)
    assert (y.dtype.kind == "f") == (task == "regression") == (not classes)


def test_whole_numbers_that_could_be_either_are_refused_with_both_remedies() -> None:
    with pytest.raises(DataError, match=r"data\.task = regression.*data\.labels"):
        read_labels_as("auto", "t.csv", "column 'y'", np.arange(40))
    y, classes = read_labels_as("regression", "t.csv", "column 'y'", np.arange(40))
    assert y.tolist() == list(range(40))
    assert classes == ()


@pytest.mark.parametrize("task", ["auto", "classification", "regression"])
def test_a_column_without_labels_is_refused(task: str) -> None:
    with pytest.raises(DataError, match=r"t.csv: no row has a label \(column 'y'\)"):
        read_labels_as(task, "t.csv", "column 'y'", np.array([]))


def test_labels_that_are_no_numbers_are_refused_without_their_value() -> None:
    with pytest.raises(DataError, match=r"not numbers, which data.task = regression needs") as error:
        read_labels_as("regression", "t.csv", "column 'y'", np.array(["1.5", "MARKER"], dtype=object))
    assert "MARKER" not in str(error.value)
    with pytest.raises(DataError, match="missing or infinite numbers in 1 row, the first is row 1"):
        read_labels_as("regression", "t.csv", "column 'y'", np.array([1.0, np.nan]))


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30).filter(lambda v: np.std(v) > 1e-3))
def test_scaled_labels_are_restored(values: list[float]) -> None:
    scaling = Scaling.standard(np.array(values)[:, None])
    scaled = scaling.of_numbers(np.array(values)[:, None])[:, 0]
    np.testing.assert_allclose(scaling.restored(scaled), values, atol=1e-5 * np.abs(values).max() + 1e-6)


def test_each_peer_scales_by_its_own_training_labels() -> None:
    dataset, shares = divide(experiment("data.name=diabetes"))
    pooled = pool_data(dataset, shares, experiment("data.name=diabetes").data)
    for share, scaling, (first, validation, *_, end) in zip(shares, pooled.label_scalings, pooled.cuts, strict=True):
        train = dataset.y[share.train]
        assert scaling is not None
        assert (scaling.mean[0], scaling.deviation[0]) == pytest.approx((train.mean(), train.std()))
        assert pooled.y[first:validation].mean() == pytest.approx(0, abs=1e-6)
        assert pooled.y.dtype == np.float32
        restored = scaling.restored(pooled.y[first:end])
        np.testing.assert_allclose(restored[: len(train)], train, rtol=1e-5)
    assert pooled.class_counts == []


def test_a_label_of_a_test_row_changes_nothing_in_training(tmp_path: Path) -> None:
    table = rows()
    table.to_csv(tmp_path / "t.csv", index=False)
    words = [f"data.name={tmp_path / 't.csv'}", "data.label=dose"]
    dataset, shares = divide(experiment(*words))
    before = pool_data(dataset, shares, experiment(*words).data)
    planted = dataset.y.copy()
    planted[np.concatenate([share.test for share in shares])] = 1e5
    after = pool_data(type(dataset)(dataset.name, dataset.x, planted, ()), shares, experiment(*words).data)
    for first, validation, _, _ in before.cuts:
        assert (before.y[first:validation] == after.y[first:validation]).all()


def test_partitions_of_classes_are_refused() -> None:
    for word in ("data.partition=dirichlet", "data.partition=label-swap"):
        with pytest.raises(ConfigError, match=r"needs classes, but these labels are numbers: use data.partition = iid"):
            divide(experiment("data.name=diabetes", word))
    with pytest.raises(ConfigError, match=r"labels are numbers: remove data.private_labels$"):
        divide(experiment("data.name=diabetes", "data.partition=iid", "data.private_labels=true"))


def test_a_natural_split_of_numbers(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "t.csv", index=False)
    words = [f"data.name={tmp_path / 't.csv'}", "data.label=dose", "data.partition=column", "data.column=site"]
    dataset, shares = divide(experiment(*words))
    assert dataset.task == "regression"
    assert dataset.remarks == ("t.csv: the label has many different numbers with fractions: a regression (data.task)",)
    assert [len(s.train) + len(s.validation) + len(s.test) for s in shares] == [20, 20, 20]


def test_files_of_sites_have_one_task_though_one_has_no_fractions(tmp_path: Path) -> None:
    for name, dose in {"a": np.linspace(0, 10, 30), "b": np.arange(30) % 4}.items():
        pandas.DataFrame({"age": np.arange(30), "dose": dose}).to_csv(tmp_path / f"{name}.csv", index=False)
    words = [f"data.name={tmp_path}", "data.label=dose", "data.partition=files", "peers=2"]
    dataset, _ = divide(experiment(*words))
    assert dataset.task == "regression"
    assert dataset.y[30:34].tolist() == [0, 1, 2, 3]


def test_a_schema_declares_a_number_with_unit_and_range(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "t.csv").write_text("dose;age\n12,5;40\n?;50\n-3;60\n30;70\n")
    schema = read_schema(tmp_path / "schema.toml")
    coded = read_by_schema(tmp_path / "t.csv", schema)
    assert coded.y is not None
    assert coded.y.tolist() == [12.5, 30.0]  # without a label, and outside of its range, rows are left out
    assert (coded.reading.unlabelled, coded.reading.unlikely_labels) == (1, 1)
    assert schema.label.task == "regression"
    (tmp_path / "wrong.csv").write_text("dose,age\nMARKER,40\n3,50\n")
    faults = read_by_schema(tmp_path / "wrong.csv", schema).reading.faults
    assert [str(fault) for fault in faults] == ["column 'dose': no number in 1 row (counted from 0: 0)"]


def test_agreed_constants_scale_the_label(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    rows().drop(columns="site").to_csv(tmp_path / "t.csv", index=False)
    words = [f"data.name={tmp_path / 't.csv'}", f"data.schema={tmp_path / 'schema.toml'}", "data.scale=schema"]
    e = experiment(*words)
    pooled = pool_data(*divide(e), e.data)
    assert {(s.mean, s.deviation) for s in pooled.label_scalings if s} == {((20.0,), (5.0,))}
    assert pooled.dataset.label_unit == "mg"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ('column = "dose"\ntype = "number"\nclasses = ["a", "b"]', "unknown key 'classes'"),
        ('column = "dose"\ntype = "date"', "unknown type 'date'"),
        ('column = "dose"', 'needs `classes`.*type = "number" for regression'),
        ('column = "dose"\ntype = "number"\nmean = 3.0', "give both `mean` and `deviation`"),
    ],
)
def test_wrong_declarations_of_a_label(tmp_path: Path, label: str, message: str) -> None:
    (tmp_path / "schema.toml").write_text(f'[label]\n{label}\n[columns.age]\ntype = "number"\n')
    with pytest.raises(DataError, match=message):
        read_schema(tmp_path / "schema.toml")


def test_task_and_schema_or_dataset_must_agree(tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA)
    rows().to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match=r"data.schema declares a label for regression"):
        data.load(str(tmp_path / "t.csv"), schema=str(tmp_path / "schema.toml"), task="classification")
    with pytest.raises(DataError, match="diabetes is for regression"):
        data.load("diabetes", task="classification")
    with pytest.raises(DataError, match="wine is for classification"):
        data.load("wine", task="regression")


def test_the_draft_of_a_schema_with_a_number_as_label_can_be_read(tmp_path: Path) -> None:
    rows().to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "schema.toml").write_text(draft([tmp_path / "t.csv"], "dose"))
    assert read_schema(tmp_path / "schema.toml").label.task == "regression"


def test_shares_of_numbers_are_shown_in_ranges() -> None:
    dataset, shares = divide(experiment("data.name=diabetes"))
    text = describe_shares(dataset, shares)
    assert "442 rows, numbers in 10 ranges, 3 peers" in text
    assert "25 to 57.1" in text  # a tenth of the range from 25 to 346
    assert "57.1 to 89.2" in draw_shares(dataset, shares)


def test_methods_settings_and_models_for_classes_are_refused_before_training() -> None:
    from coterie.wiring import gather

    for words, message in {
        ("method.name=mapl",): "method.name = mapl is not for regression.*use local, fedavg, gossip",
        ("method.name=compfl",): "method.name = compfl is not for regression",
        ("method.name=fedrod",): "method.name = fedrod is not for regression",
        ("method.name=local", "train.balance=weights"): "train.balance = weights is for classes",
        ("method.name=fedpae", "model.zoo=logistic"): "'logistic' is not for regression: use ridge, tree",
        ("method.name=fedpae", "method.vote=hard"): "method.vote must be soft for regression",
        ("method.name=local", "evaluate.metrics=auroc"): "auroc is for classification, but this is regression",
        ("method.name=local", "evaluate.positive=1"): "evaluate.positive names a class",
        ("method.name=local", "evaluate.select=accuracy"): "evaluate.select = 'accuracy' is not measured",
    }.items():
        with pytest.raises(CoterieError, match=message):
            gather(experiment("data.name=diabetes", *words))
