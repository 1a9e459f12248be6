"""Scores of models and ensembles in runs: the same in both loops and on all engines, and in the files of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

import coterie
import coterie.report
from coterie.config import loading
from coterie.core.ensemble import Ensemble, Member
from coterie.core.jobs import EvaluateJob, Pool, Split, TrainSettings
from coterie.core.measured_metric import MeasuredMetric
from coterie.core.model import Architecture
from coterie.core.others import Others
from coterie.core.peer import Desk, Peer
from coterie.core.peer_data import PeerData
from coterie.core.summary import Summary, read_any
from coterie.engines.measuring import measure_of, score_all
from coterie.metrics import METRICS, Scores, evaluation_of
from coterie.report.html import report_again
from coterie.running import simulated
from coterie.running.folders import RunEntry
from coterie.running.local_circle import LocalCircle
from coterie.running.progress import RoundProgress
from coterie.terminal.display import progress_text, results
from coterie.training import Trainer
from coterie.training.plain import exact_answers

NAMES = ("balanced_accuracy", "auroc", "auprc", "f1", "log_loss", "brier", "ece")
TUNED = ("sensitivity_tuned", "specificity_tuned")


@pytest.fixture
def peers(mlp: Architecture, make_pool: Callable[..., Pool]) -> list[Peer]:
    """Two with 7 validation and 9 test samples, one with 5 and 6."""
    pool = make_pool(60)
    desk: Desk = None  # type: ignore[assignment]
    made, at = [], 0
    for i, (validation, test) in enumerate([(7, 9), (7, 9), (5, 6)]):
        cuts = (at, at + 4, at + 4 + validation, at + 4 + validation + test)
        data = PeerData(*(Split(pool, torch.arange(a, b)) for a, b in pairwise(cuts)))
        made.append(Peer(i, 0, Others(3, i), mlp.initial(i), TrainSettings(), desk, data))
        at = cuts[-1]
    return made


def probabilities(me: Peer, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Independent of the loops: the module itself."""
    rows: Split = getattr(me._held, split)
    net = me.model.architecture.scratch()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.data = me.model[name]
        logits = net.eval()(rows.x).logits
    return logits.double().softmax(1).numpy(), rows.y.numpy()


@pytest.mark.parametrize("batching", ["always", "never"])
def test_models_of_unequal_peers(peers: list[Peer], batching: str) -> None:
    evaluation = evaluation_of((*NAMES, *TUNED), "auto", "2", list("012"), predictions=True)
    trainer = Trainer(batching)
    found = score_all([measure_of(me) for me in peers], trainer, evaluation)
    plain = score_all([measure_of(me) for me in peers], trainer)
    trainer.close()
    for me, measured, without in zip(peers, found, plain, strict=True):
        assert measured is not None
        assert without is not None
        assert measured[:3] == without[:3]  # loss and accuracy are those of the fast way
        assert without.scores is None
        assert without.predicted is None
        by_split = [probabilities(me, split) for split in ("validation", "test")]
        for name in NAMES:
            expected = [METRICS[name].value(Scores(p, 2), y) for p, y in by_split]
            assert measured.scores is not None
            assert measured.scores[name] == [None if v is None else pytest.approx(v, abs=1e-6) for v in expected]
        assert measured.predicted is not None
        for predicted, (p, _) in zip(measured.predicted, by_split, strict=True):
            assert predicted.dtype == np.float32
            np.testing.assert_allclose(predicted, p, atol=1e-6)


def test_ensembles_vote_before_they_are_scored(peers: list[Peer]) -> None:
    me, other = peers[:2]
    me.ensemble = Ensemble((Member("a", me.model), Member("b", other.model)), weights=(1.0, 3.0))
    me.beside = {"alone": Ensemble((Member("a", me.model),))}
    trainer = Trainer()
    [measured] = score_all([measure_of(me)], trainer, evaluation_of(("auroc",), "auto", "", list("012")))
    trainer.close()
    p_own, y = probabilities(me, "test")
    own_model, me.model = me.model, other.model
    p_other, _ = probabilities(me, "test")
    me.model = own_model
    expected = roc_auc_score(np.eye(3)[y], (p_own + 3 * p_other) / 4, average="macro")
    alone = roc_auc_score(np.eye(3)[y], p_own, average="macro")
    assert measured is not None
    assert measured.scores is not None
    assert measured.scores["auroc"][1] == pytest.approx(expected)
    assert measured.beside["alone"]["scores"]["auroc"][1] == pytest.approx(alone)


@given(st.integers(1, 5), st.integers(1, 9), st.integers(2, 11), st.integers(0, 2**31))
def test_probabilities_do_not_depend_on_the_stack(peers: int, samples: int, classes: int, seed: int) -> None:
    logits = 5 * torch.randn(peers, samples, classes, generator=torch.Generator().manual_seed(seed))
    together = exact_answers(logits)
    np.testing.assert_allclose(together, logits.double().softmax(2).numpy(), rtol=1e-12)
    for i in range(peers):
        np.testing.assert_array_equal(together[i], exact_answers(logits[i]))


def test_both_loops_measure_the_same(peers: list[Peer]) -> None:
    jobs = [EvaluateJob(me.model, me._held.test) for me in peers if me._held]
    results = []
    for batching in ("always", "never"):
        trainer = Trainer(batching)
        results.append(trainer.measure(jobs))
        trainer.close()
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a.answers, b.answers, atol=1e-6)
        np.testing.assert_array_equal(a.labels, b.labels)
        assert a.score == pytest.approx(b.score)


# -- in runs -----------------------------------------------------------------------------------

SMALL = (
    "method.name=gossip", "method.k=2", "peers=4", "rounds=3", "baseline=", "data.partition=iid", "data.train=12",
    "data.validation=6", "data.test=8", "model.hidden=[4]", "train.batch=6", "engine.threads=1", "engine.models=false",
)  # fmt: skip


def run(out: Path, *words: str) -> dict[str, Any]:
    return simulated.run(loading.load("panm-digits", [*SMALL, *words]), out)


def rounds_in(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()][1:]


def lines_without_scores(out: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in r.items() if key != "scores"} for r in rounds_in(out)]


def test_a_run_of_accuracy_alone_has_no_trace_of_metrics(tmp_path: Path) -> None:
    summary = run(tmp_path / "run", "evaluate.metrics=accuracy")
    text = (tmp_path / "run" / "events.jsonl").read_text()
    assert "scores" not in text
    assert '"metrics"' not in text
    assert '"select"' not in text
    assert "scores" not in summary
    assert not (tmp_path / "run" / "predictions").exists()


def test_metrics_do_not_change_anything_else(tmp_path: Path) -> None:
    summary, measured = run(tmp_path / "a"), run(tmp_path / "b", "evaluate.metrics=auroc,brier")
    assert lines_without_scores(tmp_path / "a") == lines_without_scores(tmp_path / "b")
    for key in ("scores", "seconds"):
        measured.pop(key)
        summary.pop(key, None)
    assert summary == measured
    assert set(rounds_in(tmp_path / "b")[0]["scores"]) == {"auroc", "brier"}


def selected_by(out: Path, peer: int, key: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    return max((r for r in rounds_in(out) if r["peer"] == peer), key=key)


def test_the_selected_round_is_that_of_the_metric(tmp_path: Path) -> None:
    summary = run(tmp_path / "run", "evaluate.metrics=brier", "evaluate.select=brier")

    def merit(r: dict[str, Any]) -> Sequence[float]:
        return -r["scores"]["brier"][0], -r["loss"], -r["round"]

    chosen = [selected_by(tmp_path / "run", peer, merit) for peer in range(4)]
    assert summary["scores"]["brier"]["selected"]["per_peer"] == [r["scores"]["brier"][1] for r in chosen]
    assert summary["accuracy"]["selected"]["per_peer"] == [r["test"] for r in chosen]


MEASURED = ("evaluate.metrics=auroc,log_loss,sensitivity_tuned", "evaluate.positive=3", "evaluate.predictions=always")


def arrays(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    found = {}
    for path in sorted(folder.rglob("predictions/*.npz")):
        with np.load(path) as file:
            found[path.name] = dict(file)
    return found


def assert_same_arrays(one: Path, other: Path, peers: int = 4) -> None:
    first, second = arrays(one), arrays(other)
    assert len(first) == peers
    assert first.keys() == second.keys()
    for name, of_peer in first.items():
        assert of_peer.keys() == second[name].keys()
        for key, array in of_peer.items():
            np.testing.assert_array_equal(array, second[name][key])


def test_processes_give_the_same_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.simulation.placement.TO_DIRECT", 1e-9)  # else the first would only direct
    one = run(tmp_path / "a", *MEASURED)
    other = run(tmp_path / "b", *MEASURED, "engine.name=processes", "engine.workers=2")
    assert one["scores"] == other["scores"]
    assert rounds_in(tmp_path / "a") == rounds_in(tmp_path / "b")
    assert_same_arrays(tmp_path / "a", tmp_path / "b")


class KilledError(Exception):
    pass


@pytest.mark.parametrize("words", [(), ("engine.asynchronous=true", "clock.spread=4", "evaluate.every=3")])
def test_a_resumed_run_ends_with_the_same_files(tmp_path: Path, words: tuple[str, ...]) -> None:
    more = (*MEASURED, "evaluate.select=log_loss", "rounds=8", "train.lr=0.5", "engine.checkpoint=2", *words)
    whole = run(tmp_path / "a", *more)

    def stop(progress: Any) -> None:
        if progress.round == 5:
            raise KilledError

    with pytest.raises(KilledError):
        simulated.run(loading.load("panm-digits", [*SMALL, *more]), tmp_path / "b", on_round=stop)
    resumed = simulated.resume(tmp_path / "b")
    assert resumed["scores"] == whole["scores"]
    assert_same_arrays(tmp_path / "a", tmp_path / "b")


def test_old_folders_open(tmp_path: Path) -> None:
    """A folder of a version without metrics: its config has no such keys, its events no such fields."""
    out = tmp_path / "run"
    summary = run(out)
    kept = [
        line for line in (out / "config.toml").read_text().splitlines() if not line.startswith(("metrics", "select"))
    ]
    (out / "config.toml").write_text("\n".join(kept))
    (out / "summary.json").unlink()
    assert simulated.finish(out, summary["seconds"]).to_json() == summary


COST = Path(__file__).parents[2] / "examples" / "cost_metric.py"
BY_COST = (f"evaluate.metrics={COST}:COST,auroc", "evaluate.select=cost", "data.name=breast-cancer", "baseline=local")


def test_a_metric_of_ones_own_heads_everything(tmp_path: Path) -> None:
    """The terminal, the summary, the state, frames and the report: without a change to any other file."""
    told: list[RoundProgress] = []
    out = tmp_path / "run"
    simulated.run(loading.load("panm-digits", [*SMALL, *BY_COST]), out, on_round=told.append)
    records = rounds_in(out)
    last = [r["scores"]["cost"] for r in records if r["round"] == 3]
    validation, test = (sum(values) / 4 for values in zip(*last, strict=True))
    assert progress_text(told[-1]).startswith(f"round 3/3, validation cost of decisions {validation:.3g}, ")
    summary = Summary.read(out / "summary.json")
    assert (summary["main"], summary.main_metric.label) == ("cost", "cost of decisions")
    assert summary.test.last == pytest.approx(test)
    assert summary.validation.last == pytest.approx(validation)
    assert summary.over_time[-1][1] == pytest.approx(test)
    assert f"test cost of decisions, last round  {test:.3g} (" in results(summary, out)
    row = RunEntry("run", out, "simulation").listed()
    assert (row["validation"], row["test"]) == (pytest.approx(validation), pytest.approx(test))
    assert row["metric"] == vars(MeasuredMetric("cost", "cost of decisions", False, ""))
    frame = coterie.rounds(out)
    assert frame["cost.test"].tolist() == [r["scores"]["cost"][1] for r in records]
    page = report_again(out).read_text(encoding="utf-8")
    assert f"Mean test cost of decisions, last round measured</dt><dd><b>{test:.3g}</b>" in page
    assert "cost-test" in coterie.report.figures(out)


def test_real_peers_have_the_same_main_metric(tmp_path: Path) -> None:
    words = [*SMALL, *BY_COST, "baseline=", "peers=2", "method.k=1", "rounds=2"]
    circle = LocalCircle(loading.load("panm-digits", words), tmp_path)
    circle.prepare()
    summary = circle.run()
    assert summary.main == "cost"
    for peer in range(2):
        own = read_any(tmp_path / "peers" / f"peer-{peer}" / "summary.json")
        assert own.main_metric == summary.main_metric
        assert own.test.last == summary.main_spread.last.per_peer[peer]
