"""Which runs a comparison consists of, and where each of them lies."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.config import parsing, provenance
from coterie.config.command_words import CommandWords
from coterie.config.loading import built, check_files, load, over, read_tables
from coterie.config.sections import Experiment
from coterie.core.errors import ConfigError, CoterieError, RunError
from coterie.data.views import PHOTOGRAPHS
from coterie.methods import METHODS, find
from coterie.report.summary import is_whole

NAMED = 3  # runs in a line that says why they run again
LOCAL = "local"  # what everybody has without the others: the measure of who is hurt


@dataclass(frozen=True)
class Variant:
    """One line of the table: what it is called, and what it changes in the experiment."""

    label: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One run of one variant with one seed."""

    variant: Variant
    seed: int
    experiment: Experiment
    folder: Path
    anew: bool = False  # whether what is in the folder is to be overwritten

    @property
    def name(self) -> str:
        return f"{self.variant.label}, seed {self.seed}"


def of_method(word: str) -> Variant:
    name, *parameters = word.split(",")
    for parameter in parameters:
        if "=" not in parameter:
            raise ConfigError(f"'{word}': '{parameter}' is not a parameter of {name} such as k=3")
    return Variant(word, (f"method.name={name}", *(f"method.{p}" for p in parameters)))


def methods(request: CommandWords) -> list[Variant]:
    """A variant for each method named."""
    if not request.methods:
        raise ConfigError("say which methods to compare: coterie compare panm gossip panm-digits")
    variants = [of_method(word) for word in dict.fromkeys(request.methods)]
    _check_methods(request.experiment, variants)
    check_files(over(read_tables(request.experiment), parsing.overrides(_without_method(request.settings))))
    for word in request.settings:
        key, _, value = word.partition("=")
        if key == "baseline":
            raise ConfigError(f"{word}: a comparison runs `local` beside, and --no-local leaves it out: drop this word")
        if key in ("seed", "method.name"):
            raise ConfigError(f"{word}: seeds are given with --seeds, methods by their names alone")
        if key.startswith("method."):
            parameter = f"{key.removeprefix('method.')}={value}"
            raise ConfigError(f"{word}: say whose it is, such as {request.methods[0].split(',')[0]},{parameter}")
    return variants


def grid(axes: Sequence[str], method: str = "") -> list[Variant]:
    """A variant for each combination of `key=value,value` words; `method` is the experiment's own.

    Where a combination is Local, it is the very variant that would run beside the grid: it must not run twice.
    """
    if not axes:
        raise ConfigError("say what to vary: coterie sweep panm-digits --over method.k=1,2,4")
    choices: list[list[str]] = []
    for axis in axes:
        key, equals, text = axis.partition("=")
        if not equals or not key or key in ("seed", "baseline"):
            raise ConfigError(f"--over {axis}: needs key=value,value (seeds are given with --seeds)")
        if not text:
            raise ConfigError(f"--over {axis}: has no values; several stand between commas, such as {key}=1,2,4")
        choices.append([f"{key}={value}" for value in dict.fromkeys(_values(text))])
    keys = [axis.partition("=")[0] for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"--over {key} stands there {keys.count(key)} times: give all its values in one")
    short = short_keys(keys)
    found = [Variant(" ".join(_shown(word, short) for word in words), words) for words in itertools.product(*choices)]
    return [local_twin(variant) if _is_local(variant, method) else variant for variant in found]


def _is_local(variant: Variant, method: str) -> bool:
    named = any(word.startswith("method.name=") for word in variant.words)
    words = variant.words if named else (*variant.words, f"method.name={method}")
    return set(words) == set(local_twin(variant).words)


def places(grid: Sequence[Variant], axes: Sequence[str]) -> dict[str, dict[str, str]]:
    """Of each variant of a sweep's grid, by its label: the value of each key that is varied."""
    keys = [axis.partition("=")[0] for axis in axes]
    if not keys:
        return {}
    values = {variant.label: dict(word.split("=", 1) for word in variant.words) for variant in grid}
    return {label: {key: of_label[key] for key in keys} for label, of_label in values.items()}


def method_of(request: CommandWords) -> str:
    """The method of the experiment that is asked for, as it is named there."""
    tables = over(read_tables(request.experiment), parsing.overrides(request.settings))
    method = tables.get("method")
    return str(method.get("name", "")) if isinstance(method, Mapping) else ""


def _values(text: str) -> list[str]:
    """The values between commas; a list counts as one value: `[32],[64,32]`."""
    found = parsing.value(f"[{text}]")
    if not isinstance(found, list) or any(isinstance(v, str) and "]" in v for v in found):  # bare words in it
        return text.split(",")
    return [parsing.literal(value) if not isinstance(value, str) else value for value in found]


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key, where no other ends alike."""
    ends = [key.rpartition(".")[2] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def _shown(word: str, short: dict[str, str]) -> str:
    key, _, value = word.partition("=")
    return f"{short[key]}={value}"


def with_local(variants: Sequence[Variant]) -> list[Variant]:
    """And those who train alone under the same settings, against whom the others are measured."""
    alone = (local_twin(variant) for variant in variants)
    return list({v.words: v for v in [*variants, *alone]}.values())


def local_twin(variant: Variant) -> Variant:
    """The same but for the method, which is Local."""
    rest = tuple(_without_method(variant.words))
    return Variant(" ".join([LOCAL, *rest]), (*rest, f"method.name={LOCAL}"))


def _without_method(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("method.")]


def jobs(
    experiment: str, variants: Sequence[Variant], seeds: Sequence[int], words: Sequence[str], out: Path
) -> list[Job]:
    """Every run, seed by seed so that the first table is a whole one; settings are checked, nothing is run yet."""
    _check_methods(experiment, variants)
    found = []
    for seed, variant in itertools.product(seeds, variants):
        wanted = load(experiment, ["baseline=", *words], [*variant.words, f"seed={seed}"])
        found.append(Job(variant, seed, wanted, out / folder_name(variant.label, seed)))
    names = [job.folder.name for job in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two runs would be written to {out / name}: give their variants other names")
    return found


def _check_methods(experiment: str, variants: Sequence[Variant]) -> None:
    """That the experiment and all methods are there, before there is a word about the parameters of one of them."""
    read_tables(experiment)
    for word in dict.fromkeys(word for variant in variants for word in variant.words):
        key, _, name = word.partition("=")
        if key == "method.name":
            find(name)


def folder_name(label: str, seed: int) -> str:
    return f"{re.sub(r'[^A-Za-z0-9.=+_,-]+', '_', label)}-{seed}"


def default_folder(kind: str, experiment: str, words: Sequence[str]) -> Path:
    """The same for the same settings, so that a second call finds what the first one did."""
    tables = over(read_tables(experiment), parsing.overrides(words))
    try:
        text = fingerprint(built(tables))  # not checked: the experiment's own method may not be among those that run
    except ConfigError:  # nor need its file be there
        text = json.dumps(tables, sort_keys=True)
    return Path("runs") / f"{kind}-{Path(experiment).stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def fingerprint(e: Experiment) -> str:
    """All that the results depend on: not how many workers there are, nor what is written beside them.

    Nor how views are made where nobody makes any: a method of the user's own may, without saying so.
    """
    tables = e.tables()
    if e.method_name in METHODS and not e.trains_on_views:
        tables["data"] |= dataclasses.asdict(PHOTOGRAPHS)
    without_effect = {
        "name": "simulation", "address": "", "workers": 1, "checkpoint": 0, "models": True, "sinks": (),
        "spill": "",
    }  # fmt: skip
    return json.dumps({**tables, "baseline": "", "engine": {**tables["engine"], **without_effect}}, sort_keys=True)


@dataclass(frozen=True)
class Standing:
    """How it is with the folder of a job."""

    begun: bool = False
    done: bool = False
    outdated: str = ""  # why its figures are not those that the same settings give now

    @property
    def current(self) -> bool:
        return self.done and not self.outdated


def standing(job: Job) -> Standing:
    """How far this very run is, and whether it is current; an error if it is another one."""
    if not (job.folder / "config.toml").exists():
        return Standing()
    done = is_whole(job.folder)
    why = provenance.outdated(job.folder, job.experiment)
    tables, moved = _moved(read_tables(str(job.folder / "config.toml")), job.experiment.tables())
    try:
        there = built(tables)
    except CoterieError as error:  # a parameter that the method's file has no more
        if why:
            return Standing(True, done, why)
        raise RunError(f"{job.folder} is a run with other settings ({error}): {_REMEDY}") from error
    if fingerprint(there) != fingerprint(job.experiment) and not (why and _other_defaults(there, job)):
        raise RunError(f"{job.folder} is a run with other settings: {_REMEDY}")
    if moved and not done:
        why = why or "files of it were moved before it was done"
    return Standing(True, done, why)


_REMEDY = "move it away, or choose another --out"


def _other_defaults(there: Experiment, job: Job) -> bool:
    """Whether two experiments differ in their method's parameters alone, while that method's source has changed."""
    if there.method_name != job.experiment.method_name or provenance.read(job.folder) is None:
        return False
    method = job.experiment.method
    return fingerprint(dataclasses.replace(there, method=method)) == fingerprint(job.experiment)


def _moved(tables: dict[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The settings of a run with its files where they are now, if they lie in another folder; and whether they do.

    A file of the same name is the same one if the old one is gone; its content is compared elsewhere.
    """
    found = tables
    for section, key in (("method", "name"), ("data", "name"), ("model", "pretrained"), ("model", "zoo")):
        old, new = found.get(section, {}).get(key), now[section].get(key)
        one, other = ([value] if isinstance(value, str) else list(value or ()) for value in (old, new))
        same_number = len(one) == len(other)
        if one != other and same_number and all(a == b or _was_moved(a, b) for a, b in zip(one, other, strict=True)):
            found = {**found, section: {**found[section], key: new}}
    return found, found is not tables


def _was_moved(old: str, new: str) -> bool:
    """Of `folder/file` or `folder/file.py:Class`."""
    place = old.rpartition(":")[0] if ".py:" in old else old
    return Path(old).name == Path(new).name and old != Path(old).name and not Path(place).exists()


def why_again(outdated: Mapping[str, str]) -> list[str]:
    """A line for each reason, with the runs that it concerns: `outdated` has the reason by the run's name."""
    by_reason: dict[str, list[str]] = {}
    for name, why in outdated.items():
        by_reason.setdefault(why, []).append(name)
    return [f"{why}: {_several(names)}" for why, names in by_reason.items()]


def _several(names: Sequence[str]) -> str:
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + rest
