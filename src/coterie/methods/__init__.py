"""The methods, by name. A method of your own is named by path: `module:Class` or `file.py:Class`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from coterie.errors import ConfigError, unknown
from coterie.methods.base import Method
from coterie.methods.class_means import FedDistill, FedGH, FedProto
from coterie.methods.compfl import CompFL
from coterie.methods.dfedavgm import DFedAvgM
from coterie.methods.ditto import Ditto
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedpae import FedPAE
from coterie.methods.fedprox import FedProx
from coterie.methods.fedrod import FedRoD
from coterie.methods.fine_tuning import FedAvgFT
from coterie.methods.flt import FLT
from coterie.methods.gossip import Fixed, Gossip, Oracle
from coterie.methods.head_sharing import FedClassAvg, FedSim, LGFedAvg
from coterie.methods.ifca import IFCA
from coterie.methods.local import Local
from coterie.methods.mapl import MAPL, MAPLPlus
from coterie.methods.mentees import FML, FedKD
from coterie.methods.own_models import LocalEnsemble
from coterie.methods.panm import PANM
from coterie.methods.pens import PENS
from coterie.methods.pfedsim import PFedSim
from coterie.methods.private_heads import FedBABU, FedPer, FedRep

METHODS: dict[str, type[Method]] = {
    "local": Local,
    "fedavg": FedAvg,
    "gossip": Gossip,
    "fixed": Fixed,
    "oracle": Oracle,
    "pens": PENS,
    "ifca": IFCA,
    "fedsim": FedSim,
    "fedclassavg": FedClassAvg,
    "fedproto": FedProto,
    "fedprox": FedProx,
    "fedavg-ft": FedAvgFT,
    "fedper": FedPer,
    "fedrep": FedRep,
    "fedbabu": FedBABU,
    "ditto": Ditto,
    "fedrod": FedRoD,
    "lg-fedavg": LGFedAvg,
    "feddistill": FedDistill,
    "fedgh": FedGH,
    "fml": FML,
    "fedkd": FedKD,
    "pfedsim": PFedSim,
    "flt": FLT,
    "dfedavgm": DFedAvgM,
    "panm": PANM,
    "mapl": MAPL,
    "mapl+": MAPLPlus,
    "local-ensemble": LocalEnsemble,
    "fedpae": FedPAE,
    "compfl": CompFL,
}


def find(name: str) -> type[Method]:
    """The method class of this name, or of this path."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise ConfigError(f"method.name: {unknown('method', name, METHODS)}, or module:Class of your own")
    place, _, attribute = name.rpartition(":")
    try:
        found = getattr(_module(place), attribute)
    except (ImportError, OSError, AttributeError) as error:
        raise ConfigError(f"method.name = '{name}' cannot be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise ConfigError(f"method.name = '{name}' is not a subclass of coterie.Method")
    return found


def _module(place: str) -> object:
    if not place.endswith(".py"):
        return importlib.import_module(place)
    spec = importlib.util.spec_from_file_location(f"coterie_method_{Path(place).stem}", place)
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up there
    spec.loader.exec_module(module)
    return module


__all__ = ["METHODS", "Method", "find"]
