"""How raw samples are scaled for models: from which rows the scale is computed, and what is not scaled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coterie.data as data
from coterie import wiring
from coterie.config import loading
from coterie.config.sections import DataSettings
from coterie.core.errors import DataError
from coterie.data import Dataset, Share
from coterie.data.dataset import FeatureColumn
from coterie.data.pool import PooledData, pool_data
from coterie.data.scaling import Scaling
from coterie.running.real_peer import PeerFile, PeerSettings, place


def share(train: list[int], validation: list[int], test: list[int]) -> Share:
    return Share(*(np.array(rows) for rows in (train, validation, test)))


def held(x: np.ndarray, *shares: Share, scale: str = "auto", name: str = "mine.npz") -> PooledData:
    dataset = Dataset("mine", x, np.arange(len(x)) % 2, ("a", "b"))
    return pool_data(dataset, shares, DataSettings(name=name, scale=scale))


TWO = share([0, 1], [2], [3]), share([4, 5], [6], [7])


def test_each_peer_scales_by_its_own_training_rows() -> None:
    """Peer 0 trains on 1 and 3 (mean 2, deviation 1), peer 1 on 100 and 300 (mean 200, deviation 100)."""
    x = np.array([[1.0], [3.0], [4.0], [-8.0], [100.0], [300.0], [200.0], [0.0]])
    both = held(x, *TWO)
    assert both.scalings == [Scaling((2.0,), (1.0,)), Scaling((200.0,), (100.0,))]
    assert both.x[:, 0].tolist() == [-1, 1, 2, -10, -1, 1, 0, -2]
    assert [d.scaling for d in both.splits("cpu")] == both.scalings
    # What another peer has, and what a peer validates and tests on, changes nothing.
    x[2:4], x[4:] = 7.0, 9.0
    assert held(x, *TWO).scalings[0] == both.scalings[0]
    assert held(x, *TWO).x[:2, 0].tolist() == [-1, 1]


def test_a_column_that_is_constant_in_the_training_rows() -> None:
    """The deviation of three times 0.1 is 1.4e-17 in floating point: nothing may be divided by that."""
    x = np.array([[0.1], [0.1], [0.1], [0.3]])
    assert x[:3].std() != 0
    scaling = held(x, share([0, 1, 2], [3], [3])).scalings[0]
    assert scaling.deviation == (1.0,)
    assert scaling.of_raw(x[3:])[0, 0] == pytest.approx(0.2)


def test_channels_are_scaled_each_as_a_whole() -> None:
    """Channel 0 has 0, 2, 4 and 6 in training: mean 3, deviation sqrt(5). Channel 1 has 10 times that."""
    channel = np.array([[0.0, 2.0], [4.0, 6.0], [3.0, 3.0]])
    x = np.stack([channel, 10 * channel], axis=1)  # (3, 2, 2)
    mine = held(x, share([0, 1], [2], [2]))
    assert mine.scalings[0].mean == (3.0, 30.0)
    assert mine.scalings[0].deviation == pytest.approx((5**0.5, 10 * 5**0.5))
    assert np.allclose(mine.x[0], [[-3 / 5**0.5, -1 / 5**0.5]] * 2)
    assert (mine.x[2] == 0).all()


def test_missing_values_are_refused_by_column() -> None:
    x = np.array([[1.0, 2.0], [np.nan, 2.0], [3.0, 4.0]])
    with pytest.raises(DataError, match="mine: x has missing values"):
        held(x, share([0], [1], [2]))
    dataset = Dataset("mine", x, np.array([0, 1, 0]), ("a", "b"), (FeatureColumn("ca"), FeatureColumn("age")))
    with pytest.raises(DataError, match="mine: columns ca have missing values"):
        pool_data(dataset, [share([0], [1], [2])], DataSettings(name="mine.npz"))


def test_whole_numbers_are_left_alone_unless_asked_for() -> None:
    x = np.array([[7, 300], [9, 500], [8, 400], [8, 401]])
    mine = share([0, 1], [2], [3])
    for scale in ("auto", "none"):
        assert held(x, mine, scale=scale).x.tolist() == x.tolist()
        assert held(x, mine, scale=scale).kind == "integers"
    asked = held(x, mine, scale="standard")
    assert (asked.x[:2].tolist(), asked.kind) == ([[-1, -1], [1, 1]], "features")
    assert held(x.astype(float), mine).x[:2].tolist() == [[-1, -1], [1, 1]]  # measurements
    assert held(x + 0.5, mine, scale="none").x.tolist() == (x + 0.5).tolist()
    with pytest.raises(DataError, match="integers beyond 16,777,216"):
        held(x + 2**24, mine)


def test_numbers_too_large_for_a_model() -> None:
    with pytest.raises(DataError, match="values that are too large for the models' float32"):
        held(np.array([[1e300], [2.0], [3.0]]), share([0], [1], [2]), scale="none")


def test_images() -> None:
    """The user's images are scaled by the training images, 0 and 200; a named dataset by the images of all peers."""
    x = np.array([0, 200, 60, 60, 0, 200, 60, 60], np.uint8).reshape(8, 1, 1, 1)
    assert held(x, *TWO).scalings == [Scaling((100.0,), (pytest.approx(100.0),))] * 2  # type: ignore[arg-type]
    named = held(x, *TWO, name="digits").scalings[0]
    assert named.mean == (80.0,)  # (0 + 200 + 60 + 60) / 4
    assert held(x, *TWO, scale="none").x.ravel().tolist() == x.ravel().tolist()
    assert held(x, *TWO, scale="unit").x.max() == pytest.approx(200 / 255)


@pytest.mark.parametrize("peer", [0, 2])
def test_a_real_peer_has_the_rows_that_it_has_in_the_simulation(peer: int, tmp_path: Path) -> None:
    """Rows of a named table; a file with only these rows is scaled in the same way."""
    words = ["data.name=wine", "data.partition=iid", "peers=3", "method.name=local", "data.train=0.5"]
    e = loading.load("panm-digits", [*words, "data.validation=0.25", "data.test=0.25"])
    simulated = wiring.gather(e).participants[peer].data
    identity = type("Identity", (), {"name": "north", "number": peer})()
    real = place(PeerFile(tmp_path / "north.toml", PeerSettings(), e), identity)[0].data
    assert simulated is not None
    assert real is not None
    assert real.scaling == simulated.scaling
    assert real.train.x.tolist() == simulated.train.x.tolist()
    dataset, shares = wiring.divide(e)
    rows = shares[peer].train
    np.savez(tmp_path / "mine.npz", x=dataset.x[rows], y=dataset.y[rows])
    alone = data.load(str(tmp_path / "mine.npz"))
    everything = replace(shares[peer], train=np.arange(len(rows)), validation=np.arange(1), test=np.arange(1))
    assert pool_data(alone, [everything], e.data).scalings == [simulated.scaling]


def test_values_whose_deviation_overflows_are_refused() -> None:
    with pytest.raises(DataError, match="too large for the models' float32"):
        held(np.array([[1e200], [-1e200], [0.0], [0.0]]), share([0, 1], [2], [3]))
