"""Builds architectures by name, and assigns them to peers."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from coterie.core.errors import ConfigError, ModelError, unknown
from coterie.core.named_code import is_import_path
from coterie.core.net import Net
from coterie.core.settings import check_values, setting
from coterie.data.schema import Blocks
from coterie.models.alexnet import alexnet
from coterie.models.cnn import cnn, cnn3, lenet
from coterie.models.cnn1d import cnn1d
from coterie.models.custom import build_custom
from coterie.models.densenet import densenet121
from coterie.models.googlenet import googlenet
from coterie.models.gru import gru
from coterie.models.layers import NORMS, Backbone
from coterie.models.mlp import mlp
from coterie.models.mlp_embedding import mlp_embedding
from coterie.models.parts import Part, Site
from coterie.models.resnet import resnet8, resnet9, resnet18
from coterie.models.shufflenet import shufflenetv2
from coterie.models.transformer import transformer
from coterie.models.vgg import vgg11
from coterie.portable import estimators

Shape = tuple[int, ...]
Make = Callable[[Shape, "ModelSettings", Blocks], Backbone]


@dataclass(frozen=True)
class ModelSettings:
    """Which architectures there are, which peer gets which, and their sizes: the [model] section."""

    zoo: tuple[str, ...] = setting(
        ("mlp",), "architectures, or 'module:callable' of yours; assigned to peers as `assign` says"
    )
    assign: str = setting(
        "modulo",
        "which peer gets which of the zoo",
        choices={"modulo": "in turn, by peer index", "random": "", "capacity": ""},
    )
    capacity: tuple[float, ...] = setting(
        (), "for assign = capacity: each peer's capacity; 0: smallest model; a shorter list repeats", least=0, most=1
    )
    d_z: int = setting(
        0,
        "number of features; 0: the architecture's own; otherwise your own module gets it as an argument, "
        "and a backbone with another number gets a linear layer",
        least=0,
    )
    hidden: tuple[int, ...] = setting((200, 200), "widths of the hidden layers of mlp and mlp-embedding", least=1)
    width: float = setting(
        1.0,
        "resnet8, resnet9, resnet18, cnn1d, gru and transformer: multiplies the number of channels",
        above=0,
        most=16,
    )
    vocabulary: int = setting(
        0,
        "for token ids (integers, rows x time): their number; ids are 0 to vocabulary - 1, and all peers need the same "
        "number; cnn1d, gru and transformer embed them",
        least=0,
        most=2**24,
    )
    norm: str = setting(
        "group",
        "normalisation (mlp, mlp-embedding, cnn3, lenet and gru never have one, transformer has layer norm)",
        choices=NORMS,
    )
    d_p: int = setting(
        0, "number of outputs of the projector, for methods that have one; 0: as many as features", least=0
    )
    mentee: str = setting("", "the small architecture that FML and FedKD share; empty: lenet for images, else mlp")
    projector_hidden: int = setting(4096, "width of the projector's hidden layer", least=1)
    pretrained: str = setting(
        "",
        "start from the backbones in this folder (files ARCHITECTURE.safetensors, .pt or .pth), or in this "
        "single file; tensors are named as in `coterie export`, or as in the module's own state_dict",
    )
    dropout: float = setting(0.0, "probability that a feature is dropped before the head", least=0, below=1)
    relu: bool = setting(
        False, "apply a ReLU to features before the head, as MAPL's authors' code does; not in a `Net` of yours"
    )

    def __post_init__(self) -> None:
        if not self.zoo:
            raise ConfigError(f"model.zoo is empty: name at least one of {', '.join(names())}")
        check_values(self, "model.")
        if self.capacity and self.assign != "capacity":
            raise ConfigError(
                f"model.capacity has no effect with model.assign = '{self.assign}': "
                "set model.assign = 'capacity', or leave model.capacity empty"
            )


IMAGES = "images (channels, height, width)"
SERIES = "series (channels, time), or token ids (time) with model.vocabulary"
CATEGORIES = "rows with categories that a schema declares (data.schema)"
ANYTHING = "inputs of any shape"


@dataclass(frozen=True)
class _Architecture:
    about: str
    make: Make
    reads: str = IMAGES
    # measured: faster if pooling is much of the work or the layers are narrow, slower with wide 3x3 layers
    channels_last: bool = False


def _normed(make: Callable[[Shape, str], Backbone]) -> Make:
    return lambda shape, settings, _: make(shape, settings.norm)


def _sized(make: Callable[[Shape, str, float], Backbone]) -> Make:
    return lambda shape, settings, _: make(shape, settings.norm, settings.width)


def _fixed(make: Callable[[Shape], Backbone]) -> Make:
    return lambda shape, *_: make(shape)


def _of_series(make: Callable[[Shape, float, int], Backbone]) -> Make:
    return lambda shape, settings, _: make(shape, settings.width, settings.vocabulary)


# Roughly from light to heavy.
_ZOO = {
    "linear": _Architecture(
        "logistic regression: only the head, on the inputs",
        lambda shape, *_: mlp(shape, ()),
        reads=ANYTHING,
    ),
    "mlp": _Architecture(
        "dense layers and ReLU (model.hidden); flattens images and series; use it for feature vectors",
        lambda shape, settings, _: mlp(shape, settings.hidden),
        reads=ANYTHING,
    ),
    "mlp-embedding": _Architecture(
        "for tables with a schema: mlp on numbers and learned embeddings of the categories",
        lambda shape, settings, blocks: mlp_embedding(shape, settings.hidden, blocks),
        reads=CATEGORIES,
    ),
    "gru": _Architecture("for series and token ids: one gated recurrent layer", _of_series(gru), SERIES),
    "transformer": _Architecture(
        "for series and token ids: a transformer encoder of two blocks", _of_series(transformer), SERIES
    ),
    "cnn1d": _Architecture(
        "for series and token ids: three convolutions over time, and the mean",
        lambda shape, settings, _: cnn1d(shape, settings.norm, settings.width, settings.vocabulary),
        SERIES,
    ),
    "cnn3": _Architecture("PANM's CIFAR-10 network: three 3x3 convolutions, no norm", _fixed(cnn3), channels_last=True),
    "resnet8": _Architecture(
        "ResNet-8, He et al.'s CIFAR network of 16, 32 and 64 channels", _sized(resnet8), channels_last=True
    ),
    "cnn": _Architecture("four 3x3 convolutions and a dense layer", _normed(cnn), channels_last=True),
    "lenet": _Architecture(
        "FedAvg's CNN, FedPAE's 4-layer CNN: two 5x5 convolutions, no norm", _fixed(lenet), channels_last=True
    ),
    "shufflenetv2": _Architecture("ShuffleNetV2 1x, stem for small images", _normed(shufflenetv2)),
    "googlenet": _Architecture(
        "GoogLeNet, stem for small images, no auxiliary heads", _normed(googlenet), channels_last=True
    ),
    "resnet9": _Architecture("ResNet-9", _sized(resnet9), channels_last=True),
    "densenet121": _Architecture("DenseNet-121, stem for small images (slow)", _normed(densenet121)),
    "alexnet": _Architecture("AlexNet-like, for small images", _normed(alexnet)),
    "vgg11": _Architecture("VGG-11, without the dense layers of 4096", _normed(vgg11)),
    "resnet18": _Architecture("ResNet-18, stem for small images", _sized(resnet18), channels_last=True),
}


def names() -> list[str]:
    """The architectures of the zoo."""
    return list(_ZOO)


def describe(name: str) -> str:
    """A one-line description of an architecture."""
    return f"custom: {name}" if is_import_path(name) else _architecture(name).about


def build(
    name: str,
    input_shape: Shape,
    classes: int,
    settings: ModelSettings,
    parts: Collection[str | Part] = (),
    blocks: Blocks = (),
) -> Net:
    """A freshly initialised model; torch's global generator (``torch.manual_seed``) determines its weights.

    `parts` are the parts that the method needs besides backbone and head. Each `Part` is added, and drawn last, so that
    backbone and head start alike with all methods; a part that is only named must exist in the net. `blocks` are the
    features of the categories, if the data has a schema.
    """
    if not input_shape or min(input_shape) < 1 or classes < 1:
        raise ModelError(f"model.zoo: no model for inputs of shape {input_shape} and {classes} classes")
    net = _net(name, input_shape, classes, settings, blocks)
    _check_parts(name, net, parts)
    site = Site(name, net, input_shape, classes, settings, blocks)
    for part in parts:
        if isinstance(part, Part):
            part.add_to(site)
    return net


def _check_parts(name: str, net: Net, parts: Collection[str | Part]) -> None:
    """Raise ModelError unless each part can be added here, or exists in the user's own `Net`."""
    has = {parameter.split(".")[0] for parameter, _ in net.named_parameters()}
    for part in parts:
        if isinstance(part, str) and part not in has:
            raise ModelError(
                f"the method needs a part '{part}', which '{name}' does not have: let the method bring it (a Part in "
                "its `parts`), or use a Net of your own that has it (model.zoo = 'module:callable')"
            )
        if isinstance(part, Part) and part.check is None and (part.name in has or hasattr(net, part.name)):
            raise ModelError(
                f"model.zoo: '{name}' already has a part '{part.name}', but the method adds one of that name: "
                "rename yours"
            )


def _net(name: str, input_shape: Shape, classes: int, settings: ModelSettings, blocks: Blocks) -> Net:
    if not is_import_path(name):
        net = _assemble(_zoo_backbone(name, input_shape, settings, blocks), classes, settings)
        net.channels_last = _architecture(name).channels_last
        return net
    custom = build_custom(name, input_shape, classes, settings.d_z)
    return _assemble(custom, classes, settings) if isinstance(custom, Backbone) else custom


def assign(
    settings: ModelSettings,
    peers: int,
    input_shape: Shape,
    classes: int,
    rng: np.random.Generator,
    blocks: Blocks = (),
) -> list[str]:
    """The architecture of every peer, by peer index; that of a peer does not depend on how many come after it."""
    zoo = settings.zoo
    for name in zoo:
        if not is_import_path(name) and not estimators.is_estimator(name):
            _check_fit(name, input_shape, settings, blocks)
    if settings.assign == "capacity" and (estimator_names := [name for name in zoo if estimators.is_estimator(name)]):
        raise ConfigError(f"model.assign = 'capacity' compares numbers of weights, but {estimator_names[0]} has none")
    if settings.assign == "random":
        return [zoo[i] for i in rng.integers(len(zoo), size=peers)]
    if settings.assign == "capacity":
        return _by_capacity(settings, peers, input_shape, classes, blocks)
    return [zoo[peer % len(zoo)] for peer in range(peers)]


def _by_capacity(settings: ModelSettings, peers: int, input_shape: Shape, classes: int, blocks: Blocks) -> list[str]:
    """A peer of capacity c gets the largest model within the smallest fraction c of the zoo."""
    if not settings.capacity:
        raise ConfigError("model.assign = 'capacity' needs model.capacity: numbers from 0 to 1, one per peer")
    sizes = {name: _parameter_count(name, input_shape, classes, settings, blocks) for name in settings.zoo}
    by_size = sorted(settings.zoo, key=sizes.__getitem__)
    capacities = (settings.capacity[peer % len(settings.capacity)] for peer in range(peers))
    return [by_size[min(math.floor(c * len(by_size)), len(by_size) - 1)] for c in capacities]


def _parameter_count(name: str, input_shape: Shape, classes: int, settings: ModelSettings, blocks: Blocks) -> int:
    # Weights that are only counted must not advance the generator of the real ones.
    with torch.random.fork_rng(devices=[]):
        net = build(name, input_shape, classes, settings, blocks=blocks)
    return sum(parameter.numel() for parameter in net.parameters())


def _architecture(name: str) -> _Architecture:
    if name not in _ZOO:
        text = unknown("model in model.zoo", name, [*_ZOO, *estimators.names()])
        raise ModelError(f"{text}, or your own 'module:callable'")
    return _ZOO[name]


def _check_fit(name: str, input_shape: Shape, settings: ModelSettings, blocks: Blocks) -> _Architecture:
    """The architecture `name`; ModelError if it does not take inputs of this shape."""
    architecture = _architecture(name)
    if not _fits(architecture, input_shape, settings, blocks):
        others = [f"'{other}'" for other in _ZOO if _fits(_ZOO[other], input_shape, settings, blocks)]
        without = " without any: declare them, or" if architecture.reads == CATEGORIES else ";"
        raise ModelError(
            f"model.zoo: '{name}' takes {architecture.reads}, but the data has inputs of shape "
            f"{input_shape}{without} use {', '.join(others)}, or a module of yours"
        )
    return architecture


def _fits(architecture: _Architecture, input_shape: Shape, settings: ModelSettings, blocks: Blocks) -> bool:
    if architecture.reads == CATEGORIES:
        return bool(blocks)
    if architecture.reads == SERIES:
        return len(input_shape) == (1 if settings.vocabulary else 2)
    return architecture.reads == ANYTHING or len(input_shape) == 3


def _zoo_backbone(name: str, input_shape: Shape, settings: ModelSettings, blocks: Blocks) -> Backbone:
    return _check_fit(name, input_shape, settings, blocks).make(input_shape, settings, blocks)


def _assemble(backbone: Backbone, classes: int, settings: ModelSettings) -> Net:
    layers, d_z = backbone.layers, settings.d_z or backbone.width
    if d_z != backbone.width:
        layers = nn.Sequential(layers, nn.Linear(backbone.width, d_z))
    return Net(layers, d_z, classes, dropout=settings.dropout, relu=settings.relu)
