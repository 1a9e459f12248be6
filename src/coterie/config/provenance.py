"""What a run was computed with: sources, versions, and the contents of the user's own files.

Settings alone do not tell whether figures are current: a method's file may have been edited since. So a run records,
beside its settings, a digest of every source that it depends on and that is edited by hand:

- the method's module, those of its base classes, and what of one's own they import, also inside functions;
- of the package, the files of `coterie.methods` that are imported so, and the losses;
- the modules of brought models (`model.zoo = module:callable`) and of functions that parameters of the method name,
  and what of one's own they import;
- the user's own data, ONNX files, pretrained weights and graph file;
- the versions of Coterie, torch and the packages that brought models come from.

Not seen: modules imported by a name that is computed, and files that a method opens itself.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from coterie.core.errors import RunError
from coterie.core.files import write_whole
from coterie.core.imports import DIGEST, LOADED, Source, closure, digest_of, imported_at, is_own, located, named
from coterie.core.named_code import own_code, source_of

if TYPE_CHECKING:
    from coterie.config.sections import Experiment

NAME = "provenance.json"
NOT_RECORDED = "made before sources were recorded"
NOT_KNOWN = f"it is not known whether its sources changed, as it was {NOT_RECORDED}"
BLOCK = 1 << 20
EDITED = "edited after it was loaded"  # instead of a digest, so that it equals none

MadeWith = dict[str, str]  # by what people call it: a file, or a package
Digest = Callable[[Source], str]

_remembered: WeakSet[type[Any]] = WeakSet()


@dataclass(frozen=True)
class SourceRecord:
    """What a run's folder says of it."""

    made_with: Mapping[str, str]
    began: str  # the local time at which the run began
    changes: tuple[str, ...] = field(default=())  # what changed before it went on, in which round: it is a mixture


# -- computing ---------------------------------------------------------------------------------


def of(e: Experiment) -> MadeWith:
    """What this process computes the experiment with: of a module that it has loaded, the source as it was then."""
    return _collect(e, _as_loaded)


def on_disk(e: Experiment) -> MadeWith:
    """What a process that starts now would compute it with."""
    return _collect(e, _now)


def remember(kind: type[Any]) -> None:
    """Note the sources of a method that was just loaded: they may be edited while this process goes on."""
    if kind in _remembered:
        return
    _remembered.add(kind)
    for source in closure(_modules_of(kind)):
        _as_loaded(source)


def _collect(e: Experiment, digest: Digest) -> MadeWith:
    from coterie.core.version import version

    roots = _modules_of(type(e.method))
    brought, packages = _of_models(e.model.zoo)
    functions, more = _named(own_code(e.method))
    found = {**packages, **more, "coterie": version(), "torch": _version_of("torch")}
    for source in closure([*roots, *functions, *brought, *_losses()]):
        label = source.label if source.label not in found else f"{source.path.parent.name}/{source.label}"
        found[label] = digest(source)
    if not roots:
        found[type(e.method).__qualname__] = _of_text(type(e.method))
    for key, path in _files(e):
        found[_numbered(f"{key} {path.name}", found)] = _of_place(path)
    return dict(sorted(found.items()))


def _numbered(label: str, found: Mapping[str, str]) -> str:
    """A label that is not there yet. Files of one name are numbered in the order of the settings, and not told apart
    by their folders: one that was moved is still the same."""
    labels = itertools.chain([label], (f"{label} ({number})" for number in itertools.count(2)))
    return next(one for one in labels if one not in found)


def _files(e: Experiment) -> Iterator[tuple[str, Path]]:
    """The user's own files that settings name, as far as they are there: who reads them says which are not."""
    from coterie.data import available
    from coterie.portable.estimators import SUFFIX

    named = () if e.data.name in available() else (e.data.name,)  # a named dataset is verified when it is fetched
    networks = [name for name in dict.fromkeys(e.model.zoo) if name.endswith(SUFFIX)]  # in their order: see _numbered
    places = [
        *(("data", name) for name in named),
        *(("model", name) for name in networks),
        ("pretrained", e.model.pretrained),
        ("graph", e.graph.file),
    ]
    for key, place in places:
        path = Path(place).expanduser()
        if place and path.exists():
            yield key, path


def _of_models(zoo: Iterable[str]) -> tuple[list[Source], MadeWith]:
    """The modules of one's own that models are brought from, and the versions of packages that they come from."""
    from coterie.portable.estimators import PREFIX, SUFFIX, is_estimator

    names = sorted(set(zoo))
    sources, packages = _named(code for name in names if ":" in (code := name.removeprefix(PREFIX)))
    if any(is_estimator(name) and not name.endswith(SUFFIX) for name in names):
        packages["scikit-learn"] = _version_of("scikit-learn")
    return sources, packages


def _named(names: Iterable[str]) -> tuple[list[Source], MadeWith]:
    """The files of one's own that `module:name` and `file.py:name` name, and the versions of packages for the rest."""
    sources: list[Source] = []
    packages: MadeWith = {}
    for name in names:
        root = source_of(name)
        if root is not None and is_own(root.path):
            sources.append(root)
        else:
            package = name.partition(":")[0].partition(".")[0]
            packages[package] = _version_of(package)
    return sources, packages


def _modules_of(kind: type[Any]) -> list[Source]:
    """Where a method's class and its base classes are written; none for one that was typed into an interpreter."""
    found = []
    for base in kind.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if isinstance(file, str):
            found.append(Source(Path(file).resolve(), base.__module__))
        elif base is kind:
            return []
    return [source for source in dict.fromkeys(found) if source.counts]


def _losses() -> list[Source]:
    """Peers train with one of these unless their method says otherwise, so no import tells."""
    found = [located("coterie.core.loss"), located("coterie.training.losses")]
    return [source for source in found if source is not None]


def _as_loaded(source: Source) -> str:
    """The digest of what a loaded module was executed from; of one that is not loaded, of what is there now.

    Of a module that somebody else imported, the source is not kept. The file is what was executed if it was last
    changed before that import; otherwise nobody knows what was, and a word that equals no digest says so: then
    `compare` runs it again. Who touches a file without changing it is taken for an editor, too.
    """
    module = sys.modules.get(source.module)
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str) or Path(file).resolve() != source.path:
        return _now(source)
    if LOADED not in vars(module):
        as_it_was = _last_change(source.path) <= imported_at(source.module)
        vars(module)[LOADED] = _now(source) if as_it_was else _edited(source)
    digest: str = vars(module)[LOADED]
    return digest


def _last_change(path: Path) -> int:
    """When a file was last written or put there: a copy may have kept the time of writing. 0 if it is gone."""
    try:
        state = path.stat()
    except OSError:
        return 0
    return max(state.st_mtime_ns, state.st_ctime_ns)


def _edited(source: Source) -> str:
    """With the time of loading: two processes that know no more than this did not run the same source."""
    loaded = time.localtime(imported_at(source.module) // 10**9)
    return f"{EDITED}, at {time.strftime('%Y-%m-%d %H:%M:%S', loaded)}"


def _now(source: Source) -> str:
    try:
        return digest_of(source.path.read_bytes())
    except OSError:
        return "gone"


def _of_text(kind: type[Any]) -> str:
    """Of a class that was typed into an interpreter or a notebook."""
    try:
        return digest_of(inspect.getsource(kind).encode())
    except (OSError, TypeError):
        return "source not known"


def _of_place(path: Path) -> str:
    """Of a file, or of all files of a folder with their names."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    parts = [(p.relative_to(path).as_posix(), _content(p)) for p in files]
    return parts[0][1] if not path.is_dir() else digest_of(json.dumps(parts).encode())


def _content(path: Path) -> str:
    state = path.stat()
    return _content_of_state(str(path), (state.st_ctime_ns, state.st_mtime_ns, state.st_size, state.st_ino))


@cache
def _content_of_state(path: str, state: tuple[int, ...]) -> str:  # noqa: ARG001
    """Read once in a process, as long as the file stays as it is: it may be large."""
    found = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return named(found.hexdigest())


@cache
def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?"


# -- comparing ---------------------------------------------------------------------------------


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What changed, in words, by name of file or package; nothing where nothing did."""
    return [_difference(name, before, now) for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


def _difference(name: str, before: Mapping[str, str], now: Mapping[str, str]) -> str:
    if name not in now:
        return f"{name} is no longer used"
    if name not in before:
        return f"{name} is new"
    if before[name].startswith(EDITED):
        return f"{name} changed ({before[name]})"
    if before[name].startswith(DIGEST) or now[name].startswith(DIGEST):
        return f"{name} changed"
    return f"{name} {before[name]} -> {now[name]}"


def outdated(folder: Path, e: Experiment) -> str:
    """Why the figures of a run's folder are not those that the same settings give now; empty where they are."""
    record = read(folder)
    if record is None:
        return NOT_RECORDED
    if mixed := mixture(folder):
        return f"a mixture ({'; '.join(mixed)})"
    return since(record, differences(record.made_with, on_disk(e)))


def since(record: SourceRecord, changes: list[str]) -> str:
    return f"{', '.join(changes)} since {record.began}" if changes else ""


# -- in a run's folder -------------------------------------------------------------------------


def begin(folder: Path, e: Experiment) -> None:
    """Record what a run that begins is computed with."""
    _write(folder, SourceRecord(of(e), time.strftime("%Y-%m-%d %H:%M")))


def go_on(folder: Path, e: Experiment, round: int) -> str:
    """For a run that goes on after this round: the warning that its sources call for (empty: none).

    What changed since it began is recorded. A run without a record gets none: that of its first rounds is not known.
    """
    if round >= e.rounds:  # all is computed
        return ""
    record, now = read(folder), of(e)
    if record is None:
        return f"{folder} goes on after round {round}: {NOT_KNOWN}"
    why = ", ".join(differences(record.made_with, now))
    if not why:
        return ""
    _write(folder, SourceRecord(now, record.began, (*record.changes, f"after round {round}: {why}")))
    return f"{folder} goes on after round {round}, but {why}: its figures will be a mixture"


def read(folder: Path) -> SourceRecord | None:
    """What a folder says; None for a run of a version that did not record it."""
    path = folder / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return SourceRecord(dict(found["made_with"]), str(found["began"]), tuple(map(str, found["changes"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}): delete it, and run this again") from error


def mixture(folder: Path) -> list[str]:
    """Why a run is a mixture of several versions, also of its real peers' parts; empty where it is not."""
    found = []
    for place in [folder, *sorted(p.parent for p in folder.glob(f"peers/*/{NAME}"))]:
        record = read(place)
        whose = "" if place == folder else f"{place.name}, "
        found += [f"{whose}{change}" for change in (record.changes if record else ())]
    return found


def with_mixture(summary: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A run's summary, with a word of it where the run is a mixture."""
    mixed = mixture(folder)
    return {**summary, "mixture": mixed} if mixed else summary


def _write(folder: Path, record: SourceRecord) -> None:
    told = {"began": record.began, "made_with": record.made_with, "changes": list(record.changes)}
    write_whole(folder / NAME, json.dumps(told, indent=2) + "\n")
