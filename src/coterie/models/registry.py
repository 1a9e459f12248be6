"""Makes the model registry of an experiment: which models its peers may train or receive, and how to build them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coterie.core.model import Architecture, Model
from coterie.core.model_registry import ModelRegistry
from coterie.models import zoo as known
from coterie.portable import estimators
from coterie.portable.networks import to_onnx
from coterie.training.plain import bind


def registry(
    zoo: Sequence[str], shape: tuple[int, ...], classes: int, make: Callable[[str], Architecture]
) -> ModelRegistry:
    """The registry; `make` builds the architecture of a name in `zoo`, or of any name that the package knows."""
    return ModelRegistry(zoo, shape, classes, make, known=known.names(), to_onnx=_to_onnx, fit=estimators.fit)


def _to_onnx(model: Model, shape: tuple[int, ...]) -> bytes:
    return to_onnx(bind(model), shape)
