"""What a peer's model, or its ensemble, says of samples."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coterie import models, settings
from coterie.architecture import Architecture, Model
from coterie.data.dataset import Array
from coterie.ensemble import voted
from coterie.errors import ArtifactError, ModelError
from coterie.models import ModelSettings
from coterie.portable.networks import OUTPUT
from coterie.training import EvaluateJob, Pool, Split
from coterie.training.plain import predict
from coterie.using.keeping import ONLY_FOR_TRAINING, Personal, Tensors
from coterie.using.manifest import RAW, Manifest, Part

AT_ONCE = 512  # samples


def probabilities(personal: Personal, raw: Array) -> Array:
    """Of raw samples (N, ...), that of each class: float32 (N, classes)."""
    manifest = personal.manifest
    scaled = manifest.scaling.of_raw(raw)
    said = []
    for part, content in zip(manifest.parts, personal.contents, strict=True):
        given = raw.astype(np.float32) if part.takes == RAW else scaled
        if isinstance(content, bytes):
            said.append(torch.from_numpy(run_onnx(content, given, part.name)))
        else:
            said.append(of_network(network(part, content, manifest), given))
        _check(said[-1], part, manifest, len(raw))
    answer = voted(said, manifest.vote) if manifest.vote else said[0]
    return answer.numpy()


def network(part: Part, tensors: Tensors, manifest: Manifest) -> Model:
    """The network that these tensors are the weights of."""
    table = settings.build(ModelSettings, manifest.model, "model.")
    build = partial(models.build, part.architecture, manifest.shape, len(manifest.classes), table)
    architecture = Architecture(part.architecture, build)
    model = Model(architecture, torch.zeros(architecture.layout.size))
    try:
        model.load({key: torch.from_numpy(tensor) for key, tensor in tensors.items()})
    except ArtifactError as error:
        raise ModelError(f"'{part.name}' is no longer a model of '{part.architecture}': {error}") from error
    missing = [name for name in model if name not in tensors and name.split(".")[0] not in ONLY_FOR_TRAINING]
    if missing:
        raise ModelError(f"'{part.name}' is no longer a model of '{part.architecture}': it has no '{missing[0]}'")
    return model


def of_network(model: Model, samples: Array) -> Tensor:
    x = torch.from_numpy(samples)
    job = EvaluateJob(model, Split(Pool(x, torch.zeros(len(x), dtype=torch.int64)), torch.arange(len(x))))
    return torch.softmax(predict(job).logits, 1)


def run_onnx(content: bytes, samples: Array, name: str) -> Array:
    """The probabilities that an ONNX model gives."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        [given], outputs = session.get_inputs(), [output.name for output in session.get_outputs()]
        wanted = OUTPUT if OUTPUT in outputs else outputs[-1]
        batches = (samples[at : at + AT_ONCE] for at in range(0, len(samples), AT_ONCE))
        parts: list[Any] = [session.run([wanted], {given.name: batch})[0] for batch in batches]
        return np.concatenate(parts).astype(np.float32)
    except Exception as error:  # onnxruntime's errors have no class in common
        raise ModelError(f"'{name}' cannot be run: {str(error).strip().splitlines()[0]}") from error


def _check(said: Tensor, part: Part, manifest: Manifest, count: int) -> None:
    if said.shape != (count, len(manifest.classes)):
        raise ModelError(
            f"'{part.name}' says {tuple(said.shape)} of {count} samples, where {(count, len(manifest.classes))} is due"
        )
