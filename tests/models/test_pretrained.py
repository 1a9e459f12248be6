"""Models that start from weights: of the right architecture, whatever else a file holds, and never of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from coterie import experiment, running
from coterie.engines.simulation import Simulation
from coterie.errors import ModelError
from coterie.methods.compfl import expert

SMALL = ("peers=4", "baseline=", "data.train=12", "data.validation=5", "data.test=5", "model.hidden=[4]")


def circle(*words: str) -> experiment.Circle:
    return experiment.gather(experiment.load("panm-digits", ["method.name=local", *SMALL, *words]))


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
    e = experiment.load("panm-digits", ["method.name=compfl", *SMALL, *words, "rounds=2"])
    held: list[Simulation] = []
    running.run(e, trained / "run", on_start=held.append)
    strong = held[0].stage.peers[0]
    assert strong.kind == "cnn3"
    assert (expert(strong, "mlp").part("backbone").vector == 1).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model.hidden=[5]",), r"mlp.safetensors does not fit mlp: 'backbone.*weight' should be \(5, 64\)"),
        (("model.hidden=[4, 4]",), "should be .*, and is nothing"),
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
    with pytest.raises(ModelError, match="which has no 'backbone"):
        circle(f"model.pretrained={trained}")


def test_what_is_not_there_or_not_readable(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no such file or folder"):
        circle(f"model.pretrained={tmp_path}/nowhere")
    (tmp_path / "mlp.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match="cannot be read"):
        circle(f"model.pretrained={tmp_path}")


def test_one_file_for_two_architectures_must_say_which(trained: Path) -> None:
    (trained / "mlp.safetensors").rename(trained / "weights.safetensors")
    words = ("method.name=fedper", "model.zoo=mlp,cnn3", f"model.pretrained={trained}/weights.safetensors")
    with pytest.raises(ModelError, match="which of cnn3, mlp is it for"):
        circle(*words)
