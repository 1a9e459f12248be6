"""The manifest of a saved model: everything needed to use it without its run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.core.ensemble import VOTES
from coterie.core.formatting import LONGEST_NAME, plain
from coterie.core.json_values import Json, items, number, subtable, table, text, whole
from coterie.core.task import OF_A_NUMBER, REGRESSION
from coterie.data.dataset import IMAGES, KINDS, FeatureColumn
from coterie.data.preparation import Preparation
from coterie.data.scaling import Scaling
from coterie.data.schema import Blocks

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
    name: str  # of a real peer or of a simulated peer's site; empty if it has none
    round: int
    classes: tuple[str, ...]  # empty: it predicts a number
    kind: str  # of samples: images, features, or integers
    shape: tuple[int, ...]  # of one sample
    columns: tuple[FeatureColumn, ...]  # of tables whose columns have names
    label: str  # the label column of such a table
    scaling: Scaling
    model: Mapping[str, object]  # the [model] settings
    vote: str  # of an ensemble; empty for a single model
    parts: tuple[Part, ...]
    version: str  # of Coterie
    preparation: Preparation | None = None  # of tables with a schema: from its columns to features, before scaling
    label_scaling: Scaling | None = None  # of a predicted number: from its unit to what networks give
    label_unit: str = ""  # of a predicted number
    aside: tuple[str, ...] = ()  # columns of the training table that are no features: of sites, groups and times

    @property
    def outputs(self) -> int:
        return len(self.classes) or OF_A_NUMBER

    @property
    def are_images(self) -> bool:
        return self.kind == IMAGES

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features of a table; empty if they have none."""
        if self.preparation:
            return self.preparation.schema.features
        return tuple(name for column in self.columns for name in column.features)

    @property
    def blocks(self) -> Blocks:
        """The features of each category of a schema."""
        return self.preparation.schema.blocks if self.preparation else ()

    @property
    def measured(self) -> tuple[str, ...]:
        """The features of a table that are measurements, not indicators."""
        if self.preparation:
            return tuple(column.name for column in self.preparation.schema.measured if column)
        return tuple(column.name for column in self.columns if not column.texts)

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the members' votes; empty if all are equal."""
        return tuple(part.weight for part in self.parts if part.weight is not None)

    @property
    def who(self) -> str:
        return f"peer {self.peer} ('{plain(self.name, LONGEST_NAME)}')" if self.name else f"peer {self.peer}"


def to_tree(m: Manifest) -> dict[str, object]:
    """The manifest as a JSON tree, also readable for people."""
    columns = [{"name": c.name, **({"texts": list(c.texts)} if c.texts else {})} for c in m.columns]
    return {
        "form": FORM, "coterie": m.version, "method": m.method, "seed": m.seed, "peer": m.peer, "name": m.name,
        "round": m.round, "classes": list(m.classes),
        "input": {
            "kind": m.kind, "shape": list(m.shape),
            "features": list(m.features), "columns": columns, "label": m.label,
            **({"aside": list(m.aside)} if m.aside else {}),
            **({"preparation": m.preparation.tree()} if m.preparation else {}),
            "scaling": {
                "per": "channel" if len(m.shape) > 1 else "feature", "formula": "(value - mean) / deviation",
                "mean": list(m.scaling.mean), "deviation": list(m.scaling.deviation),
            },
        },
        **({"output": _output(m, m.label_scaling)} if m.label_scaling else {}),
        "model": dict(m.model), "vote": m.vote, "members": list(map(_plain, m.parts)),
    }  # fmt: skip


def _output(m: Manifest, scaling: Scaling) -> dict[str, object]:
    return {
        "task": REGRESSION, "unit": m.label_unit, "formula": "prediction * deviation + mean",
        "mean": scaling.mean[0], "deviation": scaling.deviation[0],
    }  # fmt: skip


def _plain(part: Part) -> dict[str, object]:
    """Omits an absent weight: earlier versions do not know weights, and must fail on a weighted vote."""
    return {key: value for key, value in dataclasses.asdict(part).items() if key != "weight" or value is not None}


def from_tree(tree: object) -> Manifest:
    """The manifest in a JSON tree; raises ValueError, naming what is wrong, if it is not one."""
    content = table(tree)
    try:
        if content["form"] != FORM:
            raise ValueError(f"its format is {content['form']}, but this version of Coterie reads {FORM}")
        given = subtable(content, "input")
        scaling = subtable(given, "scaling")
        manifest = Manifest(
            text(content, "method"), whole(content, "seed"), whole(content, "peer"), text(content, "name"),
            whole(content, "round"), _texts(items(content, "classes")), text(given, "kind"),
            tuple(map(int, _numbers(given, "shape"))), tuple(map(_column, items(given, "columns"))),
            text(given, "label"), Scaling(_numbers(scaling, "mean"), _numbers(scaling, "deviation")),
            subtable(content, "model"), text(content, "vote"), tuple(map(_part, items(content, "members"))),
            text(content, "coterie"), Preparation.of_tree(given["preparation"]) if "preparation" in given else None,
            *_label(content), _texts(items(given, "aside")) if "aside" in given else (),
        )  # fmt: skip
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"its manifest is invalid ({error!r})") from error
    if fault := _fault(manifest):
        raise ValueError(f"its manifest is invalid ({fault})")
    return manifest


def _label(content: Json) -> tuple[Scaling | None, str]:
    """How a predicted number is scaled, and its unit."""
    if "output" not in content:
        return None, ""
    output = subtable(content, "output")
    mean, deviation = (float(number(output, key)) for key in ("mean", "deviation"))
    return Scaling((mean,), (deviation,)), text(output, "unit")


def _column(value: object) -> FeatureColumn:
    column = table(value)
    return FeatureColumn(text(column, "name"), _texts(items(column, "texts")) if "texts" in column else ())


def _part(value: object) -> Part:
    """A member; refuses keys that this version does not know."""
    part = table(value)
    weight = part.get("weight")
    if not (weight is None or isinstance(weight, int | float)):
        raise ValueError(f"its manifest is invalid (invalid vote weights {weight})")
    return Part(**{key: text(part, key) for key in part if key != "weight"}, weight=weight)


def _texts(values: Sequence[object]) -> tuple[str, ...]:
    texts = tuple(value for value in values if isinstance(value, str))
    if len(texts) < len(values):
        raise TypeError(f"not all of {values!r} are texts")
    return texts


def _numbers(content: Json, key: str) -> tuple[float, ...]:
    values = items(content, key)
    numbers = tuple(float(value) for value in values if isinstance(value, int | float))
    if len(numbers) < len(values):
        raise TypeError(f"not all of {values!r} are numbers")
    return numbers


def _is_weight(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _is_usable(scaling: Scaling) -> bool:
    return all(map(math.isfinite, (*scaling.mean, *scaling.deviation))) and 0 not in scaling.deviation


def _fault(m: Manifest) -> str:
    """The first inconsistency; empty if there is none."""
    if m.kind not in KINDS or not m.shape or min(m.shape) < 1 or (m.are_images and len(m.shape) != 3):
        return f"{m.kind} of shape {m.shape}"
    if not len(m.scaling.mean) == len(m.scaling.deviation) == m.shape[0]:
        return f"a scaling of {len(m.scaling.mean)} for inputs of shape {m.shape}"
    if not _is_usable(m.scaling):
        return "a scaling that is not finite, or by 0"
    if m.features and len(m.features) != m.shape[0]:
        return "columns that do not match its features"
    if not m.parts or (m.vote not in VOTES if m.vote else len(m.parts) > 1):
        return f"{len(m.parts)} members that vote '{m.vote}'"
    if m.weights and (len(m.weights) != len(m.parts) or not all(map(_is_weight, m.weights)) or not sum(m.weights)):
        return f"invalid vote weights {', '.join(str(part.weight) for part in m.parts)}"
    if bool(m.classes) == bool(m.label_scaling) or any(part.takes not in (RAW, SCALED) for part in m.parts):
        return "neither classes nor a number to predict, or members with invalid inputs"
    if m.label_scaling and not _is_usable(m.label_scaling):
        return "a scaling of the label that is not finite, or by 0"
    return ""
