"""Export a peer's model to a folder: files that other programs can read, and manifest.json."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from coterie.core.errors import ModelError, RunError
from coterie.core.files import replacing_folder
from coterie.data.dataset import INTEGERS
from coterie.export.predicting import network, of_network, run_onnx
from coterie.portable.columns import taking_columns
from coterie.portable.networks import giving_numbers, taking_raw, to_onnx
from coterie.report.summary import write_json
from coterie.running import finite
from coterie.running.model_manifest import RAW, SCALED, Manifest, Part, from_tree, to_tree
from coterie.running.saved_models import Personal, Tensors
from coterie.training.plain import bind

ONNX, SAFETENSORS = "onnx", "safetensors"
FORMATS = (ONNX, SAFETENSORS)
MANIFEST = "manifest.json"
TOLERANCE = 1e-3  # of a probability, between a network and its ONNX file; rounding is a hundred times smaller


def check_folder(out: Path, overwrite: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not overwrite:
        raise RunError(f"{out} already exists: choose another --out, or use --overwrite")
    if not (out / MANIFEST).exists():
        raise RunError(f"{out} was not made by `coterie export`, so it is not overwritten: choose another --out")


def export(personal: Personal, out: Path, form: str = ONNX, *, overwrite: bool = False) -> Manifest:
    """Write the folder atomically. Returns its manifest.

    ONNX files take raw values and scale them. A network as safetensors takes values scaled by the manifest's numbers.
    Models received as ONNX stay ONNX in either format.
    """
    check_folder(out, overwrite)
    finite.check(personal)
    files = _files(personal, form)
    manifest = dataclasses.replace(personal.manifest, parts=tuple(part for part, _ in files))
    try:
        with replacing_folder(out) as temporary:
            for part, data in files:
                (temporary / part.file).write_bytes(data)
                if personal.manifest.preparation and (columns := columns_file(part, manifest)):
                    whole = taking_columns(data, personal.manifest.preparation)
                    (temporary / columns).write_bytes(whole)
            write_json(temporary / MANIFEST, to_tree(manifest))
    except OSError as error:
        raise RunError(f"{out} could not be written ({error}): is the disk full?") from error
    return manifest


def columns_file(part: Part, m: Manifest) -> str:
    """The file of the same model that takes the raw columns of a schema instead of features; empty without one.

    There is none for a schema with texts: the operators of ONNX do not find words in a text, nor hash them.
    """
    if not m.preparation or m.preparation.schema.texts or not part.file.endswith(f".{ONNX}"):
        return ""
    return f"{Path(part.file).stem}-columns.{ONNX}"


def missing_columns_file(m: Manifest) -> str:
    """Why there is no file that takes raw columns, and what to use instead; empty if there is one, or need be none."""
    texts = m.preparation.schema.texts if m.preparation else ()
    if not texts or not any(part.file.endswith(f".{ONNX}") for part in m.parts):
        return ""
    files = ", ".join(part.file for part in m.parts)
    return f"no file takes the raw columns: ONNX cannot hash texts ({', '.join(texts)}); {files} takes the features"


def _files(personal: Personal, form: str) -> list[tuple[Part, bytes]]:
    m, files = personal.manifest, []
    for number, (part, content) in enumerate(zip(m.parts, personal.contents, strict=True)):
        if isinstance(content, bytes):
            takes, suffix, data = RAW, ONNX, content if part.takes == RAW else _raw_to_raw(content, m)
        elif form == ONNX:
            takes, suffix, data = RAW, ONNX, _as_onnx(part, content, m)
        else:
            takes, suffix, data = SCALED, SAFETENSORS, save(content)
        file = f"member-{number}.{suffix}" if m.vote else f"model.{suffix}"
        files.append((dataclasses.replace(part, file=file, takes=takes, sha256=_digest(data)), data))
    return files


def _raw_to_raw(content: bytes, m: Manifest) -> bytes:
    """The model for raw values, which gives a number in the unit of its label."""
    taking = taking_raw(content, m.scaling)
    return giving_numbers(taking, m.label_scaling) if m.label_scaling else taking


def _as_onnx(part: Part, tensors: Tensors, m: Manifest) -> bytes:
    """The network as ONNX, after checking that it agrees with the network on some samples."""
    model = network(part, tensors, m)
    try:
        content = _raw_to_raw(to_onnx(bind(model), m.shape), m)
    except ModelError as error:
        raise ModelError(f"'{part.name}' ({part.architecture}): {error}. Use --format safetensors") from error
    raw = _synthetic_samples(m)
    expected = of_network(model, m.scaling.of_raw(raw)).numpy()
    if not np.isfinite(expected).all():
        raise ModelError(
            f"'{part.name}' of {m.who} has diverged: its outputs are not finite. Train it with a lower learning rate"
        )
    answers, scale = run_onnx(content, raw, part.name), 1.0
    if m.label_scaling:  # numbers may be large, and ONNX files have single precision
        expected = m.label_scaling.restored(expected)
        scale = np.maximum(m.label_scaling.deviation[0], np.abs(expected))
    differences = np.abs(answers - expected) / scale
    if not differences.max() <= TOLERANCE:
        raise ModelError(
            f"'{part.name}' ({part.architecture}) as ONNX differs from the network by up to {differences.max():.3g}: "
            "its forward depends on values or on the batch's size. Use --format safetensors"
        )
    return content


def _synthetic_samples(m: Manifest, count: int = 3) -> np.ndarray:
    """Plausible raw samples. For integers only 0 and 1: larger ones may be ids that the model does not have."""
    rng = np.random.default_rng(0)
    if m.kind == INTEGERS:
        return rng.integers(2, size=(count, *m.shape)).astype(np.float32)
    broad = (-1,) + (1,) * (len(m.shape) - 1)
    mean, deviation = (np.reshape(v, broad) for v in (m.scaling.mean, m.scaling.deviation))
    samples: np.ndarray = (mean + deviation * rng.normal(size=(count, *m.shape))).astype(np.float32)
    return samples


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(folder: Path) -> Personal:
    """Read an exported folder, to predict with or to export again. Raises RunError if it is damaged."""
    path = folder / MANIFEST
    try:
        manifest = from_tree(json.loads(path.read_text(encoding="utf-8")))
        contents = []
        for part in manifest.parts:
            path = folder / Path(part.file).name
            contents.append(_content(path, part))
    except (OSError, SafetensorError, ValueError) as error:
        raise RunError(f"{path} cannot be read ({error}): export the model again") from error
    return Personal(manifest, tuple(contents), str(folder))


def _content(path: Path, part: Part) -> Tensors | bytes:
    data = path.read_bytes()
    if _digest(data) != part.sha256:
        raise ValueError("its checksum differs from the manifest's")
    return data if path.suffix == f".{ONNX}" else load(data)
