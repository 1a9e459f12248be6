"""Which peer has which data, as text and as a picture."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from coterie.data import Dataset, PartitionSettings, describe_shares, draw_shares, load, partition


def pool(classes: int) -> Dataset:
    names = tuple(f"<class & {number}>" for number in range(classes))
    return Dataset("pool", np.zeros((4000, 1), np.float32), np.arange(4000) % classes, names)


def test_a_small_partition_by_eye() -> None:
    dataset = load("digits")
    wanted = PartitionSettings(partition="scenario1", train=10, validation=2, test=3)
    text = describe_shares(dataset, partition(dataset.y, 10, 2, wanted, 0))
    assert text.splitlines() == [
        "digits: 1,797 rows, 10 classes, 2 peers, 150 rows in use",
        "Shades: training rows of a class, from few (·) to 10 (█)",
        "",
        " peer   train   valid    test cluster  transform    0   1   2   3   4   5   6   7   8   9",
        "    0      50      10      15       0  as is        ███ ███ ███ ███ ███",
        "    1      50      10      15       1  as is                            ███ ███ ███ ███ ███",
    ]


def test_the_numbers_of_classes_have_names() -> None:
    dataset = load("wine")
    text = describe_shares(dataset, partition(dataset.y, 3, 2, PartitionSettings(), 0))
    assert text.splitlines()[2] == "Classes: 0 class_0, 1 class_1, 2 class_2"


@pytest.mark.parametrize("count", [2, 12, 70, 1000])
def test_long_and_many_names(count: int) -> None:
    """Clipped to 24 characters, at most 8 lines; whatever is left out is counted."""
    names = tuple(f"a, long\x1b[31m name of the class with the number {number}" for number in range(count))
    dataset = Dataset("pool", np.zeros((4000, 1)), np.arange(4000) % count, names)
    lines = describe_shares(dataset, partition(dataset.y, count, 2, PartitionSettings(), 0)).splitlines()
    start, stop = (lines.index(line) for line in (next(x for x in lines if x.startswith("Classes: ")), ""))
    told = lines[start:stop]
    assert told[0].startswith(r"Classes: 0 a? long\x1b[31m name of…, 1 a? long\x1b[31m")
    assert max(map(len, told)) <= 100
    assert len(told) <= 9
    shown = sum(line.count("…") for line in told)
    more = int(told[-1].split()[2]) if "... and" in told[-1] else 0
    assert shown + more == count


@pytest.mark.parametrize(("classes", "peers"), [(2, 1), (10, 100), (100, 60), (300, 5)])
def test_text_and_picture_fit(classes: int, peers: int) -> None:
    dataset = pool(classes)
    shares = partition(dataset.y, classes, peers, PartitionSettings(), 0)
    text = describe_shares(dataset, shares)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    if peers > 40:
        assert f"... {peers - 40} more like these" in text
    ElementTree.fromstring(draw_shares(dataset, shares))  # well-formed, whatever the class names


def test_every_cluster_is_seen() -> None:
    dataset = pool(10)
    wanted = PartitionSettings(partition="rotation", clusters=4)
    shares = partition(dataset.y, 10, 100, wanted, 0)
    text, picture = describe_shares(dataset, shares), draw_shares(dataset, shares)
    for cluster, transform in enumerate(("as is", "rotated 90", "rotated 180", "rotated 270")):
        assert f" {cluster}  {transform}" in text
        assert f"cluster {cluster}: {transform}" in picture
