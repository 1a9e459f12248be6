"""The kinds of models that a peer may train or receive: networks of the zoo, estimators, and ONNX files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coterie.core.artifact import Artifact, Fact
from coterie.core.errors import ModelError
from coterie.core.model import Architecture, Model
from coterie.core.named_code import is_import_path
from coterie.core.portable_model import Portable
from coterie.core.weights import Weights

Array = NDArray[np.generic]
Packed = tuple[Mapping[str, Tensor], dict[str, Fact]]
ONNX = "onnx"  # the only tensor of an artifact that carries a portable model


def labelled(kind: str) -> str:
    """The name of a kind that is published to other peers: without the folder of a file, which stays private."""
    return Path(kind).name


class ModelRegistry:
    """Models by name; architectures are built on first use. `coterie.models.registry` makes a registry."""

    def __init__(
        self,
        zoo: Sequence[str],
        shape: tuple[int, ...],
        classes: int,
        make: Callable[[str], Architecture],
        *,
        known: Collection[str],
        to_onnx: Callable[[Model, tuple[int, ...]], bytes],
        fit: Callable[..., Portable],
    ) -> None:
        """`known` are the architectures that every peer can build; `to_onnx` converts a network, `fit` an estimator."""
        self.zoo, self.shape, self.classes = tuple(zoo), shape, classes
        self._make = make
        self._known = known
        self._to_onnx = to_onnx
        self._fit = fit
        self._made: dict[str, Architecture] = {}

    def network(self, name: str) -> Architecture:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def blank(self, label: str, parts: Sequence[str] = ()) -> Weights | str:
        """A network's tensors (or those of some parts) on the meta device; or why there is no network of that label."""
        known = {labelled(kind): kind for kind in (*self._known, *self.zoo)}
        if label not in known:
            return f"'{label[:80]}' is an unknown architecture"
        try:
            layout = self.network(known[label]).layout
        except ModelError as error:
            return str(error)
        whole = Weights(layout, torch.empty(layout.size, device="meta"))
        return whole.part(*parts) if parts else whole

    def packed(self, model: Model | Portable) -> Packed:
        """The form that is sent: a network of the zoo as weights, which every peer can load; other models as ONNX."""
        if isinstance(model, Model) and not is_import_path(model.architecture.name):
            return model, {"kind": model.architecture.name}
        if isinstance(model, Model):
            model = self.portable(model)
        return {ONNX: model.content}, {"kind": labelled(model.kind)}

    def portable(self, model: Model) -> Portable:
        return Portable.of(self._to_onnx(model, self.shape), model.architecture.name)

    def fitting(self, kind: str, x: Array, y: Array, seed: int, *, balanced: bool) -> Callable[[], Portable]:
        """A function that fits an estimator of this kind to these samples; balanced: all classes count the same."""
        return partial(self._fit, kind, x, y, self.classes, seed, balanced)

    def opened(self, artifact: Artifact, largest: int) -> Model | Portable | str:
        """The model in a received artifact, or why it cannot be used. Never imports code that the artifact names."""
        if artifact.nbytes > largest:
            return f"it has {artifact.nbytes:,} bytes; at most {largest:,} are accepted"
        kind = str(artifact.facts.get("kind", ""))[:80]
        if ONNX in artifact.content:
            return self._opened_portable(artifact, kind)
        if kind not in self._known:
            return f"'{kind}' is an unknown architecture, and the model is not in ONNX"
        blank = self.blank(kind)
        if isinstance(blank, str):
            return blank
        return artifact.misfit(blank, ()) or self.network(kind).view(artifact)

    def _opened_portable(self, artifact: Artifact, kind: str) -> Portable | str:
        """Checks only the tensor: the sandbox parses the file, because even that may take a lot of memory."""
        content = artifact[ONNX]
        if len(artifact) > 1 or content.dtype != torch.uint8 or content.dim() != 1:
            return f"'{ONNX}' should be the only tensor, and consist of bytes"
        return Portable(content, kind)


def _no_network(name: str) -> Architecture:
    raise ModelError(f"'{name}' cannot be built: this peer was made without a registry of models (`kinds`)")


def _no_onnx(model: Model, shape: tuple[int, ...]) -> bytes:  # noqa: ARG001
    raise ModelError(
        f"'{model.architecture.name}' cannot be converted: this peer was made without a registry of models"
    )


def _no_fit(kind: str, *_: object) -> Portable:
    raise ModelError(f"'{kind}' cannot be fitted: this peer was made without a registry of models (`kinds`)")


NO_KINDS = ModelRegistry((), (), 0, _no_network, known=(), to_onnx=_no_onnx, fit=_no_fit)  # knows no model at all
