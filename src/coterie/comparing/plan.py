"""Which runs a comparison consists of, and where each of them lies."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie import running, settings
from coterie.command_line import Request
from coterie.errors import ConfigError, RunError
from coterie.experiment import Experiment, load
from coterie.report.summary import is_whole

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

    @property
    def name(self) -> str:
        return f"{self.variant.label}, seed {self.seed}"


def of_method(word: str) -> Variant:
    name, *parameters = word.split(",")
    for parameter in parameters:
        if "=" not in parameter:
            raise ConfigError(f"'{word}': '{parameter}' is not a parameter of {name} such as k=3")
    return Variant(word, (f"method.name={name}", *(f"method.{p}" for p in parameters)))


def methods(request: Request) -> list[Variant]:
    """A variant for each method named."""
    if not request.methods:
        raise ConfigError("say which methods to compare: coterie compare panm gossip panm-digits")
    for word in request.settings:
        key, _, value = word.partition("=")
        if key in ("seed", "method.name", "baseline"):
            raise ConfigError(f"{word}: seeds are given with --seeds, methods by their names alone")
        if key.startswith("method."):
            parameter = f"{key.removeprefix('method.')}={value}"
            raise ConfigError(f"{word}: say whose it is, such as {request.methods[0].split(',')[0]},{parameter}")
    return [of_method(word) for word in dict.fromkeys(request.methods)]


def grid(axes: Sequence[str]) -> list[Variant]:
    """A variant for each combination of `key=value,value` words."""
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
    short = _short(keys)
    return [Variant(" ".join(_shown(word, short) for word in words), words) for words in itertools.product(*choices)]


def _values(text: str) -> list[str]:
    """The values between commas; a list counts as one value: `[32],[64,32]`."""
    found = settings.value(f"[{text}]")
    if not isinstance(found, list) or any(isinstance(v, str) and "]" in v for v in found):  # bare words in it
        return text.split(",")
    return [settings.literal(value) if not isinstance(value, str) else value for value in found]


def _short(keys: Sequence[str]) -> dict[str, str]:
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
    rest = tuple(word for word in variant.words if not word.startswith("method."))
    return Variant(" ".join([LOCAL, *rest]), (*rest, f"method.name={LOCAL}"))


def jobs(
    experiment: str, variants: Sequence[Variant], seeds: Sequence[int], words: Sequence[str], out: Path
) -> list[Job]:
    """Every run, seed by seed so that the first table is a whole one; settings are checked, nothing is run yet."""
    found = []
    for seed, variant in itertools.product(seeds, variants):
        wanted = load(experiment, ["baseline=", *words, *variant.words, f"seed={seed}"])
        found.append(Job(variant, seed, wanted, out / folder_name(variant.label, seed)))
    names = [job.folder.name for job in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two runs would be written to {out / name}: give their variants other names")
    return found


def folder_name(label: str, seed: int) -> str:
    return f"{re.sub(r'[^A-Za-z0-9.=+_,-]+', '_', label)}-{seed}"


def default_folder(kind: str, experiment: str, words: Sequence[str]) -> Path:
    """The same for the same settings, so that a second call finds what the first one did."""
    text = fingerprint(load(experiment, words))
    return Path("runs") / f"{kind}-{Path(experiment).stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def fingerprint(e: Experiment) -> str:
    """All that the results depend on: not how many workers there are, nor what is written beside them."""
    tables = e.tables()
    without_effect = {
        "name": "simulation", "address": "", "workers": 1, "checkpoint": 0, "models": True, "sinks": (),
        "spill": "",
    }  # fmt: skip
    return json.dumps({**tables, "baseline": "", "engine": {**tables["engine"], **without_effect}}, sort_keys=True)


def is_done(job: Job) -> bool:
    """Whether this very run is there, whole; an error if it is another one."""
    if not (job.folder / "config.toml").exists():
        return False
    there = running.of_folder(job.folder)
    if fingerprint(there) != fingerprint(job.experiment):
        raise RunError(f"{job.folder} is a run with other settings: move it away, or choose another --out")
    return is_whole(job.folder)
