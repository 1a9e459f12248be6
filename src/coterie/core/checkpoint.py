"""Checkpoints: a tree of plain values and tensors in one safetensors file, written atomically, never pickled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.checksum import checksum
from coterie.core.errors import ArtifactError, ModelError, RunError
from coterie.core.jobs import OptimizerMemory
from coterie.core.model import Architecture, Model
from coterie.core.peer import Peer
from coterie.core.weights import Frozen, Layout, Weights

KEPT = 2  # files: if the newest cannot be read, the one before serves


def save(folder: Path, round: int, tree: Mapping[str, Any]) -> None:
    """Write `round-N.safetensors` so that it is there whole or not at all; then drop the oldest."""
    folder.mkdir(parents=True, exist_ok=True)
    packing = _Tensors()
    text = json.dumps(_pack(tree, packing, "checkpoint"))
    tensors = packing.by_key
    path = folder / f"round-{round:06d}.safetensors"
    temporary = path.with_suffix(".tmp")
    try:
        save_file(tensors, temporary, metadata={"tree": text, "sum": _sum(text, tensors)})
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"the checkpoint {path} could not be written ({error}): is the disk full?") from error
    there = sorted(folder.glob("round-*.safetensors"))
    kept = [p for p in there if p <= path][-KEPT:]  # a later one could not be read, or this run had gone on from it
    for other in set(there) - set(kept):
        other.unlink()


def load(folder: Path, on_broken: Callable[[str], None] = lambda _: None) -> tuple[int, dict[str, Any]] | None:
    """The newest readable checkpoint: its round and tree; None where there is none. Tells of those it cannot read."""
    paths = sorted(folder.glob("round-*.safetensors"), reverse=True)
    broken = []
    for path in paths:
        try:
            return int(path.stem.removeprefix("round-")), _read(path)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, ArtifactError) as error:
            broken.append(f"{path}: {error}")
            on_broken(f"the checkpoint {path} cannot be read ({error})")
    if broken:
        raise RunError(
            f"no checkpoint can be read ({'; '.join(broken)}): start anew, with --overwrite (a peer: --fresh)"
        )
    return None


def _read(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if about["sum"] != _sum(about["tree"], tensors):
        raise ValueError("its content is not what was written: the file is damaged")
    unpacked = _unpack(json.loads(about["tree"]), tensors)
    assert isinstance(unpacked, dict)
    return unpacked


def _sum(text: str, tensors: Mapping[str, Tensor]) -> str:
    # As bytes: NumPy does not know all of torch's types.
    return checksum(text, {key: tensor.reshape(-1).view(torch.uint8).numpy() for key, tensor in tensors.items()})


class KeptModel(Weights):
    """A model's weights with the name of its architecture: what of it can be written, or go to another process."""

    __slots__ = ("architecture",)

    def __init__(self, layout: Layout, vector: Tensor, architecture: str) -> None:
        super().__init__(layout, vector)
        self.architecture = architecture


def of_peer(me: Peer) -> dict[str, Any]:
    """What of a peer must survive, as it is now: a part of an engine's tree."""
    memory = {"vectors": copied(me.memory.vectors), "step": me.memory.step}
    return {"vector": me.model.vector.clone(), "state": copied(me.state), "memory": memory}


def to_peer(me: Peer, saved: Mapping[str, Any]) -> None:
    """The way back."""
    me.model.vector.copy_(saved["vector"])
    me.state = revived(saved["state"], me)
    me.memory = OptimizerMemory(revived(saved["memory"]["vectors"], me), saved["memory"]["step"])


def copied(value: Any) -> Any:
    """A copy that later changes do not touch: tensors cloned, models with the name of their architecture."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Weights):
        return _nameable(value, value.vector.clone())
    if isinstance(value, Frozen):  # nobody changes it
        content = value.content
        return Frozen(_nameable(content, content.vector)) if isinstance(content, Weights) else value
    if isinstance(value, Artifact):
        raise RunError(f"me.state holds the artifact '{value.name}': keep what it carries (its `content`) instead")
    if isinstance(value, Mapping):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(v) for v in value)
    return value


def _nameable(weights: Weights, vector: Tensor) -> Weights:
    """The same with this vector, and without what only this process has: an architecture but for its name."""
    if isinstance(weights, Model):
        return KeptModel(weights.layout, vector, weights.architecture.name)
    return Weights(weights.layout, vector)


def revived(value: Any, me: Peer) -> Any:
    """What was copied, as its peer had it: on the peer's device, and models as such."""
    if isinstance(value, Tensor):
        return value.to(me.architecture.device)
    if isinstance(value, Weights):
        vector, architecture = value.vector.to(me.architecture.device), _architecture_of(value, me)
        return Weights(value.layout, vector) if architecture is None else Model(architecture, vector)
    if isinstance(value, Frozen):
        return Frozen(revived(value.content, me))
    if isinstance(value, dict):
        return {k: revived(v, me) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(revived(v, me) for v in value)
    return value


def _architecture_of(weights: Weights, me: Peer) -> Architecture | None:
    """That of a model. Files of older versions name none: there, as ever, the peer's own if it fits.

    One that a method has built by itself is known to nobody else: its weights are plain ones, for `revive` to use.
    """
    own = me.architecture
    if not isinstance(weights, KeptModel):
        return own if weights.layout == own.layout else None
    name, found = weights.architecture, own
    if name != own.name:
        if me.kinds is None:
            return None
        try:
            found = me.kinds.network(name)
        except ModelError:
            return None
    if found.layout == weights.layout:
        return found
    raise RunError(
        f"me.state of peer {me.id} holds a model of '{name}' whose tensors are not those that '{name}' has now: the "
        "model's code or settings have changed. Start anew, with --overwrite (a peer: --fresh)"
    )


class _Tensors:
    """Set aside under numbered keys, what is the same piece of memory (a model that many keep) once."""

    def __init__(self) -> None:
        self.by_key: dict[str, Tensor] = {}
        self._keys: dict[tuple[Any, ...], str] = {}

    def add(self, tensor: Tensor) -> str:
        where = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        if where not in self._keys or not tensor.numel():
            self._keys[where] = str(len(self.by_key))
            self.by_key[self._keys[where]] = tensor.detach().cpu().clone().contiguous()
        return self._keys[where]


def _pack(value: Any, tensors: _Tensors, place: str) -> Any:
    """Plain JSON, with tensors set aside under numbered keys and anything JSON lacks spelled out."""
    if isinstance(value, Tensor):
        return {"!": "tensor", "key": tensors.add(value)}
    if isinstance(value, Weights):
        slots = [[slot.name, list(slot.shape)] for slot in value.layout.slots]
        buffers = [slot.name for slot in value.layout.buffers]
        named = {"architecture": value.architecture} if isinstance(value, KeptModel) else {}
        vector = _pack(value.vector, tensors, place)
        return {"!": "weights", "slots": slots, "buffers": buffers, "vector": vector, **named}
    if isinstance(value, Frozen):
        return {"!": "frozen", "content": _pack(value.content, tensors, place)}
    if isinstance(value, Mapping):
        pairs = [[_pack(k, tensors, place), _pack(v, tensors, f"{place}.{k}")] for k, v in value.items()]
        return {"!": "dict", "pairs": pairs}
    if isinstance(value, list | tuple):
        items = [_pack(v, tensors, f"{place}[{i}]") for i, v in enumerate(value)]
        return {"!": "tuple", "items": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise RunError(
        f"{place} holds a {type(value).__name__}, which a checkpoint cannot keep: "
        "put only numbers, text, lists, dicts, tensors and weights into me.state"
    )


def _unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value["!"]
    if kind == "tensor":
        return tensors[value["key"]]
    if kind == "weights":
        layout = Layout.of_shapes(dict(value["slots"]), value["buffers"])
        vector = torch.as_tensor(_unpack(value["vector"], tensors))
        name = value.get("architecture")  # older versions wrote none
        return Weights(layout, vector) if name is None else KeptModel(layout, vector, name)
    if kind == "frozen":
        return Frozen(_unpack(value["content"], tensors))
    if kind == "tuple":
        return tuple(_unpack(v, tensors) for v in value["items"])
    return {_unpack(k, tensors): _unpack(v, tensors) for k, v in value["pairs"]}


def packed(artifact: Artifact) -> dict[str, Any]:
    content = artifact.content if isinstance(artifact.content, Weights) else dict(artifact.content)
    return {
        "name": artifact.name, "author": artifact.author, "round": artifact.round,
        "content": content, "facts": dict(artifact.facts),
    }  # fmt: skip


def unpacked(saved: dict[str, Any]) -> Artifact:
    return Artifact(saved["name"], saved["author"], saved["round"], saved["content"], saved["facts"])
