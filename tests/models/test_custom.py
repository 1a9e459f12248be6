"""Custom models: what may be named, which arguments it gets, and the error if it does not fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from coterie import wiring
from coterie.config import loading
from coterie.core.errors import ModelError
from coterie.core.net import Net, vmappable
from coterie.methods.parts import resolved
from coterie.models import ModelSettings, assign, build

IMAGE = (1, 8, 8)

SOURCE = """
import torch
from torch import nn
from coterie.models import Net

def own(input_shape, d_z):
    size = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(size, d_z))

def own_width(input_shape, d_z=24):
    return own(input_shape, d_z)

def stubborn():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 7))

def torchvision_like(*, weights=None, progress=True, **kwargs):
    assert set(kwargs) <= {"num_classes"}
    return nn.Sequential(nn.Conv2d(3, 4, 3), GlobalMax(), nn.Linear(4, kwargs.get("num_classes", 1000)))

class GlobalMax(nn.Module):
    def forward(self, x):
        return x.amax((2, 3))

class Channels(nn.Module):
    def __init__(self, num_classes=1000, in_chans=3):
        super().__init__()
        self.conv = nn.Conv2d(in_chans, num_classes, 3)
        self.norm = nn.BatchNorm2d(num_classes).eval()
    def forward(self, x):
        return self.norm(self.conv(x)).amax((2, 3))

def whole(input_shape, classes):
    return Net(nn.Flatten(), 64, classes)

def whole_with_fixed_head():
    return Net(nn.Flatten(), 64, 3)

class Adapting(Net):
    def __init__(self, classes):
        super().__init__(nn.Flatten(), 64, classes)
        self.adapter = nn.Linear(64, 64)

def projecting(classes):
    return Net(nn.Flatten(), 64, classes, projector=nn.Linear(64, 16))

def misprojecting(classes):
    return Net(nn.Flatten(), 64, classes, projector=nn.Linear(32, 16))

def mapping(classes):
    return Net(nn.Flatten(), 64, classes, projector=nn.Unflatten(1, (4, 4, 4)))

def inconsistent(classes):
    return Net(nn.Flatten(), 60, classes)

class Returns(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value
    def forward(self, x):
        return self.value(x)

def pair(): return Returns(lambda x: (x, x))
def table(): return Returns(lambda x: {"out": x})
def maps(): return Returns(lambda x: x)
def thing(): return Returns(lambda x: object())

class MoreInTraining(nn.Module):
    def forward(self, x):
        flat = x.flatten(1)
        return (flat, flat) if self.training else flat

def demanding(depth, d_z): return nn.Identity()
def broken(classes): raise ValueError("no luck")
def number(): return 3
constant = 4
"""


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file of the user's own in the working directory, which is not on the import path."""
    (tmp_path / "my_models.py").write_text(SOURCE)
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('operator does not exist')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_models", raising=False)  # another test's
    yield
    sys.modules.pop("my_models", None)


def brought(name: str, shape: tuple[int, ...] = IMAGE, d_z: int = 0, d_p: int = 0) -> Net:
    settings = ModelSettings(zoo=(f"my_models:{name}",), d_z=d_z, d_p=d_p, projector_hidden=8)
    parts = ["projector"] if d_p else []
    return build(settings.zoo[0], shape, 10, settings, resolved(parts))


@pytest.mark.parametrize(
    ("name", "shape", "d_z", "width"),
    [
        ("own", IMAGE, 32, 32),
        ("own_width", IMAGE, 0, 24),
        ("own_width", IMAGE, 32, 32),
        ("stubborn", IMAGE, 0, 7),
        ("stubborn", IMAGE, 32, 32),  # by an adapter
        ("torchvision_like", (3, 32, 32), 0, 1000),
        ("torchvision_like", (3, 32, 32), 16, 16),
        ("Channels", IMAGE, 0, 1000),
        ("Channels", IMAGE, 16, 16),
        ("whole", IMAGE, 0, 64),
    ],
)
def test_what_a_custom_model_may_be(name: str, shape: tuple[int, ...], d_z: int, width: int) -> None:
    net = brought(name, shape, d_z)
    output = net(torch.randn(4, *shape))
    assert output.logits.shape == (4, 10)
    assert output.features.shape == (4, width)
    assert net.d_z == width
    assert {key.partition(".")[0] for key, _ in net.named_parameters()} <= {"backbone", "head"}


def test_a_projector_goes_with_it() -> None:
    output = brought("stubborn", d_p=5)(torch.randn(4, *IMAGE))
    assert output.projection is not None
    assert output.projection.shape == (4, 5)


def test_an_installed_module_and_an_import_path_in_which_nothing_is_shadowed() -> None:
    before = list(sys.path)
    net = build("torch.nn:Flatten", IMAGE, 10, ModelSettings())
    assert net.d_z == 64
    assert vmappable(net)
    assert sys.path[: len(before)] == before


def test_the_probe_restores_every_modules_mode() -> None:
    modes = {type(m): m.training for m in brought("Channels").modules()}
    assert modes[nn.Conv2d]
    assert not modes[nn.BatchNorm2d]  # was put into evaluation mode by its maker


def test_it_can_be_assigned() -> None:
    settings = ModelSettings(zoo=("vgg11", "my_models:stubborn"), assign="capacity", capacity=(0.0, 1.0))
    names = assign(settings, 2, IMAGE, 10, rng=None)  # type: ignore[arg-type]
    assert names == ["my_models:stubborn", "vgg11"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pair", r"returned a tuple of 2; a backbone must return one tensor"),
        ("table", r"returned a dict of out"),
        ("maps", r"returned a tensor of shape \(2, 1, 8, 8\)"),
        ("thing", r"returned a object"),
        ("demanding", r"requires depth, but only input_shape, classes, in_chans, in_channels, d_z, num_classes can"),
        ("own", r"'my_models:own' requires d_z, .* set model\.d_z \(such as 64\), or give d_z a default"),
        ("broken", r"failed when called with \(classes=10\): no luck"),
        ("number", r"returned a int, not an nn\.Module"),
        ("constant", r"'my_models' has no callable 'constant'"),
        ("stuborn", r"did you mean stubborn"),
        ("whole_with_fixed_head", r"has 3 outputs, but the data has 10 classes"),
        ("inconsistent", r"has d_z = 60, but its backbone returns 64 features"),
        ("torchvision_like", r"does not fit the data, whose inputs have shape \(1, 8, 8\)"),
    ],
)
def test_the_error_if_it_does_not_fit(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        brought(name)
    assert "model.zoo" in str(caught.value)


def test_a_whole_net_must_be_what_the_settings_ask_for() -> None:
    with pytest.raises(ModelError, match=r"has d_z = 64, but model\.d_z = 32"):
        brought("whole", d_z=32)
    projector = brought("whole", d_p=5).projector
    assert (projector[0].in_features, projector[-1].out_features) == (64, 5)


def test_a_projector_of_its_own_is_kept_and_must_fit() -> None:
    projector = brought("projecting", d_p=16).projector
    assert isinstance(projector, nn.Linear)
    with pytest.raises(ModelError, match=r"has 16 outputs, but model\.d_p asks for 32; set model\.d_p = 16, or"):
        brought("projecting", d_p=32)
    with pytest.raises(ModelError, match=r"'my_models:misprojecting' does not accept its 64 features"):
        brought("misprojecting", d_p=16)
    with pytest.raises(ModelError, match=r"returned a tensor of shape \(2, 4, 4, 4\); it must return one tensor"):
        brought("mapping", d_p=16)


def test_a_projector_that_does_not_fit_is_reported_before_training() -> None:
    words = ["peers=2", 'model.zoo=["my_models:projecting"]', "model.d_z=64", "baseline="]
    with pytest.raises(ModelError) as caught:
        wiring.gather(loading.load("mapl-scenario1-digits", words))
    message = str(caught.value)
    assert "has 16 outputs, but model.d_p asks for 64 (0 means as many as features); set model.d_p = 16" in message
    assert "\n" not in message
    wiring.gather(loading.load("mapl-scenario1-digits", [*words, "model.d_p=16"]))
    # Who does not project does not mind.
    wiring.gather(loading.load("mapl-scenario1-digits", [*words, "method.name=local"]))


def test_a_method_may_ask_for_a_part_that_a_net_brings_and_for_no_other() -> None:
    settings = ModelSettings()

    def parts(name: str, *parts: str) -> set[str]:
        net = build(name, IMAGE, 10, settings, resolved(parts))
        return {key.partition(".")[0] for key, _ in net.named_parameters()}

    assert "adapter" in parts("my_models:Adapting", "adapter")
    with pytest.raises(ModelError, match=r"needs a part 'adapter', which 'mlp' does not have: let the method bring it"):
        parts("mlp", "adapter")
    with pytest.raises(ModelError, match="needs a part 'projektor', which 'mlp' does not have"):
        parts("mlp", "projektor")
    with pytest.raises(ModelError, match="'my_models:Adapting' already has a part 'adapter', but the method adds"):
        parts("my_models:Adapting", "mentee", "adapter")


def test_outputs_are_checked_in_training_too() -> None:
    net = brought("MoreInTraining")
    with pytest.raises(ModelError, match="returned a tuple of 2"):
        net(torch.zeros(2, *IMAGE))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module:net", r"cannot import 'no_such_module'.*is it installed"),
        ("my_broken:net", r"cannot import 'my_broken': operator does not exist"),
        ("my_models:", r"is not of the form 'module:callable'"),
        (":net", r"is not of the form 'module:callable'"),
    ],
)
def test_what_cannot_be_imported(path: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build(path, IMAGE, 10, ModelSettings())


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_well_known_packages_come_with_a_hint(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, f"{package}.models", None)  # as if it were not installed
    with pytest.raises(ModelError, match=rf"cannot import '{package}\.models'.*pip install {package}"):
        build(f"{package}.models:resnet18", (3, 32, 32), 10, ModelSettings())
