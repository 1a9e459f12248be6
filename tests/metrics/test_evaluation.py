"""What [evaluate] asks for, and errors that name the key and the remedy; the user's own metrics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie.config import loading, provenance
from coterie.core.errors import ConfigError, MetricError
from coterie.metrics import METRICS, Metric, Scores, Selection, evaluation_of, find
from coterie.metrics.computing import Outputs, scores_of
from coterie.metrics.metric import UNITS

AB, ABC = ("a", "b"), ("a", "b", "c")
TWO_ROWS = Scores(np.array([[0.25, 0.75], [0.5, 0.5]])), np.array([1, 0])


def test_automatic() -> None:
    assert evaluation_of((), "auto", "", ABC).metrics == ()
    of_table = evaluation_of((), "auto", "", ABC, table=True)
    assert [m.name for m in of_table.metrics] == ["balanced_accuracy", "auroc"]
    assert of_table.selection == Selection("accuracy", True)
    assert not evaluation_of((), "auto", "", ABC).needs_outputs
    assert evaluation_of((), "auto", "", ABC, predictions=True).needs_outputs


def test_chosen() -> None:
    chosen = evaluation_of(("brier", "accuracy"), "brier", "a", AB)
    assert [m.name for m in chosen.metrics] == ["brier"]  # accuracy is measured anyway
    assert (chosen.positive, chosen.selection) == (0, Selection("brier", False))
    assert evaluation_of(("auroc",), "accuracy", "", AB).positive == 1
    assert chosen.described() == {
        "metrics": [{"name": "brier", "label": "Brier score", "higher_is_better": False, "unit": ""}],
        "select": "brier",
    }
    assert evaluation_of(("accuracy",), "auto", "", AB).described() == {}


@pytest.mark.parametrize(
    ("names", "select", "positive", "message"),
    [
        (("aurocc",), "auto", "", r"evaluate\.metrics: unknown metric 'aurocc'\. Did you mean 'auroc'\?"),
        (("mae",), "auto", "", r"evaluate\.metrics: mae is for regression, but this is classification: use some of ac"),
        (("auroc",), "brier", "", r"evaluate\.select = 'brier' is not measured: add it to evaluate\.metrics"),
        (("auroc", "auroc"), "auto", "", r"evaluate\.metrics has 'auroc' twice: remove one"),
        (("auroc",), "auto", "d", r"evaluate\.positive = 'd' is not a class of the data: use one of a, b, c"),
        (
            ("sensitivity",),
            "auto",
            "",
            r"sensitivity needs a positive class, and the data have 3 classes: set evaluate",
        ),
    ],
)
def test_errors(names: tuple[str, ...], select: str, positive: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        evaluation_of(names, select, positive, ABC)


def test_settings_are_checked_before_the_data_are_read() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'f1'"):
        loading.load("demo", ["evaluate.metrics=f11"])
    with pytest.raises(ConfigError, match=r"evaluate\.select = 'auroc' is not measured"):
        loading.load("demo", ["evaluate.metrics=f1", "evaluate.select=auroc"])
    with pytest.raises(ConfigError, match=r"evaluate\.predictions must be one of auto, always, never"):
        loading.load("demo", ["evaluate.predictions=sometimes"])


def test_every_metric_is_described() -> None:
    for name, metric in METRICS.items():
        assert name == metric.name
        assert metric.help
        assert metric.unit in UNITS


# -- the user's own ----------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(
        "import numpy as np\n"
        "from coterie.metrics import Metric\n"
        "def surprise(scores, labels):\n"
        "    return -np.log2(scores[np.arange(len(labels)), labels]).mean()\n"
        "def misses(scores, labels):\n"
        "    return int((scores.predicted != labels).sum())\n"
        "MISSES = Metric('misses', 'misses', False, '', misses)\n"
        "def broken(scores, labels):\n"
        "    return scores['x']\n"
        "def text(scores, labels):\n"
        "    return 'high'\n"
        "def nothing(scores, labels):\n"
        "    return None\n"
        "def other(scores):\n"
        "    return 0\n"
        "NUMBER = 3\n"
        "AUROC = Metric('auroc', 'mine', False, '', misses)\n"
        "def within_2(predictions, labels):\n"
        "    return (abs(predictions - labels) <= 2).mean()\n"
        "WITHIN_2 = Metric('close', 'close', True, '%', lambda s, y: within_2(s.values, y), task='regression')\n"
    )
    return file


def test_a_function_gets_arrays(own: Path) -> None:
    # Of the labels: 0.75 and 0.5. -log2 of them: 0.415 and 1.
    metric = find(f"{own}:surprise")
    assert metric.value(*TWO_ROWS) == pytest.approx((2 - np.log2(3) + 1) / 2)
    assert (metric.name, metric.higher_is_better) == ("surprise", True)
    assert find(f"{own}:nothing").value(*TWO_ROWS) is None


@pytest.mark.parametrize("name", ["within_2", "WITHIN_2"])
def test_an_own_metric_of_numbers(own: Path, name: str) -> None:
    """Three of the four predictions are at most 2 from their label; the last is 3 from it."""
    chosen = evaluation_of([f"{own}:{name}"], "auto", "", (), task="regression")
    [metric] = chosen.metrics
    assert chosen.selection == Selection(metric.name, True)
    outputs = Outputs(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 4.0, 2.0, 7.0]))
    assert scores_of(chosen, [(outputs, outputs)]) == [{metric.name: [0.75, 0.75]}]


def test_an_own_metric_of_the_other_task_is_refused_with_the_remedy(own: Path) -> None:
    remedy = (
        r"misses is for classification.*: declare it with Metric\(\.\.\., task=\"regression\"\), or use some of mae"
    )
    with pytest.raises(ConfigError, match=remedy):
        evaluation_of([f"{own}:MISSES"], "auto", "", (), task="regression")
    with pytest.raises(ConfigError, match=r"close is for regression.*task=\"classification\"\), or use some of acc"):
        evaluation_of([f"{own}:WITHIN_2"], "auto", "", AB)


def test_a_metric_says_its_direction(own: Path) -> None:
    metric = find(f"{own}:MISSES")
    assert isinstance(metric, Metric)
    assert (metric.name, metric.higher_is_better) == ("misses", False)
    assert metric.value(*TWO_ROWS) == 0  # the second row is a tie, which goes to class 0
    chosen = evaluation_of([f"{own}:MISSES"], "misses", "", AB)
    assert chosen.selection == Selection("misses", False)
    outputs = Outputs(TWO_ROWS[0].values, TWO_ROWS[1])
    assert scores_of(chosen, [(outputs, outputs)]) == [{"misses": [0.0, 0.0]}]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", r"takes \(scores\), but is called with \(scores, labels\)"),
        ("NUMBER", r"is a int, but must be a coterie\.metrics\.Metric or a function of \(scores, labels\)"),
        ("surprize", r"there is no 'surprize' in .*Did you mean 'surprise'\?"),
        ("AUROC", r"'auroc' is a metric of Coterie: give yours another name"),
    ],
)
def test_errors_of_own_metrics(own: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find(f"{own}:{name}")


def test_failing_metrics_are_named_with_their_line(own: Path) -> None:
    with pytest.raises(MetricError, match=r"evaluate\.metrics = '.*mine\.py:broken' failed: IndexError: .*line 9\)"):
        find(f"{own}:broken").value(*TWO_ROWS)
    with pytest.raises(MetricError, match=r"mine\.py:text' returned a str: a metric returns one number"):
        find(f"{own}:text").value(*TWO_ROWS)


def test_the_file_counts_among_the_sources(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own.parent)
    e = loading.load("demo", ["evaluate.metrics=mine.py:surprise"])
    assert e.evaluate.metrics == (f"{own}:surprise",)  # so that the run can be repeated from anywhere
    before = provenance.on_disk(e)
    own.write_text(own.read_text().replace("log2", "log"))
    assert provenance.differences(before, provenance.on_disk(e)) == ["mine.py changed"]
