"""A report says at first sight what a model is worth, from the peers' saved predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest

from coterie.config import loading
from coterie.core.errors import CoterieError
from coterie.report.figure import NothingToDraw
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


def test_more_than_two_classes_have_a_confusion_matrix_but_no_roc(tmp_path: Path) -> None:
    words = ["rounds=1", "peers=4", "data.clusters=2", "baseline=", "evaluate.predictions=always", "method.name=local"]
    simulated.run(loading.load("panm-digits", words), tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert len(run.confusion()) == 4
    with pytest.raises(NothingToDraw, match="The data have 10 classes"):
        run.roc()
