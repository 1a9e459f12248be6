"""Plan a comparison: its runs, their folders, and which of them are finished or outdated."""

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
from coterie.config.sections import SECTIONS, Experiment
from coterie.core.errors import ConfigError, CoterieError, RunError
from coterie.core.run_folder import RunFolder
from coterie.core.settings import without_effect
from coterie.data.views import PHOTOGRAPHS
from coterie.methods import METHODS, find
from coterie.report.summary import is_complete

NAMED = 3  # runs named in a line that explains why they run again
LOCAL = "local"  # each peer trains alone: the baseline for peers that are hurt


@dataclass(frozen=True)
class Variant:
    """One row of the table: its name, and the settings it changes in the experiment."""

    label: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One run of one variant with one seed."""

    variant: Variant
    seed: int
    experiment: Experiment
    folder: Path
    overwrite: bool = False  # whether to overwrite an existing folder

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
        raise ConfigError("name the methods to compare, such as: coterie compare panm gossip panm-digits")
    variants = [of_method(word) for word in dict.fromkeys(request.methods)]
    _check_methods(request.experiment, variants)
    check_files(over(read_tables(request.experiment), parsing.overrides(_without_method(request.settings))))
    for word in request.settings:
        key, _, value = word.partition("=")
        if key == "baseline":
            raise ConfigError(f"{word}: remove it; a comparison always includes `local`, unless --no-local is given")
        if key in ("seed", "method.name"):
            raise ConfigError(f"{word}: give seeds with --seeds, and methods by name only")
        if key.startswith("method."):
            parameter = f"{key.removeprefix('method.')}={value}"
            raise ConfigError(f"{word}: attach it to a method, such as {request.methods[0].split(',')[0]},{parameter}")
    return variants


def grid(axes: Sequence[str], method: str = "") -> list[Variant]:
    """A variant for each combination of `key=value,value` words; `method` is the experiment's method.

    A combination whose method is `local` is the same variant as its baseline, so that it does not run twice.
    """
    if not axes:
        raise ConfigError("name the keys to vary, such as: coterie sweep panm-digits --over method.k=1,2,4")
    choices: list[list[str]] = []
    for axis in axes:
        key, equals, text = axis.partition("=")
        if not equals or not key or key in ("seed", "baseline"):
            raise ConfigError(f"--over {axis}: needs key=value,value (seeds are given with --seeds)")
        if not text:
            raise ConfigError(f"--over {axis}: has no values; separate several by commas, such as {key}=1,2,4")
        choices.append([f"{key}={value}" for value in dict.fromkeys(_values(text))])
    keys = [axis.partition("=")[0] for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"--over {key} is given {keys.count(key)} times: give all its values at once")
    short = short_keys(keys)
    variants = [
        Variant(" ".join(_shown(word, short) for word in words), words) for words in itertools.product(*choices)
    ]
    return [local_twin(variant) if _is_local(variant, method) else variant for variant in variants]


def _is_local(variant: Variant, method: str) -> bool:
    named = any(word.startswith("method.name=") for word in variant.words)
    words = variant.words if named else (*variant.words, f"method.name={method}")
    return set(words) == set(local_twin(variant).words)


def places(grid: Sequence[Variant], axes: Sequence[str]) -> dict[str, dict[str, str]]:
    """For each variant of a sweep's grid, by its label: the value of each varied key."""
    keys = [axis.partition("=")[0] for axis in axes]
    if not keys:
        return {}
    values = {variant.label: dict(word.split("=", 1) for word in variant.words) for variant in grid}
    return {label: {key: of_label[key] for key in keys} for label, of_label in values.items()}


def method_of(request: CommandWords) -> str:
    """The name of the method in the requested experiment."""
    tables = over(read_tables(request.experiment), parsing.overrides(request.settings))
    method = tables.get("method")
    return str(method.get("name", "")) if isinstance(method, Mapping) else ""


def _values(text: str) -> list[str]:
    """The values between commas. A list counts as one value: `[32],[64,32]`."""
    parsed = parsing.value(f"[{text}]")
    if not isinstance(parsed, list) or any(isinstance(v, str) and "]" in v for v in parsed):  # it contains bare words
        return text.split(",")
    return [parsing.literal(value) if not isinstance(value, str) else value for value in parsed]


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """The last part of each key, or the whole key where another ends the same."""
    ends = [key.rpartition(".")[2] for key in keys]
    return {key: end if ends.count(end) == 1 else key for key, end in zip(keys, ends, strict=True)}


def _shown(word: str, short: dict[str, str]) -> str:
    key, _, value = word.partition("=")
    return f"{short[key]}={value}"


def with_local(variants: Sequence[Variant]) -> list[Variant]:
    """The variants and their `local` baselines under the same settings."""
    alone = (local_twin(variant) for variant in variants)
    return list({v.words: v for v in [*variants, *alone]}.values())


def local_twin(variant: Variant) -> Variant:
    """The same variant with method `local`."""
    rest = tuple(_without_method(variant.words))
    return Variant(" ".join([LOCAL, *rest]), (*rest, f"method.name={LOCAL}"))


def _without_method(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.startswith("method.")]


def jobs(
    experiment: str, variants: Sequence[Variant], seeds: Sequence[int], words: Sequence[str], out: Path
) -> list[Job]:
    """All runs, seed by seed, so that the first seed completes a table. Checks the settings, but runs nothing."""
    _check_methods(experiment, variants)
    planned = []
    for seed, variant in itertools.product(seeds, variants):
        resolved = load(experiment, ["baseline=", *words], [*variant.words, f"seed={seed}"])
        planned.append(Job(variant, seed, resolved, out / folder_name(variant.label, seed)))
    names = [job.folder.name for job in planned]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two runs would be written to {out / name}: give their variants different names")
    return planned


def _check_methods(experiment: str, variants: Sequence[Variant]) -> None:
    """Check that the experiment and all methods exist, before any parameter is checked."""
    read_tables(experiment)
    for word in dict.fromkeys(word for variant in variants for word in variant.words):
        key, _, name = word.partition("=")
        if key == "method.name":
            find(name)


def folder_name(label: str, seed: int) -> str:
    return f"{re.sub(r'[^A-Za-z0-9.=+_,-]+', '_', label)}-{seed}"


def default_folder(kind: str, experiment: str, words: Sequence[str]) -> Path:
    """The default output folder. It depends only on the settings, so that a second call finds the first one's runs."""
    tables = over(read_tables(experiment), parsing.overrides(words))
    try:
        text = fingerprint(built(tables))  # unchecked: the experiment's own method may not be compared
    except ConfigError:  # and its file need not exist
        text = json.dumps(tables, sort_keys=True)
    return Path("runs") / f"{kind}-{Path(experiment).stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def fingerprint(e: Experiment) -> str:
    """All settings that affect the results; those without effect have one value, whatever the run has.

    Settings of views are left out for built-in methods that use none. A user's method may use views without declaring
    it.
    """
    tables = e.tables()
    if e.method_name in METHODS and not e.trains_on_views:
        tables["data"] |= dataclasses.asdict(PHOTOGRAPHS)
    for section, kind in SECTIONS.items():
        tables[section] |= without_effect(kind)
    return json.dumps(tables | without_effect(Experiment), sort_keys=True)


@dataclass(frozen=True)
class RunStatus:
    """The status of a job's folder."""

    started: bool = False
    done: bool = False
    outdated: str = ""  # why the same settings would give different figures now

    @property
    def current(self) -> bool:
        return self.done and not self.outdated


def run_status(job: Job) -> RunStatus:
    """Whether the run is started, done and current. Raises RunError if the folder holds a different run."""
    files = RunFolder(job.folder)
    if not files.is_started():
        return RunStatus()
    done = is_complete(job.folder)
    reason = provenance.outdated(job.folder, job.experiment)
    tables, moved = _moved(read_tables(str(files.config)), job.experiment.tables())
    try:
        existing = built(tables)
    except CoterieError as error:  # a parameter that the method no longer has
        if reason:
            return RunStatus(True, done, reason)
        raise RunError(f"{job.folder} holds a run with other settings ({error}): {_REMEDY}") from error
    if fingerprint(existing) != fingerprint(job.experiment) and not (reason and _other_defaults(existing, job)):
        raise RunError(f"{job.folder} holds a run with other settings: {_REMEDY}")
    if moved and not done:
        reason = reason or "some of its files were moved before it was done"
    return RunStatus(True, done, reason)


_REMEDY = "move it away, or choose another --out"


def _other_defaults(existing: Experiment, job: Job) -> bool:
    """Whether two experiments differ only in their method's parameters, while the method's source has changed."""
    if existing.method_name != job.experiment.method_name or provenance.read(job.folder) is None:
        return False
    method = job.experiment.method
    return fingerprint(dataclasses.replace(existing, method=method)) == fingerprint(job.experiment)


MAY_NAME_FILES = (
    ("method", "name"), ("data", "name"), ("data", "schema"), ("model", "pretrained"), ("model", "zoo"),
    ("evaluate", "metrics"), ("evaluate", "select"),
)  # fmt: skip


def _moved(tables: dict[str, Any], now: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """A run's settings with the current paths of files that were moved to another folder, and whether any was.

    A file counts as moved if the old path is gone and the name is the same; contents are compared elsewhere.
    """
    updated = tables
    for section, key in MAY_NAME_FILES:
        old, new = updated.get(section, {}).get(key), now[section].get(key)
        one, other = ([value] if isinstance(value, str) else list(value or ()) for value in (old, new))
        same_number = len(one) == len(other)
        if one != other and same_number and all(a == b or _was_moved(a, b) for a, b in zip(one, other, strict=True)):
            updated = {**updated, section: {**updated[section], key: new}}
    return updated, updated is not tables


def _was_moved(old: str, new: str) -> bool:
    """Whether `folder/file` or `folder/file.py:Class` was moved."""
    place = old.rpartition(":")[0] if ".py:" in old else old
    return Path(old).name == Path(new).name and old != Path(old).name and not Path(place).exists()


def rerun_reasons(outdated: Mapping[str, str]) -> list[str]:
    """A line for each reason, with the runs it applies to. `outdated` maps run names to reasons."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in outdated.items():
        by_reason.setdefault(reason, []).append(name)
    return [f"{reason}: {_some(names)}" for reason, names in by_reason.items()]


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return "; ".join(names[:NAMED]) + rest
