"""Fits models that are not networks: scikit-learn's estimators by name, your own, or a finished ONNX file.

An estimator is converted to ONNX as soon as it is fitted. From then on the ONNX is the model, also for its owner.
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.errors import ModelError, unknown
from coterie.core.named_code import find_callable
from coterie.core.portable_model import Portable
from coterie.core.task import REGRESSION, task_of

Shape = tuple[int, ...]

PREFIX = "estimator:"
SUFFIX = ".onnx"

# Fitting temporarily changes process-wide state: the threads of OpenMP and BLAS, and the warning filters.
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class _Estimator:
    about: str
    make: Callable[[int, int], Any] | None  # a classifier, from a seed and the number of rows of the rarest class
    regressor: Callable[[int], Any] | None = None  # from a seed
    cross_validates: bool = False
    holds_rows: bool = False  # whether rows of the training data can be read from it


def _logistic(seed: int, rarest: int) -> Any:  # noqa: ARG001
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, random_state=seed))


def _forest(seed: int, rarest: int) -> Any:  # noqa: ARG001
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def _extra_trees(seed: int, rarest: int) -> Any:  # noqa: ARG001
    from sklearn.ensemble import ExtraTreesClassifier

    return ExtraTreesClassifier(random_state=seed)


def _boosting(seed: int, rarest: int) -> Any:  # noqa: ARG001
    from sklearn.ensemble import HistGradientBoostingClassifier

    # A peer may have few rows: with the default of 20 per leaf, it would learn nothing from fewer than 40.
    return HistGradientBoostingClassifier(min_samples_leaf=5, early_stopping=False, random_state=seed)


def _tree(seed: int, rarest: int) -> Any:  # noqa: ARG001
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=seed)


def _naive_bayes(seed: int, rarest: int) -> Any:  # noqa: ARG001
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


def _svm(seed: int, rarest: int) -> Any:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    machine = CalibratedClassifierCV(SVC(random_state=seed), cv=min(5, rarest), ensemble=False)
    return make_pipeline(StandardScaler(), machine)


def _ridge(seed: int) -> Any:  # noqa: ARG001
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), Ridge())


def _forest_of_numbers(seed: int) -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(random_state=seed)


def _extra_trees_of_numbers(seed: int) -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(random_state=seed)


def _boosting_of_numbers(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(min_samples_leaf=5, early_stopping=False, random_state=seed)


def _tree_of_numbers(seed: int) -> Any:
    from sklearn.tree import DecisionTreeRegressor

    return DecisionTreeRegressor(random_state=seed)


def _svm_of_numbers(seed: int) -> Any:  # noqa: ARG001
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVR

    return make_pipeline(StandardScaler(), SVR())


_ESTIMATORS = {
    "logistic": _Estimator("logistic regression on standardised inputs", _logistic),
    "ridge": _Estimator("linear regression with an L2 penalty on standardised inputs", None, _ridge),
    "naive-bayes": _Estimator("naive Bayes, each input normally distributed in each class", _naive_bayes),
    "tree": _Estimator("one decision tree, fully grown", _tree, _tree_of_numbers),
    "forest": _Estimator("random forest of 100 trees", _forest, _forest_of_numbers),
    "extra-trees": _Estimator("extremely randomised trees, 100 of them", _extra_trees, _extra_trees_of_numbers),
    "boosting": _Estimator("histogram-based gradient boosting, 100 rounds", _boosting, _boosting_of_numbers),
    "svm": _Estimator(
        "support vector machine (RBF) on standardised inputs; as a classifier, calibrated by cross-validation",
        _svm,
        _svm_of_numbers,
        cross_validates=True,
        holds_rows=True,  # its support vectors
    ),
}


def names(task: str = "") -> list[str]:
    """The named estimators, or those for a task."""
    return [name for name, kind in _ESTIMATORS.items() if not task or _for_task(kind, task)]


def _for_task(kind: _Estimator, task: str) -> bool:
    return (kind.regressor if task == REGRESSION else kind.make) is not None


def check_task(name: str, task: str) -> None:
    """Raise ModelError if a named estimator cannot predict what the task is about."""
    if name in _ESTIMATORS and not _for_task(_ESTIMATORS[name], task):
        raise ModelError(f"model.zoo: '{name}' is not for {task}: use {', '.join(names(task))}")


def is_estimator(name: str) -> bool:
    """Whether a name in ``model.zoo`` means an estimator or ONNX file rather than a network."""
    return name in _ESTIMATORS or name.startswith(PREFIX) or name.endswith(SUFFIX)


def holds_rows(name: str) -> bool:
    """Whether such a model contains rows of its training data; for custom models this is unknown."""
    return name in _ESTIMATORS and _ESTIMATORS[name].holds_rows


def describe(name: str) -> str:
    """A one-line description of an estimator."""
    if name.endswith(SUFFIX):
        return f"a finished model: {name}"
    return f"custom: {name}" if name.startswith(PREFIX) else _named(name).about


def fit(name: str, x: np.ndarray, y: np.ndarray, classes: int, seed: int, balanced: bool = False) -> Portable:
    """The estimator `name`, fitted to rows `x` (n, *input_shape) with classes `y`; determined by the seed.

    If balanced, all classes present count the same, whatever their numbers of rows. With one class, `y` are numbers.
    """
    input_shape = x.shape[1:]
    if name.endswith(SUFFIX):
        return _finished(name, input_shape, classes)
    check_task(name, task_of(classes))
    if task_of(classes) == REGRESSION:
        return _fitted_to_numbers(name, x, y, seed)
    present = np.unique(y)
    if not len(present) or present[0] < 0 or present[-1] >= classes:
        raise ModelError(f"model.zoo: '{name}' needs rows with classes from 0 to {classes - 1}, not {present.tolist()}")
    from coterie.portable import conversion

    if len(present) == 1:
        return Portable.of(conversion.constant(int(present[0]), input_shape, classes), name)
    rows = np.ascontiguousarray(x, dtype=np.float32).reshape(len(x), -1)
    with _ONE_AT_A_TIME, _one_thread(), _without_warnings():
        estimator = _fitted(name, rows, np.asarray(y), seed, balanced)
        content = conversion.convert(name, estimator, rows, input_shape, classes)
    return Portable.of(content, name)


def _fitted_to_numbers(name: str, x: np.ndarray, y: np.ndarray, seed: int) -> Portable:
    from coterie.portable import conversion

    rows = np.ascontiguousarray(x, dtype=np.float32).reshape(len(x), -1)
    with _ONE_AT_A_TIME, _one_thread(), _without_warnings():
        if name.startswith(PREFIX):
            estimator = _fit_custom(name, rows, np.asarray(y), seed, balanced=False, needs="predict")
        else:
            make = _named(name).regressor
            assert make is not None  # checked
            estimator = make(seed).fit(rows, np.asarray(y))
        content = conversion.convert_regressor(name, estimator, rows, x.shape[1:])
    return Portable.of(content, name)


def _named(name: str) -> _Estimator:
    if name not in _ESTIMATORS:
        text = unknown("estimator in model.zoo", name, _ESTIMATORS)
        raise ModelError(f"{text}, your own '{PREFIX}module:callable', or the path of a {SUFFIX} file")
    return _ESTIMATORS[name]


def _finished(path: str, input_shape: Shape, classes: int) -> Portable:
    from coterie.portable.checks import LARGEST, check

    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"model.zoo: cannot read '{path}': {error.strerror}") from error
    reason = check(content, input_shape, classes, LARGEST)
    if reason:
        raise ModelError(f"model.zoo: '{path}' cannot be used: {reason}")
    return Portable.of(content, Path(path).name)


def _fitted(name: str, rows: np.ndarray, y: np.ndarray, seed: int, balanced: bool) -> Any:
    if name.startswith(PREFIX):
        return _fit_custom(name, rows, y, seed, balanced)
    kind = _named(name)
    if kind.cross_validates:
        rows, y = _each_class_twice(rows, y)
    assert kind.make is not None  # checked
    estimator = kind.make(seed, np.unique(y, return_counts=True)[1].min())
    return estimator.fit(rows, y, **(_class_weights(name, estimator, y) if balanced else {}))


def _class_weights(name: str, estimator: Any, y: np.ndarray) -> dict[str, np.ndarray]:
    """The arguments of `fit` that make all classes count the same: scikit-learn's balanced weights of the rows.

    The same as class_weight = "balanced", but the estimators without that parameter take weights of rows, too.
    """
    from sklearn.utils.class_weight import compute_sample_weight
    from sklearn.utils.validation import has_fit_parameter

    step, last = estimator.steps[-1] if hasattr(estimator, "steps") else ("", estimator)
    if not has_fit_parameter(last, "sample_weight"):
        raise ModelError(
            f"model.zoo: '{name}' cannot be fitted with train.balance, because its fit() takes no sample_weight. "
            "Set train.balance = none, or use another model"
        )
    return {f"{step}__sample_weight" if step else "sample_weight": compute_sample_weight("balanced", y)}


def _each_class_twice(rows: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows, with the row of every single-row class repeated: cross-validation needs it on both sides."""
    _, first, counts = np.unique(y, return_index=True, return_counts=True)
    alone = first[counts == 1]
    return np.concatenate([rows, rows[alone]]), np.concatenate([y, y[alone]])


def _fit_custom(
    name: str, rows: np.ndarray, y: np.ndarray, seed: int, balanced: bool, needs: str = "predict_proba"
) -> Any:
    make = find_callable(name.removeprefix(PREFIX))
    try:
        accepted = inspect.signature(make).parameters
        estimator: Any = make(**{key: seed for key in ("seed", "random_state") if key in accepted})
        estimator.fit(rows, y, **(_class_weights(name, estimator, y) if balanced else {}))
    except ModelError:
        raise
    except Exception as error:  # the user's code
        raise ModelError(f"model.zoo: '{name}' cannot be created and fitted: {error}") from error
    if not hasattr(estimator, needs):
        raise ModelError(f"model.zoo: '{name}' returned a {type(estimator).__name__}, which has no {needs}")
    return estimator


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limits OpenMP and BLAS to one thread: the number of threads would change the last bit of sums."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses warnings that are irrelevant to the user."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # after 1000 steps it is good enough
        # skl2onnx reads these attributes of every SVC, even if unused
        warnings.filterwarnings("ignore", "Attribute `prob[AB]_` was deprecated", FutureWarning)
        yield
