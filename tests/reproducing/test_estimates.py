"""How long a table takes here."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from coterie.config.loading import load
from coterie.models import ModelSettings, build
from coterie.reproducing import estimates, papers

SPEEDS = {"mlp": 1.0, "cnn3": 10.0, "resnet9": 100.0}


@pytest.mark.parametrize("network", ["mlp", "cnn3", "lenet", "resnet8"])
@pytest.mark.parametrize(("place", "shape"), [(0, (3, 32, 32)), (1, (1, 28, 28))])
def test_operations_of_a_forward_pass(network: str, place: int, shape: tuple[int, ...]) -> None:
    net = build(network, shape, 10, ModelSettings())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(torch.randn(1, *shape))
    assert counter.get_total_flops() / 1e6 == pytest.approx(estimates.FORWARD[network][place], abs=0.01)


def test_work_is_samples_times_operations() -> None:
    words = ["peers=4", "rounds=10", "train.epochs=2", "data.train=100", "data.validation=20", "data.test=30"]
    words += ["evaluate.every=5", "data.name=cifar10", 'model.zoo=["cnn3", "resnet18"]', "model.width=0.5"]
    found = estimates.work_of(load("panm-digits", [*words, "method.name=local", "baseline="]))
    # A peer trains on 100 samples, twice in each of 10 rounds, three passes each: 6000. It is measured on 50, twice.
    # Two of the four peers have each network, of half the width: a quarter of the work.
    assert found["cnn3"] == pytest.approx(2 * 6100 * 16.06 / 4)
    assert found["resnet9"] == pytest.approx(2 * 6100 * 1110.85 / 4)  # nearer to it than to the others


def test_fractions_are_of_a_peers_share_of_the_images() -> None:
    words = ["peers=70", "rounds=1", "train.epochs=1", "data.train=0.5", "data.validation=0.25", "data.test=0.25"]
    words += ["evaluate.every=1", "data.name=mnist", "model.zoo=mlp", "method.name=local", "baseline="]
    # 1000 of the 70,000 images each: 500 in three passes, and 500 in one.
    assert estimates.work_of(load("panm-digits", words))["mlp"] == pytest.approx(70 * 2000 * 0.40)


def test_every_column_has_a_time_that_goes_with_speed_and_seeds() -> None:
    for table in papers.tables().values():
        for column, small in itertools.product(table.columns.values(), (False, True)):
            once = estimates.seconds(table, column, small, 1, SPEEDS)
            assert once > 0, (table.name, column.name)
    twice_as_fast = {name: 2 * speed for name, speed in SPEEDS.items()}
    assert estimates.seconds(table, column, True, 3, twice_as_fast) == pytest.approx(1.5 * once)


def test_the_method_counts() -> None:
    table, [column] = papers.find("panm-table2/mnist")
    row = next(row for row in table.rows if "method.name=local" in row.words.full)
    alone = estimates.seconds(_only(table, row), column, True, 1, SPEEDS)
    panm = next(row for row in table.rows if row.label.startswith("PANM"))
    assert estimates.seconds(_only(table, panm), column, True, 1, SPEEDS) == pytest.approx(1.5 * alone)


def test_a_walk_trains_only_who_holds_an_expert() -> None:
    """Ten peers, 200 images and 209 rounds of one epoch, measured on 450 images every 19 rounds, eleven times.

    A walker is with one of the five who own it every second round: of five trainings in a round 0.5 for the large one,
    0.65 for the small one, which the strong train in 0.3 of their visits. Networks have a quarter of the width.
    """
    table, [column] = papers.find("compfl-figure7/classes10")
    row = next(row for row in table.rows if row.label == "walks p=1.0")
    small = 5 * (3 * 200 * 209 * 0.65 / 5 + 450 * 11) * 16.06 / 16
    large = 5 * (3 * 200 * 209 * 0.5 / 5 + 450 * 11) * 758.52 / 16
    expected = 1.5 * (small / SPEEDS["cnn3"] + large / SPEEDS["resnet9"])
    assert estimates.seconds(_only(table, row), column, True, 1, SPEEDS) == pytest.approx(expected)


def _only(table: papers.Table, row: papers.TableRow) -> papers.Table:
    return dataclasses.replace(table, rows=(row,))


def test_speed_is_the_work_over_the_best_time() -> None:
    now = itertools.count(step=1.0)  # every look at the clock is a second later: a training takes one
    speed = estimates._speed("mlp", lambda: next(now))
    assert speed == pytest.approx(1.31 * 3 * 16 * 32)  # 16 peers with 32 samples, three passes each


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (9.4, "9 s"),
        (119, "119 s"),
        (150, "2 min"),
        (7_200, "2 h"),
        (86_400 * 9, "9 days"),
        (86_400 * 1500, "1,500 days"),
    ],
)
def test_an_estimate_has_one_unit(seconds: float, told: str) -> None:
    assert estimates.about(seconds) == told
