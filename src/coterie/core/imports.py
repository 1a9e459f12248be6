"""Finds the source files that a module imports by parsing them; nothing is executed."""

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
DIGEST = "sha256:"  # prefix of a digest
SHOWN = 16  # characters of it: enough to distinguish two versions of a file
LOADED = "__coterie_digest__"  # module attribute: the digest of the source that it was executed from


@dataclass(frozen=True)
class Source:
    """A file that a module is loaded from."""

    path: Path
    module: str  # its name in `sys.modules`

    @property
    def label(self) -> str:
        """A readable name: its path within its package, or its file name."""
        if self.path.is_relative_to(PACKAGE):
            return self.path.relative_to(PACKAGE.parent).as_posix()
        folders = self.module.split(".")[:-1] if self.path.stem != "__init__" else self.module.split(".")
        return "/".join([*folders, self.path.name])

    @property
    def of_package(self) -> bool:
        """Whether it is a file of Coterie that decides what a method computes: these change without a new version."""
        return self.path.is_relative_to(PACKAGE / "methods") or self.path in LOSSES

    @property
    def counts(self) -> bool:
        return self.of_package or is_own(self.path)


def digest_of(content: bytes) -> str:
    return named(hashlib.sha256(content).hexdigest())


def named(digest: str) -> str:
    return DIGEST + digest[:SHOWN]


def make_importable(folder: Path) -> None:
    """Add a folder to the import path, as Python does with the folder of a script.

    It is searched last, so that it shadows nothing. (An installed command does not search the working directory.)
    """
    path = str(folder.resolve())
    if path not in sys.path:
        sys.path.append(path)


def check_imports_neighbours(path: Path, content: bytes) -> None:
    """Raise ImportError if an `import` in this file gets a module of another folder instead of the one next to the
    file: Python keeps one module of each name, the first that was loaded."""
    for level, module, _ in _statements(content):
        top = module.partition(".")[0]
        candidates = (path.parent / f"{top}.py", path.parent / top / "__init__.py")
        neighbours = [candidate.resolve() for candidate in candidates if candidate.exists()]
        loaded = getattr(sys.modules.get(top), "__file__", None)
        if not level and neighbours and loaded and Path(loaded).resolve() not in neighbours:
            raise ImportError(
                f"it imports '{top}', which is {neighbours[0]}, but {loaded} is already loaded under that name: "
                "rename one of them"
            )


@contextmanager
def without_bytecode() -> Iterator[None]:
    """Import without writing bytecode files. Python considers one current if its source has the same size and the same
    modification second, and would then run an outdated source."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before


_FIRST_SEEN = time.time_ns()  # when this module was imported
_import_started: dict[str, int] = {}  # by module


class _ImportTimer(MetaPathFinder):
    """Records when each import starts, and leaves finding the module to the other finders."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /) -> None:  # noqa: ARG002
        _import_started[fullname] = time.time_ns()
        if target is not None:  # a reload: the recorded digest is that of the old source
            vars(target).pop(LOADED, None)


sys.meta_path.insert(0, _ImportTimer())


def imported_at(module: str) -> int:
    """When a loaded module was imported, in nanoseconds since 1970.

    Python does not record this. Imports are timed from the import of this module on; a module that was loaded earlier
    counts as loaded at that moment, so an edit between its import and that of Coterie goes unnoticed.
    """
    return _import_started.get(module, _FIRST_SEEN)


def is_own(path: Path) -> bool:
    """Whether it is the user's own code: not part of Python, an installed package or Coterie."""
    if not path.name.endswith(CODE) or INSTALLED & set(path.parts) or path.is_relative_to(PACKAGE):
        return False
    return not any(path.is_relative_to(folder) for folder in _of_python())


@lru_cache(maxsize=1)
def _of_python() -> tuple[Path, ...]:
    return tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib"))


def closure(roots: Iterable[Source]) -> list[Source]:
    """These sources and all that they import, directly or indirectly, as far as they count."""
    pending, sources = list(roots), dict[Path, Source]()
    while pending:
        source = pending.pop(0)
        if source.path not in sources:
            sources[source.path] = source
            pending += _imported_in_package(source) if source.of_package else _imported(source)
    return list(sources.values())


@cache
def _imported_in_package(source: Source) -> list[Source]:
    """`_imported` for a file of Coterie, cached per process: an edit of its imports changes its digest, too."""
    return _imported(source)


def _imported(source: Source) -> list[Source]:
    """The sources that this one imports anywhere in its code, as far as they count."""
    if source.path.suffix != ".py":
        return []
    try:
        statements = _statements(source.path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # executing the file reports the problem
        return []
    names = (name for statement in statements for name in _targets(source, *statement))
    sources = (imported for name in names for imported in _with_packages(name))
    return [imported for imported in dict.fromkeys(sources) if imported.counts]


Statement = tuple[int, str, tuple[str, ...]]  # leading dots, the module, the names imported from it (none: all of it)


@lru_cache(maxsize=1024)
def _statements(content: bytes) -> tuple[Statement, ...]:
    statements: list[Statement] = []
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            statements += [(0, alias.name, ()) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            statements.append((node.level, node.module or "", tuple(alias.name for alias in node.names)))
    return tuple(dict.fromkeys(statements))


def _targets(source: Source, level: int, module: str, names: tuple[str, ...]) -> Iterator[str]:
    """The names of all modules that a statement may import: `from a import b` means `a`, and `a.b` if that exists."""
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
    if whole is None or (whole.counts and whole.path.stem == "__init__"):  # only packages contain modules
        yield from (f"{module}.{name}" for name in names)


def _with_packages(name: str) -> Iterator[Source]:
    """The module and the packages that contain it, whose `__init__` runs as well (Coterie's do not matter)."""
    parts = name.split(".")
    if parts[0] in sys.stdlib_module_names:
        return
    first = len(parts) if parts[0] == coterie.__name__ else 1
    for end in range(first, len(parts) + 1):
        source = located(".".join(parts[:end]))
        if source is not None:
            yield source


def located(name: str) -> Source | None:
    """The file of a module, loaded or not; None if it has none."""
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
    importlib.invalidate_caches()  # files may have been added since the last search
    parts = name.split(".")
    folders: list[str] | None = [*sys.path, str(Path.cwd())]
    spec: ModuleSpec | None = None
    for end in range(1, len(parts) + 1):
        if folders is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[:end]), folders)
        if spec is None:
            return None
        folders = list(spec.submodule_search_locations) if spec.submodule_search_locations is not None else None
    return spec
