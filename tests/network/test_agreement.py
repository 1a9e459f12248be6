"""What peers compare when they meet: settings as they are, data by digests."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from coterie import wiring
from coterie.config import loading
from coterie.core.model import Architecture
from coterie.data import Dataset
from coterie.data.dataset import FeatureColumn
from coterie.network.agreement import MOST_COLUMNS, _probe, agreement, difference, with_names


def terms(classes: tuple[str, ...] = ("no", "yes"), columns: tuple[FeatureColumn, ...] = ()) -> dict[str, str]:
    e = loading.load("panm-digits", ["method.name=local"])
    dataset = Dataset("mine", np.zeros((4, 3)), np.zeros(4, int), classes, columns)
    me: Any = SimpleNamespace(model={"head.weight": np.zeros((2, 5))}, architecture=SimpleNamespace(name="mlp"))
    return agreement(e, dataset, me, "")


def columns(count: int, **changed: str) -> tuple[FeatureColumn, ...]:
    return tuple(FeatureColumn(changed.get(f"c{i}", f"c{i}")) for i in range(1, count + 1))


def test_nothing_of_the_data_is_in_the_terms() -> None:
    said = json.dumps(
        terms(("healthy", "ill"), (FeatureColumn("age"), FeatureColumn("ward", ("east wing", "west wing"))))
    )
    for secret in ("healthy", "ill", "age", "ward", "wing"):
        assert secret not in said
    assert "rounds" in said


def test_the_order_of_labels_counts() -> None:
    assert difference(terms(("a", "b")), terms(("a", "b")), "bob", "ann") == ""
    text = difference(terms(("a", "b")), terms(("b", "a")), "bob", "ann")
    assert text.startswith("labels differ between the two peers. List")
    text = difference(terms(("a", "b")), terms(("a", "b", "c")), "bob", "ann")
    assert text.startswith("number of labels is 2 at 'ann' and 3 at 'bob'; labels differ")


def test_which_columns_differ() -> None:
    mine = terms(columns=columns(12))
    text = difference(mine, terms(columns=columns(12, c2="x", c11="y")), "bob", "ann")
    assert "column 2 differs between the two peers; column 11 differs between the two peers. Columns are" in text
    text = difference(mine, terms(columns=columns(13)), "bob", "ann")
    assert text.startswith("number of columns is 12 at 'ann' and 13 at 'bob'; only one of the two peers has column 13")
    # The same name and other categories is another column.
    one, two = (terms(columns=(FeatureColumn("sex", texts),)) for texts in (("f", "m"), ("m", "f")))
    assert difference(one, two, "bob", "ann").startswith("column 1 differs")


def test_a_great_many_columns_are_compared_in_blocks() -> None:
    """2,500 columns in at most 256 digests: ten in each."""
    mine, theirs = terms(columns=columns(2500)), terms(columns=columns(2500, c2500="x"))
    assert sum("column" in key for key in mine) <= MOST_COLUMNS + 1
    assert difference(mine, theirs, "bob", "ann").startswith("columns 2491 to 2500 differ between the two peers")


def test_names_are_added_at_home_whatever_the_others_say() -> None:
    assert with_names("column 2 differs", ["a", "b"]).endswith("(in the local table, column 2 is 'b')")
    for text in ("column 3 differs", "column 0", "column 99999999999", "rounds is 2 here"):
        assert with_names(text, ["a", "b"]) == text


def test_what_processors_round_differently_is_the_same_probe() -> None:
    drawn = torch.randn(100_000, generator=torch.Generator().manual_seed(3))
    probe = _probe(drawn)
    assert len(probe) == 64
    assert probe[:2] == [round(float(drawn[0]), 2), round(float(drawn[1562]), 2)]  # every 100,000 // 64 = 1,562nd
    assert _probe(drawn * (1 + 2**-23)) == probe
    assert _probe(drawn + 0.01) != probe


@pytest.mark.parametrize(("dtype", "scale"), [(float, '"standard"'), (int, '"none"')])
def test_what_auto_means_is_compared(dtype: type, scale: str) -> None:
    """A peer with a table and one with an array of floats scale alike; integers are left as they are."""
    e = loading.load("panm-digits", ["method.name=local"])
    e = replace(e, data=replace(e.data, scale="auto"))
    dataset = Dataset("mine", np.zeros((4, 3), dtype), np.zeros(4, int), ("no", "yes"))
    me: Any = SimpleNamespace(model={"head.weight": np.zeros((2, 5))}, architecture=SimpleNamespace(name="mlp"))
    assert agreement(e, dataset, me, "")["data.scale"] == scale


def test_random_numbers_are_in_the_terms_of_every_method() -> None:
    assert difference(terms(), {**terms(), "random numbers": '"0"'}, "bob", "ann").startswith("random numbers is ")


def test_initial_weights_of_one_architecture_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    e = loading.load("panm-digits", ["peers=2", "data.clusters=2", "method.name=gossip", "method.k=1"])
    circle = wiring.gather(e)
    one, other = (agreement(e, circle.dataset, peer, "") for peer in circle.participants[:2])
    assert one["initial weights"] == other["initial weights"]
    initial = Architecture.initial
    monkeypatch.setattr(Architecture, "initial", lambda self, seed: initial(self, seed + 1))
    changed = agreement(e, circle.dataset, circle.participants[1], "")
    text = difference(one, changed, "bob", "ann")
    assert text.startswith(f"initial weights is {one['initial weights']} at 'ann' and {changed['initial weights']} at")
    assert text.endswith("the same version of torch")
