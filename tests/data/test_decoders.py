"""Each published layout, built small in exactly its form, and what damaged files say."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coterie.core.errors import DataError
from coterie.data import decoders
from coterie.data.fetching import unpack

RNG = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, size=shape, dtype=np.uint8)


def idx_bytes(values: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    return header + values.astype(np.uint8).tobytes()


def write_idx_folder(folder: Path, zipped: bool) -> tuple[np.ndarray, np.ndarray]:
    images, labels = pixels(5, 4, 4), np.arange(5)
    for part, rows in (("train", slice(0, 3)), ("t10k", slice(3, 5))):
        for kind, values in (("images-idx3", images[rows]), ("labels-idx1", labels[rows])):
            content = idx_bytes(values)
            name = folder / f"{part}-{kind}-ubyte{'.gz' if zipped else ''}"
            name.write_bytes(gzip.compress(content) if zipped else content)
    return images, labels


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files_are_merged_train_first(tmp_path: Path, zipped: bool) -> None:
    images, labels = write_idx_folder(tmp_path, zipped)
    pool = decoders.decode_idx(tmp_path)
    assert np.array_equal(pool["x"], images[:, None])
    assert np.array_equal(pool["y"], labels)
    assert pool["y"].dtype == np.int64


@pytest.mark.parametrize("damage", [lambda c: c[:-1], lambda c: b"\1" + c[1:], lambda c: c[:3], lambda c: c[:0]])
def test_damaged_idx_is_refused_by_name(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "some-images"
    path.write_bytes(damage(idx_bytes(pixels(2, 3, 3))))
    with pytest.raises(DataError, match="some-images"):
        decoders.read_idx(path)


def test_truncated_gzip_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx_bytes(pixels(9, 9, 9)))[:-20])
    with pytest.raises(DataError, match=r"images\.gz: truncated or corrupt"):
        decoders.read_idx(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train-images-idx3-ubyte is missing"):
        decoders.decode_idx(tmp_path)


def test_cifar10_binary(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    images, labels = pixels(6, 3, 32, 32), np.array([3, 9, 0, 1, 2, 7])
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        (folder / f"{name}.bin").write_bytes(bytes([labels[number]]) + images[number].tobytes())
    pool = decoders.decode_cifar10(tmp_path)
    assert np.array_equal(pool["x"], images)
    assert np.array_equal(pool["y"], labels)


def test_cifar100_binary_has_coarse_then_fine_labels(tmp_path: Path) -> None:
    images = pixels(3, 3, 32, 32)
    rows = [bytes([number, 90 + number]) + image.tobytes() for number, image in enumerate(images)]
    (tmp_path / "train.bin").write_bytes(rows[0] + rows[1])
    (tmp_path / "test.bin").write_bytes(rows[2])
    pool = decoders.decode_cifar100(tmp_path)
    assert np.array_equal(pool["x"], images)
    assert pool["y"].tolist() == [90, 91, 92]
    assert pool["coarse"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [0, 3072, 3074])
def test_a_broken_cifar_batch_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(DataError, match=r"data_batch_1\.bin"):
        decoders.read_cifar_binary(path, label_bytes=1)


def write_png_rows(path: Path, images: np.ndarray) -> None:
    Image.fromarray(images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3)).save(path)


def test_cifar10_png_rows_with_json_labels(tmp_path: Path) -> None:
    images = pixels(12, 3, 32, 32)
    for number in range(5):
        write_png_rows(tmp_path / f"data_batch_{number + 1}.png", images[2 * number : 2 * number + 2])
    write_png_rows(tmp_path / "test_batch.png", images[10:])
    (tmp_path / "train_lables.json").write_text(json.dumps(list(range(10))))
    (tmp_path / "test_lables.json").write_text("[4, 5]")
    pool = decoders.decode_cifar10_png(tmp_path)
    assert np.array_equal(pool["x"], images)
    assert pool["y"].tolist() == [*range(10), 4, 5]
    (tmp_path / "test_lables.json").write_text("[4]")
    with pytest.raises(DataError, match="12 images, but 11 labels"):
        decoders.decode_cifar10_png(tmp_path)


def test_broken_png_and_labels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.png"
    write_png_rows(path, pixels(3, 3, 32, 32))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(DataError, match=r"rows\.png: truncated"):
        decoders.read_png_rows(path)
    Image.new("RGB", (1000, 2)).save(path)
    with pytest.raises(DataError, match="rows have 1000 pixels"):
        decoders.read_png_rows(path)
    path.write_text('{"not": "a list"')
    with pytest.raises(DataError, match=r"rows\.png: not a JSON list"):
        decoders.read_json_labels(path)


def test_svhn_counts_label_ten_as_zero(tmp_path: Path) -> None:
    from scipy.io import savemat

    images = pixels(3, 3, 32, 32)
    for part, rows, labels in (("train", slice(0, 2), [10, 3]), ("test", slice(2, 3), [9])):
        content = {"X": images[rows].transpose(2, 3, 1, 0), "y": np.array(labels, np.uint8)[:, None]}
        savemat(tmp_path / f"{part}_32x32.mat", content, do_compression=True)
    pool = decoders.decode_svhn(tmp_path)
    assert np.array_equal(pool["x"], images)
    assert pool["y"].tolist() == [0, 3, 9]


def test_broken_svhn_is_refused_by_name(tmp_path: Path) -> None:
    from scipy.io import savemat

    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": pixels(32, 32, 3, 4), "y": np.ones((4, 1))}, do_compression=True)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"<html>not found</html>" * 20):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"train_32x32\.mat"):
            decoders.read_svhn(path)
    savemat(path, {"X": pixels(8, 8, 3, 4), "y": np.ones((4, 1))})
    with pytest.raises(DataError, match="X has shape"):
        decoders.read_svhn(path)
    savemat(path, {"X": pixels(32, 32, 3, 4)})
    with pytest.raises(DataError, match="no variable 'y'"):
        decoders.read_svhn(path)


def test_cinic10_merges_three_parts_and_makes_grey_images_rgb(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        for name in ("airplane", "bird"):
            folder = tmp_path / part / name
            folder.mkdir(parents=True)
            Image.fromarray(pixels(32, 32, 3)).save(folder / "b.png")
            Image.new("L", (32, 32), 7).save(folder / "a.png")
    pool = decoders.decode_cinic10(tmp_path)
    assert pool["x"].shape == (12, 3, 32, 32)
    assert (pool["x"][0] == 7).all()
    assert pool["y"].tolist() == [0, 0, 1, 1] * 3


def test_unpack_refuses_damaged_archives_and_paths_that_escape(tmp_path: Path) -> None:
    import tarfile

    (tmp_path / "file").write_bytes(pixels(100_000).tobytes())
    archive = tmp_path / "some.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "file", "inside")
    content = archive.read_bytes()
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"some\.tar\.gz: truncated or corrupt"):
        unpack(archive, tmp_path / "out")
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "file", "../escaped")
    with pytest.raises(DataError, match=r"some\.tar\.gz"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "escaped").exists()


HEART = {
    "processed.cleveland.data": "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n"
    "67.0,1.0,4.0,160.0,286.0,0.0,2.0,108.0,1.0,1.5,2.0,?,3.0,2\n",
    "processed.hungarian.data": "28,1,2,130,132,0,2,185,0,0,?,?,?,0\n",
    "processed.switzerland.data": "32,1,1,95,0,?,0,127,0,.7,1,?,?,1\n\n",
    "processed.va.data": "63,1,4,140,260,0,1,112,1,3,2,?,?,4\n",
}


def write_heart_disease(folder: Path) -> None:
    for name, text in HEART.items():
        (folder / name).write_text(text, encoding="utf-8")


def test_heart_disease_has_a_site_for_each_row_and_nan_for_missing_values(tmp_path: Path) -> None:
    write_heart_disease(tmp_path)
    pool = decoders.decode_heart_disease(tmp_path)
    assert pool["x"].shape == (5, 13)
    assert pool["x"][0].tolist() == [63, 1, 1, 145, 233, 1, 2, 150, 0, 2.3, 3, 0, 6]
    assert np.isnan(pool["x"]).sum(axis=1).tolist() == [0, 1, 3, 3, 2]
    assert pool["y"].tolist() == [0, 1, 0, 1, 1]  # any of 1 to 4 is a disease
    assert pool["site"].tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("text", "message"), [("1,2,3\n", "3 columns, but 14 were expected"), ("<html>not found</html>\n", "not lines of")]
)
def test_broken_heart_disease_is_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    write_heart_disease(tmp_path)
    (tmp_path / "processed.va.data").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"processed\.va\.data: {message}"):
        decoders.decode_heart_disease(tmp_path)


def write_insteval(folder: Path, text: str) -> None:
    import tarfile

    (folder / "InstEval.csv").write_text(text, encoding="utf-8")
    with tarfile.open(folder / "resources.tar.gz", "w:gz") as tar:
        tar.add(folder / "InstEval.csv", "resources/rdata/csv/lme4/InstEval.csv")


INSTEVAL = '"","s","d","studage","lectage","service","dept","y"\n"1","1","1002","2","6","0","2",5\n'


def test_insteval_leaves_out_persons_and_numbers_departments(tmp_path: Path) -> None:
    write_insteval(tmp_path, INSTEVAL + '"2","7","1050","8","1","1","15",2\n')
    pool = decoders.decode_insteval(tmp_path)
    assert pool["x"].tolist() == [[2, 6, 0], [8, 1, 1]]
    assert pool["y"].tolist() == [4, 1]  # ratings 5 and 2
    assert pool["site"].tolist() == [1, 13]  # departments 2 and 15: there is no 13


def test_broken_insteval_is_refused(tmp_path: Path) -> None:
    write_insteval(tmp_path, INSTEVAL + '"2","7","1050","8","1","1","13",2\n')
    with pytest.raises(DataError, match="a department that the dataset does not have"):
        decoders.decode_insteval(tmp_path)
    (tmp_path / "resources.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"resources\.tar\.gz: has no readable"):
        decoders.decode_insteval(tmp_path)


TS = "#about\n@problemName Few\n@univariate false\n@classLabel true b a\n@data\n"


def test_series_have_channels_and_labels_by_position(tmp_path: Path) -> None:
    (tmp_path / "Few_TRAIN.ts").write_text(TS + "1,2,3:4,5,6:a\n")
    (tmp_path / "Few_TEST.ts").write_text(TS + "7,8,9:-1,.5,0:b\n")
    pool = decoders.series_decoder("Few")(tmp_path)
    assert pool["x"].tolist() == [[[1, 2, 3], [4, 5, 6]], [[7, 8, 9], [-1, 0.5, 0]]]
    assert pool["y"].tolist() == [1, 0]


@pytest.mark.parametrize("body", ["1,2,3:4,5:a\n", "1,2:3,4:c\n", "1,?:3,4:a\n"], ids=["unequal", "label", "missing"])
def test_broken_series_are_refused_by_name(tmp_path: Path, body: str) -> None:
    (tmp_path / "Few_TRAIN.ts").write_text(TS + body)
    with pytest.raises(DataError, match=r"Few_TRAIN\.ts: not a \.ts file of equally long series"):
        decoders.read_ts(tmp_path / "Few_TRAIN.ts")
