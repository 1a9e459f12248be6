"""`coterie predict` and `coterie export`: what a run's summary says of a peer's model is what one gets by using it."""

from __future__ import annotations

import asyncio
import csv
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.numpy import load_file

from coterie import wiring
from coterie.cli.main import FAILED, OK, main
from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.core.ensemble import voted
from coterie.core.errors import DivergedError, ModelError, RunError
from coterie.core.jobs import EvaluateJob
from coterie.core.peer import held_by
from coterie.data.loading import _embedded_table
from coterie.export.predicting import predictions
from coterie.running import saved_models, simulated
from coterie.running.local_circle import LocalCircle
from coterie.running.model_manifest import from_tree, to_tree
from coterie.running.real_peer import read_file, take_part
from coterie.simulation.director import Simulation
from coterie.training.plain import predict

TINY = (
    "baseline=", "rounds=2", "peers=3", "data.train=30", "data.validation=10", "data.test=20", "data.clusters=2",
    "model.hidden=[8]", "train.epochs=1", "train.batch=10", "engine.threads=1", "engine.checkpoint=0",
    "engine.batching=never",
)  # fmt: skip


def tiny(method: str, *words: str) -> Experiment:
    return loading.load("panm-digits", [f"method.name={method}", *TINY, *words])


def rows_to_test(e: Experiment, peer: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """A peer's test samples as its owner has them, before any scaling of pixels; and the names of their classes."""
    dataset, shares = wiring.divide(e)
    rows = shares[peer].test
    x, y = shares[peer].transform.apply(dataset.x[rows], dataset.y[rows])
    return rows, x, [dataset.classes[c] for c in y]


def predicted(where: Path, given: Path, *words: str) -> list[dict[str, str]]:
    said = given.with_name("said.csv")
    command = ["predict", str(where), "--input", str(given), "--out", str(said), "--overwrite", *words]
    assert main(command) == OK
    with said.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def accuracy(said: list[dict[str, str]], classes: list[str]) -> float:
    return sum(row["class"] == c for row, c in zip(said, classes, strict=True)) / len(classes)


# -- the same accuracy as in the summary -------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("local",),
        ("fedavg", "data.scale=unit"),
        ("fedrod",),
        ("mapl", "model.zoo=mlp,cnn3", "model.d_z=6", "method.t_thr=2", "model.projector_hidden=4"),
        ("fedpae", "model.zoo=tree,mlp,logistic", "method.models=2", "method.population=8", "method.generations=3"),
        ("compfl", "model.zoo=cnn3,mlp", "method.predict=mixture"),
    ],
    ids=lambda words: words[0],
)
def test_images(words: tuple[str, ...], tmp_path: Path) -> None:
    e = tiny(*words)
    summary = simulated.run(e, tmp_path / "run")
    for peer in range(3):
        _, x, classes = rows_to_test(e, peer)
        np.savez(tmp_path / "x.npz", x=x)
        said = predicted(tmp_path / "run", tmp_path / "x.npz", "--peer", str(peer))
        assert accuracy(said, classes) == summary["accuracy"]["last"]["per_peer"][peer]
        assert [row["row"] for row in said] == [str(n) for n in range(20)]
        assert sum(float(said[0][f"probability of {c}"]) for c in range(10)) == pytest.approx(1, abs=1e-4)


def test_what_only_serves_training_is_not_kept(tmp_path: Path) -> None:
    simulated.run(tiny("mapl", "method.t_thr=2", "model.projector_hidden=4", "rounds=1"), tmp_path / "run")
    tensors = load_file(tmp_path / "run" / "models" / "peer-0.safetensors")
    assert {key.removeprefix("0/").split(".")[0] for key in tensors} == {"backbone", "head"}


OWN_NET = """
from torch import nn
from coterie.models import Net, Output

class Adapted(Net):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), 64, classes)
        self.adapter = nn.Linear(64, 64)
    def forward(self, x):
        features = self.backbone(x)
        features = features + self.adapter(features)
        return Output(self.head(features), features, None)

def wide(input_shape, d_z=12):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, d_z))
"""


@pytest.fixture
def own_nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_nets.py").write_text(OWN_NET)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("own_nets", None)


@pytest.mark.usefixtures("own_nets")
def test_a_part_that_a_net_of_ones_own_brings_is_kept(tmp_path: Path) -> None:
    """Whatever it is called: FedKD's adapter only serves training, and this one is used to predict."""
    e = tiny("local", "model.zoo=own_nets:Adapted")
    summary = simulated.run(e, tmp_path / "run")
    _, x, classes = rows_to_test(e, 0)
    np.savez(tmp_path / "x.npz", x=x)
    said = predicted(tmp_path / "run", tmp_path / "x.npz", "--peer", "0")
    assert accuracy(said, classes) == summary["accuracy"]["last"]["per_peer"][0]
    assert "0/adapter.weight" in load_file(tmp_path / "run" / "models" / "peer-0.safetensors")


@pytest.mark.usefixtures("own_nets")
def test_a_run_of_a_version_that_told_a_module_its_width(tmp_path: Path) -> None:
    """They wrote model.d_z = 0 and made 512 features. The manifest says 0; only the head knows."""
    e = tiny("local", "model.zoo=own_nets:wide", "model.d_z=7")
    summary = simulated.run(e, tmp_path / "run")
    path = tmp_path / "run" / "models" / "peer-0.safetensors"
    personal = saved_models.read(path)
    manifest = replace(personal.manifest, model={**personal.manifest.model, "d_z": 0})
    saved_models._write(path, replace(personal, manifest=manifest))
    _, x, classes = rows_to_test(e, 0)
    np.savez(tmp_path / "x.npz", x=x)
    said = predicted(tmp_path / "run", tmp_path / "x.npz", "--peer", "0")
    assert accuracy(said, classes) == summary["accuracy"]["last"]["per_peer"][0]


def test_features_of_a_named_dataset(tmp_path: Path) -> None:
    e = tiny("fedavg", "data.name=breast-cancer", "data.partition=iid", "model.zoo=mlp")
    summary = simulated.run(e, tmp_path / "run")
    rows, _, classes = rows_to_test(e, 1)
    raw = _embedded_table("breast_cancer.csv", skip=1)[rows, :-1]
    np.savez(tmp_path / "x.npz", x=raw)
    np.savetxt(tmp_path / "x.csv", raw, delimiter=",", header=",".join(f"f{i}" for i in range(30)), comments="")
    for file in ("x.npz", "x.csv"):
        said = predicted(tmp_path / "run", tmp_path / file, "--peer", "1")
        assert accuracy(said, classes) == summary["accuracy"]["last"]["per_peer"][1]
    assert set(said[0]) == {"row", "class", "probability of malignant", "probability of benign"}


def write_weather(path: Path) -> list[str]:
    """A table with columns of numbers and of texts, some of which look like numbers."""
    rng = np.random.default_rng(0)
    lines = ["warmth,wind,station,sky"]
    for _ in range(200):
        warmth, wind = rng.normal(15, 8), rng.choice(["calm", "breeze", "storm"])
        sky = "rain" if wind == "storm" or warmth < 8 else "sun"
        lines.append(f"{warmth:.2f},{wind},{rng.choice(['7', '8', 'x'])},{sky}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lines


WEATHER = (
    "data.label=sky", "data.partition=iid", "model.zoo=mlp", "data.categories.wind=breeze,calm,storm",
    'data.categories.station=["7", "8", "x"]',
)  # fmt: skip


@pytest.fixture(scope="module")
def weather(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a table of the user's own, and beside it the table."""
    folder = tmp_path_factory.mktemp("weather")
    write_weather(folder / "weather.csv")
    simulated.run(tiny("local", f"data.name={folder / 'weather.csv'}", *WEATHER), folder / "run")
    return folder


def test_a_table_of_ones_own(weather: Path, tmp_path: Path) -> None:
    """Columns are found by name, whatever their order; the labels are ignored, and may be absent."""
    e = simulated.of_folder(weather / "run")
    summary = json.loads((weather / "run" / "summary.json").read_text())
    rows, _, classes = rows_to_test(e, 2)
    head, *lines = [line.split(",") for line in (weather / "weather.csv").read_text().splitlines()]
    for order in ((0, 1, 2, 3), (2, 0, 1)):
        chosen = [head, *(lines[r] for r in rows)]
        (tmp_path / "x.csv").write_text("\n".join(",".join(row[i] for i in order) for row in chosen))
        said = predicted(weather / "run", tmp_path / "x.csv", "--peer", "2")
        assert accuracy(said, classes) == summary["accuracy"]["last"]["per_peer"][2]
    manifest = saved_models.read(weather / "run" / "models" / "peer-2.safetensors").manifest
    assert [c.name for c in manifest.columns] == ["warmth", "wind", "station"]
    assert (manifest.method, manifest.peer, manifest.round) == ("local", 2, 2)


def test_texts_that_look_like_numbers_stay_texts(weather: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("station,warmth,wind\n7,20,calm\n8,20,calm\n")
    assert len(predicted(weather / "run", tmp_path / "x.csv", "--peer", "0")) == 2


def test_every_peer_scales_by_its_own_training_rows(weather: Path) -> None:
    """And that is what is kept with its model."""
    e = simulated.of_folder(weather / "run")
    dataset, shares = wiring.divide(e)
    for peer, share in enumerate(shares):
        manifest = saved_models.read(weather / "run" / "models" / f"peer-{peer}.safetensors").manifest
        assert manifest.scaling.mean[0] == pytest.approx(dataset.x[share.train, 0].mean(), rel=1e-12)
        assert manifest.scaling.deviation[0] == pytest.approx(dataset.x[share.train, 0].std(), rel=1e-12)


# -- arrays of any shape -----------------------------------------------------------------------

READERS = """
from torch import nn


class Words(nn.Module):
    def __init__(self, d_z=8):
        super().__init__()
        self.table, self.last = nn.Embedding(50, 4), nn.Linear(4, d_z)

    def forward(self, x):
        return self.last(self.table(x.long()).mean(1))


class Waves(nn.Module):
    def __init__(self, input_shape, d_z):
        super().__init__()
        self.wave, self.last = nn.Conv1d(input_shape[0], 4, 3), nn.Linear(4, d_z)

    def forward(self, x):
        return self.last(self.wave(x).amax(2))
"""


@pytest.fixture
def of_any_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ids of words that tell the class, and series of two channels that do, on very different scales."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "readers.py").write_text(READERS, encoding="utf-8")
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=200)
    np.savez(tmp_path / "words.npz", x=16 * y[:, None] + rng.integers(16, size=(200, 6)), y=y)
    waves = rng.normal(size=(200, 2, 9)) + y[:, None, None]
    np.savez(tmp_path / "waves.npz", x=waves * [[1000.0], [0.001]] + [[5000.0], [1.0]], y=y)
    return tmp_path


@pytest.mark.parametrize(
    ("data", "zoo", "kind"),
    [
        ("words", "readers:Words", "integers"),
        ("words", "transformer", "integers"),
        ("waves", "readers:Waves", "features"),
        ("waves", "mlp", "features"),
        ("waves", "gru", "features"),
    ],
)
def test_arrays_of_any_shape(data: str, zoo: str, kind: str, of_any_shape: Path) -> None:
    vocabulary = 48 if zoo == "transformer" else 0
    e = tiny(
        "fedavg", f"data.name={data}.npz", "data.partition=iid", f"model.zoo={zoo}", "model.d_z=8", "train.lr=0.1",
        f"model.vocabulary={vocabulary}",
    )  # fmt: skip
    summary = simulated.run(e, of_any_shape / "run")
    _, x, classes = rows_to_test(e, 1)
    np.savez("x.npz", x=x)
    assert main(["export", "run", "--peer", "1", "--out", "out"]) == OK
    for where in ("run", "out"):
        said = predicted(Path(where), Path("x.npz"), "--peer", "1")
        assert accuracy(said, classes) == summary["accuracy"]["last"]["per_peer"][1]
    given = json.loads(Path("out/manifest.json").read_text())["input"]
    assert (given["kind"], given["shape"]) == (kind, list(x.shape[1:]))
    means = given["scaling"]["mean"]
    assert means == [0.0] * 6 if kind == "integers" else means == pytest.approx([6000, 1.001], rel=0.05)


def test_ids_that_the_model_does_not_embed_are_refused(of_any_shape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = tiny("local", "data.name=words.npz", "data.partition=iid", "model.zoo=gru", "model.vocabulary=48")
    simulated.run(e, of_any_shape / "run")
    np.savez("x.npz", x=np.array([[0, 1, 2, 3, 4, 47], [0, 1, 2, 3, 4, 48]]))
    capsys.readouterr()
    assert main(["predict", "run", "--input", "x.npz", "--peer", "0"]) != OK
    assert "token ids outside 0 to 47 in 1 row, the first is row 1" in capsys.readouterr().err


def test_arrays_that_do_not_fit(of_any_shape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("data.name=words.npz", "data.partition=iid", "model.zoo=readers:Words", "rounds=1")
    simulated.run(tiny("local", *words), of_any_shape / "run")
    np.savez("half.npz", x=np.array([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6.5]]))
    np.savez("long.npz", x=np.ones((2, 7), int))
    Path("x.csv").write_text("a,b,c,d,e,f\n1,2,3,4,5,6\n")
    for file, said in (
        ("half.npz", "the model takes whole numbers, but there are others in 1 row, the first is row 1"),
        ("long.npz", "samples of shape (7,), but the model takes rows of 6 whole numbers"),
    ):
        assert said in refused(capsys, "predict", "run", "--peer", "0", "--input", file)
    assert main(["predict", "run", "--peer", "0", "--input", "x.csv"]) == OK
    capsys.readouterr()
    for more, said in (
        (["model.zoo=cnn3"], "model.zoo: 'cnn3' takes images (channels, height, width), but the data has inputs of"),
        (["train.augment=true"], "integers that are not scaled have no views"),
        (["data.scale=unit"], "data.scale = 'unit' only applies to images, and words has none"),
    ):
        command = ["run", "panm-digits", *TINY, "method.name=local", *words, *more, "--out", "no", "--overwrite"]
        assert said in refused(capsys, *command)


def test_whole_numbers_that_float32_does_not_have(of_any_shape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2**24 + 1 would become 2**24. Standardised, they are measurements, and may be of any size."""
    arrays = dict(np.load("words.npz"))
    np.savez("large.npz", x=arrays["x"] + 2**24, y=arrays["y"])
    words = [*TINY, "method.name=local", "data.name=large.npz", "data.partition=iid", "model.zoo=mlp", "rounds=1"]
    line = refused(capsys, "run", "panm-digits", *words, "--out", "no")
    assert "x has integers beyond 16,777,216" in line
    assert main(["run", "panm-digits", *words, "data.scale=standard", "--out", str(of_any_shape / "yes")]) == OK


def test_the_manifest_of_an_earlier_version() -> None:
    """Its text columns had the texts of the cells; images and features were told apart by their shape alone."""
    part = {"name": "model", "architecture": "mlp", "kind": "", "file": "", "takes": "scaled", "sha256": ""}
    tree = {
        "form": 1, "coterie": "0.1.0", "method": "local", "seed": 0, "peer": 0, "name": "", "round": 2,
        "classes": ["a", "b"], "model": {"zoo": ["mlp"]}, "vote": "", "members": [part],
        "input": {
            "kind": "features", "shape": [3], "features": ["warmth", "wind = calm", "wind = storm"], "label": "sky",
            "columns": [{"name": "warmth"}, {"name": "wind", "texts": ["calm", "storm"]}],
            "scaling": {"per": "feature", "formula": "", "mean": [1.0, 0.5, 0.5], "deviation": [2.0, 0.5, 0.5]},
        },
    }  # fmt: skip
    manifest = from_tree(tree)
    assert (manifest.kind, manifest.columns[1].texts) == ("features", ("calm", "storm"))
    assert to_tree(manifest) | {"model": 0} == tree | {"model": 0, "input": to_tree(manifest)["input"]}
    images = from_tree({**tree, "input": {**tree["input"], "kind": "images", "shape": [3, 8, 8], "columns": []}})  # type: ignore[dict-item]
    assert images.are_images


# -- ensembles ---------------------------------------------------------------------------------

VOTING = """
from dataclasses import dataclass

from coterie import Method, parameter
from coterie.core.ensemble import Ensemble, Member
from coterie.core.portable_model import Portable
from coterie.portable.networks import to_onnx
from coterie.training.plain import bind


@dataclass(frozen=True)
class Voting(Method):
    vote: str = parameter("soft", "soft or hard")

    async def round(self, me):
        before = me.model.copy()
        await me.train()
        net = bind(me.own_initial())
        odd = Portable.of(to_onnx(net, (1, 8, 8)), "drawn")
        members = (Member("own", me.model.copy()), Member("0/odd", odd), Member("before", before))
        me.ensemble = Ensemble(members, self.vote)
"""


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Simulation]:
    folder = tmp_path_factory.mktemp("ensembles")
    (folder / "voting.py").write_text(VOTING, encoding="utf-8")
    held: list[Simulation] = []
    e = tiny(f"{folder / 'voting.py'}:Voting", "method.vote=hard", "model.zoo=cnn3")
    simulated.run(e, folder / "run", on_start=held.append)
    return folder, held[0]


def expected_votes(simulation: Simulation, peer: int) -> np.ndarray:
    me = simulation.stage.peers[peer]
    data = held_by(me)
    assert data is not None
    assert me.ensemble is not None
    own, odd, before = (member.model for member in me.ensemble.members)
    said = [torch.softmax(predict(EvaluateJob(m, data.test)).logits, 1) for m in (own, before)]  # type: ignore[arg-type]
    session = onnxruntime.InferenceSession(odd.bytes, providers=["CPUExecutionProvider"])  # type: ignore[union-attr]
    [by_odd] = session.run(None, {"input": data.test.x.numpy()})
    return voted([said[0], torch.from_numpy(by_odd), said[1]], "hard").numpy()


def test_an_ensemble_votes(ensembles: tuple[Path, Simulation], tmp_path: Path) -> None:
    folder, simulation = ensembles
    for peer in (0, 2):
        _, x, _ = rows_to_test(simulated.of_folder(folder / "run"), peer)
        np.savez(tmp_path / "x.npz", x=x)
        want = expected_votes(simulation, peer)
        exported = tmp_path / f"of-{peer}"
        assert main(["export", str(folder / "run"), "--peer", str(peer), "--out", str(exported)]) == OK
        for where in (folder / "run", exported):
            said = predicted(where, tmp_path / "x.npz", "--peer", str(peer))
            assert [int(row["class"]) for row in said] == want.argmax(1).tolist()
            got = [[float(row[f"probability of {c}"]) for c in range(10)] for row in said]
            np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("form", ["onnx", "safetensors"])
def test_an_exported_ensemble(
    ensembles: tuple[Path, Simulation], form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["export", str(ensembles[0] / "run"), "--peer", "1", "--format", form, "--out", str(out)]) == OK
    assert ("unchanged ONNX" in capsys.readouterr().out) == (form == "safetensors")
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["vote"] == "hard"
    assert [m["name"] for m in manifest["members"]] == ["own", "0/odd", "before"]
    assert [m["file"] for m in manifest["members"]] == [f"member-0.{form}", "member-1.onnx", f"member-2.{form}"]
    assert {p.name for p in out.iterdir()} == {"manifest.json", *(m["file"] for m in manifest["members"])}


@pytest.mark.parametrize("form", ["onnx", "safetensors"])
def test_a_mixture_votes_by_its_weights(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CompFL's: the mean of its experts' probabilities by their weights, from the run's folder and from an export."""
    e = tiny("compfl", "model.zoo=cnn3,mlp", "method.predict=mixture", "method.tau=2")
    held: list[Simulation] = []
    simulated.run(e, tmp_path / "run", on_start=held.append)
    me = held[0].stage.peers[0]
    data = held_by(me)
    assert data is not None
    assert me.ensemble is not None
    weights = me.ensemble.weights
    assert len(weights) == 2
    said = [torch.softmax(predict(EvaluateJob(m.model, data.test)).logits, 1) for m in me.ensemble.members]  # type: ignore[arg-type]
    want = (weights[0] * said[0] + weights[1] * said[1]).numpy()
    _, x, _ = rows_to_test(e, 0)
    np.savez(tmp_path / "x.npz", x=x)
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "run"), "--peer", "0", "--format", form, "--out", str(out)]) == OK
    assert f"vote weight {weights[1]:.3g}" in capsys.readouterr().out
    manifest = json.loads((out / "manifest.json").read_text())
    assert [member["weight"] for member in manifest["members"]] == pytest.approx(weights)
    for where in (tmp_path / "run", out):
        rows = predicted(where, tmp_path / "x.npz", "--peer", "0")
        got = [[float(row[f"probability of {c}"]) for c in range(10)] for row in rows]
        np.testing.assert_allclose(got, want, atol=2e-5)


def test_weights_that_cannot_be_are_named(ensembles: tuple[Path, Simulation], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", str(ensembles[0] / "run"), "--peer", "1", "--out", str(out)]) == OK
    manifest = json.loads((out / "manifest.json").read_text())
    assert not any("weight" in member for member in manifest["members"])  # as before there were any
    for weights in ([1.0], [0.0, 0.0, 0.0], [-1.0, 1.0, 1.0], ["x", 1.0, 1.0]):
        for member, weight in zip(manifest["members"], weights, strict=False):
            member["weight"] = weight
        with pytest.raises(ValueError, match="invalid vote weights"):
            from_tree(manifest)


# -- exports -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "run"
    simulated.run(tiny("gossip", "method.k=1", "model.zoo=cnn3"), folder)
    return folder


@pytest.mark.parametrize("form", ["onnx", "safetensors"])
def test_an_export_says_what_the_run_says(digits: Path, form: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", str(digits), "--peer", "1", "--format", form, "--out", str(out)]) == OK
    _, x, _ = rows_to_test(simulated.of_folder(digits), 1)
    np.savez(tmp_path / "x.npz", x=x)
    one, two = (predicted(where, tmp_path / "x.npz", "--peer", "1") for where in (digits, out))
    assert [row["class"] for row in one] == [row["class"] for row in two]
    assert predicted(out, tmp_path / "x.npz") == two  # an export is of one peer
    again = tmp_path / "again"
    assert main(["export", str(out), "--out", str(again)]) == OK


def test_an_onnx_file_takes_raw_pixels_wherever_it_is_used(digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", str(digits), "--peer", "0", "--out", str(out)]) == OK
    _, x, _ = rows_to_test(simulated.of_folder(digits), 0)
    np.savez(tmp_path / "x.npz", x=x)
    session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
    [said] = session.run(["probabilities"], {"input": x.astype(np.float32)})
    classes = json.loads((out / "manifest.json").read_text())["classes"]
    want = [row["class"] for row in predicted(digits, tmp_path / "x.npz", "--peer", "0")]
    assert [classes[c] for c in said.argmax(1)] == want


def test_an_onnx_file_takes_raw_features(weather: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["export", str(weather / "run"), "--peer", "1", "--out", str(out)]) == OK
    (tmp_path / "x.csv").write_text("warmth,wind,station\n21.5,calm,7\n3,storm,x\n")
    one, two = (predicted(where, tmp_path / "x.csv", "--peer", "1") for where in (weather / "run", out))
    for a, b in zip(one, two, strict=True):
        assert float(a["probability of sun"]) == pytest.approx(float(b["probability of sun"]), abs=1e-5)
    features = json.loads((out / "manifest.json").read_text())["input"]["features"]
    assert features[:3] == ["warmth", "wind = breeze", "wind = calm"]


def test_an_export_is_not_overwritten_unless_told(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["export", str(digits), "--peer", "0", "--format", "safetensors"]
    assert main(command) == OK
    assert (tmp_path / "run-peer-0" / "model.safetensors").exists()
    assert main(command) == FAILED
    assert "--overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == OK
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    assert main([*command, "--overwrite", "--out", "mine"]) == FAILED
    assert (tmp_path / "mine" / "thesis.tex").exists()


BROUGHT = """
import torch
from torch import nn

class Moody(nn.Module):
    def __init__(self, input_shape):
        super().__init__()
        self.one, self.two = nn.Linear(64, 4), nn.Linear(64, 4)

    def forward(self, x):
        x = x.flatten(1)
        return self.one(x) if x.abs().sum() > {threshold} else self.two(x)
"""


@pytest.mark.parametrize(("threshold", "fits"), [("-1", True), ("0", False)])
def test_a_network_that_onnx_would_change_is_refused(
    threshold: str, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Traced with zeros, `Moody` is the one or the other for ever; an export is tried before it is written."""
    monkeypatch.chdir(tmp_path)
    module = f"moody_{fits}".lower()
    (tmp_path / f"{module}.py").write_text(BROUGHT.format(threshold=threshold), encoding="utf-8")
    simulated.run(
        tiny("local", f"model.zoo={module}:Moody", "rounds=1", "peers=1", "data.partition=iid"), tmp_path / "run"
    )
    assert main(["export", "run"]) == (OK if fits else FAILED)
    assert ("Use --format safetensors" in capsys.readouterr().err) == (not fits)
    assert main(["export", "run", "--format", "safetensors", "--overwrite"]) == OK


def test_a_model_that_diverged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    with pytest.raises(DivergedError):
        simulated.run(tiny("local", "train.lr=1e30", "rounds=1"), tmp_path / "run")
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 1, 8, 8), dtype=np.uint8))
    commands = (
        ("export", run, "--peer", "0", "--out", str(tmp_path / "out")),
        ("export", run, "--peer", "0", "--out", str(tmp_path / "out"), "--format", "safetensors"),
        ("predict", run, "--peer", "0", "--input", str(tmp_path / "x.npz")),
    )
    for words in commands:
        told = refused(capsys, *words)
        assert f"the model of peer 0 in {run} is not finite" in told
        assert "lower train.lr" in told
    assert not (tmp_path / "out").exists()


def test_predictions_that_are_no_numbers(digits: Path) -> None:
    """All weights are finite, but what they add up to is not: every one of them is close to the largest float32."""
    personal = saved_models.read(saved_models.find(digits, "0"))
    [content] = personal.contents
    assert not isinstance(content, bytes)
    largest = {key: np.full_like(tensor, 3e38) for key, tensor in content.items()}
    with pytest.raises(ModelError, match=r"the output of peer 0 in .* is not finite for 2 of 2 samples"):
        predictions(replace(personal, contents=(largest,)), np.full((2, 1, 8, 8), 255, dtype=np.uint8))


# -- images ------------------------------------------------------------------------------------


def test_a_folder_of_images_and_a_single_one(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, x, _ = rows_to_test(simulated.of_folder(digits), 0)
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    for name, pixels in (("a.png", x[0, 0]), ("b.PNG", x[1, 0]), ("more/c.png", x[2, 0])):
        Image.fromarray(pixels).save(folder / name, format="png")
    Image.fromarray(np.repeat(x[0, 0][..., None], 3, 2)).save(folder / "d.png")  # in colours, all of them grey
    (folder / "notes.txt").touch()
    np.savez(tmp_path / "x.npz", x=x[[0, 1, 0, 2]])
    want = predicted(digits, tmp_path / "x.npz", "--peer", "0")
    said = predicted(digits, folder, "--peer", "0")
    assert [row.pop("file") for row in said] == ["a.png", "b.PNG", "d.png", "more/c.png"]
    assert said == [{k: v for k, v in row.items() if k != "row"} for row in want]
    capsys.readouterr()
    assert main(["predict", str(digits), "--peer", "0", "--input", str(folder / "b.PNG")]) == OK
    [_, line] = capsys.readouterr().out.splitlines()
    assert line.split(",")[:2] == ["b.PNG", want[1]["class"]]


# -- real peers --------------------------------------------------------------------------------


def test_real_peers_keep_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = tiny("fedavg", "peers=2", "model.zoo=mlp", "network.interval=0.2", "network.linger=10", "network.gather=30")
    circle = LocalCircle(e, tmp_path / "up")
    circle.prepare()

    async def all_of_them() -> None:
        await asyncio.gather(*(take_part(read_file(m.file), say=lambda _: None) for m in circle.members))

    asyncio.run(all_of_them())
    summary = circle.collect(0.0)
    _, x, classes = rows_to_test(e, 1)
    np.savez(tmp_path / "x.npz", x=x)
    up, own = tmp_path / "up", tmp_path / "up" / "peers" / "peer-1"
    for where, words in ((up, ["--peer", "1"]), (up, ["--peer", "peer-1"]), (own, []), (own, ["--peer", "peer-1"])):
        said = predicted(where, tmp_path / "x.npz", *words)
        assert accuracy(said, classes) == summary["accuracy"]["last"]["per_peer"][1]
    assert not (up / "peers" / "server" / "models").exists()
    assert main(["export", str(up), "--peer", "peer-7"]) == FAILED
    assert "named peer-0, peer-1" in capsys.readouterr().err


# -- what is refused ---------------------------------------------------------------------------


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == FAILED
    [line] = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read as a table"),
        ("warmth,wind,station\n", "has no rows"),
        ("warmth,station\n1,7\n", "lacks 'wind': it must have exactly the column"),
        ("warmth,wind,station,moon\n1,calm,7,full\n", "also has 'moon'"),
        ("warmth,station,moon\n1,7,full\n", "lacks 'wind', and also has 'moon': it must have exactly the columns"),
        (
            "warmth,wind,station\n1,calm,7\nmild,calm,7\n",
            "'warmth' must contain numbers, but does not in 1 row, the first is row 1",
        ),
        (
            "warmth,wind,station\n1,gale,7\n",
            "'wind' has a value that is not one of its categories (breeze, calm, storm)",
        ),
        ("warmth,wind,station\n1,calm,7\n,calm,7\n", "'warmth' has missing or infinite values in 1 rows"),
    ],
)
def test_a_table_that_does_not_fit(
    weather: Path, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.csv").write_text(text)
    line = refused(capsys, "predict", str(weather / "run"), "--peer", "0", "--input", str(tmp_path / "x.csv"))
    assert said in line
    assert "x.csv" in line
    assert "mild" not in line
    assert "gale" not in line


def test_samples_that_do_not_fit(
    digits: Path, weather: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(tmp_path / "tall.png")
    (tmp_path / "broken.png").write_bytes(b"no image")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "x.pdf").touch()
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 1, 8, 9), np.uint8))
    np.savez(tmp_path / "rows.npz", x=np.zeros((2, 64)))
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 1, 8, 8), np.uint8))
    np.savez(tmp_path / "y.npz", y=np.zeros(2))
    images = "the model takes grey images of 8x8 pixels"
    for run, file, said in (
        (digits, "tall.png", f"tall.png: 8x9 pixels, but {images}"),
        (digits, "broken.png", "broken.png: not a readable image"),
        (digits, "x.csv", f"a table, but {images}"),
        (digits, "wide.npz", f"samples of shape (1, 8, 9), but {images}"),
        (digits, "rows.npz", images),
        (digits, "none.npz", "has no rows"),
        (digits, "y.npz", "has no array 'x'; it holds y"),
        (digits, "empty", "holds no .png or .jpg files"),
        (digits, "x.pdf", "give a .csv, .parquet or .npz file"),
        (digits, "absent.csv", "there is no file or folder"),
        (weather / "run", "tall.png", "images, but the model takes rows of 7 features"),
        (weather / "run", "rows.npz", "the model takes rows of 7 features"),
    ):
        assert said in refused(capsys, "predict", str(run), "--peer", "0", "--input", str(tmp_path / file))


def test_whose_model(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["export", str(digits), "--peer", "3"], "there is no peer '3'"),
        (["export", str(digits), "--peer", "north"], "has the models of 3 (0 to 2)"),
        (["export", str(digits)], "choose a peer with --peer: "),
        (["export", str(tmp_path)], "neither the folder of a run nor one that `coterie export` made"),
    ):
        assert said in refused(capsys, *words)
    assert main(["export", str(digits), "--peer", "1", "--out", str(tmp_path / "out")]) == OK
    assert "holds the model of peer 1" in refused(capsys, "export", str(tmp_path / "out"), "--peer", "2")


def test_runs_without_models(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    off = tmp_path / "off"
    simulated.run(tiny("local", "engine.models=false", "rounds=1"), off)
    assert not (off / "models").exists()
    assert "engine.models = false. Run it again" in refused(capsys, "export", str(off), "--peer", "0")
    old = tmp_path / "old"
    shutil.copytree(digits, old)
    shutil.rmtree(old / "models")
    assert "its version did not save them" in refused(capsys, "export", str(old), "--peer", "0")
    (old / "summary.json").unlink()
    assert "when a run finishes" in refused(capsys, "export", str(old), "--peer", "0")


@pytest.mark.parametrize("damage", ["cut", "flipped", "header", "other"])
def test_damaged_files(digits: Path, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(digits, run)
    assert main(["export", str(run), "--peer", "0", "--out", str(out)]) == OK
    for path, words in (
        (run / "models" / "peer-0.safetensors", ["export", str(run), "--peer", "0", "--out", str(tmp_path / "new")]),
        (out / "model.onnx", ["predict", str(out), "--input", "x.npz"]),
        (out / "manifest.json", ["predict", str(out), "--input", "x.npz"]),
    ):
        whole = path.read_bytes()
        flipped = bytes([whole[-9] ^ 1])
        path.write_bytes({
            "cut": whole[:-20], "flipped": whole[:-9] + flipped + whole[-8:], "header": b"\xff" * 8 + whole[8:],
            "other": b"{}",
        }[damage])  # fmt: skip
        capsys.readouterr()
        if damage == "flipped" and path.suffix == ".json":
            continue  # may still be one
        assert path.name in refused(capsys, *words)
        path.write_bytes(whole)


def test_predictions_do_not_overwrite_a_file(digits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there.csv").write_text("years of work")
    words = ("predict", str(digits), "--peer", "0", "--input", "x.npz", "--out", str(tmp_path / "there.csv"))
    assert "--overwrite" in refused(capsys, *words)
    assert (tmp_path / "there.csv").read_text() == "years of work"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error")])
def test_a_full_disk(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without its models is not finished: it can be resumed."""
    e = tiny("local", "rounds=1")
    calls = []

    def full(*_: Any, **__: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(saved_models, "save_file", full)
        with pytest.raises(RunError, match=r"models could not be written .*is the disk full\?"):
            simulated.run(e, tmp_path / "run")
    assert {p.name for p in (tmp_path / "run").iterdir()} == {
        "config.toml", "events.jsonl", "provenance.json", "state.json",
    }  # fmt: skip
    simulated.resume(tmp_path / "run")
    assert len(list((tmp_path / "run" / "models").iterdir())) == 3


def test_the_setting_changes_no_result(tmp_path: Path) -> None:
    e = tiny("gossip", "method.k=1")
    one = simulated.run(e, tmp_path / "one")
    two = simulated.run(replace(e, engine=replace(e.engine, models=False)), tmp_path / "two")
    assert {**one, "seconds": 0} == {**two, "seconds": 0}
