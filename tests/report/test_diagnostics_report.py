"""A report says at first sight what a model is worth, from the peers' saved predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
from report_support import written

from coterie.config import loading
from coterie.core.errors import CoterieError, DivergedError
from coterie.core.events import PeerRound, RunStarted
from coterie.report.diagnostics import warnings
from coterie.report.figure import NothingToDraw
from coterie.report.predictions import SavedPredictions, SavedSplit, file_name
from coterie.report.run import Run, open_run
from coterie.running import simulated


def made(folder: Path, share: float, *words: str) -> Path:
    """A run on a table of noise in which this share of the rows is positive."""
    rng = np.random.default_rng(0)
    y = (np.arange(600) % round(1 / share) == 0).astype(int)
    table = pandas.DataFrame({"a": rng.normal(size=600), "b": rng.normal(size=600), "label": y})
    table.to_csv(folder / "t.csv", index=False)
    settings = [
        f"data.name={folder / 't.csv'}", "data.partition=iid", "peers=3", "data.train=0.5", "data.validation=0.25",
        "data.test=0.25", "method.name=gossip", "method.k=2", "rounds=2", "baseline=", "model.hidden=[4]",
    ]  # fmt: skip
    simulated.run(loading.load("panm-digits", [*settings, *words]), folder / "run")
    return folder / "run"


@pytest.fixture(scope="module")
def imbalanced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("imbalanced"), 0.05)


def test_a_useless_model_is_named_at_the_top(imbalanced: Path) -> None:
    """One in twenty is positive and the features are noise: every peer says the majority class."""
    page = (imbalanced / "report.html").read_text()
    run = open_run(imbalanced)
    assert run.summary.test.last is not None
    assert run.summary.test.last > 0.9
    top = page[: page.index("<dl>")]
    assert "The model predicts only the class &#x27;0&#x27; at 3 of 3 peers" in top
    assert "Too few test samples of &#x27;1&#x27; (fewer than 10) at 3 of 3 peers (peer 0 " in top
    assert "Mean test AUROC, last round" in page
    assert "Peer by peer, with intervals" in page
    for heading in ("Confusion matrices", "Curves of the test predictions", "Metrics over rounds"):
        assert f"<h2>{heading}</h2>" in page


def test_figures_from_python(imbalanced: Path) -> None:
    run: Run = open_run(imbalanced)
    assert [figure.name for figure in run.confusion()] == ["confusion-0", "confusion-1", "confusion-2"]
    for figure in (run.roc(), run.precision_recall(), run.calibration(), run.metric("auroc"), *run.confusion()):
        assert "<svg" in figure.svg()
    with pytest.raises(CoterieError, match="unknown metric 'aurok'"):
        run.metric("aurok")


def test_without_predictions(tmp_path: Path) -> None:
    run = made(tmp_path, 0.5, "evaluate.predictions=never")
    page = (run / "report.html").read_text()
    assert "No predictions were saved: set evaluate.predictions=always" in page
    assert "Caution" not in page
    with pytest.raises(NothingToDraw, match="No predictions were saved"):
        open_run(run).roc()


def test_more_peers_than_a_report_shows(tmp_path: Path) -> None:
    """101 peers with saved predictions, whose content does not matter: the report does not read them."""
    start = RunStarted("local", 0, 101, 1, ["mlp"] * 101, [4] * 101, [[2, 2]] * 101, None)
    folder = written([start, *(PeerRound(p, 1, 1.0, 0.5, 0.5, 1.0) for p in range(101))], tmp_path / "run")
    (folder / "predictions").mkdir()
    for peer in range(101):
        (folder / "predictions" / file_name(peer)).touch()
    run = open_run(folder)
    for draw in (run.roc, run.confusion, run.predicted):
        with pytest.raises(NothingToDraw, match="more than 100 peers: their predictions are not shown"):
            draw()


@pytest.mark.parametrize(
    ("useless", "named"),
    [
        (5, "peer 0, peer 1, peer 2, peer 3, peer 4"),
        (6, "peer 0, peer 1, peer 2, peer 3, peer 4, ..."),
    ],
)
def test_warnings_name_the_first_five_peers(useless: int, named: str) -> None:
    """Each model always predicts 0: class 0 although half of the samples are of class 1, or a number without relation
    to the labels."""
    zeros, labels = np.zeros(20), np.arange(20) % 2
    of_classes = SavedSplit(np.arange(20), labels, np.eye(2)[[0] * 20], np.eye(2)[[0] * 20])
    of_numbers = SavedSplit(np.arange(20), labels.astype(float), zeros, zeros)
    for split, classes, task in ((of_classes, ("a", "b"), ""), (of_numbers, (), "regression")):
        predicted = dict.fromkeys(range(useless), SavedPredictions(classes, 1, 1, 1, split, split))
        start = RunStarted("local", 0, useless, 1, ["mlp"] * useless, [9] * useless, [], None, task=task)
        [said] = warnings(predicted, start)
        assert f"{useless} of {useless} peers ({named})" in said


def test_more_than_two_classes_have_a_confusion_matrix_but_no_roc(tmp_path: Path) -> None:
    words = ["rounds=1", "peers=4", "data.clusters=2", "baseline=", "evaluate.predictions=always", "method.name=local"]
    simulated.run(loading.load("panm-digits", words), tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert len(run.confusion()) == 4
    with pytest.raises(NothingToDraw, match="The data have 10 classes"):
        run.roc()


def test_a_classifier_that_diverged_ends_with_its_own_error_and_a_report(tmp_path: Path) -> None:
    """Its predictions are NaN, which have no curves, no confusion matrix, and no class that they predict."""
    with pytest.raises(DivergedError):
        made(tmp_path, 0.5, "train.lr=1e30")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "This run failed" in page
    assert "predicts only the class" not in page
    run = open_run(tmp_path / "run")
    for draw in (run.roc, run.precision_recall, run.calibration, run.confusion):
        with pytest.raises(NothingToDraw, match="diverge"):
            draw()
