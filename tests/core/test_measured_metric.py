"""Values of a metric as text, and which of them is better."""

from __future__ import annotations

import pytest

from coterie.core.measured_metric import ACCURACY, MeasuredMetric, described, short_number

COST = MeasuredMetric("cost", "cost of decisions", higher_is_better=False, unit="")
RMSE = MeasuredMetric("rmse", "RMSE", higher_is_better=False, unit="label", label_unit="kg")


@pytest.mark.parametrize(
    ("metric", "value", "text"),
    [
        (ACCURACY, 0.931, "93.1%"),
        (ACCURACY, None, "–"),
        (COST, 0.28749, "0.287"),
        (RMSE, 12.345, "12.3 kg"),
        (RMSE, 1234.5, "1,234 kg"),  # half to even
        (MeasuredMetric("rmse", "RMSE", False, "label"), 2.0, "2"),
        (MeasuredMetric("x", "X", True, "label", "%"), 93.1, "93.1 %"),  # labels in percent are no shares
    ],
)
def test_values_in_their_unit(metric: MeasuredMetric, value: float | None, text: str) -> None:
    assert metric.text(value) == text


def test_numbers_have_three_digits_or_are_whole() -> None:
    assert [short_number(v) for v in (0.0, 0.012345, 1.5, 999.4, 123_456.0)] == ["0", "0.0123", "1.5", "999", "123,456"]
    assert short_number(-0.5, "+") == "-0.5"


def test_a_gain_is_an_improvement() -> None:
    assert ACCURACY.gain(0.75, 0.5) == 0.25
    assert COST.gain(0.75, 0.5) == -0.25
    assert (COST.best([0.5, 0.25]), COST.worst([0.5, 0.25])) == (0.25, 0.5)
    assert (ACCURACY.difference(0.012), ACCURACY.difference_unit) == ("+1.2", "points")
    assert (RMSE.difference(-0.5), RMSE.difference_unit) == ("-0.5", "kg")
    assert [m.deviation(0.25) for m in (ACCURACY, COST, RMSE)] == ["25.0 points", "0.25", "0.25 kg"]


def test_labels() -> None:
    assert (COST.title, RMSE.title) == ("Cost of decisions", "RMSE")
    assert [m.axis_label for m in (ACCURACY, COST, RMSE)] == ["accuracy", "cost of decisions", "RMSE, kg"]
    assert [m.label_with_unit for m in (ACCURACY, COST, RMSE)] == ["accuracy, %", "cost of decisions", "RMSE, kg"]
    assert ACCURACY.on_validation(0.5) == "validation 50.0%"
    assert RMSE.on_validation(0.5) == "validation RMSE 0.5 kg"


def test_what_json_describes() -> None:
    assert described(vars(RMSE)) == RMSE
    assert described({}) == described({"name": None}) == ACCURACY
