"""Loads an experiment from a preset or a TOML file, and applies the user's `key=value` words to it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from coterie import data
from coterie.config import parsing, provenance
from coterie.config.carry_over import CarriedOver, carry_over, describe_changes
from coterie.config.checks import check, check_used
from coterie.config.sections import PLAIN, SECTIONS, DataSettings, Experiment
from coterie.core.cores import machine_cores
from coterie.core.errors import ConfigError, unknown
from coterie.core.formatting import short_name
from coterie.core.named_code import function_parameters
from coterie.core.settings import check_values
from coterie.data.views import AUTO
from coterie.data.views import NAMES as VIEWS
from coterie.methods import METHODS, find
from coterie.portable.estimators import SUFFIX as ONNX_FILE

DEMO = "demo"
DEFAULT_METHOD = "panm"
DEEPEST_BASE = 8
_OF_A_RUN = {*PLAIN, "data", "model", "train", "engine", "clock"}  # a run's config.toml names all, used or not
ORIGINS = {
    "paper": "settings printed in the paper, for a GPU",
    "authors": "settings of the authors' published code",
    "ours": "our own settings: smaller, or better in our measurements",
}
"""Where a preset's settings come from: the values of its key `origin`, which it does not inherit from its base."""


def presets() -> dict[str, str]:
    """Preset names and their one-line descriptions (the first line of each file)."""
    return {name: text.split("\n")[0].lstrip("# ") for name, text in _preset_files().items()}


def preset_origins() -> dict[str, str]:
    """Preset names and where the settings of each come from: one of ORIGINS."""
    return {name: str(tomllib.loads(text).get("origin", "")) for name, text in _preset_files().items()}


@cache
def _preset_files() -> dict[str, str]:
    folder = resources.files("coterie") / "presets"
    texts = {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir() if p.name.endswith(".toml")}
    return {name.removesuffix(".toml"): text for name, text in sorted(texts.items())}


def load(name: str = DEMO, words: Sequence[str] = (), *more: Sequence[str]) -> Experiment:
    """Read an experiment from a preset or a TOML file, and apply `key=value` words.

    Args:
        name: a preset (`coterie list presets`), or the path of a .toml file.
        words: settings such as ``"rounds=20"`` or ``"method.k=3"``.
        more: further lists of words; later ones win.

    Returns:
        The checked experiment. Pass it to :func:`coterie.run`.

    Raises:
        CoterieError: a preset, key or value is wrong, or a file is missing; the message names it and the remedy.

    Example::

        experiment = coterie.load("panm-digits", ["rounds=10", "method.metric=grad"])
    """
    return with_changes(read_tables(name), *map(parsing.overrides, (words, *more)))


def with_changes(tables: dict[str, Any], *changes: Mapping[str, Any]) -> Experiment:
    """The experiment of these tables with the user's changes applied in order; it records what carries over."""
    carried: list[CarriedOver] = []
    for change in changes:
        tables, taken = changed(tables, change)
        carried += [] if taken is None else [taken]
    check_files(tables)
    experiment = from_tables(tables)
    for change in changes:
        check_used(change, tables)
    return dataclasses.replace(experiment, carried=tuple(carried))


def check_files(tables: Mapping[str, Any]) -> None:
    """Raise an error if a file that the tables name is missing. This runs first, so that typos are reported first."""

    def value(section: str, key: str) -> Any:
        table = tables.get(section, {})
        return table.get(key, "") if isinstance(table, Mapping) else ""

    name, zoo = value("data", "name"), value("model", "zoo")
    if isinstance(name, str) and name:
        data.check_there(name)
    networks = [kind for kind in (zoo if isinstance(zoo, list | tuple) else [zoo]) if str(kind).endswith(ONNX_FILE)]
    places = [("model.pretrained", value("model", "pretrained")), ("graph.file", value("graph", "file"))]
    for key, place in [*(("model.zoo", kind) for kind in networks), *places]:
        if isinstance(place, str) and place and not Path(place).exists():
            raise ConfigError(f"{key} = '{place}': there is no such file or folder")


def over(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """`change` wins. If it names another method, only those of the old method's parameters stay that carry over."""
    return changed(base, change)[0]


def changed(base: dict[str, Any], change: Mapping[str, Any]) -> tuple[dict[str, Any], CarriedOver | None]:
    """The tables with `change` applied, and what a new method takes over from the method it replaces."""
    base = _with_peers_of(base, change)
    old, new = base.get("method", {}), change.get("method", {})
    if not (isinstance(old, Mapping) and isinstance(new, Mapping) and "name" in new):
        return parsing.merge(base, change), None
    source, name = str(old.get("name", DEFAULT_METHOD)), parsing.convert(new["name"], str, "method.name")
    if _absolute(source) == _absolute(name):
        return parsing.merge(base, change), None
    carried = carry_over(old, source, name, given=new)
    return parsing.merge({**base, "method": carried.taken}, change), carried


def _with_peers_of(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without the number of peers, if the change takes the peers from its data instead."""
    section = change.get("data", {})
    sites = isinstance(section, Mapping) and section.get("partition") in data.SITES
    return {key: value for key, value in base.items() if key != "peers"} if sites else base


def from_tables(tables: Mapping[str, Any]) -> Experiment:
    """The experiment of these tables, checked."""
    experiment = built(tables)
    check(experiment)
    return experiment


def built(tables: Mapping[str, Any]) -> Experiment:
    """The experiment of these tables: its values have the right types, but are not checked against each other."""
    valid = {*PLAIN, *SECTIONS, "method"}
    for key, value in tables.items():
        if key not in valid:
            raise ConfigError(unknown("key", key, valid))
        if (key in PLAIN) == isinstance(value, Mapping):
            raise ConfigError(f"{key} {'must be one value' if key in PLAIN else 'is a section: set one of its keys'}")
    method_table = dict(tables.get("method", {}))
    method_name = parsing.convert(method_table.pop("name", DEFAULT_METHOD), str, "method.name")
    if method_name not in METHODS:
        method_name = _absolute(method_name)
    plain = {k: parsing.convert(tables[k], hint, k) for k, hint in PLAIN.items() if k in tables}
    sections = {k: parsing.build(kind, tables.get(k, {}), f"{k}.") for k, kind in SECTIONS.items()}
    if sections["data"].name not in data.available():
        sections["data"] = dataclasses.replace(sections["data"], name=_absolute_data(sections["data"].name))
    if sections["data"].schema:
        sections["data"] = dataclasses.replace(sections["data"], schema=_absolute(sections["data"].schema))
    assumed = _assumption(sections["data"])
    sections["data"] = _with_views(sections["data"])
    arrays = sections["data"].example.endswith(".npz")  # only these may be integers
    if sections["data"].scale == "auto" and not arrays:
        sections["data"] = dataclasses.replace(sections["data"], scale="standard")
    zoo = tuple(_absolute(name) if name.endswith(ONNX_FILE) else name for name in sections["model"].zoo)
    start = sections["model"].pretrained
    sections["model"] = dataclasses.replace(sections["model"], zoo=zoo, pretrained=start and _absolute(start))
    measured = sections["evaluate"]
    sections["evaluate"] = dataclasses.replace(
        measured, metrics=tuple(map(_absolute_code, measured.metrics)), select=_absolute_code(measured.select)
    )
    kind = find(method_name)
    provenance.remember(kind)
    for key in method_table.keys() & function_parameters(kind):
        name = parsing.convert(method_table[key], str, f"method.{key}")
        method_table[key] = _absolute_code(name)
    method = parsing.build(kind, method_table, "method.")
    if "peers" not in plain and sections["data"].partition in data.SITES:
        plain["peers"] = data.count_sites(sections["data"])
    # Unlike workers, threads change last digits: a run keeps their number, also when it resumes on another machine.
    threads = sections["engine"].threads or machine_cores()
    sections["engine"] = dataclasses.replace(sections["engine"], threads=threads)
    return Experiment(method_name=method_name, method=method, assumed=assumed, **plain, **sections)


def _with_views(d: DataSettings) -> DataSettings:
    """The settings with the dataset's numbers in place of auto."""
    check_values(d, "data.", *VIEWS)
    return dataclasses.replace(d, **dataclasses.asdict(d.views))


def _assumption(d: DataSettings) -> str:
    """A note on what only the user can know of their own images, whether they may be flipped; empty once it is set."""
    if d.flip != AUTO or not data.of_unknown_content(d.example):
        return ""
    return (
        f"views of the images in {short_name(d.name)} are flipped at random, as their content is unknown: set "
        f"data.flip=0 if left and right matter, data.flip=0.5 if they do not. Now: {d.views}"
    )


def notices(experiments: Iterable[Experiment]) -> list[str]:
    """Notes for the user on these experiments before they run, each line once."""
    listed = list(experiments)
    assumed = [e.assumed for e in listed if e.assumed and e.trains_on_views]
    small = [note for e in listed if (note := data.left_out(e.data))]
    return [*describe_changes(change for e in listed for change in e.carried), *dict.fromkeys([*assumed, *small])]


def _absolute(name: str) -> str:
    """The absolute path of the user's own file or folder, so that runs can be repeated from anywhere; else the name."""
    place, colon, attribute = name.rpartition(":")
    path = Path(place if colon else name)
    if not path.exists() or (colon and path.suffix != ".py"):
        return name
    return f"{path.resolve()}{colon}{attribute if colon else ''}"


def _absolute_code(name: str) -> str:
    """The same for code that a setting names: a name without a colon is ours, even if a folder is named like it."""
    return _absolute(name) if ":" in name else name


def _absolute_data(name: str) -> str:
    """The same for data, which may also be a pattern of files."""
    return str(Path(name).expanduser().absolute()) if data.is_pattern(name) else _absolute(name)


def with_method(experiment: Experiment, name: str) -> Experiment:
    """The same data, models and training with another method (parameters of the same meaning carry over)."""
    other = with_changes(experiment.tables(), {"method": {"name": name}, "baseline": ""})
    return dataclasses.replace(other, assumed=experiment.assumed)


def read_tables(name: str, through: tuple[str, ...] = ()) -> dict[str, Any]:
    """The tables of a preset or file, merged over those of its `base`; `through` are the files that led here."""
    path = Path(name)
    if path.suffix == ".toml":
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    elif name in presets():
        text = (resources.files("coterie") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise ConfigError(f"{unknown('preset', name, presets())}, or the path of a .toml file")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name} is not valid TOML: {error}") from error
    origin = tables.pop("origin", None)  # informative only, and not inherited from the base
    if origin is not None and origin not in list(ORIGINS):
        raise ConfigError(f"{name}: origin must be one of {', '.join(ORIGINS)}, not {origin!r}")
    base = tables.pop("base", None)  # a preset, or a file beside this one
    if base is None:
        if not tables.keys() >= _OF_A_RUN:
            check_used(tables, tables)
        return tables
    if len(through) >= DEEPEST_BASE:
        raise ConfigError(f"base: {' -> '.join((*through, name))} is circular, or nested too deeply")
    beside = str(path.parent / str(base)) if str(base).endswith(".toml") else str(base)
    merged = over(read_tables(beside, (*through, name)), tables)
    check_used(tables, merged)
    return merged
