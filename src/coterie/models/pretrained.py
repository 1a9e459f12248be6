"""Backbones that were trained before, to start from: files of tensors, named by their architecture.

A file names tensors as `coterie export` does (``backbone.module.0.weight``), or as the module itself does, which is
what ``torch.save(module.state_dict(), ...)`` writes (``0.weight``). Every tensor of the backbone must be there and fit:
a model that starts from a part of what was meant is worse than an error.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from coterie.core.errors import ModelError
from coterie.models.custom import Brought
from coterie.models.zoo import ModelSettings

PART = "backbone."
SUFFIXES = (".safetensors", ".pt", ".pth")
MOST_NAMED = 4  # tensors, in an error


def backbone(settings: ModelSettings, name: str, net: nn.Module) -> dict[str, Tensor]:
    """What `net`, of the architecture `name`, starts from; nothing where the folder has no file for it."""
    path = _file(settings, name)
    if path is None:
        return {}
    found = _read(path)
    expected = {key: tensor for key, tensor in net.state_dict().items() if key.startswith(PART)}
    prefix = _prefix(found, expected, _own_prefix(net))
    if prefix:  # the module's own names
        found = {prefix + key: tensor for key, tensor in found.items()}
        # A linear layer behind it, which fits its width to model.d_z, is nothing that the module knows of.
        expected = {key: tensor for key, tensor in expected.items() if key.startswith(prefix)}
    else:
        found = {key: tensor for key, tensor in found.items() if key.startswith(PART)}
    if misfit := _misfit(found, expected, prefix):
        raise ModelError(
            f"model.pretrained: {path} does not fit {name}: {misfit}. Nothing was loaded: it must hold the state_dict "
            "of the backbone, all of it, as the settings of [model] make it"
        )
    return {key: found[key] for key in expected}


def _own_prefix(net: nn.Module) -> str:
    """What our names of a module's tensors have before its own: of one that was brought, and of ours."""
    own = next((name for name, part in net.named_modules() if isinstance(part, Brought)), None)
    return PART if own is None else f"{own}.module."


def _prefix(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], own: str) -> str:
    """What to put before a file's names: nothing where they are ours. A module may have a `backbone`, too: so count."""
    known_as_ours = len(found.keys() & expected.keys())
    known_as_own = sum(own + key in expected for key in found)
    look_ours = any(key.startswith(PART) for key in found)
    return "" if look_ours and known_as_ours >= known_as_own else own


def _misfit(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], prefix: str) -> str:
    """What is wrong, by the names that the file uses; nothing where all fit."""
    missing = [key for key in expected if key not in found]
    unknown = sorted(found.keys() - expected.keys())
    both = [key for key in expected if key in found]
    other = [key for key in both if found[key].shape != expected[key].shape]
    ruined = [key for key in both if key not in other and not torch.isfinite(found[key]).all()]
    shapes = [f"{key} (is {tuple(found[key].shape)}, should be {tuple(expected[key].shape)})" for key in other]
    wrong = (("missing", missing), ("unknown", unknown), ("of another shape", shapes), ("not finite", ruined))
    said = [f"{what}: {_named([key.removeprefix(prefix) for key in keys])}" for what, keys in wrong if keys]
    fitting = len(both) - len(other) - len(ruined)
    return f"{fitting} of its {len(expected)} tensors fit; {'; '.join(said)}" if said else ""


def _named(keys: list[str]) -> str:
    more = len(keys) - MOST_NAMED
    return ", ".join(keys[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


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
    if not any(_inside(place, Path(kind).name) for kind in settings.zoo):
        wanted = ", ".join(f"{Path(kind).name}.safetensors" for kind in sorted(set(settings.zoo)))
        raise ModelError(f"model.pretrained = '{place}': this folder has none of {wanted} (or .pt, .pth)")
    return _inside(place, label)


def _inside(folder: Path, label: str) -> Path | None:
    found = [path for suffix in SUFFIXES if (path := folder / f"{label}{suffix}").is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise ModelError(f"model.pretrained = '{folder}': which of {names} is meant? Leave one of them there")
    return found[0] if found else None


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix in (".pt", ".pth"):
            return _tensors(path, torch.load(path, map_location="cpu", weights_only=True))
        return safetensors.torch.load_file(path)
    except pickle.UnpicklingError as error:  # torch's own message tells how to load it all the same
        raise ModelError(
            f"model.pretrained: {path} holds more than tensors, or is damaged. It is not read, for unpickling can run "
            "anything: save module.state_dict(), not the module"
        ) from error
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise ModelError(f"model.pretrained: {path} cannot be read: {reason}") from error


def _tensors(path: Path, content: object) -> dict[str, Tensor]:
    """A state_dict, and nothing else."""
    if not isinstance(content, dict):
        raise ModelError(f"model.pretrained: {path} holds a {type(content).__name__}: save module.state_dict()")
    other = next((key for key, value in content.items() if not isinstance(value, Tensor)), None)
    if other is not None:
        kind = type(content[other]).__name__
        raise ModelError(
            f"model.pretrained: {path} is no state_dict: its '{other}' is a {kind}, not a tensor. "
            "Save module.state_dict() alone"
        )
    return {str(key): value for key, value in content.items()}
