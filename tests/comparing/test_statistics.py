"""What is said of several runs: every figure derived by hand or by another formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coterie.comparing.statistics import Difference, Estimate, estimate, holm, line, paired_p, ranked
from coterie.core.measured_metric import MeasuredMetric
from coterie.core.summary import Summary


def run(tests: list[float | None], validation: float, **more: Any) -> Summary:
    measured = [t for t in tests if t is not None]
    mean = sum(measured) / len(measured)
    spread = {"mean": mean, "std": 0.1, "worst_decile": min(measured), "per_peer": tests}
    counts = {"total": 100, "by_artifact": {}}
    found: dict[str, Any] = {
        "accuracy": {"last": spread, "selected": spread}, "validation": {"last": validation, "selected": validation},
        "bytes": counts, "messages": counts, "over_time": [[1.0, mean / 2], [2.0, mean]],
    }  # fmt: skip
    return Summary.from_json(found | more)


def test_an_interval_over_three_seeds_by_hand() -> None:
    # mean 2, sample deviation 1, Student's t for two degrees of freedom 4.3027 (any table): 4.3027 / sqrt(3)
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)


def test_one_seed_has_no_interval_and_no_test() -> None:
    assert estimate([0.5]) == Estimate(0.5, None)
    assert paired_p([0.1]) is None


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.data())
def test_the_paired_test_is_scipys(ones: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(-1, 1), min_size=len(ones), max_size=len(ones)))
    differences = [a - b for a, b in zip(ones, others, strict=True)]
    if len({round(d, 9) for d in differences}) == 1:
        return  # scipy has no answer where all differences are the same
    assert paired_p(differences) == pytest.approx(stats.ttest_rel(ones, others).pvalue, abs=1e-9)


def test_equal_differences_are_no_accident_unless_they_are_zero() -> None:
    assert paired_p([0.0, 0.0, 0.0]) == 1.0
    assert paired_p([0.25, 0.25]) == 0.0


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.04 are multiplied by 3, 2 and 1; none may be less than the one before.
    assert holm([0.04, None, 0.01, 0.02]) == pytest.approx([0.04, None, 0.03, 0.04])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_who_is_hurt_and_when_it_is_as_good_as_alone() -> None:
    alone = {0: run([0.5, 0.5, 0.5, 0.5], 0.5), 1: run([0.5, 0.5, 0.5, None], 0.5)}
    runs = {0: run([0.4, 0.5, 0.9, 0.8], 0.6), 1: run([0.4, 0.5, 0.9, 0.1], 0.6)}
    found = line("it", runs, alone)
    assert found.hurt == pytest.approx(
        2 / 7
    )  # 0.4 twice; an equal is not worse, and who was not measured does not count
    assert found.seeds == (0, 1)
    assert found.last.mean == pytest.approx((0.65 + 0.475) / 2)
    # Alone ends with 0.5: seed 0 has 0.325 after 1 s and 0.65 after 2 s, seed 1 never has it.
    assert (found.target, found.time, found.reached) == (0.5, 2.0, 1)
    assert line("it", runs, alone, target=0.3).time == pytest.approx((1.0 + 2.0) / 2)
    assert line("local", alone, alone, is_alone=True).hurt is None


def test_without_runs_alone_no_peer_counts_as_hurt() -> None:
    found = line("it", {0: run([0.5], 0.5)}, {})
    assert (found.hurt, found.target, found.time) == (None, None, None)


def test_the_best_is_the_best_on_validation_not_on_test_data() -> None:
    runs = {
        "lucky": {0: run([0.9], 0.5), 1: run([0.8], 0.5)},
        "good": {0: run([0.6], 0.7), 1: run([0.7], 0.7)},
        "half": {1: run([0.5], 0.1)},
    }
    best, *others = ranked([line(label, of, {}) for label, of in runs.items()], runs)
    assert (best.label, best.against_best) == ("good", None)
    assert [entry.label for entry in others] == ["lucky", "half"]
    lucky, half = (entry.against_best for entry in others)
    assert lucky is not None
    assert lucky.estimate.mean == pytest.approx(0.2)  # 0.3 on seed 0, 0.1 on seed 1
    assert half is not None
    assert (half.estimate.mean, half.p) == (pytest.approx(-0.2), None)  # on the seed that both have


def test_differences_are_corrected_for_how_many_there_are() -> None:
    runs = {
        "best": {s: run([0.5], 0.9) for s in range(3)},
        "a": {s: run([0.5 + d], 0.1) for s, d in enumerate((0.1, 0.2, 0.3))},
        "b": {s: run([0.5 + d], 0.2) for s, d in enumerate((0.1, 0.2, 0.3))},
    }
    _, a, b = sorted(ranked([line(x, of, {}) for x, of in runs.items()], runs), key=lambda e: e.label != "best")
    alone = stats.ttest_1samp([0.1, 0.2, 0.3], 0).pvalue
    for entry in (a, b):
        assert isinstance(entry.against_best, Difference)
        assert entry.against_best.p == pytest.approx(2 * alone)


COST = MeasuredMetric("cost", "cost", higher_is_better=False, unit="")


def by_cost(costs: list[float], validation: float) -> Summary:
    """Accuracy says the opposite of the cost."""
    mean = sum(costs) / len(costs)
    spread = {"mean": mean, "std": 0.1, "worst_decile": max(costs), "per_peer": costs, "undefined": 0}
    cost = {"label": "cost", "higher_is_better": False, "unit": "", "last": spread, "selected": spread}
    over_time = [[1.0, 2 * mean], [2.0, mean]]
    return run([1.0 for _ in costs], validation, scores={"cost": cost}, main="cost", over_time=over_time)


def test_less_is_better() -> None:
    runs = {"cheap": {0: by_cost([1.0, 3.0], 1.0)}, "dear": {0: by_cost([4.0, 2.0], 2.0)}}
    alone = {0: by_cost([2.0, 2.0], 1.5)}
    cheap = line("cheap", runs["cheap"], alone)
    # Peer 1 pays 3 instead of 2. The mean of 2 is reached after 2 s.
    assert (cheap.last.mean, cheap.worst_decile, cheap.hurt) == (2.0, 3.0, 0.5)
    assert (cheap.target, cheap.time) == (2.0, 2.0)
    assert line("dear", runs["dear"], alone).time is None
    assert cheap.scores == {"accuracy": Estimate(1.0, None)}
    best, other = ranked([line("dear", runs["dear"], {}), cheap], runs, COST)
    assert (best.label, other.label) == ("cheap", "dear")
    assert other.against_best == Difference(Estimate(-1.0, None), None)  # 3 - 2, which is worse
