"""The models peers may run: a zoo of small-image architectures, an MLP, and any ``nn.Module`` you bring."""

from coterie.core.net import Net, Output
from coterie.models.zoo import ModelSettings, assign, build, describe, names

__all__ = [
    "ModelSettings",
    "Net",
    "Output",
    "assign",
    "build",
    "describe",
    "names",
]
