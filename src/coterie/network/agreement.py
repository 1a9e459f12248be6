"""The terms that must be equal at all peers of a circle, and a description of any difference.

Settings are compared by value. So are digests of random numbers, of initial weights and of how a named dataset was
divided: torch and NumPy do not promise the same random streams in every build. Labels and columns, which come from
data files, are compared only by digest: neither the terms that peers exchange nor the descriptions of differences
reveal them.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from coterie.config.sections import Experiment
from coterie.core import randomness
from coterie.core.errors import CoterieError
from coterie.core.formatting import plain
from coterie.core.model_registry import labelled
from coterie.core.named_code import function_parameters
from coterie.core.peer import Peer
from coterie.core.task import REGRESSION
from coterie.core.topology import COMPLETE, links_of
from coterie.data import Dataset
from coterie.data.dataset import INTEGERS, FeatureColumn
from coterie.data.scaling import POOLED
from coterie.data.schema import Schema
from coterie.methods.parts import names as part_names
from coterie.network.wire import PROTOCOL, canonical, digest_of

LONGEST_VALUE = 200
SIZES = ("d_z", "hidden", "width", "vocabulary", "norm")  # settings that define an architecture, besides its name
DIGEST = 8  # characters that distinguish two long values
DIGESTED = "sha256:"  # prefix of a value that is only a digest
LABELS = "labels"
SCHEMA = "schema"
RANDOM_NUMBERS, INITIAL_WEIGHTS, DIVISION = "random numbers", "initial weights", "division of the dataset"
PROBED = 64  # numbers of the initial weights that are compared
DECIMALS = 2  # of these: processors round the last digits of a draw differently
MOST_COLUMNS = 256  # digests of columns in the terms
SAME_VERSIONS = "The peers' versions of torch or NumPy draw different random numbers: install the same versions"
REMEDIES = {
    RANDOM_NUMBERS: SAME_VERSIONS,
    INITIAL_WEIGHTS: "Use the same [model] settings, the same pretrained files and the same version of torch",
    DIVISION: "Use the same [data] settings, number of peers and seed, and the same versions of torch and NumPy",
    LABELS: "List all labels in the same order as data.labels in the file that all peers share",
    SCHEMA: "Use the same schema file (data.schema) at all peers",
    "column": "Columns are counted from 1, without the label: use the same names in the same order, and the same "
    "data.categories",
}


class AgreementError(CoterieError):
    """Two peers run different experiments; the message names both values, or which part of the data differs."""


def agreement(e: Experiment, dataset: Dataset, me: Peer, server: str, division: str = "") -> dict[str, str]:
    """The terms as text, by name: the method and its parameters, the labels, and the shapes that must match.

    `division` is a digest of the rows of each peer, if all of them divide a named dataset.
    """
    shape = {"input kind": dataset.kind, "input shape": list(dataset.shape)}
    terms = {
        "protocol": PROTOCOL, "seed": e.seed, "rounds": e.rounds, "method.name": _code(e.method_name),
        **{f"method.{key}": value for key, value in dataclasses.asdict(e.method).items()},
        **{f"method.{key}": _function(getattr(e.method, key)) for key in function_parameters(e.method)},
        "data.scale": _scale(e, dataset), "engine.asynchronous": e.engine.asynchronous, "server": server,
        "number of labels": len(dataset.classes),
        RANDOM_NUMBERS: _short(_random_numbers(e.seed)),
    }  # fmt: skip
    if dataset.task == REGRESSION:
        terms["data.task"] = dataset.task
    if division:
        terms[DIVISION] = f"{e.data.name} {division}"
    if e.graph.kind != COMPLETE:
        terms["graph"] = f"{e.graph.kind} of {e.peers} peers with edges {_short(links_of(e.graph, e.peers, e.seed))}"
    if e.data.scale == POOLED:
        terms.update(shape)
    if not e.method.mixed:
        slots = [[s.name, list(s.shape)] for s in me.model.layout.slots]
        terms.update(shape)
        terms["model"] = f"{me.architecture.name} with {me.model.layout.size} numbers in tensors {_short(slots)}"
        terms[INITIAL_WEIGHTS] = _short(_probe(me.architecture.initial(e.seed).vector))
    elif e.method.grouped:
        terms.update(shape)
        terms.update({f"model.{key}": value for key, value in dataclasses.asdict(e.model).items() if key in SIZES})
        if e.method.same_zoo:
            terms["model.zoo"] = sorted({labelled(kind) for kind in e.model.zoo})
    elif e.method.same_features:
        terms["d_z"] = int(me.model["head.weight"].shape[1])
    if "prototypes" in part_names(e.method.parts):
        terms["d_p"] = int(me.model["prototypes"].shape[1])
    texts = {key: _text(value) for key, value in terms.items()}
    return {**texts, LABELS: _digested(list(dataset.classes)), **_columns(dataset.columns), **_schema(dataset.schema)}


def _scale(e: Experiment, dataset: Dataset) -> str:
    """How inputs are scaled, with what "auto" means for these."""
    if e.data.scale != "auto":
        return e.data.scale
    return "none" if dataset.kind == INTEGERS else "standard"


def _schema(schema: Schema | None) -> dict[str, str]:
    """A digest of each declaration, by the column's declared name, which is no value of a cell."""
    if schema is None:
        return {}
    digests = schema.digests()
    if len(digests) > MOST_COLUMNS:  # to keep messages small
        return {SCHEMA: _digested(digests)}
    return {f"{SCHEMA}, {what}": f"{DIGESTED}{digest}" for what, digest in digests.items()}


def _random_numbers(seed: int) -> list[object]:
    """A few draws of each kind that models and partitions use."""
    stream = randomness.generator(seed, "agreement")
    with randomness.torch_seeded(seed, "agreement"):
        drawn = [torch.rand(4), torch.randn(16), torch.empty(4).uniform_(-1, 1)]
    integers = [stream.permutation(32).tolist(), stream.integers(1 << 40, size=4).tolist()]
    return [*integers, *(_probe(numbers) for numbers in drawn), stream.dirichlet([0.5] * 4).round(DECIMALS).tolist()]


def _probe(numbers: Tensor) -> list[float]:
    """Some of the numbers, rounded. Adding 0.0 turns -0.0 into 0.0."""
    step = max(1, len(numbers) // PROBED)
    return [round(float(number), DECIMALS) + 0.0 for number in numbers[::step][:PROBED]]


def _columns(columns: Sequence[FeatureColumn]) -> dict[str, str]:
    """A digest of each column, or of groups of columns if there are many, to keep messages small."""
    if not columns:
        return {}
    step = -(-len(columns) // MOST_COLUMNS)
    parts = [columns[at : at + step] for at in range(0, len(columns), step)]
    places = [(1 + at, min(at + step, len(columns))) for at in range(0, len(columns), step)]
    names = [f"column {first}" if first == last else f"columns {first} to {last}" for first, last in places]
    digests = [_digested([[c.name, list(c.texts)] for c in part]) for part in parts]
    return {"number of columns": str(len(columns)), **dict(zip(names, digests, strict=True))}


def difference(mine: Mapping[str, str], theirs: Mapping[str, str], name: str, me: str) -> str:
    """The first few terms on which two peers differ, with both values; empty if they agree.

    The text is also sent to the other peer, so it names both. For data it only says which part differs, and the remedy.
    """
    keys = sorted((key for key in {*mine, *theirs} if mine.get(key) != theirs.get(key)), key=_sort_key)
    texts = [_described(_clip(key), mine.get(key), theirs.get(key), name, me) for key in keys[:3]]
    more = f"; and {len(keys) - 3} more" if len(keys) > 3 else ""
    remedies = [remedy for start, remedy in REMEDIES.items() if any(key.startswith(start) for key in keys)]
    return "; ".join(texts) + more + "".join(f". {remedy}" for remedy in remedies)


def _described(key: str, mine: str | None, theirs: str | None, name: str, me: str) -> str:
    if not (mine or theirs or "").startswith(DIGESTED):
        return f"{key} is {_clip(mine)} at '{me}' and {_clip(theirs)} at '{name}'"
    if mine is None or theirs is None:
        return f"only one of the two peers has {key}"
    return f"{key} {'differ' if key.startswith((LABELS, 'columns')) else 'differs'} between the two peers"


def _sort_key(key: str) -> tuple[bool, str, int]:
    """Settings before data, and column 2 before column 10."""
    number = re.search(r"\d{1,9}", key)
    start, place = (key[: number.start()], int(number.group())) if number else (key, 0)
    return key.startswith(tuple(REMEDIES)), start, place


def with_names(text: str, columns: Sequence[str]) -> str:
    """The text of a difference, plus the local names of the columns it numbers. Never sent to other peers."""
    numbers = list(dict.fromkeys(int(number) for number in re.findall(r"\bcolumn (\d{1,9})\b", text)))[:3]
    names = [f"column {n} is '{plain(columns[n - 1], 80)}'" for n in numbers if 1 <= n <= len(columns)]
    return f"{text} (in the local table, {', '.join(names)})" if names else text


def digest(terms: Mapping[str, str]) -> str:
    return digest_of(canonical(dict(terms)))[:16]


def _code(name: str) -> str:
    """Custom code is compared by class or function name: its file path may differ between peers."""
    return name.rpartition(":")[2]


def _function(name: str) -> str:
    """The same, with the colon: a custom function `rows` is not the built-in one."""
    return "".join(name.rpartition(":")[1:])


def _text(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = canonical(value).decode("ascii")
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}... ({digest_of(text.encode())[:DIGEST]})"


def _digested(value: object) -> str:
    return DIGESTED + digest_of(canonical(value))[:16]


def _short(value: object) -> str:
    return digest_of(canonical(value))[:8]


def _clip(value: str | None) -> str:
    return "missing" if value is None else plain(value, LONGEST_VALUE + len("... ()") + DIGEST)
