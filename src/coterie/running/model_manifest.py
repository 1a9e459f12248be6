"""The manifest of a saved model: everything needed to use it without its run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.core.ensemble import VOTES
from coterie.data.dataset import IMAGES, KINDS, FeatureColumn
from coterie.data.scaling import Scaling

FORM = 1  # version of the manifest's format; no other can be read
RAW, SCALED = "raw", "scaled"


@dataclass(frozen=True)
class Part:
    """One model: a peer's only one, or a member of its ensemble."""

    name: str
    architecture: str = ""  # from the zoo, or module:callable; empty for a portable model
    kind: str = ""  # of a portable model, as its author describes it
    file: str = ""  # in an exported folder
    takes: str = SCALED  # its inputs: raw values, which it scales itself, or scaled ones
    sha256: str = ""  # of the file
    weight: float | None = None  # in a soft vote; None: all are equal

    @property
    def is_portable(self) -> bool:
        return not self.architecture


@dataclass(frozen=True)
class Manifest:
    method: str
    seed: int
    peer: int
    name: str  # of a real peer; empty for a simulated one
    round: int
    classes: tuple[str, ...]
    kind: str  # of samples: images, features, or integers
    shape: tuple[int, ...]  # of one sample
    columns: tuple[FeatureColumn, ...]  # of tables whose columns have names
    label: str  # the label column of such a table
    scaling: Scaling
    model: Mapping[str, Any]  # the [model] settings
    vote: str  # of an ensemble; empty for a single model
    parts: tuple[Part, ...]
    version: str  # of Coterie

    @property
    def are_images(self) -> bool:
        return self.kind == IMAGES

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the members' votes; empty if all are equal."""
        return tuple(part.weight for part in self.parts if part.weight is not None)

    @property
    def who(self) -> str:
        return f"peer {self.peer} ('{self.name}')" if self.name else f"peer {self.peer}"


def to_tree(m: Manifest) -> dict[str, Any]:
    """The manifest as a JSON tree, also readable for people."""
    columns = [{"name": c.name, **({"texts": list(c.texts)} if c.texts else {})} for c in m.columns]
    return {
        "form": FORM, "coterie": m.version, "method": m.method, "seed": m.seed, "peer": m.peer, "name": m.name,
        "round": m.round, "classes": list(m.classes),
        "input": {
            "kind": m.kind, "shape": list(m.shape),
            "features": [name for c in m.columns for name in c.features], "columns": columns, "label": m.label,
            "scaling": {
                "per": "channel" if len(m.shape) > 1 else "feature", "formula": "(value - mean) / deviation",
                "mean": list(m.scaling.mean), "deviation": list(m.scaling.deviation),
            },
        },
        "model": dict(m.model), "vote": m.vote, "members": list(map(_plain, m.parts)),
    }  # fmt: skip


def _plain(part: Part) -> dict[str, Any]:
    """Omits an absent weight: earlier versions do not know weights, and must fail on a weighted vote."""
    return {key: value for key, value in dataclasses.asdict(part).items() if key != "weight" or value is not None}


def from_tree(tree: Any) -> Manifest:
    """The manifest in a JSON tree; raises ValueError, naming what is wrong, if it is not one."""
    try:
        if tree["form"] != FORM:
            raise ValueError(f"its format is {tree['form']}, but this version of Coterie reads {FORM}")
        given, scaling = tree["input"], tree["input"]["scaling"]
        manifest = Manifest(
            tree["method"], tree["seed"], tree["peer"], tree["name"], tree["round"], _texts(tree["classes"]),
            given["kind"], tuple(int(n) for n in given["shape"]),
            tuple(FeatureColumn(c["name"], _texts(c.get("texts", ()))) for c in given["columns"]), given["label"],
            Scaling(_numbers(scaling["mean"]), _numbers(scaling["deviation"])), dict(tree["model"]), tree["vote"],
            tuple(Part(**part) for part in tree["members"]), tree["coterie"],
        )  # fmt: skip
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its manifest is invalid ({error!r})") from error
    if fault := _fault(manifest):
        raise ValueError(f"its manifest is invalid ({fault})")
    return manifest


def _texts(values: Any) -> tuple[str, ...]:
    texts = tuple(values)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"not all of {texts!r} are texts")
    return texts


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _fault(m: Manifest) -> str:
    """The first inconsistency; empty if there is none."""
    if m.kind not in KINDS or not m.shape or min(m.shape) < 1 or (m.are_images and len(m.shape) != 3):
        return f"{m.kind} of shape {m.shape}"
    if not len(m.scaling.mean) == len(m.scaling.deviation) == m.shape[0]:
        return f"a scaling of {len(m.scaling.mean)} for inputs of shape {m.shape}"
    if not all(map(math.isfinite, (*m.scaling.mean, *m.scaling.deviation))) or 0 in m.scaling.deviation:
        return "a scaling that is not finite, or by 0"
    if m.columns and sum(len(c.features) for c in m.columns) != m.shape[0]:
        return "columns that do not match its features"
    if not m.parts or (m.vote not in VOTES if m.vote else len(m.parts) > 1):
        return f"{len(m.parts)} members that vote '{m.vote}'"
    if m.weights and (len(m.weights) != len(m.parts) or not all(map(_is_weight, m.weights)) or not sum(m.weights)):
        return f"invalid vote weights {', '.join(str(part.weight) for part in m.parts)}"
    if not m.classes or any(part.takes not in (RAW, SCALED) for part in m.parts):
        return "no classes, or members with invalid inputs"
    return ""
