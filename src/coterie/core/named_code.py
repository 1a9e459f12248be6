"""Loads code that settings name, as `module:name` or `file.py:name`: methods, models, and functions that are
parameters of a method."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from coterie.core.errors import ConfigError, CoterieError, MethodError, ModelError, unknown
from coterie.core.imports import (
    LOADED,
    Source,
    check_imports_neighbours,
    digest_of,
    located,
    make_importable,
    without_bytecode,
)

Function = Callable[..., Any]
_INSTALLABLE = ("torchvision", "timm")
_OURS = str(Path(__file__).resolve().parents[1])
_INSTALLED = (_OURS, *(sysconfig.get_path(key) for key in ("stdlib", "purelib", "platlib")), "<frozen ")


def load_module(place: str) -> ModuleType:
    """The module of this name, or the current content of a `.py` file as a module."""
    if not place.endswith(".py"):
        make_importable(Path.cwd())
        with without_bytecode():
            return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location(name_of_file(Path(place)), place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    source = Path(place).read_bytes()
    setattr(module, LOADED, digest_of(source))
    make_importable(Path(place).parent)
    # Not by the loader: it may use outdated bytecode if the source has the same size and modification second.
    try:
        with without_bytecode():
            exec(compile(source, place, "exec", dont_inherit=True), vars(module))
        check_imports_neighbours(Path(place), source)
    except BaseException:
        del sys.modules[spec.name]  # a partly executed module must not be reused
        raise
    return module


def name_of_file(path: Path) -> str:
    """The module name of a file: unique per path, equal in every process, and without dots, which would denote a
    package."""
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()
    return f"coterie_method_{path.stem.replace('.', '_')}_{digest[:12]}"


def why_not_imported(error: Exception) -> str:
    """The message for an exception that a module raised on import, with the line for errors in its own code."""
    if isinstance(error, ImportError | OSError | AttributeError):
        return str(error)
    return f"{type(error).__name__}: {error} ({_line_of(error)})"


def _line_of(error: Exception) -> str:
    """The innermost line of the user's own code: the error may be raised by a library that it calls."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if not frame.filename.startswith(_INSTALLED)), frames[-1])
    return f"{last.filename}, line {last.lineno}"


# -- functions as parameters of a method -------------------------------------------------------


def function_parameters(method: object) -> list[str]:
    """The parameters of a method (or of a method's class) that name a function."""
    assert dataclasses.is_dataclass(method)
    return [f.name for f in dataclasses.fields(method) if f.metadata.get("function")]


def own_code(method: object) -> Iterator[str]:
    """The values of such parameters that name the user's own code."""
    values = (str(getattr(method, key)) for key in function_parameters(method))
    return (value for value in values if ":" in value)


def source_of(name: str) -> Source | None:
    """The source file of `module:name` or `file.py:name`; None if it cannot be found."""
    place = name.rpartition(":")[0]
    return Source(Path(place).resolve(), name_of_file(Path(place))) if place.endswith(".py") else located(place)


def find_function(key: str, name: str, ours: Mapping[str, Function], arguments: str) -> Function:
    """The function that the parameter `key` of a method names: a built-in one (`ours`), or the user's own.

    `arguments` are those that it is called with, as a signature lists them.
    """
    if ":" not in name and name in ours:
        return ours[name]
    setting = f"method.{key}"
    value = find_named(setting, name, ours, key)
    if not callable(value):
        raise ConfigError(f"{setting} = '{name}' is a {type(value).__name__}, but must be a function of ({arguments})")
    require_arguments(setting, name, value, arguments)
    function: Function = value
    return function


def find_named(setting: str, name: str, ours: Iterable[str], what: str) -> Any:
    """The user's own `module:name` or `file.py:name`. Any other name is an error, which lists `ours`, the valid ones.

    An unchanged file is not loaded again: a loss that is a new function object each time would have to be recorded
    again.
    """
    if ":" not in name:
        raise ConfigError(f"{setting}: {unknown(what, name, ours)}, or your own module:callable or file.py:callable")
    place, _, attribute = name.rpartition(":")
    try:
        module = _loaded(place)
    except Exception as error:  # a module may raise anything on import
        reason = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else why_not_imported(error)
        raise ConfigError(f"{setting} = '{name}' cannot be imported: {reason}") from error
    if not hasattr(module, attribute):
        near = difflib.get_close_matches(attribute, vars(module), n=1)
        hint = f". Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"{setting} = '{name}': there is no '{attribute}' in {place}{hint}")
    return getattr(module, attribute)


def _loaded(place: str) -> ModuleType:
    if not place.endswith(".py"):
        return load_module(place)
    module = sys.modules.get(name_of_file(Path(place)))
    if module is not None and vars(module).get(LOADED) == digest_of(Path(place).read_bytes()):
        return module
    return load_module(place)


def require_arguments(setting: str, name: str, function: Function, arguments: str) -> None:
    """Raise ConfigError unless the function can be called with these arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(*arguments.split(", "))
    except TypeError as error:
        raise ConfigError(
            f"{setting} = '{name}' takes {signature}, but is called with ({arguments}): {error}"
        ) from error


def call(setting: str, name: str, function: Function, *arguments: Any, error: type[CoterieError] = MethodError) -> Any:
    """Call the function; an exception becomes an `error` that names the setting, the file and the line."""
    try:
        return function(*arguments)
    except CoterieError:
        raise
    except Exception as raised:
        raise error(f"{setting} = '{name}' failed: {type(raised).__name__}: {raised} ({_line_of(raised)})") from raised


# -- callables that make models ----------------------------------------------------------------


def is_import_path(name: str) -> bool:
    """Whether `name` is the user's own model rather than one of the zoo."""
    return ":" in name


def find_callable(name: str) -> Callable[..., object]:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ModelError(f"model.zoo: '{name}' is not of the form 'module:callable'")
    module = _import(module_name)
    value: Any = getattr(module, attribute, None)
    if not callable(value):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ModelError(f"model.zoo: {_no_such_callable(module_name, attribute, public)}")
    factory: Callable[..., object] = value
    return factory


def _no_such_callable(module_name: str, attribute: str, public: list[str]) -> str:
    """Like `coterie.core.errors.unknown`, without the list of all names: torchvision has hundreds."""
    near = difflib.get_close_matches(attribute, public, n=3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"'{module_name}' has no callable '{attribute}'{hint}"


def _import(module_name: str) -> object:
    try:
        make_importable(Path.cwd())
        with without_bytecode():
            return importlib.import_module(module_name)
    except Exception as error:  # a module may raise anything on import
        raise ModelError(f"model.zoo: cannot import '{module_name}': {error}{_hint(module_name)}") from error


def _hint(module_name: str) -> str:
    if module_name.endswith(".py"):
        return f" (name the module, not its file: '{module_name.removesuffix('.py')}:...')"
    package = module_name.partition(".")[0]
    if package in _INSTALLABLE:
        return f" (pip install {package}, in the build that matches your torch)"
    return " (is it installed, or in the working directory?)"
