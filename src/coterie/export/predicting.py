"""Predict class probabilities, or numbers, with a peer's model or ensemble."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from coterie import models
from coterie.config import parsing
from coterie.core.ensemble import voted
from coterie.core.errors import ArtifactError, ModelError, PortableError
from coterie.core.jobs import EvaluateJob, Pool, Split
from coterie.core.model import Architecture, Model
from coterie.core.named_code import is_import_path
from coterie.data.dataset import Array
from coterie.methods import parts
from coterie.models import ModelSettings
from coterie.portable.sandbox import Sandbox
from coterie.running import finite
from coterie.running.model_manifest import RAW, Manifest, Part
from coterie.running.saved_models import Personal, Tensors
from coterie.training.plain import predict


def predictions(personal: Personal, raw: Array) -> Array:
    """For raw samples (N, ...) the probability of each class, float32 (N, classes); or a number in the unit of the
    label, float64 (N, 1)."""
    finite.check(personal)
    manifest = personal.manifest
    scaled = manifest.scaling.of_raw(raw)
    outputs = []
    for part, content in zip(manifest.parts, personal.contents, strict=True):
        inputs = raw.astype(np.float32) if part.takes == RAW else scaled
        if isinstance(content, bytes):
            outputs.append(torch.from_numpy(run_onnx(content, inputs, part.name)))
        else:
            outputs.append(of_network(network(part, content, manifest), inputs))
        _check(outputs[-1], part, manifest, len(raw))
        if manifest.label_scaling:  # in double precision, as numbers may differ little in comparison to their size
            given: Array = outputs[-1].numpy().astype(np.float64)
            outputs[-1] = torch.from_numpy(given if part.takes == RAW else manifest.label_scaling.restored(given))
    answer = voted(outputs, manifest.vote, manifest.weights) if manifest.vote else outputs[0]
    not_finite = (~answer.isfinite()).any(1).nonzero()
    if len(not_finite):
        raise ModelError(
            f"the output of {manifest.who} in {personal.source} is not finite for {len(not_finite)} of {len(raw)} "
            f"samples (first: number {int(not_finite[0])}, counted from 0). Either their values are extreme, or "
            f"training diverged: then {finite.REMEDY}, and run it again"
        )
    return answer.numpy()


def network(part: Part, tensors: Tensors, manifest: Manifest) -> Model:
    """The network with these tensors as its weights."""
    table = parsing.build(ModelSettings, manifest.model, "model.")
    try:
        return _network(part, tensors, manifest, table)
    except ModelError:
        head = tensors.get("head.weight")
        if table.d_z or head is None or not is_import_path(part.architecture):
            raise
        # Earlier versions passed a user's module a width even if model.d_z was 0: its head has that width.
        with suppress(ModelError):
            return _network(part, tensors, manifest, replace(table, d_z=head.shape[1]))
        raise


def _network(part: Part, tensors: Tensors, manifest: Manifest, table: ModelSettings) -> Model:
    build = partial(models.build, part.architecture, manifest.shape, manifest.outputs, table, blocks=manifest.blocks)
    architecture = Architecture(part.architecture, build)
    if more := {name.partition(".")[0] for name in set(tensors) - set(architecture.layout.by_name)}:
        added = parts.predicting(manifest.method, more)
        architecture = Architecture(part.architecture, partial(build, parts=added))
    model = Model(architecture, torch.zeros(architecture.layout.size))
    try:
        model.load({key: torch.from_numpy(tensor) for key, tensor in tensors.items()})
    except ArtifactError as error:
        raise ModelError(f"'{part.name}' is no longer a model of '{part.architecture}': {error}") from error
    # Earlier versions left out the projector of a user's `Net`.
    missing = [name for name in model if name not in tensors and not name.startswith("projector.")]
    if missing:
        raise ModelError(f"'{part.name}' is no longer a model of '{part.architecture}': it has no '{missing[0]}'")
    return model


def of_network(model: Model, samples: Array) -> Tensor:
    x = torch.from_numpy(samples)
    job = EvaluateJob(model, Split(Pool(x, torch.zeros(len(x), dtype=torch.int64)), torch.arange(len(x))))
    return predict(job).answers


def run_onnx(content: bytes, samples: Array, name: str) -> Array:
    """The probabilities of an ONNX model, run in a sandbox because it may come from any peer."""
    try:
        return _sandbox().answers(content, hashlib.sha256(content).hexdigest(), samples)
    except PortableError as error:
        raise ModelError(f"'{name}' cannot be run: {error}") from error


@cache
def _sandbox() -> Sandbox:
    return Sandbox()


def _check(output: Tensor, part: Part, manifest: Manifest, count: int) -> None:
    if output.shape != (count, manifest.outputs):
        raise ModelError(
            f"'{part.name}' has output shape {tuple(output.shape)}, but expected {(count, manifest.outputs)}"
        )
