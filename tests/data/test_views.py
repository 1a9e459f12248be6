"""The default views of a dataset's images, and the note about them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from coterie import data
from coterie.cli.main import OK, main
from coterie.comparing.plan import fingerprint
from coterie.config.loading import from_tables, load
from coterie.config.sections import DataSettings, Experiment
from coterie.core.errors import ConfigError, DataError
from coterie.data.augmentation import ImageAugmentation
from coterie.data.pool import pool_data
from coterie.data.views import NAMES, PHOTOGRAPHS, Views, usual_views
from coterie.methods import METHODS
from coterie.reproducing import papers
from coterie.running import simulated
from coterie.wiring import divide, gather

# crop, flip, jitter, grey, blur. CIFAR's are those of MAPL's Table 8, and of all records in docs/measured.jsonl.
TABLE_8 = Views(0.2, 0.5, 0.8, 0.2, 0.5)
EXPECTED = {
    "digits": Views(0.7, 0.0, 0.8, 0.2, 0.0),
    "mnist": Views(0.2, 0.0, 0.8, 0.2, 0.5),
    "svhn": Views(0.2, 0.0, 0.8, 0.2, 0.5),
    "fashion-mnist": TABLE_8,
    "cifar10": TABLE_8,
    "cifar100": TABLE_8,
    "cifar100-coarse": TABLE_8,
    "cinic10": TABLE_8,
}
NO_IMAGES = {"breast-cancer", "wine", "diabetes", "heart-disease", "insteval", "japanese-vowels", "italy-power-demand"}
OLD = {"crop": 0.2, "flip": 0.5, "jitter": 0.8, "grey": 0.2, "blur": 0.5}  # the defaults of former versions
TINY = (
    "peers=4", "rounds=1", "data.partition=iid", "data.train=4", "data.validation=2", "data.test=2", "train.batch=4",
    "train.epochs=1", "model.hidden=[4]", "engine.models=false", "engine.workers=1", "baseline=",
)  # fmt: skip


def resolved(e: Experiment) -> Views:
    return Views(**{key: e.tables()["data"][key] for key in NAMES})


def images(side: int, rows: int = 48) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=(rows, 1, side, side), dtype=np.uint8)


def arrays(path: Path, x: np.ndarray) -> Path:
    np.savez(path, x=x, y=np.arange(len(x)) % 2)
    return path


def folder(path: Path, side: int, rows: int = 48) -> Path:
    for row, pixels in enumerate(images(side, rows)[:, 0]):
        (path / f"class{row % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path / f"class{row % 2}" / f"{row}.png")
    return path


# -- by name


def test_every_named_dataset_is_expected_here() -> None:
    assert set(data.available()) == EXPECTED.keys() | NO_IMAGES


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_views_of_a_named_dataset(name: str) -> None:
    assert data.views_of(name) == data.default_views(name) == EXPECTED[name]
    assert resolved(load("panm-digits", [f"data.name={name}"])) == EXPECTED[name]


@pytest.mark.parametrize("name", sorted(NO_IMAGES))
def test_tables_have_no_views_of_their_own_and_keep_the_old_numbers(name: str) -> None:
    assert data.views_of(name) is None
    assert resolved(load("fedpae-any-model", [f"data.name={name}"])) == Views(**OLD)


def test_a_size_of_20_pixels_decides_on_blur_and_crop() -> None:
    assert (usual_views(20), usual_views(19)) == (PHOTOGRAPHS, Views(0.7, 0.5, 0.8, 0.2, 0.0))


def test_what_is_written_down_are_numbers_and_gives_the_same_again(tmp_path: Path) -> None:
    e = load("panm-digits", ["data.flip=0.25"])
    written = tmp_path / "config.toml"
    written.write_text(e.toml())
    kept = tomllib.loads(e.toml())["data"]
    assert {key: kept[key] for key in NAMES} == {"crop": 0.7, "flip": 0.25, "jitter": 0.8, "grey": 0.2, "blur": 0.0}
    assert load(str(written)) == e


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_is_set_by_hand_wins(name: str, tmp_path: Path) -> None:
    by_hand = Views(0.3, 0.5, 0.1, 0.4, 0.6)
    words = [f"data.{key}={getattr(by_hand, key)}" for key in NAMES]
    assert resolved(load("panm-digits", [f"data.name={name}", *words])) == by_hand
    own = tmp_path / "own.toml"
    own.write_text(f'base = "panm-digits"\n[data]\nname = "{name}"\nflip = 0.5\n')
    assert resolved(load(str(own))).flip == 0.5
    assert resolved(load(str(own), ["data.flip=auto"])) == EXPECTED[name]  # and back


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("data.flip=lots", r"data\.flip must be from 0 to 1 or auto, not 'lots'"),
        ("data.flip=2", r"data\.flip must be from 0 to 1 or auto, not 2\.0$"),
        ("data.blur=true", r"data\.blur must be a number"),
        ("data.crop=0", r"data\.crop must be above 0 and at most 1 or auto, not 0\.0$"),
        ("data.noise=-1", r"^data\.noise must be at least 0, not -1\.0$"),
    ],
)
def test_what_is_neither_a_number_nor_auto_is_refused(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load("panm-digits", [word])


def test_views_are_made_as_the_settings_say() -> None:
    e = load("panm-digits", ["data.jitter=0"])
    made = pool_data(*divide(e), e.data).augment
    assert isinstance(made, ImageAugmentation)
    assert (made.scale, made.flip, made.jitter, made.grey, made.blur) == ((0.7, 1.0), 0.0, 0.0, 0.2, 0.0)
    # The least of its random numbers, 0, keeps the whole image (the crop), and would flip and blur it if it might.
    dataset, shares = divide(e)
    x = gather(e, pool_data(dataset, shares, e.data)).participants[0].data.train.x
    u = np.zeros((len(x), made.numbers), dtype=np.float32)
    u[:, 1] = 0.5  # as wide as high
    assert torch.allclose(made(x, torch.from_numpy(u)), x, atol=1e-5)
    flipped = pool_data(dataset, shares, load("panm-digits", ["data.jitter=0", "data.flip=0.5"]).data).augment
    assert torch.allclose(flipped(x, torch.from_numpy(u)), x.flip(-1), atol=1e-5)


def test_settings_made_in_python_are_resolved_when_they_are_used() -> None:
    assert DataSettings().views == EXPECTED["digits"]
    assert DataSettings(name="cifar10", flip=0.0).views == Views(0.2, 0.0, 0.8, 0.2, 0.5)


def test_all_columns_of_mapls_tables_have_the_views_of_its_table_8() -> None:
    columns = [(t, c, small) for t in papers.tables().values() if t.name.startswith("mapl") for c in t.columns.values()
               for small in (False, True)]  # fmt: skip
    assert len(columns) > 80
    for table, column, small in columns:
        (job, *_) = table.jobs(column, small, (0,), (), Path("runs"))
        assert resolved(job.experiment) == TABLE_8, f"{table.name}/{column.name}"


# -- of one's own


@pytest.mark.parametrize(("side", "expected"), [(8, usual_views(8)), (24, TABLE_8)])
def test_views_of_the_users_images_depend_on_size_alone(side: int, expected: Views, tmp_path: Path) -> None:
    square = images(side)
    colour = np.repeat(square, 3, 1)
    layouts = {"a": square, "b": square[:, 0], "c": colour, "d": colour.transpose(0, 2, 3, 1)}
    for name, x in layouts.items():
        assert data.default_views(str(arrays(tmp_path / f"{name}.npz", x))) == expected
        assert data.of_unknown_content(str(tmp_path / f"{name}.npz"))
    tall = np.zeros((4, 1, 30, side), dtype=np.uint8)  # the shorter side counts
    assert data.default_views(str(arrays(tmp_path / "tall.npz", tall))) == expected
    place = folder(tmp_path / "pets", side)
    assert data.default_views(str(place)) == expected
    assert resolved(load("panm-digits", [f"data.name={place}", *TINY, "method.name=local"])) == expected


def test_no_note_without_images_or_if_they_cannot_be_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "no-x.npz", y=np.zeros(3))
    (tmp_path / "broken.npz").write_bytes(b"no zip at all")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad" / "cats").mkdir(parents=True)
    (tmp_path / "bad" / "cats" / "a.png").write_bytes(b"no picture")
    (tmp_path / "table.csv").write_text("a,label\n1,x\n2,y\n")
    np.savez_compressed(tmp_path / "floats.npz", x=np.zeros((4, 1, 8, 8)), y=np.arange(4))
    for name in ("no-x.npz", "broken.npz", "empty", "bad", "table.csv", "floats.npz", "nowhere"):
        assert data.default_views(str(tmp_path / name)) == PHOTOGRAPHS
        assert not data.of_unknown_content(str(tmp_path / name))
    with pytest.raises(DataError, match=r"broken\.npz"):  # loading it says why
        divide(load("panm-digits", [f"data.name={tmp_path / 'broken.npz'}", *TINY, "method.name=local"]))


NOTE = "views of the images in pets.npz are flipped at random, as their content is unknown: set data.flip=0 if left"
NUMBERS = "Now: data.crop=0.7 data.flip=0.5 data.jitter=0.8 data.grey=0.2 data.blur=0\n"


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return arrays(tmp_path / "pets.npz", images(8))


@pytest.mark.parametrize(
    ("words", "times"),
    [
        (["run", "method.name=mapl"], 1),
        (["run", "method.name=gossip"], 0),
        (["run", "method.name=gossip", "train.augment=true"], 1),
        (["run", "method.name=mapl", "baseline=fedclassavg"], 1),
        (["run", "method.name=gossip", "baseline=fedclassavg"], 1),
        (["run", "method.name=mapl", "data.flip=0"], 0),
        (["run", "method.name=mapl", "data.name=digits"], 0),
        (["compare", "mapl", "fedclassavg", "--seeds", "0,1", "--jobs", "2"], 1),
        (["run", "method.name=mapl", "engine.name=processes", "engine.workers=2"], 1),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_one_note_on_views_of_unknown_images(
    words: list[str], times: int, pets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command, *rest = words
    settings = [word for word in TINY if not (command == "compare" and word.startswith("baseline"))]
    assert main([command, "panm-digits", "data.name=pets.npz", *settings, *rest, "--plain", "--out", "here"]) == OK
    said = capfd.readouterr().err
    assert said.count(NOTE) == said.count("content is unknown") == times
    assert said.count(NUMBERS) == times
    if command == "run" and times:
        config = tomllib.loads((pets.parent / "here" / "config.toml").read_text())
        assert (config["data"]["flip"], config["data"]["blur"]) == (0.5, 0.0)
        (pets.parent / "here" / "summary.json").unlink()
        assert main(["run", "--resume", "here", "--plain"]) == OK  # it was said when the run began
        assert "content is unknown" not in capfd.readouterr().err


def test_a_run_folder_of_a_former_version_goes_on_with_its_numbers(tmp_path: Path) -> None:
    e = from_tables({**load("panm-digits", ["method.name=mapl", *TINY]).tables()})
    out = tmp_path / "old"
    tables = e.tables()
    tables["data"] |= OLD
    old = from_tables(tables)
    simulated.run(old, out)
    (out / "summary.json").unlink()
    assert "flip = 0.5\n" in (out / "config.toml").read_text()
    assert simulated.of_folder(out) == old
    assert simulated.resume(out)["method"] == "mapl"


# -- what results depend on


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_says_whether_it_trains_on_views(method: str, tmp_path: Path) -> None:
    """Integers have no views, and asking for some is an error."""
    place = tmp_path / "words.npz"
    np.savez(place, x=np.random.default_rng(0).integers(9, size=(80, 6)), y=np.arange(80) % 8)
    few = ["data.partition=label-swap", "data.clusters=2", "peers=6", "method.l=2", "method.k=2", "method.t1=1"]
    e = load("panm-digits", [f"data.name={place}", *TINY, *few], [f"method.name={method}"])
    assert e.trains_on_views == (METHODS[method].views > 0)
    if e.trains_on_views:
        with pytest.raises(DataError, match="integers that are not scaled have no views"):
            simulated.run(e, tmp_path / "run")
    else:
        simulated.run(e, tmp_path / "run")


def test_views_that_nobody_makes_do_not_tell_two_runs_apart() -> None:
    """So records and comparisons of methods without views, made with former defaults, stay what they are."""

    def old(*words: str) -> str:
        return fingerprint(load("panm-mnist", [*words, *(f"data.{key}={value}" for key, value in OLD.items())]))

    def new(*words: str) -> str:
        return fingerprint(load("panm-mnist", words))

    assert old() == new()
    assert old("method.name=mapl") != new("method.name=mapl")
    assert old("train.augment=true") != new("train.augment=true")


def test_a_users_method_may_make_views_without_declaring_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from dataclasses import dataclass\nfrom coterie import Method\n\n\n@dataclass(frozen=True)\n"
        "class Own(Method):\n    async def round(self, me):\n        await me.train()\n"
    )
    prints = {fingerprint(load("panm-digits", [f"method.name={tmp_path / 'own.py'}:Own", f"data.flip={p}"]))
              for p in (0, 0.5)}  # fmt: skip
    assert len(prints) == 2
