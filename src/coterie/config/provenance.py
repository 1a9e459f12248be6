"""Records what a run was computed with: sources, versions, and the contents of the user's own files.

Settings alone do not tell whether results are current: a method's file may have been edited since. So a run records,
beside its settings, a digest of every source that it depends on and that is edited by hand:

- the method's module, those of its base classes, and the user's modules that they import, also inside functions;
- Coterie's own files in `coterie.methods` that are imported this way, and the losses;
- the modules of custom models (`model.zoo = module:callable`), of functions that parameters of the method name and of
  the user's own metrics, and the user's modules that they import;
- the user's data, ONNX files, pretrained weights and graph file;
- the versions of Coterie, torch and the packages that custom models come from.

Not detected: modules imported by a computed name, and files that a method opens itself.
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
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from coterie.core.errors import RunError
from coterie.core.files import write_whole
from coterie.core.imports import DIGEST, LOADED, Source, closure, digest_of, imported_at, is_own, located, named
from coterie.core.named_code import own_code, source_of
from coterie.core.run_folder import RunFolder
from coterie.core.summary import PeerSummary, Summary

if TYPE_CHECKING:
    from coterie.config.sections import Experiment

S = TypeVar("S", Summary, PeerSummary)
NOT_RECORDED = "made before sources were recorded"
NOT_KNOWN = f"it is unknown whether its sources changed, as it was {NOT_RECORDED}"
BLOCK = 1 << 20
EDITED = "edited after it was loaded"  # stands in for a digest, and equals none

MadeWith = dict[str, str]  # by label: a file or a package
Digest = Callable[[Source], str]

_remembered: WeakSet[type[Any]] = WeakSet()


@dataclass(frozen=True)
class SourceRecord:
    """The content of a run folder's provenance.json."""

    made_with: Mapping[str, str]
    began: str  # local time
    changes: tuple[str, ...] = field(default=())  # what changed when the run resumed, and in which round


# -- computing ---------------------------------------------------------------------------------


def of(e: Experiment) -> MadeWith:
    """What this process computes the experiment with; the source of a loaded module counts as it was when loaded."""
    return _collect(e, _as_loaded)


def on_disk(e: Experiment) -> MadeWith:
    """What a process that starts now would compute the experiment with."""
    return _collect(e, _now)


def remember(kind: type[Any]) -> None:
    """Take digests of the sources of a method that was just loaded: they may be edited while this process runs."""
    if kind in _remembered:
        return
    _remembered.add(kind)
    for source in closure(_modules_of(kind)):
        _as_loaded(source)


def _collect(e: Experiment, digest: Digest) -> MadeWith:
    from coterie.core.version import version

    roots = _modules_of(type(e.method))
    brought, packages = _of_models(e.model.zoo)
    metrics = (name for name in e.evaluate.metrics if ":" in name)
    functions, more = _named([*own_code(e.method), *metrics])
    made_with = {**packages, **more, "coterie": version(), "torch": _version_of("torch")}
    for source in closure([*roots, *functions, *brought, *_losses()]):
        label = source.label if source.label not in made_with else f"{source.path.parent.name}/{source.label}"
        made_with[label] = digest(source)
    if not roots:
        made_with[type(e.method).__qualname__] = _of_text(type(e.method))
    for key, path in _files(e):
        made_with[_numbered(f"{key} {path.name}", made_with)] = _of_place(path)
    return dict(sorted(made_with.items()))


def _numbered(label: str, taken: Mapping[str, str]) -> str:
    """A label that is not taken yet. Files of the same name are numbered in the order of the settings rather than
    labelled by folder: a file that was moved is still the same."""
    labels = itertools.chain([label], (f"{label} ({number})" for number in itertools.count(2)))
    return next(one for one in labels if one not in taken)


def _files(e: Experiment) -> Iterator[tuple[str, Path]]:
    """The user's own files that settings name and that exist; code that reads them reports the missing ones."""
    from coterie.data import available, is_pattern, site_files
    from coterie.portable.estimators import SUFFIX

    named = [] if e.data.name in available() else [e.data.name]  # a named dataset is verified when it is fetched
    if is_pattern(e.data.name):
        named = [str(path) for path in site_files(e.data.name).values()]
    networks = [name for name in dict.fromkeys(e.model.zoo) if name.endswith(SUFFIX)]  # in their order: see _numbered
    places = [
        *(("data", name) for name in named),
        ("schema", e.data.schema),
        *(("model", name) for name in networks),
        ("pretrained", e.model.pretrained),
        ("graph", e.graph.file),
    ]
    for key, place in places:
        path = Path(place).expanduser()
        if place and path.exists():
            yield key, path


def _of_models(zoo: Iterable[str]) -> tuple[list[Source], MadeWith]:
    """The user's modules that custom models come from, and the versions of packages that the others come from."""
    from coterie.portable.estimators import PREFIX, SUFFIX, is_estimator

    names = sorted(set(zoo))
    sources, packages = _named(code for name in names if ":" in (code := name.removeprefix(PREFIX)))
    if any(is_estimator(name) and not name.endswith(SUFFIX) for name in names):
        packages["scikit-learn"] = _version_of("scikit-learn")
    return sources, packages


def _named(names: Iterable[str]) -> tuple[list[Source], MadeWith]:
    """The user's files that `module:name` and `file.py:name` refer to, and the versions of packages for the rest."""
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
    """The modules of a method's class and its base classes; none for a class typed into an interpreter."""
    sources = []
    for base in kind.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if isinstance(file, str):
            sources.append(Source(Path(file).resolve(), base.__module__))
        elif base is kind:
            return []
    return [source for source in dict.fromkeys(sources) if source.counts]


def _losses() -> list[Source]:
    """The default losses: methods use them without importing them."""
    losses = [located("coterie.core.loss"), located("coterie.training.losses")]
    return [source for source in losses if source is not None]


def _as_loaded(source: Source) -> str:
    """The digest of the source that a loaded module was executed from; else of the file as it is now.

    The source of a module that other code imported is not kept. If its file was last changed before the import, the
    file is what was executed. Otherwise the executed source is unknown: a text that equals no digest is recorded, and
    `compare` runs the experiment again. Touching a file without changing it counts as a change, too.
    """
    module = sys.modules.get(source.module)
    file = getattr(module, "__file__", None)
    if module is None or not isinstance(file, str) or Path(file).resolve() != source.path:
        return _now(source)
    if LOADED not in vars(module):
        unchanged = _last_change(source.path) <= imported_at(source.module)
        vars(module)[LOADED] = _now(source) if unchanged else _edited(source)
    digest: str = vars(module)[LOADED]
    return digest


def _last_change(path: Path) -> int:
    """When a file was last written or moved here (a copy may keep its old modification time); 0 if it is gone."""
    try:
        state = path.stat()
    except OSError:
        return 0
    return max(state.st_mtime_ns, state.st_ctime_ns)


def _edited(source: Source) -> str:
    """Includes the time of loading, so that two processes with unknown sources never count as equal."""
    loaded = time.localtime(imported_at(source.module) // 10**9)
    return f"{EDITED}, at {time.strftime('%Y-%m-%d %H:%M:%S', loaded)}"


def _now(source: Source) -> str:
    try:
        return digest_of(source.path.read_bytes())
    except OSError:
        return "gone"


def _of_text(kind: type[Any]) -> str:
    """The digest of a class that was typed into an interpreter or a notebook."""
    try:
        return digest_of(inspect.getsource(kind).encode())
    except (OSError, TypeError):
        return "source not known"


def _of_place(path: Path) -> str:
    """The digest of a file, or of all files of a folder with their names."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    parts = [(p.relative_to(path).as_posix(), _content(p)) for p in files]
    return parts[0][1] if not path.is_dir() else digest_of(json.dumps(parts).encode())


def _content(path: Path) -> str:
    state = path.stat()
    return _content_of_state(str(path), (state.st_ctime_ns, state.st_mtime_ns, state.st_size, state.st_ino))


@cache
def _content_of_state(path: str, state: tuple[int, ...]) -> str:  # noqa: ARG001
    """Cached while the file does not change: it may be large."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return named(digest.hexdigest())


@cache
def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?"


# -- comparing ---------------------------------------------------------------------------------


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What changed, one text per file or package; empty if nothing did."""
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
    """Why a run folder's results may differ from what the same settings give now; empty if they are current."""
    record = read(folder)
    if record is None:
        return NOT_RECORDED
    if mixed := mixture(folder):
        return f"a mixture ({'; '.join(mixed)})"
    return since(record, differences(record.made_with, on_disk(e)))


def since(record: SourceRecord, changes: list[str]) -> str:
    """The changes and when the run began, as one text; empty if there are none."""
    return f"{', '.join(changes)} since {record.began}" if changes else ""


# -- in a run's folder -------------------------------------------------------------------------


def begin(folder: Path, e: Experiment) -> None:
    """Record what a new run is computed with."""
    _write(folder, SourceRecord(of(e), time.strftime("%Y-%m-%d %H:%M")))


def resume(folder: Path, e: Experiment, round: int) -> str:
    """Record what changed before a run resumes after this round; returns a warning, or an empty text.

    A run without a record does not get one: what its first rounds were computed with is unknown.
    """
    if round >= e.rounds:  # everything is computed
        return ""
    record, now = read(folder), of(e)
    if record is None:
        return f"{folder} resumes after round {round}: {NOT_KNOWN}"
    why = ", ".join(differences(record.made_with, now))
    if not why:
        return ""
    _write(folder, SourceRecord(now, record.began, (*record.changes, f"after round {round}: {why}")))
    return f"{folder} resumes after round {round}, but {why}: its results will be a mixture"


def read(folder: Path) -> SourceRecord | None:
    """The record in a run folder; None for a run of a version that did not write one."""
    path = RunFolder(folder).provenance
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return SourceRecord(dict(fields["made_with"]), str(fields["began"]), tuple(map(str, fields["changes"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({error}): delete it, and run the experiment again") from error


def mixture(folder: Path) -> list[str]:
    """Why a run, or the part of one of its real peers, mixes several versions; empty if none does."""
    changes: list[str] = []
    for place in [folder, *(member.path for member in RunFolder(folder).members())]:
        record = read(place)
        peer = "" if place == folder else f"{place.name}, "
        changes += [f"{peer}{change}" for change in (record.changes if record else ())]
    return changes


def with_mixture(summary: S, folder: Path) -> S:
    """A run's or a peer's summary, with `mixture` if it mixes several versions."""
    return replace(summary, mixture=tuple(mixture(folder)))


def _write(folder: Path, record: SourceRecord) -> None:
    fields = {"began": record.began, "made_with": record.made_with, "changes": list(record.changes)}
    write_whole(RunFolder(folder).provenance, json.dumps(fields, indent=2) + "\n")
