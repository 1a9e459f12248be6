"""Backbones that were trained before, to start from: safetensors files, named by their architecture."""

from __future__ import annotations

from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor, nn

from coterie.errors import ModelError
from coterie.models.zoo import ModelSettings

PART = "backbone."


def backbone(settings: ModelSettings, name: str, net: nn.Module) -> dict[str, Tensor]:
    """What `net`, of the architecture `name`, starts from; nothing where the folder has no file for it."""
    path = _file(settings, name)
    if path is None:
        return {}
    found = {key: tensor for key, tensor in _read(path).items() if key.startswith(PART)}
    expected = {key: tensor for key, tensor in net.state_dict().items() if key.startswith(PART)}
    for key, tensor in expected.items():
        if key not in found or found[key].shape != tensor.shape:
            has = tuple(found[key].shape) if key in found else "nothing"
            raise ModelError(
                f"model.pretrained: {path} does not fit {name}: '{key}' should be {tuple(tensor.shape)}, and is {has}"
            )
    unknown = sorted(found.keys() - expected.keys())
    if unknown:
        raise ModelError(f"model.pretrained: {path} does not fit {name}, which has no '{unknown[0]}'")
    return found


def _file(settings: ModelSettings, name: str) -> Path | None:
    place = Path(settings.pretrained)
    label = Path(name).name
    if place.is_file():
        if len(set(settings.zoo)) > 1 and place.stem != label:
            if place.stem in {Path(kind).name for kind in settings.zoo}:
                return None
            names = ", ".join(sorted(set(settings.zoo)))
            raise ModelError(
                f"model.pretrained = '{place}': which of {names} is it for? Name it ARCHITECTURE.safetensors, or give "
                "a folder of such files"
            )
        return place
    if not place.is_dir():
        raise ModelError(f"model.pretrained = '{place}': there is no such file or folder")
    if not any((place / f"{Path(kind).name}.safetensors").is_file() for kind in settings.zoo):
        wanted = ", ".join(f"{Path(kind).name}.safetensors" for kind in sorted(set(settings.zoo)))
        raise ModelError(f"model.pretrained = '{place}': this folder has none of {wanted}")
    path = place / f"{label}.safetensors"
    return path if path.is_file() else None


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise ModelError(f"model.pretrained: {path} cannot be read: {error}") from error
