"""The figures of a sweep."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from report_support import written

from coterie.core.events import PeerRound, RunStarted
from coterie.core.measured_metric import ACCURACY
from coterie.report import sweep
from coterie.report.comparison import write_comparison
from coterie.report.figure import NothingToDraw
from coterie.report.seeds import Seeds


def seeds(folder: Path, label: str, by_seed: dict[int, tuple[float, float]]) -> Seeds:
    """One peer, one round, with this accuracy on validation and test data."""
    folders = []
    for seed, (validation, test) in by_seed.items():
        start = RunStarted("gossip", seed, 1, 1, ["mlp"], [5], [[5]], None)
        folders.append(written([start, PeerRound(0, 1, 1.0, validation, test)], folder / f"{label}-{seed}"))
    return Seeds(label, folders)


def test_numbers_are_in_their_order_and_to_scale_and_anything_else_as_given() -> None:
    places = {
        str(i): {"train.lr": lr, "method.k": k, "method.name": name, "peers": "4"}
        for i, (lr, k, name) in enumerate([("0.1", "10", "panm"), ("1e-3", "9", "gossip"), ("0.01", "2", "fedavg")])
    }
    lr, k, name = sweep.axes(places)  # peers has one value: it was not varied
    assert lr.values == ("1e-3", "0.01", "0.1")
    assert lr.logarithmic
    assert lr.at == pytest.approx([-3, -2, -1])
    assert k.values == ("2", "9", "10")
    assert not k.logarithmic
    assert k.at == [2, 9, 10]
    assert name.values == ("panm", "gossip", "fedavg")
    assert name.at == [0, 1, 2]


def test_marginals_are_means_over_the_other_keys_with_the_interval_over_seeds(tmp_path: Path) -> None:
    # With lr 0.1, the means over k are 0.3 in seed 0 and 0.5 in seed 1; with 0.2 they are 0.6 in both.
    found = [
        seeds(tmp_path, "a", {0: (0.2, 0.0), 1: (0.4, 0.0)}),
        seeds(tmp_path, "b", {0: (0.4, 0.0), 1: (0.6, 0.0)}),
        seeds(tmp_path, "c", {0: (0.5, 0.0), 1: (0.5, 0.0), 2: (0.9, 0.0)}),  # a seed that others lack is left out
        seeds(tmp_path, "d", {0: (0.7, 0.0), 1: (0.7, 0.0)}),
    ]
    grid = [("0.1", "1"), ("0.1", "2"), ("0.2", "1"), ("0.2", "2")]
    places = {label: {"train.lr": lr, "method.k": k} for label, (lr, k) in zip("abcd", grid, strict=True)}
    by_label = {s.label: s.final("accuracy", "validation") for s in found}
    low, high = (sweep.mean_at(places, "train.lr", value, by_label, [0, 1]) for value in ("0.1", "0.2"))
    assert low.mean == pytest.approx(0.4)
    assert low.half == pytest.approx(12.7062 * 0.1, rel=1e-4)  # t(0.975, 1) x standard deviation 0.1414 / sqrt 2
    assert (high.mean, high.half) == (pytest.approx(0.6), pytest.approx(0.0))
    [axis] = [axis for axis in sweep.axes(places) if axis.key == "train.lr"]
    drawn = sweep.marginal(places, axis, found, ACCURACY, "validation")
    assert 'aria-label="Mean validation accuracy by train.lr: 0.1 40.0%, 0.2 60.0%"' in drawn.drawing
    assert "Only the 2 of 3 seeds with all runs." in drawn.caption
    assert "mean over peers, seeds and all values of the other keys." in drawn.caption
    apart = [seeds(tmp_path, "a", {5: (0.2, 0.0)}), seeds(tmp_path, "c", {6: (0.2, 0.0)})]
    with pytest.raises(NothingToDraw, match="No seed has a finished run at every point of the grid"):
        sweep.marginal({label: places[label] for label in "ac"}, axis, apart, ACCURACY, "validation")


def test_a_marginal_is_over_combinations_that_all_values_have(tmp_path: Path) -> None:
    # Of lr 0.1 and 0.2 with k 1, 2 and 3, the run at lr=0.2 k=3 failed. Without it, lr 0.1 would be (0.2 + 0.4 + 0.9)
    # / 3 = 50% against (0.5 + 0.7) / 2 = 60% of k 1 and 2. Of these, lr 0.1 is (0.2 + 0.4) / 2 = 30%.
    grid = [(lr, k) for lr in ("0.1", "0.2") for k in ("1", "2", "3")]
    places = {f"{lr} {k}": {"train.lr": lr, "method.k": k, "method.kind": "x"} for lr, k in grid}
    accuracy = dict(zip(places, (0.2, 0.4, 0.9, 0.5, 0.7), strict=False))
    found = [seeds(tmp_path, label, {0: (value, 0.0)}) for label, value in accuracy.items()]
    lr, k = sweep.axes(places)
    drawn = sweep.marginal(places, lr, found, ACCURACY, "validation")
    assert 'train.lr: 0.1 30.0%, 0.2 60.0%"' in drawn.drawing
    told = "seeds and 2 of the 3 combinations of the other keys: those with a finished run at every value drawn."
    assert told in drawn.caption
    # Of k, lr 0.1 alone has all values.
    drawn = sweep.marginal(places, k, found, ACCURACY, "validation")
    assert 'method.k: 1 20.0%, 2 40.0%, 3 90.0%"' in drawn.drawing
    assert "seeds and 1 of the 2 combinations" in drawn.caption
    # A value of which every run failed is left out, and named: the rest is whole.
    drawn = sweep.marginal(places, k, [s for s in found if not s.label.endswith("3")], ACCURACY, "validation")
    assert 'method.k: 1 35.0%, 2 55.0%"' in drawn.drawing  # (0.2 + 0.5) / 2 and (0.4 + 0.7) / 2
    assert "all values of the other keys. No finished run: method.k=3." in drawn.caption
    with pytest.raises(NothingToDraw, match=r"Only train\.lr=0\.1 has finished runs"):
        sweep.marginal(places, lr, found[:3], ACCURACY, "validation")
    with pytest.raises(NothingToDraw, match=r"No combination .* a finished run at every value of train\.lr"):
        sweep.marginal(places, lr, [found[0], found[4]], ACCURACY, "validation")
    with pytest.raises(NothingToDraw, match="No combination"):
        sweep.marginal(places, lr, [], ACCURACY, "validation")


def test_a_heat_map_shows_test_accuracy_and_outlines_the_best_by_validation(tmp_path: Path) -> None:
    found = [
        seeds(tmp_path, "a", {0: (0.9, 0.2), 1: (0.9, 0.4)}),  # the best by validation, not by test
        seeds(tmp_path, "b", {0: (0.5, 0.8), 1: (0.5, 0.8)}),
        seeds(tmp_path, "c", {0: (0.4, 0.5)}),
        seeds(tmp_path, "local", {0: (1.0, 1.0)}),  # is not in the grid
    ]
    grid = [("2", "x"), ("10", "x"), ("2", "y")]
    places = {label: {"method.k": k, "method.kind": kind} for label, (k, kind) in zip("abc", grid, strict=True)}
    [(heading, make)] = sweep.figures(places)
    assert heading == "over method.k and method.kind"
    drawn = make(found, ACCURACY, "test")
    assert "2 and x 30.0%, 10 and x 80.0%, 2 and y 50.0%" in drawn.drawing
    assert drawn.drawing.count('<rect class="mark"') == 1
    assert "Outlined: the best by validation, method.k=2 method.kind=x." in drawn.caption
    assert "Empty: no finished run." in drawn.caption
    opacities = [float(value) for value in re.findall(r'fill-opacity="([\d.]+)" x="[\d.]+" y="21"', drawn.drawing)]
    assert opacities == [sweep.FAINTEST, sweep.FULL]  # 30% is the least, 80% the most
    bar = re.findall(r">([\d.]+)</text>", drawn.drawing)[-2:]
    assert bar == ["80.0", "30.0"]


def test_the_page_of_a_sweep_begins_with_its_figures(tmp_path: Path) -> None:
    found = [seeds(tmp_path, label, {0: (0.5, 0.5)}) for label in "ab"]
    folders = {s.label: s.folders for s in found}
    places = {"a": {"train.lr": "0.1"}, "b": {"train.lr": "1"}}
    write_comparison(tmp_path / "with.html", "A sweep", folders, ["", "last"], [["a", "1"]], places=places)
    page = (tmp_path / "with.html").read_text()
    assert re.findall(r"<h2>(Accuracy over [^<]*|Test accuracy[^<]*)</h2>", page)[0] == "Accuracy over train.lr"
    assert page.index("sweep-train.lr-validation") < page.index("sweep-train.lr-test")
    write_comparison(tmp_path / "without.html", "A comparison", folders, ["", "last"], [["a", "1"]])
    assert "sweep-" not in (tmp_path / "without.html").read_text()
