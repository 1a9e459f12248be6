"""Parses the words of a command line: names and `key=value` settings, in any order."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie.core.errors import ConfigError, unknown
from coterie.core.run_folder import RunFolder

EXPERIMENT = "EXPERIMENT | key=value"  # how the help of a command names such words
SETTINGS = "settings are words such as rounds=20"


@dataclass(frozen=True)
class CommandWords:
    """What a command line asks for."""

    experiment: str
    methods: tuple[str, ...]
    settings: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The experiment's name, for folders."""
        return Path(self.experiment).stem


def parse_words(words: Iterable[str], with_methods: bool = False) -> CommandWords:
    """At most one experiment (default: the demo), settings, and methods if the command takes them, in any order.

    A method is a name or `module:Class`. Its own parameters follow after commas: `panm,metric=loss,k=3`.
    """
    from coterie.config.loading import DEMO

    names, settings = names_and_settings(words)
    methods = [name for name in names if _is_method(name)]
    if methods and not with_methods:
        raise ConfigError(f"{methods[0]} is a method, not an experiment: use method.name={methods[0].split(',')[0]}")
    experiments = [name for name in names if name not in methods]
    for name in experiments:
        _check_experiment(name, with_methods)
    name = only_one(experiments, "experiment") if experiments else DEMO
    return CommandWords(name, tuple(methods), tuple(settings))


def note(lines: Iterable[str]) -> None:
    """Print notes for the user to standard error, marked as notes rather than errors."""
    for line in lines:
        print(f"note: {line}", file=sys.stderr, flush=True)


def names_and_settings(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """The words that are names (of an experiment, a method, a table, a file), and those that are settings."""
    names: list[str] = []
    settings: list[str] = []
    for word in words:
        (settings if _is_setting(word) else names).append(word)
    return names, settings


def only_one(names: Sequence[str], what: str) -> str:
    """The only one of `names`; ConfigError if there is not exactly one."""
    if len(names) != 1:
        raise ConfigError(f"one {what} at a time, not {' and '.join(names)}; {SETTINGS}")
    return names[0]


def _is_setting(word: str) -> bool:
    """A key contains none of `,:/`: `panm,k=3` and `mine.py:Mine,k=3` are methods, `runs/k=3/config.toml` is a file."""
    key, equals, _ = word.partition("=")
    return bool(equals) and not any(mark in key for mark in ",:/")


def _is_method(word: str) -> bool:
    from coterie.methods import METHODS

    first = word.split(",", 1)[0]
    return not word.endswith(".toml") and (first in METHODS or ":" in first)


def _check_experiment(name: str, with_methods: bool) -> None:
    from coterie.config.loading import presets
    from coterie.methods import METHODS

    if name in presets() or name.endswith(".toml"):
        return
    if (run := RunFolder(Path(name))).is_started():
        raise ConfigError(f"{name} is a run folder. To use its experiment, give {run.config}")
    if with_methods:
        nearest = unknown("word", name, [*METHODS, *presets()]).split(" Valid:")[0]
        raise ConfigError(
            f"neither a method, a preset, a .toml file nor key=value: {nearest} See `coterie list methods|presets`"
        )
    raise ConfigError(f"{unknown('preset', name, presets())}, or the path of a .toml file; {SETTINGS}")
