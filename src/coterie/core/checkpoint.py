"""Checkpoints: a tree of plain values and tensors in one safetensors file, written atomically, never pickled."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypeAlias, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from coterie.core.artifact import Artifact, Fact
from coterie.core.checksum import checksum
from coterie.core.errors import ArtifactError, ModelError, RunError
from coterie.core.files import leftovers, replacing
from coterie.core.jobs import OptimizerMemory
from coterie.core.json_values import JsonValue
from coterie.core.model import Architecture, Model
from coterie.core.peer import Peer
from coterie.core.weights import Frozen, Layout, Weights

Tree: TypeAlias = dict[str, object]  # plain values, tensors, weights, and lists and dicts of them
KEPT = 2  # files: if the newest cannot be read, the previous one is used


def save(folder: Path, round: int, tree: Mapping[str, object]) -> None:
    """Write `round-N.safetensors` atomically, then delete the oldest."""
    folder.mkdir(parents=True, exist_ok=True)
    packing = _Tensors()
    text = json.dumps(_pack(tree, packing, "checkpoint"))
    tensors = packing.by_key
    path = folder / f"round-{round:06d}.safetensors"
    for incomplete in leftovers(folder):  # large, and only one process writes here
        incomplete.unlink(missing_ok=True)
    try:
        with replacing(path) as temporary:
            save_file(tensors, temporary, metadata={"tree": text, "sum": _sum(text, tensors)})
    except (OSError, SafetensorError) as error:
        raise RunError(f"the checkpoint {path} could not be written ({error}): is the disk full?") from error
    existing = sorted(folder.glob("round-*.safetensors"))
    kept = [p for p in existing if p <= path][-KEPT:]  # later ones were unreadable, or written before a resume
    for other in set(existing) - set(kept):
        other.unlink()


def load(folder: Path, on_broken: Callable[[str], None] = lambda _: None) -> tuple[int, Tree] | None:
    """The newest readable checkpoint (its round and tree), or None. Calls `on_broken` for each unreadable one."""
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
            f"no checkpoint can be read ({'; '.join(broken)}): start over with --overwrite (a real peer: --fresh)"
        )
    return None


def _read(path: Path) -> Tree:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if metadata["sum"] != _sum(metadata["tree"], tensors):
        raise ValueError("its checksum does not match: the file is damaged")
    tree = _unpack(json.loads(metadata["tree"]), tensors)
    assert isinstance(tree, dict)
    return tree


def _sum(text: str, tensors: Mapping[str, Tensor]) -> str:
    # As bytes, because NumPy lacks some of torch's types.
    return checksum(text, {key: tensor.reshape(-1).view(torch.uint8).numpy() for key, tensor in tensors.items()})


class KeptModel(Weights):
    """A model's weights with only the name of its architecture: can be written, or sent to another process."""

    __slots__ = ("architecture",)

    def __init__(self, layout: Layout, vector: Tensor, architecture: str) -> None:
        super().__init__(layout, vector)
        self.architecture = architecture


class SavedMemory(TypedDict):
    """The state of a peer's optimiser."""

    vectors: dict[str, Tensor]
    step: int
    optimizer: NotRequired[str]  # checkpoints of older versions have none


class SavedPeer(TypedDict):
    """The part of a peer that a checkpoint keeps."""

    vector: Tensor
    state: dict[str, object]
    memory: SavedMemory


class SavedArtifact(TypedDict):
    name: str
    author: int
    round: int
    content: Weights | dict[str, Tensor]
    facts: dict[str, Fact]


def of_peer(me: Peer) -> SavedPeer:
    """A snapshot of the part of a peer that a checkpoint keeps."""
    m = me.memory
    memory: SavedMemory = {"vectors": copied(m.vectors), "step": m.step, "optimizer": m.optimizer}
    return {"vector": me.model.vector.clone(), "state": copied(me.state), "memory": memory}


def to_peer(me: Peer, saved: SavedPeer) -> None:
    """Restore a peer from what `of_peer` returned."""
    if saved["vector"].shape != me.model.vector.shape:
        raise RunError(
            f"the checkpoint has models of {len(saved['vector']):,} numbers, but this experiment's have "
            f"{len(me.model.vector):,}: the data, the schema or the model changed since the run began. Undo that, or "
            "begin a new run"
        )
    me.model.vector.copy_(saved["vector"])
    me.state = revived(saved["state"], me)
    me.memory = OptimizerMemory(**{**saved["memory"], "vectors": revived(saved["memory"]["vectors"], me)})


def copied(value: Any) -> Any:
    """A deep copy: tensors cloned, models reduced to their weights and the name of their architecture."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, Weights):
        return _nameable(value, value.vector.clone())
    if isinstance(value, Frozen):  # never changes: no copy needed
        content = value.content
        return Frozen(_nameable(content, content.vector)) if isinstance(content, Weights) else value
    if isinstance(value, Artifact):
        raise RunError(f"me.state holds the artifact '{value.name}': store its `content` instead")
    if isinstance(value, Mapping):
        return {k: copied(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(v) for v in value)
    return value


def _nameable(weights: Weights, vector: Tensor) -> Weights:
    """The same weights with this vector; an architecture, which only this process has, is replaced by its name."""
    if isinstance(weights, Model):
        return KeptModel(weights.layout, vector, weights.architecture.name)
    return Weights(weights.layout, vector)


def revived(value: Any, me: Peer) -> Any:
    """Undo `copied`: move tensors to the peer's device and rebuild its models."""
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
    """The architecture of saved weights. Files of older versions name none: then the peer's own, if it fits.

    None for an architecture that only the method knows: the weights stay plain, and the method's `revive` uses them.
    """
    own = me.architecture
    if not isinstance(weights, KeptModel):
        return own if weights.layout == own.layout else None
    name, architecture = weights.architecture, own
    if name != own.name:
        try:
            architecture = me.kinds.network(name)
        except ModelError:
            return None
    if architecture.layout == weights.layout:
        return architecture
    raise RunError(
        f"me.state of peer {me.id} holds a model of '{name}' whose tensors differ from those that '{name}' has now: "
        "the model's code or settings have changed. Start over with --overwrite (a real peer: --fresh)"
    )


class _Tensors:
    """Collects tensors under numbered keys; tensors that share memory (a model that many peers keep) only once."""

    def __init__(self) -> None:
        self.by_key: dict[str, Tensor] = {}
        self._keys: dict[tuple[object, ...], str] = {}

    def add(self, tensor: Tensor) -> str:
        identity = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tensor.device)
        if identity not in self._keys or not tensor.numel():
            self._keys[identity] = str(len(self.by_key))
            self.by_key[self._keys[identity]] = tensor.detach().cpu().clone().contiguous()
        return self._keys[identity]


def _pack(value: object, tensors: _Tensors, place: str) -> JsonValue:
    """Plain JSON: tensors go to `tensors` and leave their key; types that JSON lacks are tagged."""
    if isinstance(value, Tensor):
        return {"!": "tensor", "key": tensors.add(value)}
    if isinstance(value, Weights):
        slots: list[JsonValue] = [[slot.name, list(slot.shape)] for slot in value.layout.slots]
        buffers: list[JsonValue] = [slot.name for slot in value.layout.buffers]
        named = {"architecture": value.architecture} if isinstance(value, KeptModel) else {}
        vector = _pack(value.vector, tensors, place)
        return {"!": "weights", "slots": slots, "buffers": buffers, "vector": vector, **named}
    if isinstance(value, Frozen):
        return {"!": "frozen", "content": _pack(value.content, tensors, place)}
    if isinstance(value, Mapping):
        pairs: list[JsonValue] = [
            [_pack(k, tensors, place), _pack(v, tensors, f"{place}.{k}")] for k, v in value.items()
        ]
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


def packed(artifact: Artifact) -> SavedArtifact:
    content = artifact.content if isinstance(artifact.content, Weights) else dict(artifact.content)
    return {
        "name": artifact.name, "author": artifact.author, "round": artifact.round,
        "content": content, "facts": dict(artifact.facts),
    }  # fmt: skip


def unpacked(saved: SavedArtifact) -> Artifact:
    return Artifact(saved["name"], saved["author"], saved["round"], saved["content"], saved["facts"])
