"""The models peers may run: a zoo of small-image architectures, an MLP, and any ``nn.Module`` you bring."""

from coterie.models.brought import is_import_path
from coterie.models.net import Net, Output, batchable, draws, vmappable
from coterie.models.zoo import ModelSettings, assign, build, describe, names

__all__ = [
    "ModelSettings",
    "Net",
    "Output",
    "assign",
    "batchable",
    "build",
    "describe",
    "draws",
    "is_import_path",
    "names",
    "vmappable",
]
