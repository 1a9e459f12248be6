"""A comparison in each of its written forms."""

from __future__ import annotations

import csv

from coterie.comparing import tables
from coterie.comparing.comparison import Block, Comparison
from coterie.comparing.statistics import Difference, Estimate, Line


def entry(label: str, against: Difference | None = None) -> Line:
    figure = Estimate(0.5, 0.01)
    return Line(label, (0, 1), figure, figure, 0.5, 0.1, 0.4, 0.25, 1e6, 10, 0.4, 2.0, 2, against)


LINES = (entry("best"), entry("a_b", Difference(Estimate(-0.1, 0.02), 0.0001)))
FOUND = Comparison("demo", (), (0, 1), (Block("", LINES),), (), {})


def test_latex_sets_every_sign_as_itself() -> None:
    text = tables.latex(FOUND, "coterie compare")
    assert r"a\_b & 50.00 $\pm$1.00" in text
    assert r"$-$10.00 $\pm$2.00 & $<$0.001 \\" in text  # a bare < is another sign there, a bare - a hyphen
    assert tables.latex(Comparison("demo", (), (0, 1), (Block("", (entry("k=-1"),)),), (), {}), "").count("k=-1") == 1


def test_the_csv_has_a_difference_for_all_but_the_best() -> None:
    best, other = csv.DictReader(tables.values(FOUND).splitlines())
    assert best.keys() == other.keys()
    assert "against_best" not in best
    assert best["against_best.p"] == ""
    assert float(other["against_best.estimate.mean"]) == -0.1


def test_splits_are_the_same_within_one_setting_of_the_data_alone() -> None:
    two = Comparison("demo", (), (0, 1), (Block("data.train=1", LINES), Block("data.train=2", LINES)), (), {})
    assert "on the same splits for all rows with the same data:" in tables.text(two)
    assert "on the same splits for all:" in tables.text(FOUND)


def test_what_is_missing_is_said_with_what_that_means() -> None:
    found = Comparison("demo", (), (0, 1), FOUND.blocks, ("best, seed 1",), {})
    assert "MISSING: best, seed 1. The mean of a row that lacks a seed is over fewer splits" in tables.text(found)
