"""Reports of runs whose main metric is not accuracy: a cost, of which less is better, and a regression."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_support import written

import coterie.report
from coterie.core.events import Event, PeerRound, RunStarted
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.report import metric_axis, tables
from coterie.report.comparison import sections as comparison_sections
from coterie.report.html import page_of, sections
from coterie.report.run import Run
from coterie.report.seeds import Seeds
from coterie.report.summary import summarise
from coterie.report.sweep import figures
from coterie.report.timing import mean_over_time, time_to
from coterie.terminal.display import comparison, results

COST = MeasuredMetric("cost", "cost", higher_is_better=False, unit="")
RECORD = {"name": "cost", "label": "cost", "higher_is_better": False, "unit": ""}
# By round, then by peer: the cost on the validation and on the test data. Accuracy is 0.5 throughout.
COSTS = [[(3.0, 2.0), (1.0, 4.0)], [(2.0, 1.0), (2.0, 6.0)]]


def events(costs: list[list[tuple[float, float]]] = COSTS, method: str = "panm", seed: int = 0) -> list[Event]:
    start = RunStarted(
        method, seed, 2, len(costs), ["mlp", "cnn"], [4, 4], [[2, 2]] * 2, None, metrics=[RECORD], select="cost"
    )
    rounds = [
        PeerRound(p, t, float(t), 0.5, 0.5, 1.0, {"model": 100}, {"model": 1}, scores={"cost": list(both)})
        for t, of_round in enumerate(costs, 1)
        for p, both in enumerate(of_round)
    ]
    return [start, *rounds]


ALONE = [[(2.0, 2.0), (2.0, 2.0)], [(2.0, 3.0), (2.0, 4.0)]]


def run_with_baseline() -> Run:
    alone = events(ALONE, "local")
    return Run(events(), summarise(events(), 1.0), Run(alone, summarise(alone, 1.0)))


def test_the_summary_is_about_the_main_metric() -> None:
    summary = summarise(events(), 1.0)
    assert summary.main_metric == COST
    # Peer 0 selects round 2 (2 < 3), peer 1 round 1 (1 < 2). The worst tenth of two peers is the dearer one.
    assert (summary.test.last, summary.test.selected) == (3.5, 2.5)
    assert summary.main_spread.last.worst_decile == 6.0
    assert (summary.validation.last, summary.validation.selected) == (2.0, 1.5)
    assert summary.over_time == [(1.0, 3.0), (2.0, 3.5)]
    assert summary.main_spread.last.by_architecture == {"cnn": 6.0, "mlp": 1.0}
    assert summary["main"] == "cost"
    assert "by_architecture" in summary["scores"]["cost"]["last"]


def test_a_metric_that_is_not_the_main_one_adds_nothing_to_the_summary() -> None:
    start, *rounds = events()
    assert isinstance(start, RunStarted)
    by_accuracy = summarise([replace(start, select=""), *rounds], 1.0)
    assert "main" not in by_accuracy
    assert "by_architecture" not in by_accuracy["scores"]["cost"]["last"]
    assert by_accuracy.over_time == [(1.0, 0.5), (2.0, 0.5)]


def test_time_to_a_low_value() -> None:
    assert [time_to([(1.0, 3.0), (2.0, 2.0)], target, COST) for target in (5.0, 2.5, 1.0)] == [1.0, 2.0, None]


def test_peers_without_a_value_do_not_count_over_time() -> None:
    start, *rounds = events()
    undefined = [replace(r, scores={"cost": [None, None]}) if r.peer else r for r in rounds]  # type: ignore[union-attr, type-var]
    assert mean_over_time(undefined, 2, "cost") == [(1.0, 2.0), (2.0, 1.0)]  # type: ignore[arg-type]
    assert mean_over_time(undefined, 3, "cost") == []  # the third peer was never measured
    summary = summarise([start, *undefined], 1.0)
    assert (summary.test.last, summary.main_spread.last.undefined) == (1.0, 1)


def test_gains_are_improvements() -> None:
    run = run_with_baseline()
    figure = run.gains()
    # Last: 3 - 1 = 2 better, 6 - 4 = 2 worse.
    assert "peer 0: +2 (1; local 3)" in figure.drawing
    assert "peer 1: -2 (6; local 4)" in figure.drawing
    assert figure.caption.startswith("Against local, 1 of 2 peers gain, 1 lose; the mean is +0.")
    assert "test cost in the run of local, minus that of this run in the last round measured" in figure.caption
    assert (figure.name, run.gains(metric="accuracy").name) == ("gain-last", "accuracy-gain-last")
    assert "gain in test cost<" in figure.drawing


def test_every_chart_is_drawn_for_every_metric() -> None:
    run = run_with_baseline()
    drawn = {figure.name: figure for figure in sections(run).figures}
    for name in ("cost", "accuracy"):
        for what in ("test", "validation", "architectures-test", "architectures-validation", "bytes", "time"):
            assert f"{name}-{what}" in drawn
    assert "Mean test cost over rounds: 3.5 in round 2" in drawn["cost-test"].drawing
    assert drawn["cost-test"].caption.endswith("Lower is better.")
    assert "data-shares" not in drawn["cost-test"].drawing
    assert "data-shares" in drawn["accuracy-test"].drawing
    # The cost is 1 to 6, the baseline's mean within: 5% of 5 on both sides.
    assert run.axis() == (0.75, 6.25)
    assert run.axis("accuracy") == (0.4, 0.6)


def test_the_page() -> None:
    page = page_of(run_with_baseline())
    assert "Mean test cost, last round measured</dt><dd><b>3.5</b><small>± 2.5 over peers (std); worst tenth 6<" in page
    assert "Mean test accuracy, last round</dt><dd><b>50.0%</b>" in page
    assert "<h2>Metrics over rounds</h2>" in page
    assert re.findall(r'data-switch="Metric"><div data-option="([^"]*)"', page)[0] == "Cost"
    assert '<th scope="col">accuracy, last</th>' in page  # of the table of peers
    rows = re.findall(r'<tr><th scope="row">(\d)</th>(.*?)</tr>', page)
    assert any("<td>1</td><td>1</td><td>+2</td><td>50.0%</td>" in cells for _, cells in rows)


def test_undefined_values_have_no_chart_but_a_reason() -> None:
    start, *rounds = events()
    nothing = [start, *(replace(r, scores={"cost": [None, None]}) for r in rounds)]  # type: ignore[type-var]
    run = Run(nothing, summarise(nothing, 1.0))
    assert "accuracy-test" in {figure.name for figure in sections(run).figures}
    with pytest.raises(coterie.report.NothingToDraw, match="Or its cost is undefined"):
        run.metric("cost")
    assert "undefined at 2 peers" in page_of(run)


def test_the_terminal() -> None:
    run = run_with_baseline()
    assert run.baseline is not None
    text = results(run.summary, Path("x"))
    assert "test cost, last round               3.5 (± 2.5 over peers, worst decile 6)" in text
    assert "  by architecture                   cnn 6, mlp 1" in text
    assert "test cost, validation-selected      2.5 (± 1.5 over peers, worst decile 4)" in text
    assert "test accuracy, last round           50.0%" in text
    named = replace(run.summary.scores["cost"], label="mean cost of all decisions")
    long = results(replace(run.summary, scores={"cost": named}), Path("x"))
    assert "  test mean cost of all decisions     3.5 (" in long
    assert "  the same, validation-selected       2.5 (" in long
    better = summarise(events([[(1.0, 1.0), (1.0, 1.0)]]), 1.0)
    assert "panm beats local by 2.5 in cost: 2 of 2 peers gain" in comparison([better, run.baseline.summary])
    assert "panm is level with local: 1 of 2" in comparison([run.summary, run.baseline.summary])


def test_a_baseline_without_the_metric_has_no_gains() -> None:
    start, *rounds = events(ALONE, "local")
    assert isinstance(start, RunStarted)
    old = [replace(start, metrics=[], select=""), *(replace(r, scores={}) for r in rounds)]  # type: ignore[type-var]
    run = Run(events(), summarise(events(), 1.0), Run(old, summarise(old, 1.0)))
    with pytest.raises(coterie.report.NothingToDraw):
        run.gains()
    assert "accuracy-gain-last" in {figure.name for figure in sections(run).figures}
    page_of(run)


def test_a_comparison_and_a_sweep(tmp_path: Path) -> None:
    found = [
        Seeds("panm", [written(events(), tmp_path / "panm")]),
        Seeds("local", [written(events(ALONE, "local"), tmp_path / "local")]),
    ]
    drawn = {figure.name: figure for figure in comparison_sections(found).figures}
    assert "test cost against round; finally panm 3.5, local 3.5" in drawn["test-round"].drawing
    assert "accuracy-test-round" in drawn
    assert "means: panm +0" in drawn["gain-last"].drawing
    places = {"panm": {"k": "1", "l": "1"}, "local": {"k": "2", "l": "2"}}
    [(heading, make)] = figures(places)
    assert heading == "over k and l"
    cells = make(found, COST, "test")
    # Both have 3.5 after the last round, and 2 on validation data: the first is outlined.
    assert "1 and 1 3.5, 2 and 2 3.5" in cells.drawing
    assert "Lower is better. Outlined: the best by validation, k=1 l=1. Empty" in cells.caption
    dearer = Seeds("local", [written(events([[(9.0, 1.0)] * 2], "local"), tmp_path / "dearer")])
    cells = make([dearer, found[0]], COST, "test")
    assert "the best by validation, k=1 l=1" in cells.caption
    opacities = re.findall(r'fill-opacity="([\d.]+)" x="[\d.]+" y="(?:21|61)"', cells.drawing)
    assert opacities == ["0.62", "0.06"]  # a cost of 1 is the best, of 3.5 the worst


def test_axes_by_unit() -> None:
    assert metric_axis.ends_around(ACCURACY, [0.42, 0.58]) == (0.4, 0.6)
    assert metric_axis.ends_around(COST, [0.1, 10.1]) == (0.0, pytest.approx(10.6))  # a cost is not negative
    assert metric_axis.ends_around(COST, [-1.0, 1.0]) == (-1.1, 1.1)
    assert metric_axis.ends_around(COST, []) == (0.0, 1.05)
    assert metric_axis.interval(ACCURACY, 0.9, 0.2) == (pytest.approx(0.7), 1.0)
    assert metric_axis.interval(COST, 0.5, 2.0) == (0.0, 2.5)


def test_a_regression(tmp_path: Path) -> None:
    rmse = {"name": "rmse", "label": "RMSE", "higher_is_better": False, "unit": "label"}
    start = RunStarted(
        "local", 0, 2, 1, ["mlp"] * 2, [4, 4], [[4], [4]], None, metrics=[rmse], select="rmse", task="regression",
        label_unit="kg",
    )  # fmt: skip
    rounds = [PeerRound(p, 1, 1.0, loss=1.0, scores={"rmse": [2.0 + p, 3.0 + p]}) for p in range(2)]
    run = coterie.report.open(written([start, *rounds], tmp_path / "run"))
    assert "accuracy" not in run.summary
    assert (run.summary.test.last, run.summary.validation.last) == (3.5, 2.5)
    page = page_of(run)
    assert "Mean test RMSE, last round measured</dt><dd><b>3.5 kg</b>" in page
    assert "<h2>RMSE over rounds</h2>" in page
    assert "accuracy" not in re.sub(r"<script.*", "", page, flags=re.DOTALL)
    assert "test RMSE, kg" in run.metric().drawing
    assert "test RMSE, last round               3.5 kg" in results(run.summary, Path("x"))
    assert tables.side_by_side([run.summary])[1][0][1:4] == ["3.5 kg", "3.5 kg", "4 kg"]
