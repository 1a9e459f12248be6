"""Models that start from weights: of the right architecture, whatever else a file holds, and never of a wrong one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from coterie import wiring
from coterie.config import loading
from coterie.core.errors import ConfigError, ModelError
from coterie.methods.components.experts import expert
from coterie.running import simulated
from coterie.simulation.director import Simulation

SMALL = ("peers=4", "baseline=", "data.train=12", "data.validation=5", "data.test=5", "model.hidden=[4]")


def circle(*words: str) -> wiring.Population:
    return wiring.gather(loading.load("panm-digits", ["method.name=local", *SMALL, *words]))


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """The backbone (all ones) and head (all twos) of an mlp, in a folder."""
    model = circle().participants[0].model
    tensors = {name: torch.full_like(t, 1.0 if name.startswith("backbone.") else 2.0) for name, t in model.items()}
    safetensors.torch.save_file(tensors, tmp_path / "mlp.safetensors")
    return tmp_path


def test_everybody_of_that_architecture_starts_from_it_with_a_fresh_head(trained: Path) -> None:
    fresh = circle().participants
    for words in ((f"model.pretrained={trained}",), (f"model.pretrained={trained}/mlp.safetensors",)):
        for me, other in zip(circle(*words).participants, fresh, strict=True):
            assert (me.model.part("backbone").vector == 1).all()
            assert torch.equal(me.model.part("head").vector, other.model.part("head").vector)
            assert (me.own_initial().part("backbone").vector == 1).all()


def test_others_start_as_ever(trained: Path) -> None:
    mixed = "model.zoo=mlp,cnn3"
    plain, found = (
        circle("method.name=fedper", mixed, *w).participants for w in ((), (f"model.pretrained={trained}",))
    )
    assert (found[0].model.part("backbone").vector == 1).all()
    assert torch.equal(found[1].model.vector, plain[1].model.vector)


@pytest.mark.parametrize("setting", ["server", "device-by-device", "model-by-model"])
def test_the_smaller_experts_of_a_strong_client_start_from_it_too(trained: Path, setting: str) -> None:
    """The even peers own a cnn3, and begin with a copy of the mlp."""
    words = ("model.zoo=cnn3,mlp", f"model.pretrained={trained}", f"method.setting={setting}", "train.epochs=0")
    e = loading.load("panm-digits", ["method.name=compfl", *SMALL, *words, "rounds=2"])
    held: list[Simulation] = []
    simulated.run(e, trained / "run", on_start=held.append)
    strong = held[0].stage.peers[0]
    assert strong.kind == "cnn3"
    assert (expert(strong, "mlp").part("backbone").vector == 1).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("model.hidden=[5]",),
            r"mlp.safetensors does not fit mlp: 0 of its 2 .*weight \(is \(4, 64\), should be \(5",
        ),
        (("model.hidden=[4, 4]",), r"2 of its 4 tensors fit; missing: backbone.3.weight, backbone.3.bias"),
        (("model.zoo=cnn3",), "this folder has none of cnn3.safetensors"),
    ],
)
def test_what_does_not_fit(trained: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        circle(f"model.pretrained={trained}", *words)


def test_more_than_fits(trained: Path) -> None:
    path = trained / "mlp.safetensors"
    tensors = safetensors.torch.load_file(path)
    safetensors.torch.save_file({**tensors, "backbone.more": torch.ones(1)}, path)
    with pytest.raises(ModelError, match=r"2 of its 2 tensors fit; unknown: backbone.more\. Nothing was loaded"):
        circle(f"model.pretrained={trained}")


def test_what_is_not_there_or_not_readable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file or folder"):
        circle(f"model.pretrained={tmp_path}/nowhere")
    (tmp_path / "mlp.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match="cannot be read"):
        circle(f"model.pretrained={tmp_path}")


def test_one_file_for_two_architectures_must_say_which(trained: Path) -> None:
    (trained / "mlp.safetensors").rename(trained / "weights.safetensors")
    words = ("method.name=fedper", "model.zoo=mlp,cnn3", f"model.pretrained={trained}/weights.safetensors")
    with pytest.raises(ModelError, match="which of cnn3, mlp is it for"):
        circle(*words)


# -- a state_dict with the module's own names ------------------------------------------------------

SOURCE = """
from torch import nn

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(64, 5)  # a name that Coterie's own begin with
        self.norm = nn.BatchNorm1d(5)
    def forward(self, x):
        return self.norm(self.backbone(x.flatten(1)))
"""


class Trap:
    """What runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("ran-when-unpickled", "w"))


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """The state_dict of a custom module, all threes; the module is importable."""
    (tmp_path / "my_wide.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_wide", raising=False)
    plain = {"backbone.weight": (5, 64), "backbone.bias": (5,), "norm.weight": (5,), "norm.bias": (5,)}
    statistics = {"norm.running_mean": (5,), "norm.running_var": (5,), "norm.num_batches_tracked": ()}
    return {name: torch.full(shape, 3.0) for name, shape in (plain | statistics).items()}


OWN = "model.zoo=my_wide:Wide"


@pytest.mark.parametrize("suffix", ["pt", "pth", "safetensors"])
@pytest.mark.parametrize("d_z", [0, 8])
def test_a_plain_state_dict_of_a_custom_module(own_state: dict[str, Tensor], suffix: str, d_z: int) -> None:
    """Also with a linear layer behind it that adapts its width to model.d_z: that layer is fresh."""
    path = Path(f"weights.{suffix}")
    if suffix == "safetensors":
        safetensors.torch.save_file(own_state, path)
    else:
        torch.save(own_state, path)
    words = (OWN, f"model.d_z={d_z}")
    fresh = circle(*words).participants[0].model
    model = circle(*words, f"model.pretrained={path}").participants[0].model
    own = {name for name in model if ".module." in name}
    assert len(own) == len(own_state)
    for name in model:
        assert (model[name] == 3).all() if name in own else torch.equal(model[name], fresh[name])


def test_the_names_of_an_export_of_it_are_taken_too(own_state: dict[str, Tensor]) -> None:
    prefixed = {f"backbone.module.{name}": tensor for name, tensor in own_state.items()}
    safetensors.torch.save_file({**prefixed, "head.weight": torch.ones(10, 5)}, "weights.safetensors")
    model = circle(OWN, "model.pretrained=weights.safetensors").participants[0].model
    assert (model.part("backbone").vector == 3).all()
    assert not (model["head.weight"] == 1).any()


def test_a_backbone_of_the_zoo_by_its_own_names(tmp_path: Path) -> None:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU())
    torch.save(layers.state_dict(), tmp_path / "mlp.pt")
    model = circle(f"model.pretrained={tmp_path}").participants[0].model
    assert torch.equal(model["backbone.1.weight"], layers[1].weight)


def test_a_plain_state_dict_that_does_not_fit_is_named_by_its_own_names(own_state: dict[str, Tensor]) -> None:
    del own_state["norm.bias"]
    own_state["norm.weight"] = torch.ones(6)
    own_state["norm.running_var"] = torch.full((5,), torch.nan)
    own_state["fc.weight"] = torch.ones(1)
    torch.save(own_state, "weights.pt")
    with pytest.raises(ModelError) as caught:
        circle(OWN, "model.pretrained=weights.pt")
    assert (
        "weights.pt does not fit my_wide:Wide: 4 of its 7 tensors fit; missing: norm.bias; unknown: fc.weight; "
        "of another shape: norm.weight (is (6,), should be (5,)); not finite: norm.running_var. Nothing was loaded"
    ) in str(caught.value)


def test_unknown_names(own_state: dict[str, Tensor]) -> None:
    torch.save({f"encoder.{name}": tensor for name, tensor in own_state.items()}, "weights.pt")
    with pytest.raises(ModelError, match=r"0 of its 7 tensors fit; missing: backbone.* and 3 more; unknown: enc"):
        circle(OWN, "model.pretrained=weights.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Trap(), "holds more than tensors, or is damaged. It was not read"),
        ({"state_dict": {}, "epoch": 3}, "is not a state_dict: its 'state_dict' is a dict, not a tensor"),
        ([torch.ones(1)], "holds a list: save module.state_dict"),
    ],
    ids=["a trap", "a checkpoint", "a list"],
)
@pytest.mark.usefixtures("own_state")
def test_what_is_no_state_dict(content: object, message: str) -> None:
    torch.save(content, "weights.pt")
    with pytest.raises(ModelError, match=message) as caught:
        circle(OWN, "model.pretrained=weights.pt")
    assert "\n" not in str(caught.value)
    assert not Path("ran-when-unpickled").exists()


@pytest.mark.usefixtures("own_state")
def test_a_damaged_file_and_two_of_one_name(tmp_path: Path) -> None:
    for content in (b"", b"not a zip"):
        Path("weights.pt").write_bytes(content)
        with pytest.raises(ModelError, match=r"weights.pt (cannot be read|holds more than tensors)") as caught:
            circle(OWN, "model.pretrained=weights.pt")
        assert "\n" not in str(caught.value)
    for name in ("my_wide:Wide.pt", "my_wide:Wide.safetensors"):
        Path(name).write_bytes(b"")
    with pytest.raises(ModelError, match=r"which of my_wide:Wide.safetensors and my_wide:Wide.pt is meant"):
        circle(OWN, f"model.pretrained={tmp_path}")


# -- frozen layers ---------------------------------------------------------------------------------

FROZEN = """
from torch import nn

def tuned():
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 5))
    layers[1].requires_grad_(False)
    return layers
"""


@pytest.mark.parametrize("words", [("fedavg",), ("gossip", "method.k=2")], ids=lambda words: words[0])
def test_a_frozen_layer_is_the_same_at_the_end_of_a_run(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is trained around, sent and averaged (four and three at a time), and not a bit of it changes."""
    (tmp_path / "my_frozen.py").write_text(FROZEN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_frozen", raising=False)
    method, *more = words
    zoo = "model.zoo=my_frozen:tuned"
    e = loading.load("panm-digits", [f"method.name={method}", *more, *SMALL, zoo, "rounds=3", "train.weight_decay=0.1"])
    start = wiring.gather(e).participants[0].model
    held: list[Simulation] = []
    simulated.run(e, tmp_path / "run", on_start=held.append)
    for peer in range(4):
        model = held[0].stage.peers[peer].model
        same = {name for name in model if torch.equal(model[name], start[name])}
        assert same == {"backbone.module.1.weight", "backbone.module.1.bias"}
