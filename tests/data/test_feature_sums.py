"""Sums over the rows of peers, and the one scaling that follows from them (data.scale = "pooled")."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie.data as data
from coterie.config import loading
from coterie.config.sections import DataSettings
from coterie.core.errors import ConfigError, DataError
from coterie.data import Dataset, Share
from coterie.data.feature_sums import FEWEST, FeatureSums, scaling_of_all
from coterie.data.pool import PooledData, Unscaled, feature_sums, pool_data
from coterie.data.scaling import Scaling
from coterie.wiring import divide

ROWS = [np.arange(0, 9), np.arange(9, 22), np.arange(22, 30)]  # of three peers: 9, 13 and 8


def shares(train: int) -> list[Share]:
    """Each peer trains on its first rows, validates on the next one and tests on the rest."""
    return [Share(rows[:train], rows[train : train + 1], rows[train + 1 :]) for rows in ROWS]


def pooled(x: np.ndarray, parts: list[Share], scale: str = "pooled") -> PooledData:
    return pool_data(
        Dataset("mine", x, np.arange(len(x)) % 2, ("a", "b")), parts, DataSettings("mine.npz", scale=scale)
    )


def test_a_scaling_by_hand() -> None:
    """1 to 5, and five times 9: mean (15 + 45) / 10 = 6, squares 25 + 16 + 9 + 4 + 1 + 5 * 9 = 100, deviation
    sqrt(100 / 10)."""
    one, other = FeatureSums.of(np.arange(1.0, 6.0)[:, None]), FeatureSums.of(np.full((5, 1), 9.0))
    assert (one.count.tolist(), one.mean.tolist(), one.squares.tolist()) == ([5], [3], [10])
    assert (other.count.tolist(), other.mean.tolist(), other.squares.tolist()) == ([5], [9], [0])
    assert scaling_of_all([one, other]) == Scaling((6.0,), (10**0.5,))


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_merged_sums_equal_those_of_all_rows(offset: float) -> None:
    """Also far from 0, where sums of plain squares would have no digit of the deviation left."""
    x = offset + np.random.default_rng(0).normal(size=(30, 4)) * [1, 10, 0.1, 3]
    scaling = scaling_of_all([FeatureSums.of(x[rows]) for rows in ROWS])
    np.testing.assert_allclose(scaling.mean, x.mean(axis=0), rtol=1e-9, atol=1e-9)
    # The rows themselves are rounded to about 1e-8 at 1e8, and so is the deviation that NumPy computes.
    np.testing.assert_allclose(scaling.deviation, x.std(axis=0), rtol=1e-9 if not offset else 1e-7)


def test_a_constant_is_only_shifted_at_all_peers_together() -> None:
    """The mean of three times 0.1 is not 0.1 in floating point: the values would seem to deviate."""
    scaling = scaling_of_all([FeatureSums.of(np.full((n, 1), 0.1)) for n in (6, 7, 9)])
    assert scaling == Scaling((0.1,), (1.0,))


def test_channels_are_summed_over_their_steps() -> None:
    x = np.random.default_rng(1).normal(size=(30, 2, 5))
    scaling = scaling_of_all([FeatureSums.of(x[rows]) for rows in ROWS])
    np.testing.assert_allclose(scaling.mean, x.mean(axis=(0, 2)), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(scaling.deviation, x.std(axis=(0, 2)), rtol=1e-9)


def test_few_rows_do_not_count_because_their_sums_would_tell_their_values() -> None:
    few, enough = np.full((FEWEST - 1, 1), 7.0), np.arange(float(FEWEST))[:, None]
    hidden = FeatureSums.of(few)
    assert [a.tolist() for a in (hidden.count, hidden.mean, hidden.squares)] == [[0], [0], [0]]
    assert scaling_of_all([hidden, FeatureSums.of(enough)]) == FeatureSums.of(enough).scaling()
    series = FeatureSums.of(np.ones((FEWEST - 1, 2, 25)))  # many values, but of few rows
    assert series.count.tolist() == [0, 0]
    with pytest.raises(DataError, match=f"no peer has {FEWEST} training rows"):
        scaling_of_all([hidden, hidden])


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("count", -1.0, "the number of values"),
        ("count", 1e13, "the number of values"),
        ("count", np.nan, "the number of values"),
        ("mean", np.inf, "the mean"),
        ("mean", -1e39, "the mean"),
        ("squares", -0.5, "the sum of squares"),
        ("squares", np.nan, "the sum of squares"),
        ("squares", 1e90, "the sum of squares"),
    ],
)
def test_sums_that_no_rows_can_have(key: str, value: float, fault: str) -> None:
    tensors = FeatureSums.of(np.arange(10.0).reshape(5, 2)).tensors()
    assert not FeatureSums.of_tensors(tensors).fault()
    tensors[key][1] = value
    text = FeatureSums.of_tensors(tensors).fault()
    assert text.startswith(fault)
    assert str(value) not in text


# -- in a simulation -----------------------------------------------------------------------------


def test_all_peers_have_the_scaling_of_all_training_rows() -> None:
    x = np.random.default_rng(2).normal(3, 5, size=(30, 3))
    train = np.concatenate([share.train for share in shares(6)])
    all_of_them = pooled(x, shares(6))
    assert all_of_them.scalings == [all_of_them.scalings[0]] * 3
    np.testing.assert_allclose(all_of_them.scalings[0].mean, x[train].mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(all_of_them.scalings[0].deviation, x[train].std(axis=0), rtol=1e-9)
    np.testing.assert_allclose(all_of_them.x, (x - x[train].mean(axis=0)) / x[train].std(axis=0), atol=1e-6)
    planted = x.copy()
    planted[np.setdiff1d(np.arange(30), train)] = 1e6  # validation and test rows
    assert pooled(planted, shares(6)).scalings == all_of_them.scalings


def test_a_real_peer_scales_its_rows_as_the_simulation_does() -> None:
    """Peer 1 has a file with its own rows alone, and gets the sums of the others."""
    x = np.random.default_rng(3).normal(3, 5, size=(30, 3))
    everyone, own = pooled(x, shares(6)), Share(np.arange(6), np.arange(6, 7), np.arange(7, 13))
    alone = pooled(x[ROWS[1]], [own])
    unscaled = Unscaled(alone, DataSettings("mine.npz", scale="pooled"), 0, "cpu")
    sums = [feature_sums(everyone.dataset, share) for share in everyone.shares]
    sums[1] = FeatureSums.of_tensors(unscaled.sums().tensors())
    scaled = unscaled.scaled_by(scaling_of_all(sums))
    assert scaled.scaling == everyone.scalings[1]
    assert scaled.train.x.tolist() == everyone.splits("cpu")[1].train.x.tolist()


def test_integers_become_features_and_images_are_refused() -> None:
    asked = pooled(np.arange(60).reshape(30, 2), shares(6))
    assert asked.kind == "features"
    with pytest.raises(DataError, match="'pooled' only applies to tables and other features: use 'standard' or 'unit'"):
        pooled(np.zeros((30, 1, 2, 2), np.uint8), shares(6))
    with pytest.raises(DataError, match="too large for the models' float32"):
        pooled(np.full((30, 1), 1e300), shares(6))


def test_a_graph_that_lacks_edges_is_refused() -> None:
    words = ["data.name=wine", "data.partition=iid", "data.scale=pooled", "method.name=gossip", "method.k=1", "peers=4"]
    with pytest.raises(ConfigError, match=r"needs an exchange among all peers, but graph\.kind = ring lacks edges"):
        loading.load("panm-digits", [*words, "graph.kind=ring"])
    assert loading.load("panm-digits", [*words, "graph.kind=ring", "peers=3"]).peers == 3  # a triangle


# -- with a schema -------------------------------------------------------------------------------

SCHEMA = """
[label]
column = "ill"
classes = ["no", "yes"]
[columns.age]
type = "number"
indicator = true
[columns.chol]
type = "number"
optional = true
[columns.sex]
type = "category"
values = ["f", "m"]
[columns.ward]
type = "category"
values = ["1", "2"]
fill = "most frequent"
"""


def test_values_that_were_filled_in_do_not_count(tmp_path: Path) -> None:
    """South lacks `chol`, and some of its other cells. Its scaled `chol` is the mean of the pool, 0, in every row."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    north = [f"{20 + i},{200 + 10 * i},f,1,{('no', 'yes')[i % 2]}" for i in range(10)]
    south = [f"{'' if i < 3 else 60 + i},,{'' if i < 2 else 'm'},{'' if i < 4 else 2},no" for i in range(10)]
    (tmp_path / "all.csv").write_text("\n".join(["age,chol,sex,ward,ill", *north, *south]))
    dataset = data.load(str(tmp_path / "all.csv"), schema=str(tmp_path / "schema.toml"))
    parts = [Share(rows[:8], rows[8:9], rows[9:]) for rows in (np.arange(10), np.arange(10, 20))]
    both = pool_data(dataset, parts, DataSettings("all.csv", scale="pooled"))
    names = ["age", "age missing", "chol", "sex = f", "sex = m", "sex unknown", "sex missing"]
    names += ["ward = 1", "ward = 2", "ward unknown"]
    assert dataset.schema is not None
    assert list(dataset.schema.features) == names
    sums = feature_sums(dataset, parts[1])
    # Of 8 training rows: 5 have an age, none a chol. Indicators are not scaled, so they do not count.
    assert sums.count.tolist() == [5, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    by_name = dict(zip(names, zip(both.scalings[0].mean, both.scalings[0].deviation, strict=True), strict=True))
    ages = [*range(20, 28), *range(63, 68)]
    assert by_name["age"] == pytest.approx((np.mean(ages), np.std(ages)))
    assert by_name["chol"] == pytest.approx((np.mean(range(200, 280, 10)), np.std(range(200, 280, 10))))
    assert by_name["sex = f"] == by_name["ward = 1"] == (0.0, 1.0)
    assert both.scalings[0] == both.scalings[1]
    assert both.preparations[1] is not None
    assert both.preparations[1].fills[1] == by_name["chol"][0]
    assert (both.x[10:, names.index("chol")] == 0).all()


def test_labels_that_are_numbers_are_pooled_too() -> None:
    words = ["data.name=diabetes", "data.partition=iid", "data.scale=pooled", "method.name=local"]
    e = loading.load("panm-digits", [*words, "peers=3", "baseline="])
    dataset, shares = divide(e)
    pooled = pool_data(dataset, shares, e.data)
    train = dataset.y[np.concatenate([share.train for share in shares])]
    for scaling, label in zip(pooled.scalings, pooled.label_scalings, strict=True):
        assert len(scaling.mean) == 10
        assert label is not None
        assert (*label.mean, *label.deviation) == pytest.approx((train.mean(), train.std()), rel=1e-9)
