"""The models that peers run: a zoo of architectures for small images, an MLP, and any ``nn.Module`` of yours."""

from coterie.core.net import Net, Output
from coterie.models.parts import Part, Site
from coterie.models.zoo import ModelSettings, assign, build, describe, names

__all__ = [
    "ModelSettings",
    "Net",
    "Output",
    "Part",
    "Site",
    "assign",
    "build",
    "describe",
    "names",
]
