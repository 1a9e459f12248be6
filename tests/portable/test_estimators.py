"""Estimators of scikit-learn as ONNX: the same probabilities, for all classes, the same bytes for the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import portable_support as support
import pytest
from sklearn import datasets
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier  # noqa: F401 (named in a test)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from coterie.core.errors import ModelError
from coterie.core.portable_model import Portable
from coterie.models import zoo
from coterie.portable import conversion, estimators
from coterie.portable.checks import LARGEST, check
from coterie.portable.sandbox import Sandbox

TOLERANCE = 2e-6  # measured: 1e-6, in sums of a hundred trees in single precision


def rows_of(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    data = getattr(datasets, f"load_{name}")()
    x = data.data.astype(np.float32)
    return (x.reshape(-1, 1, 8, 8) if name == "digits" else x), data.target, len(data.target_names)


def flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(len(x), -1).astype(np.float64)


def answers(sandbox: Sandbox, made: Portable, x: np.ndarray, classes: int) -> np.ndarray:
    assert sandbox.check(made.bytes, made.digest, x.shape[1:], classes, LARGEST) == ""
    return sandbox.answers(made.bytes, made.digest, x, classes)


@pytest.fixture
def fitted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The estimators that were fitted: `fit` itself keeps none."""
    seen: list[Any] = []
    convert = conversion.convert

    def watch(name: str, estimator: Any, *rest: Any) -> bytes:
        seen.append(estimator)
        return convert(name, estimator, *rest)

    monkeypatch.setattr(conversion, "convert", watch)
    return seen


@pytest.mark.parametrize("data", ["breast_cancer", "wine", "digits"])
@pytest.mark.parametrize("name", estimators.names("classification"))
def test_it_says_what_scikit_learn_says(name: str, data: str, sandbox: Sandbox, fitted: list[Any]) -> None:
    x, y, classes = rows_of(data)
    step = 9 if data == "digits" else 2  # of ten classes: enough rows for a good model, few enough to be quick
    made = estimators.fit(name, x[::step], y[::step], classes, seed=0)
    said = answers(sandbox, made, x, classes)
    np.testing.assert_allclose(said, fitted[0].predict_proba(flat(x)), rtol=0, atol=TOLERANCE)
    unseen = np.arange(len(x)) % step != 0
    assert (said.argmax(1) == y)[unseen].mean() > 0.65
    assert made.kind == name


@pytest.mark.parametrize("name", estimators.names("classification"))
def test_a_peer_without_some_classes_gives_them_nothing(name: str, sandbox: Sandbox, fitted: list[Any]) -> None:
    x, y, classes = rows_of("digits")
    mine = np.isin(y, [2, 5, 7]) & (np.arange(len(y)) < 600)
    said = answers(sandbox, estimators.fit(name, x[mine], y[mine], classes, seed=1), x[600:900], classes)
    assert not said[:, [0, 1, 3, 4, 6, 8, 9]].any()
    expected = fitted[0].predict_proba(flat(x[600:900]))
    np.testing.assert_allclose(said[:, [2, 5, 7]], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", estimators.names("classification"))
def test_a_peer_with_one_class_says_it_of_everything(name: str, sandbox: Sandbox) -> None:
    x, _, classes = rows_of("digits")
    said = answers(sandbox, estimators.fit(name, x[:9], np.full(9, 4), classes, seed=0), x[:70], classes)
    assert said.tolist() == [np.eye(10)[4].tolist()] * 70


@pytest.mark.parametrize("name", estimators.names("classification"))
def test_a_class_with_a_single_row_is_enough(name: str, sandbox: Sandbox) -> None:
    x, y, classes = rows_of("wine")
    some = np.r_[0:20, 70:85, 150]
    said = answers(sandbox, estimators.fit(name, x[some], y[some], classes, seed=0), x, classes)
    assert (said.argmax(1) == y)[y < 2].mean() > 0.6


@pytest.mark.parametrize("name", estimators.names("classification"))
def test_the_same_seed_gives_the_same_bytes(name: str) -> None:
    x, y, classes = (part[::3] if isinstance(part, np.ndarray) else part for part in rows_of("wine"))
    first, again, other = (estimators.fit(name, x, y, classes, seed).bytes for seed in (3, 3, 4))
    assert first == again
    assert (first != other) == (name in ("forest", "extra-trees", "tree"))


def alike() -> tuple[np.ndarray, np.ndarray]:
    """Two classes with 90 and 10 rows, whose inputs are 0 or 1, equally often in both."""
    rows = np.arange(100)
    return (rows % 2).astype(np.float32)[:, None].repeat(2, axis=1), (rows < 10).astype(np.int64)


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # no input is of any importance
@pytest.mark.parametrize("name", estimators.names("classification"))
def test_balanced_classes_count_the_same(name: str, sandbox: Sandbox) -> None:
    """Both classes have the same inputs, so the probability of the rare one is its share of the total weight.

    That is a tenth of the rows, or half of the balanced weight.
    """
    x, y = alike()
    shares = [
        answers(sandbox, estimators.fit(name, x, y, 2, seed=0, balanced=balanced), x[:1], 2)[0, 1]
        for balanced in (False, True)
    ]
    assert shares == pytest.approx([0.1, 0.5], abs=0.05)


@pytest.mark.usefixtures("importable")
def test_a_custom_pipeline_is_balanced_too(sandbox: Sandbox) -> None:
    x, y = alike()
    made = estimators.fit("estimator:test_estimators:boosted_in_a_pipeline", x, y, 2, seed=0, balanced=True)
    assert answers(sandbox, made, x[:1], 2)[0, 1] == pytest.approx(0.5, abs=0.05)


@pytest.mark.usefixtures("importable")
def test_an_estimator_without_weights_of_rows_cannot_be_balanced() -> None:
    x, y, classes = rows_of("wine")
    with pytest.raises(ModelError, match=r"KNeighbors.* cannot be fitted with train.balance, .* train.balance = none"):
        estimators.fit("estimator:test_estimators:KNeighborsClassifier", x, y, classes, seed=0, balanced=True)


def test_thresholds_between_neighbouring_float32s_divide_them() -> None:
    """A threshold halfway between two float32s, rounded to the nearest, may be the upper one: then both go left."""
    low = np.float32(1) + np.arange(8, dtype=np.float32) * np.float32(2**-23)
    high = np.nextafter(low, np.float32(2))
    halfway = (low.astype(np.float64) + high) / 2
    rounded = conversion._rounded_down(halfway)
    assert (low <= rounded).all()
    assert (high > rounded).all()
    assert (halfway.astype(np.float32) == high).any()  # what would go wrong


def test_a_custom_estimator(sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_neighbours.py").write_text(
        "from sklearn.ensemble import BaggingClassifier\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "def make(seed):\n    return BaggingClassifier(LogisticRegression(C=0.01), 3, random_state=seed)\n"
    )
    monkeypatch.chdir(tmp_path)
    x, y, classes = rows_of("digits")
    name = "estimator:my_neighbours:make"
    assert estimators.is_estimator(name)
    said = answers(sandbox, estimators.fit(name, x[:300], y[:300], classes, seed=0), x[300:600], classes)
    assert (said.argmax(1) == y[300:600]).mean() > 0.8


def test_one_of_scikit_learn_that_has_no_name_here(sandbox: Sandbox) -> None:
    x, y, classes = rows_of("wine")
    made = estimators.fit("estimator:sklearn.ensemble:GradientBoostingClassifier", x, y, classes, seed=3)
    expected = GradientBoostingClassifier(random_state=3).fit(x, y).predict_proba(x)
    np.testing.assert_allclose(answers(sandbox, made, x, classes), expected, rtol=0, atol=TOLERANCE)


def boosted_in_a_pipeline() -> Any:
    return make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5))


def with_categories() -> Any:
    return HistGradientBoostingClassifier(categorical_features=[0], min_samples_leaf=5, max_iter=20)


def without_probabilities() -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC()


class Foreign(LogisticRegression):
    """A class that skl2onnx does not know."""


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.usefixtures("importable")
def test_boosting_in_a_custom_pipeline(sandbox: Sandbox) -> None:
    x, y, classes = rows_of("wine")
    made = estimators.fit("estimator:test_estimators:boosted_in_a_pipeline", x, y, classes, seed=0)
    assert (answers(sandbox, made, x, classes).argmax(1) == y).mean() > 0.95


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize(
    ("made_by", "reason"),
    [
        ("with_categories", "gives other predictions as ONNX: they are off by"),
        ("without_probabilities", "returned a LinearSVC, which has no predict_proba"),
        ("Foreign", "cannot be converted to ONNX"),
        ("rows_of", "cannot be created and fitted"),
        ("KNeighborsClassifier", "peers would not accept .* as ONNX: it uses the operator 'Scan'"),
        ("nothing", "has no callable 'nothing'"),
    ],
)
def test_what_cannot_be_carried_over_is_named(made_by: str, reason: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 8, size=(200, 2)).astype(np.float32)
    y = (x[:, 0] % 2).astype(np.int64)  # even and odd categories
    with pytest.raises(ModelError, match=reason) as caught:
        estimators.fit(f"estimator:test_estimators:{made_by}", x, y, 2, seed=0)
    assert "test_estimators" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_finished_model_is_used_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.onnx"
    file.write_bytes(support.linear().SerializeToString())
    made = estimators.fit(str(file), support.ROWS, np.zeros(50, np.int64), support.CLASSES, seed=0)
    assert (made.bytes, made.kind) == (file.read_bytes(), "mine.onnx")
    assert check(made.bytes, (support.FEATURES,), support.CLASSES, LARGEST) == ""
    with pytest.raises(
        ModelError, match=r"mine.onnx' cannot be used: its output has shape \(N, 3\); expected is \(N, 7"
    ):
        estimators.fit(str(file), support.ROWS, np.zeros(50, np.int64), 7, seed=0)
    with pytest.raises(ModelError, match=r"cannot read '.*none.onnx': No such file"):
        estimators.fit(str(tmp_path / "none.onnx"), support.ROWS, np.zeros(50, np.int64), 7, seed=0)


def test_labels_that_are_no_classes_are_named() -> None:
    for labels in ([0, 3], [-1, 0], []):
        with pytest.raises(ModelError, match="'tree' needs rows with classes from 0 to 2, not"):
            estimators.fit("tree", np.zeros((len(labels), 2), np.float32), np.array(labels, np.int64), 3, seed=0)


def test_names() -> None:
    assert not set(estimators.names()) & set(zoo.names())
    assert all(estimators.is_estimator(name) and "\n" not in estimators.describe(name) for name in estimators.names())
    assert not any(map(estimators.is_estimator, [*zoo.names(), "module:callable", "torchvision.models:resnet18"]))
    assert estimators.describe("a/b.onnx") == "a finished model: a/b.onnx"
    assert estimators.describe("estimator:a:b") == "custom: estimator:a:b"
    with pytest.raises(ModelError, match=r"unknown estimator in model.zoo 'florest'. Did you mean 'forest'"):
        estimators.describe("florest")
