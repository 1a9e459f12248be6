"""Converts TOML tables and `key=value` words to frozen dataclasses; an unknown key is an error."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from coterie.core.errors import ConfigError, unknown

T = TypeVar("T")


def build(kind: type[T], table: Mapping[str, Any], prefix: str) -> T:
    """An instance of a settings class from a table; errors name the key with its section."""
    fields = {f.name: f for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy does not see that type[T] is hashable
    values = {}
    for key, value in table.items():
        if not fields:
            raise ConfigError(f"{prefix}{key}: {kind.__name__} has no parameters")
        if key not in fields:
            raise ConfigError(f"{prefix}{key}: {unknown('key', key, fields)}")
        values[key] = convert(value, hints[key], f"{prefix}{key}")
    return kind(**values)


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """Cached: Python recomputes type hints at each call, which is most of the time that loading an experiment takes."""
    return typing.get_type_hints(kind)


def convert(value: Any, hint: Any, key: str) -> Any:
    """The value as its field's type: an int is accepted as a float, a single item as a list of one."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            if type(value) is option:
                return value
        return convert(value, arguments[0], key)
    if origin is tuple:
        items = list(value) if isinstance(value, list | tuple) else [value]
        inner = [arguments[0]] * len(items) if arguments[-1:] == (Ellipsis,) else list(arguments)
        if len(inner) != len(items):
            raise ConfigError(f"{key} needs {len(inner)} values, not {value!r}")
        return tuple(convert(v, h, f"{key}[{i}]") for i, (v, h) in enumerate(zip(items, inner, strict=True)))
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{key} must be a table of names and values, not {value!r}")
        return {str(name): convert(inner, arguments[1], f"{key}.{name}") for name, inner in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or type(value) is hint:
        return value
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    raise ConfigError(f"{key} must be {names.get(hint, hint)}, not {value!r}")


def default(field: dataclasses.Field[Any]) -> Any:
    """The default value of a setting."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def overrides(words: Iterable[str]) -> dict[str, Any]:
    """`a.b=value` words as nested tables; a value is read as TOML if it is valid TOML, else as text."""
    tables: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"'{word}' is not key=value, such as rounds=20 or method.k=3")
        *path, last = key.strip().split(".")
        table = tables
        for step in path:
            table = table.setdefault(step, {})
            if not isinstance(table, dict):
                raise ConfigError(f"'{word}': '{step}' was already given a value")
        table[last] = value(_without_brackets(text.strip()))
    return tables


def _without_brackets(text: str) -> str:
    """`cnn3,mlp` for `[cnn3,mlp]`, a list whose quotes the shell has removed. Any other text is unchanged."""
    words = re.fullmatch(r"\[([^][{}\"']+)\]", text)
    return words[1].replace(", ", ",") if words and not _is_toml(text) else text


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(f"x = {text}")
    except tomllib.TOMLDecodeError:
        return False
    return True


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The tables merged key by key; `over` wins."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(below, value)
        elif isinstance(below, Mapping):
            inner = next(iter(below), "name") if "name" not in below else "name"
            raise ConfigError(f"{key} is a section: set one of its keys, such as {key}.{inner}=")
        else:
            merged[key] = value
    return merged


def dump(tables: Mapping[str, Any]) -> str:
    """Settings as TOML: plain keys first, then the sections."""
    plain = [f"{key} = {literal(v)}" for key, v in tables.items() if not isinstance(v, Mapping)]
    sections = [
        f"\n[{key}]\n" + "\n".join(f"{k} = {literal(v)}" for k, v in table.items())
        for key, table in tables.items()
        if isinstance(table, Mapping)
    ]
    return "\n".join([*plain, *sections]) + "\n"


def value(text: str) -> Any:
    """The value as TOML if it is valid TOML, else as text; commas make a list."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return [value(part) for part in text.split(",")] if "," in text else text


def literal(value: Any) -> str:
    """The value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # TOML escapes like JSON, and also DEL
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(name)} = {literal(inner)}' for name, inner in value.items())}}}"
    return repr(value)
