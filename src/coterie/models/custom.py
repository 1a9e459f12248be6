"""Builds custom models: ``module:callable`` names any importable callable that returns an ``nn.Module``.

The callable gets, by name, those of these arguments that its signature accepts:

=========================  ==================================================================
``input_shape``            (C, H, W) or (F,)
``classes``                the number of classes (for a callable that returns a whole `Net`)
``d_z``                    model.d_z, the number of features; omitted if it is 0
``num_classes``            the same: the last layer of torchvision and timm gives the features
``in_chans, in_channels``  the number of channels
=========================  ==================================================================

With model.d_z = 0 the module decides the number of features.
A `Net` is used unchanged, with its projector if it has one. The output (B, k) of any other module is its features.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from coterie.core.errors import ModelError
from coterie.core.named_code import find_callable
from coterie.core.net import Net
from coterie.models.layers import Backbone

_WIDTHS = ("d_z", "num_classes")  # arguments for the number of features


class CustomBackbone(nn.Module):
    """A custom module as a backbone: it must return a (B, k) tensor, in training as in evaluation."""

    def __init__(self, name: str, module: nn.Module) -> None:
        super().__init__()
        self.name = name
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        # Checked on every pass: some models, such as torchvision's googlenet, return more in training mode.
        output: object = self.module(x)
        if isinstance(output, Tensor) and output.dim() == 2:
            return output
        raise ModelError(
            f"model.zoo: '{self.name}' returned {_describe_output(output)}; "
            "a backbone must return one tensor of shape (batch, features)"
        )


def build_custom(name: str, input_shape: tuple[int, ...], classes: int, d_z: int) -> Net | Backbone:
    """The model of ``module:callable``: a whole `Net`, or a backbone and its width."""
    made = _make(name, find_callable(name), _offers(input_shape, classes, d_z))
    if isinstance(made, Net):
        _check_net(name, made, input_shape, classes, d_z)
        return made
    backbone = CustomBackbone(name, made)
    return Backbone(backbone, _probe(name, backbone, input_shape).shape[1])


def check_projector(name: str, net: Net, d_p: int) -> None:
    """A custom `Net` keeps its projector, which must have as many outputs as the prototypes of all peers."""
    expected = d_p or net.d_z
    try:
        output: object = _in_evaluation(net.projector, torch.zeros(2, net.d_z))
    except Exception as error:  # the user's code
        raise ModelError(
            f"model.zoo: the projector of '{name}' does not accept its {net.d_z} features: {error}"
        ) from error
    if not isinstance(output, Tensor) or output.dim() != 2:
        raise ModelError(
            f"model.zoo: the projector of '{name}' returned {_describe_output(output)}; "
            "it must return one tensor of shape (batch, model.d_p)"
        )
    width = output.shape[1]
    if width != expected:
        zero = "" if d_p else " (0 means as many as features)"
        raise ModelError(
            f"model.zoo: the projector of '{name}' has {width} outputs, but model.d_p asks for {expected}{zero}; "
            f"set model.d_p = {width}, or leave the projector out of the net"
        )


def _offers(input_shape: tuple[int, ...], classes: int, d_z: int) -> dict[str, object]:
    """All arguments that a callable may accept by name."""
    channels = input_shape[0]
    offers = {"input_shape": input_shape, "classes": classes, "in_chans": channels, "in_channels": channels}
    return {**offers, **dict.fromkeys(_WIDTHS, d_z)} if d_z else offers


def _make(name: str, make: Callable[..., object], offers: dict[str, object]) -> nn.Module:
    arguments = _accepted(name, make, offers)
    try:
        made = make(**arguments)
    except Exception as error:  # the user's code: report its error and its arguments
        given = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        raise ModelError(f"model.zoo: '{name}' failed when called with ({given}): {error}") from error
    if not isinstance(made, nn.Module):
        raise ModelError(f"model.zoo: '{name}' returned a {type(made).__name__}, not an nn.Module")
    return made


def _accepted(name: str, make: Callable[..., object], offers: dict[str, object]) -> dict[str, object]:
    """Those of the offered arguments that the signature of `make` accepts."""
    if getattr(make, "__init__", None) is nn.Module.__init__:
        return {}  # a class without its own __init__ appears to accept **kwargs, but does not
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError) as error:
        raise ModelError(f"model.zoo: '{name}' has no readable signature: {error}") from error
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    arguments = {key: offers[key] for key in by_name if key in offers}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        arguments |= {key: offers[key] for key in _hidden_in_kwargs(name, arguments) if key in offers}
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in variadic]
    missing = [key for key in required if key not in arguments]
    if unknown := [key for key in missing if key not in _WIDTHS]:
        names = ", ".join(dict.fromkeys((*offers, *_WIDTHS)))
        raise ModelError(f"model.zoo: '{name}' requires {', '.join(unknown)}, but only {names} can be passed, by name")
    if missing:
        raise ModelError(
            f"model.zoo: '{name}' requires {missing[0]}, its number of features, but model.d_z = 0 leaves that to it: "
            f"set model.d_z (such as 64), or give {missing[0]} a default"
        )
    return arguments


def _hidden_in_kwargs(name: str, arguments: dict[str, object]) -> list[str]:
    """The arguments for a callable that hides its parameters behind ``**kwargs``, as in torchvision and timm."""
    if arguments:
        return []
    package = name.partition(":")[0].partition(".")[0]
    return ["num_classes", "in_chans"] if package == "timm" else ["num_classes"]


def _check_net(name: str, net: Net, input_shape: tuple[int, ...], classes: int, d_z: int) -> None:
    """A custom `Net` is used unchanged, so it must already fit the settings and the data."""
    outputs = net.head.out_features
    if outputs != classes:
        raise ModelError(
            f"model.zoo: the head of '{name}' has {outputs} outputs, but the data has {classes} classes; "
            "add a parameter 'classes' to the callable"
        )
    if d_z and net.d_z != d_z:
        raise ModelError(f"model.zoo: '{name}' has d_z = {net.d_z}, but model.d_z = {d_z}")
    width = _probe(name, CustomBackbone(name, net.backbone), input_shape).shape[1]
    if not width == net.d_z == net.head.in_features:
        raise ModelError(
            f"model.zoo: '{name}' has d_z = {net.d_z}, but its backbone returns {width} features "
            f"and its head takes {net.head.in_features}"
        )


def _probe(name: str, module: nn.Module, input_shape: tuple[int, ...]) -> Tensor:
    """The module's output for two inputs of zeros."""
    try:
        output: Tensor = _in_evaluation(module, torch.zeros(2, *input_shape))
    except ModelError:
        raise
    except Exception as error:  # the user's code
        raise ModelError(
            f"model.zoo: '{name}' does not fit the data, whose inputs have shape {input_shape}: {error}"
        ) from error
    return output


def _in_evaluation(module: nn.Module, x: Tensor) -> Any:
    """The module's output in evaluation mode; afterwards its modes are restored."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            return module(x)
    finally:
        for part, mode in modes:
            part.training = mode


def _describe_output(output: object) -> str:
    if isinstance(output, Tensor):
        return f"a tensor of shape {tuple(output.shape)}"
    if isinstance(output, dict):
        return f"a dict of {', '.join(map(str, output))}"
    if isinstance(output, tuple):
        return f"a {type(output).__name__} of {len(output)}"
    return f"a {type(output).__name__}"
