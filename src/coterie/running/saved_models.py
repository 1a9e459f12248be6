"""Saves every peer's model in the run's folder as `models/peer-N.safetensors`, with its manifest, and reads it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from coterie.config.loading import read_tables
from coterie.config.sections import Experiment
from coterie.core.checksum import checksum
from coterie.core.ensemble import Member
from coterie.core.errors import RunError
from coterie.core.files import replacing_folder
from coterie.core.formatting import LONGEST_NAME, plain
from coterie.core.model import Model
from coterie.core.model_registry import ONNX
from coterie.core.peer import Peer, held_by
from coterie.core.portable_model import Portable
from coterie.core.run_folder import RunFolder
from coterie.core.version import version
from coterie.data.dataset import Array
from coterie.data.scaling import Scaling
from coterie.running.model_manifest import Manifest, Part, from_tree, to_tree
from coterie.wiring import Population

ONLY_MODEL = "model"  # the name of a model that is not in an ensemble

Tensors = dict[str, Array]


@dataclass(frozen=True, eq=False)
class Personal:
    """The model or ensemble that a peer predicts with."""

    manifest: Manifest
    contents: tuple[Tensors | bytes, ...]  # of each part: a network's tensors, or an ONNX file
    source: str = ""  # the folder of the run or export that it was read from


# -- writing -----------------------------------------------------------------------------------


def keep(out: Path, e: Experiment, circle: Population, peers: Iterable[tuple[Peer, int]], name: str = "") -> None:
    """Write the models of these peers, given with their rounds; a server has none.

    Atomic: there are all models of this end of the run, or none of them.
    """
    with_data = [(me, round) for me, round in peers if held_by(me) is not None]
    folder = RunFolder(out).models
    if not e.engine.models or not with_data:
        return
    try:
        with replacing_folder(folder) as temporary:  # there is a folder after an earlier end of this run
            for me, round in with_data:
                _write(temporary / file_name(me.id), _personal(me, round, e, circle, name or _site(me, circle)))
    except (OSError, SafetensorError) as error:
        raise RunError(f"the models {folder} could not be written ({error}): is the disk full?") from error


def _site(me: Peer, circle: Population) -> str:
    """The name of a simulated peer's site; empty if it has none."""
    names = circle.dataset.site_names
    return names[me.id] if me.id < len(names) else ""


def file_name(peer: int) -> str:
    return f"peer-{peer}.safetensors"


def _personal(me: Peer, round: int, e: Experiment, circle: Population, name: str) -> Personal:
    members = members_of(me)
    dataset, shape = circle.dataset, circle.shape
    data = held_by(me)
    scaling = (data and data.scaling) or Scaling.none(shape[0])
    manifest = Manifest(
        e.method_name, e.seed, me.id, name, round, dataset.classes, circle.pooled.kind, shape, dataset.columns,
        e.data.label, scaling, dataclasses.asdict(e.model),
        "" if me.ensemble is None else me.ensemble.vote, _parts(me), version(), data.preparation if data else None,
        data.label_scaling if data else None, dataset.label_unit,
        tuple(name for name in (e.data.column, e.data.group, e.data.time) if name),
    )  # fmt: skip
    return Personal(manifest, tuple(_content(member.model) for member in members))


def members_of(me: Peer) -> tuple[Member, ...]:
    """The models that a peer predicts with."""
    return (Member(ONLY_MODEL, me.model),) if me.ensemble is None else me.ensemble.members


def _parts(me: Peer) -> tuple[Part, ...]:
    weights = () if me.ensemble is None else me.ensemble.weights
    members = members_of(me)
    return tuple(
        dataclasses.replace(_part(member), weight=weight)
        for member, weight in zip(members, weights or [None] * len(members), strict=True)
    )


def _part(member: Member) -> Part:
    if isinstance(member.model, Portable):
        return Part(member.name, kind=member.model.kind)
    return Part(member.name, member.model.architecture.name)


def _content(model: Model | Portable) -> Tensors | bytes:
    if isinstance(model, Portable):
        return model.bytes
    left_out = model.architecture.only_for_training
    kept = [slot for slot in model.layout.slots if slot.name.split(".")[0] not in left_out]
    vector = model.vector.detach().cpu().numpy()
    return {slot.name: vector[slot.start : slot.stop].reshape(slot.shape) for slot in kept}


def _write(path: Path, personal: Personal) -> None:
    tensors: Tensors = {}
    for number, content in enumerate(personal.contents):
        named = {ONNX: np.frombuffer(content, dtype=np.uint8)} if isinstance(content, bytes) else content
        tensors |= {f"{number}/{key}": tensor for key, tensor in named.items()}
    text = json.dumps(to_tree(personal.manifest))
    save_file(tensors, path, metadata={"manifest": text, "sum": checksum(text, tensors)})


# -- reading -----------------------------------------------------------------------------------


def read(path: Path) -> Personal:
    """Read one peer's file; raises RunError if it is damaged."""
    try:
        with safe_open(path, framework="np") as file:
            about = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        if about.get("sum") != checksum(about.get("manifest", ""), tensors):
            raise ValueError("its checksum does not match")
        manifest = from_tree(json.loads(about["manifest"]))
    except (OSError, SafetensorError, ValueError) as error:
        raise RunError(f"{path} is damaged ({error}): run the experiment again, or copy the file again") from error
    contents = tuple(_of_part(n, part, tensors) for n, part in enumerate(manifest.parts))
    return Personal(manifest, contents, str(path.parent.parent))


def _of_part(number: int, part: Part, tensors: Mapping[str, Array]) -> Tensors | bytes:
    if part.is_portable:
        return tensors[f"{number}/{ONNX}"].tobytes()
    prefix = f"{number}/"
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def find(where: Path, peer: str | None) -> Path:
    """The file of a peer, by its name or number, in the folder of a run, a real peer, or `coterie up`."""
    files = {_number(path): path for path in _files(where)}
    if not files:
        raise RunError(_why_none(where))
    if peer is None:
        if len(files) == 1:
            return next(iter(files.values()))
        raise RunError(f"choose a peer with --peer: {where} has {len(files)}, for example --peer {min(files)}")
    names = {name: path for path in files.values() if (name := _name(path))}
    if peer in names:  # before numbers: a site may be named by a number, and reports show its name
        return names[peer]
    if peer.isdecimal() and int(peer) in files:
        return files[int(peer)]
    has = f"{len(files)} (0 to {max(files)})" if len(files) == max(files) + 1 else ", ".join(map(str, sorted(files)))
    also = f", named {', '.join(plain(name, LONGEST_NAME) for name in sorted(names))}" if names else ""
    raise RunError(f"there is no peer '{peer}': {where} has the models of {has}{also}")


def _files(where: Path) -> list[Path]:
    files = RunFolder(where)
    return [path for run in (files, *files.members()) for path in run.models.glob("peer-*.safetensors")]


def _number(path: Path) -> int:
    number = path.stem.removeprefix("peer-")
    if not number.isdecimal():
        raise RunError(f"{path} is not named like a model ({file_name(0)}): move it away")
    return int(number)


def _name(path: Path) -> str:
    """The name in a file's manifest; empty if the file is damaged."""
    try:
        with safe_open(path, framework="np") as file:
            return str(json.loads(file.metadata()["manifest"])["name"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return ""


def _why_none(where: Path) -> str:
    files = RunFolder(where)
    config = files.config
    if not files.is_started():
        return f"{where} is neither the folder of a run nor one that `coterie export` made"
    tables = read_tables(str(config))
    again = f"coterie run {config} engine.models=true --out ANOTHER"
    if tables.get("engine", {}).get("models") is False:
        return f"{where} has no models because it was run with engine.models = false. Run it again: {again}"
    if not files.is_finished():
        return f"{where} has no models yet: they are written when a run finishes (coterie run --resume {where})"
    return f"{where} has no models: its version did not save them, or it is a server's. Run it again: {again}"
