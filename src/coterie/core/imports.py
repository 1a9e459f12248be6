"""Which source files a module imports, found by reading them: nothing is executed."""

from __future__ import annotations

import ast
import hashlib
import importlib
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import coterie

PACKAGE = Path(__file__).resolve().parents[1]
LOSSES = (PACKAGE / "core" / "loss.py", PACKAGE / "training" / "losses.py")
INSTALLED = {"site-packages", "dist-packages"}
CODE = (".py", *EXTENSION_SUFFIXES)
DIGEST = "sha256:"  # how a digest begins
SHOWN = 16  # characters of it: enough to tell two versions of a file apart
LOADED = "__coterie_digest__"  # in a module: the digest of the source that it was executed from


@dataclass(frozen=True)
class Source:
    """A file that a module is loaded from."""

    path: Path
    module: str  # its name in `sys.modules`

    @property
    def label(self) -> str:
        """How people call it: by its place in its package, or by its name."""
        if self.path.is_relative_to(PACKAGE):
            return self.path.relative_to(PACKAGE.parent).as_posix()
        folders = self.module.split(".")[:-1] if self.path.stem != "__init__" else self.module.split(".")
        return "/".join([*folders, self.path.name])

    @property
    def of_package(self) -> bool:
        """Whether it is one of Coterie's own that say what a method computes: these change without a new version."""
        return self.path.is_relative_to(PACKAGE / "methods") or self.path in LOSSES

    @property
    def counts(self) -> bool:
        return self.of_package or is_own(self.path)


def digest_of(content: bytes) -> str:
    return named(hashlib.sha256(content).hexdigest())


def named(digest: str) -> str:
    return DIGEST + digest[:SHOWN]


def make_importable(folder: Path) -> None:
    """Modules in this folder may be imported from now on, also inside functions, as those beside a script may.

    It is searched last, so that it shadows nothing. (An installed command does not search the working directory.)
    """
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.append(place)


def refuse_mistaken(path: Path, content: bytes) -> None:
    """Raise ImportError if a module beside this file is not the one that its `import` gets: Python has one of each
    name, and takes that of another folder if it was loaded before."""
    for level, module, _ in _statements(content):
        top = module.partition(".")[0]
        places = (path.parent / f"{top}.py", path.parent / top / "__init__.py")
        beside = [place.resolve() for place in places if place.exists()]
        loaded = getattr(sys.modules.get(top), "__file__", None)
        if not level and beside and loaded and Path(loaded).resolve() not in beside:
            raise ImportError(
                f"it imports '{top}', which is {beside[0]}, but {loaded} is loaded under that name: rename one of them"
            )


@contextmanager
def without_bytecode() -> Iterator[None]:
    """Modules that are imported meanwhile leave no compiled file behind. Python takes one for current if its source
    has the same size, and was written in the same second: then another source would run than the one that is there."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


_FIRST_SEEN = time.time_ns()  # when this module was imported
_began: dict[str, int] = {}  # by module: when its import began


class _Watch(MetaPathFinder):
    """Notes when each import begins, whoever imports, and leaves the finding of the module to the others."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /) -> None:  # noqa: ARG002
        _began[fullname] = time.time_ns()
        if target is not None:  # it is loaded again: what was known of its source is of the old one
            vars(target).pop(LOADED, None)


sys.meta_path.insert(0, _Watch())


def imported_at(module: str) -> int:
    """When a loaded module was imported, in nanoseconds since 1970.

    Python does not record this. Imports are watched since this module was imported; one that was loaded before counts
    as loaded at that moment, so an edit between its import and that of Coterie goes unnoticed.
    """
    return _began.get(module, _FIRST_SEEN)


def is_own(path: Path) -> bool:
    """Whether somebody here may edit it: neither Python's, nor installed, nor Coterie's."""
    if not path.name.endswith(CODE) or INSTALLED & set(path.parts) or path.is_relative_to(PACKAGE):
        return False
    return not any(path.is_relative_to(folder) for folder in _of_python())


@lru_cache(maxsize=1)
def _of_python() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


def closure(roots: Iterable[Source]) -> list[Source]:
    """These, and those that count among what they import, however indirectly."""
    waiting, found = list(roots), dict[Path, Source]()
    while waiting:
        source = waiting.pop(0)
        if source.path not in found:
            found[source.path] = source
            waiting += _imported_in_package(source) if source.of_package else _imported(source)
    return list(found.values())


@cache
def _imported_in_package(source: Source) -> list[Source]:
    """Of a file of Coterie's own, once in a process: who edits its imports changes its digest, too."""
    return _imported(source)


def _imported(source: Source) -> list[Source]:
    """The sources that count among those that this one imports, at its top or anywhere in it."""
    if source.path.suffix != ".py":
        return []
    try:
        statements = _statements(source.path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # who runs it says what is wrong with it
        return []
    found = (one for statement in statements for name in _targets(source, *statement) for one in _with_packages(name))
    return [one for one in dict.fromkeys(found) if one.counts]


Statement = tuple[int, str, tuple[str, ...]]  # the dots before it, the module, the names from it (none: all of it)


@lru_cache(maxsize=1024)
def _statements(content: bytes) -> tuple[Statement, ...]:
    found: list[Statement] = []
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            found += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return tuple(dict.fromkeys(found))


def _targets(source: Source, level: int, module: str, names: tuple[str, ...]) -> Iterator[str]:
    """The names of all modules that a statement may import: `from a import b` is `a`, and `a.b` if there is one."""
    if level:
        package = source.module if source.path.stem == "__init__" else source.module.rpartition(".")[0]
        for _ in range(level - 1):
            package = package.rpartition(".")[0]
        module = ".".join(filter(None, (package, module)))
    if module == coterie.__name__:
        yield from (coterie._HOMES[name] for name in names if name in coterie._HOMES)
        return
    yield module
    whole = located(module)
    if whole is None or (whole.counts and whole.path.stem == "__init__"):  # only packages have modules in them
        yield from (f"{module}.{name}" for name in names)


def _with_packages(name: str) -> Iterator[Source]:
    """The module, and the packages that it is in: their `__init__` runs as well. Coterie's own say nothing."""
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names:
        return
    first = len(parts) if parts[0] == coterie.__name__ else 1
    for end in range(first, len(parts) + 1):
        source = located(".".join(parts[:end]))
        if source is not None:
            yield source


def located(name: str) -> Source | None:
    """The file of a module, which need not be loaded; None where there is none."""
    top = name.partition(".")[0]
    if not name or top in sys.stdlib_module_names:
        return None
    file = getattr(sys.modules.get(name), "__file__", None)
    if isinstance(file, str):
        return Source(Path(file).resolve(), name)
    spec = _spec(name)
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    return Source(Path(spec.origin).resolve(), name)


def _spec(name: str) -> ModuleSpec | None:
    importlib.invalidate_caches()  # files may have come since it last looked
    parts = name.split(".")
    places: list[str] | None = [*sys.path, str(Path.cwd())]
    spec: ModuleSpec | None = None
    for end in range(1, len(parts) + 1):
        if places is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[:end]), places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
    return spec
