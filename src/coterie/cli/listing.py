"""The output of `coterie list`: one line for each method, model, dataset or preset, or the details of one of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from coterie.config import parsing
from coterie.core.errors import ConfigError, unknown
from coterie.core.formatting import aligned
from coterie.core.settings import described

if TYPE_CHECKING:
    from coterie.methods import Method


def text(what: str | None, name: str | None) -> str:
    if what is None:
        return aligned([(key, f"{len(lines()):>3}", f"coterie list {key}") for key, (lines, _) in _SOURCES.items()])
    lines, detail = _SOURCES[what]
    summaries = lines()
    if name is None:
        width = max(map(len, summaries))
        return "\n".join(f"{key:<{width}}  {line}" for key, line in summaries.items())
    is_custom = what in ("methods", "models") and ":" in name
    if name not in summaries and not is_custom:
        raise ConfigError(unknown(what.removesuffix("s"), name, summaries))
    description: str = detail(name)
    return description


def _methods() -> dict[str, str]:
    from coterie.methods import METHODS

    return {name: method.summary for name, method in METHODS.items()}


def _method(name: str) -> str:
    from coterie.methods import find

    method = find(name)
    oracle = ["an oracle: it is told the true clusters, which no real peer knows"] if method.needs_truth else []
    head = [f"{name}: {method.summary}", needs(method), *oracle, *([method.paper] if method.paper else [])]
    return "\n".join([*head, *_parameters(method, "method"), *_common(method)])


def _common(method: type[Method]) -> list[str]:
    """The parameters that carry over when one method replaces another."""
    from coterie.config.carry_over import shared_with

    rows = []
    for field in dataclasses.fields(method):
        if others := shared_with(method, field.name):
            meaning = field.metadata.get("common")
            rows.append((f"  method.{field.name}", f"{meaning}:" if meaning else "", ", ".join(others)))
    return ["shared with other methods (the value carries over):", aligned(rows)] if rows else []


def needs(method: type[Method]) -> str:
    """Whether a method needs a server, which models it supports, and what they can predict."""
    from coterie.core.task import REGRESSION
    from coterie.methods import Method

    server = "with a server" if method.server else "without a server"
    server = "with or without a server" if method.with_server is not Method.with_server else server
    predicts = "classes or numbers" if REGRESSION in method.tasks else "classes"
    return f"{server}; {_models_taken(method)}; {predicts}"


def _models_taken(method: type[Method]) -> str:
    if method.any_model:
        return "any models"
    if not method.mixed:
        return "one architecture"
    separate = method.grouped and not method.same_zoo  # peers with different architectures do not learn from each other
    return "several architectures, each averaged separately" if separate else "mixed architectures"


def _parameters(kind: type[Any], section: str) -> list[str]:
    fields = dataclasses.fields(kind)
    if not fields:
        return ["no parameters"]
    rows = [(f"{section}.{f.name}", parsing.literal(parsing.default(f)), described(f)) for f in fields]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    return [f"  {key:<{widths[0]}}  {default:<{widths[1]}}  {help}" for key, default, help in rows]


def _models() -> dict[str, str]:
    from coterie import models
    from coterie.portable import estimators

    networks = {name: models.describe(name) for name in models.names()}
    others = {name: f"{estimators.describe(name)} (for fedpae)" for name in estimators.names()}
    return {**networks, **others}


def _model(name: str) -> str:
    from coterie import models

    text = _models().get(name, "custom")
    return "\n".join([f"{name}: {text}", *_parameters(models.ModelSettings, "model")])


def _data() -> dict[str, str]:
    from coterie import data

    return {name: f"{'here' if here else 'get '}  {data.describe(name)}" for name, here in data.available().items()}


def _dataset(name: str) -> str:
    from coterie import data
    from coterie.config.sections import DataSettings

    partitions = [f"  {key}: {line}" for key, line in data.PARTITIONS.items()]
    views = data.views_of(name)
    default_views = [] if views is None else [f"default views: {views}"]
    head = [f"{name}: {data.describe(name)}", *_parameters(DataSettings, "data"), *default_views, "partitions:"]
    return "\n".join([*head, *partitions])


def _presets() -> dict[str, str]:
    from coterie.config.loading import ORIGINS, preset_origins, presets

    origins, width = preset_origins(), max(map(len, ORIGINS))
    return {name: f"{origins[name]:<{width}}  {line}" for name, line in presets().items()}


def _preset(name: str) -> str:
    from coterie.config.loading import ORIGINS, load, preset_origins, presets

    origin = preset_origins()[name]
    return f"{presets()[name]}\n{origin}: {ORIGINS[origin]}\n\n{load(name).toml()}"


_SOURCES: dict[str, tuple[Any, Any]] = {
    "methods": (_methods, _method),
    "models": (_models, _model),
    "data": (_data, _dataset),
    "presets": (_presets, _preset),
}
