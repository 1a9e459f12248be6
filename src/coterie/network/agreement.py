"""What must be equal at all peers of a circle, and the words for where it is not. Anything else may differ."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from coterie.data import Dataset
from coterie.errors import CoterieError
from coterie.experiment import Experiment, links_of
from coterie.kinds import labelled
from coterie.network.wire import PROTOCOL, canonical, digest_of, plain
from coterie.peer import Peer
from coterie.topology import COMPLETE

LONGEST_VALUE = 200
SIZES = ("d_z", "hidden", "width", "norm")  # of an architecture, beside its name
DIGEST = 8  # characters that tell two long values apart


class AgreementError(CoterieError):
    """Two peers do not run the same thing; the message names both values."""


def agreement(e: Experiment, dataset: Dataset, me: Peer, server: str) -> dict[str, str]:
    """Names and values, as text: the method and its parameters, the labels, and the shapes that it makes meet."""
    terms = {
        "protocol": PROTOCOL, "seed": e.seed, "rounds": e.rounds, "method.name": _method(e),
        **{f"method.{key}": value for key, value in dataclasses.asdict(e.method).items()},
        "engine.asynchronous": e.engine.asynchronous, "server": server, "labels": list(dataset.classes),
    }  # fmt: skip
    if e.graph.kind != COMPLETE:
        terms["graph"] = f"{e.graph.kind} of {e.peers} peers with edges {_short(links_of(e))}"
    if not e.method.mixed:
        slots = [[s.name, list(s.shape)] for s in me.model.layout.slots]
        terms["input shape"] = list(dataset.x.shape[1:])
        terms["model"] = f"{me.architecture.name} with {me.model.layout.size} numbers in tensors {_short(slots)}"
    elif e.method.grouped:
        terms["input shape"] = list(dataset.x.shape[1:])
        terms.update({f"model.{key}": value for key, value in dataclasses.asdict(e.model).items() if key in SIZES})
        if e.method.same_zoo:
            terms["model.zoo"] = sorted({labelled(kind) for kind in e.model.zoo})
    elif e.method.same_features:
        terms["d_z"] = int(me.model["head.weight"].shape[1])
    if "prototypes" in e.method.parts:
        terms["d_p"] = int(me.model["prototypes"].shape[1])
    if dataset.features:
        terms["features"] = list(dataset.features)
    return {key: _text(value) for key, value in terms.items()}


def difference(mine: Mapping[str, str], theirs: Mapping[str, str], name: str) -> str:
    """The first few things on which two do not agree, with both values; nothing if they do."""
    keys = [key for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key)]
    said = [f"{_clip(key)} is {_clip(mine.get(key))} here and {_clip(theirs.get(key))} at '{name}'" for key in keys[:3]]
    more = f"; and {len(keys) - 3} more" if len(keys) > 3 else ""
    return "; ".join(said) + more


def digest(terms: Mapping[str, str]) -> str:
    return digest_of(canonical(dict(terms)))[:16]


def _method(e: Experiment) -> str:
    """A method of the user's own is named by its class: its file may lie elsewhere at another peer."""
    return e.method_name.rpartition(":")[2] if ":" in e.method_name else e.method_name


def _text(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = canonical(value).decode("ascii")
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... ({digest_of(text.encode())[:DIGEST]})"


def _short(value: object) -> str:
    return digest_of(canonical(value))[:8]


def _clip(value: str | None) -> str:
    return "missing" if value is None else plain(value, LONGEST_VALUE + len("... ()") + DIGEST)
