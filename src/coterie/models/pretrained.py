"""Loads pretrained backbones from files of tensors, named by their architecture.

A file names tensors like `coterie export` (``backbone.module.0.weight``), or like the module itself, as
``torch.save(module.state_dict(), ...)`` does (``0.weight``). Every tensor of the backbone must be present and fit: a
model that silently starts from only a part of the weights is worse than an error.
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
from coterie.models.custom import CustomBackbone
from coterie.models.zoo import ModelSettings

PART = "backbone."
SUFFIXES = (".safetensors", ".pt", ".pth")
MOST_NAMED = 4  # tensors listed in an error


def backbone(settings: ModelSettings, name: str, net: nn.Module) -> dict[str, Tensor]:
    """The weights that `net`, of the architecture `name`, starts from; empty if the folder has no file for it."""
    path = _file(settings, name)
    if path is None:
        return {}
    tensors = _read(path)
    expected = {key: tensor for key, tensor in net.state_dict().items() if key.startswith(PART)}
    prefix = _prefix(tensors, expected, _own_prefix(net))
    if prefix:  # the module's own names
        tensors = {prefix + key: tensor for key, tensor in tensors.items()}
        # The linear layer behind it, which adapts its width to model.d_z, is not part of the module.
        expected = {key: tensor for key, tensor in expected.items() if key.startswith(prefix)}
    else:
        tensors = {key: tensor for key, tensor in tensors.items() if key.startswith(PART)}
    if misfit := _misfit(tensors, expected, prefix):
        raise ModelError(
            f"model.pretrained: {path} does not fit {name}: {misfit}. Nothing was loaded: the file must hold the "
            "complete state_dict of the backbone, as the settings of [model] define it"
        )
    return {key: tensors[key] for key in expected}


def _own_prefix(net: nn.Module) -> str:
    """The prefix of our tensor names before the module's own names, for a custom module or one of the zoo."""
    own = next((name for name, part in net.named_modules() if isinstance(part, CustomBackbone)), None)
    return PART if own is None else f"{own}.module."


def _prefix(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], own: str) -> str:
    """The prefix that a file's names lack; empty if they are ours. The module may have a `backbone`, too: so count."""
    known_as_ours = len(tensors.keys() & expected.keys())
    known_as_own = sum(own + key in expected for key in tensors)
    look_ours = any(key.startswith(PART) for key in tensors)
    return "" if look_ours and known_as_ours >= known_as_own else own


def _misfit(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], prefix: str) -> str:
    """What does not fit, by the names that the file uses; empty if all tensors fit."""
    missing = [key for key in expected if key not in tensors]
    unknown = sorted(tensors.keys() - expected.keys())
    both = [key for key in expected if key in tensors]
    reshaped = [key for key in both if tensors[key].shape != expected[key].shape]
    infinite = [key for key in both if key not in reshaped and not torch.isfinite(tensors[key]).all()]
    shapes = [f"{key} (is {tuple(tensors[key].shape)}, should be {tuple(expected[key].shape)})" for key in reshaped]
    wrong = (("missing", missing), ("unknown", unknown), ("of another shape", shapes), ("not finite", infinite))
    problems = [f"{what}: {_listed([key.removeprefix(prefix) for key in keys])}" for what, keys in wrong if keys]
    fitting = len(both) - len(reshaped) - len(infinite)
    return f"{fitting} of its {len(expected)} tensors fit; {'; '.join(problems)}" if problems else ""


def _listed(keys: list[str]) -> str:
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
    files = [path for suffix in SUFFIXES if (path := folder / f"{label}{suffix}").is_file()]
    if len(files) > 1:
        names = " and ".join(path.name for path in files)
        raise ModelError(f"model.pretrained = '{folder}': which of {names} is meant? Keep only one of them")
    return files[0] if files else None


def _read(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix in (".pt", ".pth"):
            return _tensors(path, torch.load(path, map_location="cpu", weights_only=True))
        return safetensors.torch.load_file(path)
    except pickle.UnpicklingError as error:  # torch's own message advises to load it anyway
        raise ModelError(
            f"model.pretrained: {path} holds more than tensors, or is damaged. It was not read, as unpickling can run "
            "any code: save module.state_dict(), not the module"
        ) from error
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, safetensors.SafetensorError) as error:
        reason = str(error).split("\n")[0] or type(error).__name__
        raise ModelError(f"model.pretrained: {path} cannot be read: {reason}") from error


def _tensors(path: Path, content: object) -> dict[str, Tensor]:
    """The tensors of a state_dict; ModelError for anything else."""
    if not isinstance(content, dict):
        raise ModelError(f"model.pretrained: {path} holds a {type(content).__name__}: save module.state_dict()")
    other = next((key for key, value in content.items() if not isinstance(value, Tensor)), None)
    if other is not None:
        kind = type(content[other]).__name__
        raise ModelError(
            f"model.pretrained: {path} is not a state_dict: its '{other}' is a {kind}, not a tensor. "
            "Save module.state_dict() alone"
        )
    return {str(key): value for key, value in content.items()}
