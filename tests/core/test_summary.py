"""summary.json as typed values: files of older versions, damaged values, and what is written back."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.core.errors import CoterieError, RunError
from coterie.core.measured_metric import ACCURACY, MeasuredMetric
from coterie.core.summary import (
    Beside,
    Diverged,
    IdleShares,
    LastAndSelected,
    MetricScores,
    NeighbourScores,
    PeerSummary,
    Spread,
    Summary,
    Totals,
    any_from_json,
)

SPREAD = Spread(0.5, 0.25, 0.25, [0.25, 0.75], {"cnn": 0.75, "mlp": None})
RUN = Summary(
    "panm", 7, 2, 3, LastAndSelected(SPREAD, SPREAD), LastAndSelected(0.5, None), Totals(8, {"model": 8}), Totals(),
    2.0, IdleShares(0.125, 0.25), [(1.0, 0.5), (2.0, 0.75)], 3.0, Diverged([1], None),
    Beside({"alone": replace(SPREAD, change={})}, {"own_share": 0.5}), {"helped": 0.0, "lf_over_ce": {"mlp": 0.25}},
    NeighbourScores(mass=0.0),
    NeighbourScores(1.0, 1.0), ("after round 1: x",),
    {"f1": MetricScores("F1", False, "%", Spread(0.5, 0.25, 0.25, [0.5, None], undefined=1), Spread(per_peer=[]))},
)  # fmt: skip
PEER = PeerSummary(
    "north",
    "panm",
    7,
    3,
    LastAndSelected(0.5, None),
    8,
    1,
    0.25,
    2,
    3.0,
    Diverged([1], 2),
    ("x",),
    {"auroc": LastAndSelected(0.5, None)},
)
OLD = {"method": "local", "accuracy": {"last": {"mean": 0.5, "per_peer": [0.5]}}, "bytes": {"total": 8}, "flavour": 1}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("full", [RUN, PEER])
def test_every_field_survives_the_file(full: Summary | PeerSummary) -> None:
    content = json.loads(json.dumps(full.to_json()))
    read = any_from_json(content)
    assert type(read) is type(full)
    assert {key: value for key, value in vars(read).items() if key != "_json"} == {
        key: value for key, value in vars(full).items() if key != "_json"
    }
    assert replace(read).to_json() == content  # rebuilt from the fields


def test_optional_fields_are_left_out() -> None:
    assert list(Summary()) == [
        "method", "seed", "peers", "rounds", "validation", "bytes", "messages", "simulated_seconds", "over_time",
        "seconds",
    ]  # fmt: skip
    not_measured = Summary(accuracy=LastAndSelected(Spread(per_peer=[None]), Spread(per_peer=[None])))
    assert list(not_measured["accuracy"]["last"]) == ["mean", "std", "worst_decile", "per_peer"]


RMSE = MeasuredMetric("rmse", "RMSE", higher_is_better=False, unit="label", label_unit="kg")


def test_a_regression_has_no_accuracy() -> None:
    rmse = MetricScores("RMSE", False, "label", Spread(2.5, 0.5, 3.0, [2.0, 3.0], undefined=0), Spread(2.0))
    run = Summary("local", 0, 2, 1, scores={"rmse": rmse}, main="rmse", label_unit="kg")
    assert "accuracy" not in run
    for summary in (run, Summary.from_json(json.loads(json.dumps(run.to_json())))):
        assert summary.metrics == (RMSE,)
        assert summary.main_spread.last.per_peer == [2.0, 3.0]
        assert summary.test == LastAndSelected(2.5, 2.0)
        assert summary.accuracy.last.mean is None
    with pytest.raises(CoterieError, match="unknown metric 'accuracy'"):
        run.of("accuracy")


def test_the_main_metric_comes_first() -> None:
    assert [metric.name for metric in RUN.metrics] == ["accuracy", "f1"]
    assert RUN.main_metric == ACCURACY
    assert "main" not in RUN
    by_f1 = replace(RUN, main="f1")
    assert [metric.name for metric in by_f1.metrics] == ["f1", "accuracy"]
    assert by_f1["main"] == "f1"
    assert by_f1.test == LastAndSelected(0.5, None)
    assert by_f1.of("accuracy") == RUN.accuracy


def test_the_main_metric_of_a_real_peer() -> None:
    scores = {"rmse": LastAndSelected[float | None](2.5, 2.0)}
    peer = PeerSummary("north", scores=scores, main="rmse", main_metric=RMSE)
    assert "accuracy" not in peer
    read = any_from_json(json.loads(json.dumps(peer.to_json())))
    assert (read.test, read.main_metric) == (LastAndSelected(2.5, 2.0), RMSE)
    assert (PEER.test, PEER.main_metric) == (LastAndSelected(0.5, None), ACCURACY)


def test_a_file_of_an_older_version(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(OLD))
    old = Summary.read(path)
    assert (old.test, old.total_bytes) == (LastAndSelected(0.5, None), 8)
    assert (old.idle, old.over_time, old.neighbours.known()) == (None, [], {})
    assert old.to_json() == OLD  # also what this version does not know
    assert "over_time" not in old


def test_other_fields_are_what_a_method_declares_of_its_notes() -> None:
    content = {"helped": 0.5, "by": {"a": 1, "b": None}, "text": "x", "yes": True, "odd": {"a": "b"}, "list": [1]}
    read = Summary.from_json({**content, "beside": {"alone": {"mean": 0.5}, "own_share": 0.25}, "rounds": 3})
    assert read.noted == {"helped": 0.5, "by": {"a": 1}}
    assert (read.beside.spreads["alone"].mean, read.beside.noted) == (0.5, {"own_share": 0.25})


@given(st.dictionaries(st.sampled_from([*RUN, *PEER, "flavour"]), anything), st.sampled_from([RUN, PEER]))
def test_what_was_read_is_written_back_unchanged_whatever_it_is(odd: dict[str, Any], full: Summary) -> None:
    content = full.to_json() | odd
    read = any_from_json(content)
    assert json.dumps(read.to_json()) == json.dumps(content)
    assert isinstance(read.total_bytes, int)
    assert isinstance(read.rounds, int)


def test_it_reads_like_the_file_and_cannot_be_changed() -> None:
    assert RUN["accuracy"]["last"]["per_peer"] == [0.25, 0.75]
    assert RUN["over_time"] == [[1.0, 0.5], [2.0, 0.75]]
    assert RUN["beside"]["own_share"] == 0.5
    assert json.loads(json.dumps(dict(RUN))) == RUN
    with pytest.raises(FrozenInstanceError):
        RUN.seed = 8  # type: ignore[misc]
    with pytest.raises(TypeError):
        RUN["seed"] = 8  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "said"), [("{cut", "cannot be read .*: delete it"), ("[1]", "is not a run's summary: delete it")]
)
def test_a_file_that_is_no_summary(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(RunError, match=said):
        Summary.read(tmp_path / "summary.json")
