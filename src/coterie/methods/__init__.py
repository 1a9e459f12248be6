"""The registry of methods by name. A user's own method is named by its path: `module:Class` or `file.py:Class`.

Each module holds one method, or a few that share most of their code; `components` holds the parts that they reuse.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from coterie.core.errors import ConfigError, MethodError, unknown
from coterie.core.named_code import load_module, why_not_imported
from coterie.methods.base import Method
from coterie.methods.class_means import FedDistill, FedGH, FedProto
from coterie.methods.compfl import CompFL
from coterie.methods.dfedavgm import DFedAvgM
from coterie.methods.ditto import Ditto
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedpae import FedPAE
from coterie.methods.fedprox import FedProx
from coterie.methods.fedrod import FedRoD
from coterie.methods.figures import Front, Lines, Plane, Routes
from coterie.methods.fine_tuning import FedAvgFT
from coterie.methods.flt import FLT
from coterie.methods.gossip import Fixed, Gossip, Oracle
from coterie.methods.head_sharing import FedClassAvg, FedSim, LGFedAvg
from coterie.methods.ifca import IFCA
from coterie.methods.local import Local
from coterie.methods.local_ensemble import LocalEnsemble
from coterie.methods.mapl import MAPL, MAPLPlus
from coterie.methods.mentees import FML, FedKD
from coterie.methods.notes import Note, Predictor
from coterie.methods.panm import PANM
from coterie.methods.pens import PENS
from coterie.methods.pfedsim import PFedSim
from coterie.methods.private_heads import FedBABU, FedPer, FedRep
from coterie.models.parts import Part

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
    """The method class of this name or path."""
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        raise ConfigError(f"method.name: {unknown('method', name, METHODS)}, or module:Class of your own")
    place, _, attribute = name.rpartition(":")
    try:
        method = getattr(load_module(place), attribute)
    except SyntaxError as error:
        remedy = ": write `async def` there" if "outside async function" in str(error.msg) else ""
        raise MethodError(f"{error.filename}, line {error.lineno}: {error.msg}{remedy}") from error
    except Exception as error:  # the module may raise anything when it is imported
        raise ConfigError(f"method.name = '{name}' cannot be imported: {why_not_imported(error)}") from error
    if not (isinstance(method, type) and issubclass(method, Method)):
        raise ConfigError(f"method.name = '{name}' is not a subclass of coterie.Method")
    _check_coroutines(method)
    _check_declared(method)
    return method


def _check_declared(kind: type[Method]) -> None:
    """Raise MethodError unless these attributes hold what they should: reports and models read them later."""
    allowed: dict[str, tuple[type, ...]] = {
        "parts": (str, Part), "figures": (Lines, Plane, Front, Routes), "notes": (Note, Predictor),
    }  # fmt: skip
    for attribute, types in allowed.items():
        value = getattr(kind, attribute)
        if not isinstance(value, tuple | list) or not all(isinstance(item, types) for item in value):
            words = " or ".join(t.__name__ for t in types)
            raise MethodError(f"{kind.__name__}.{attribute} must be a tuple of {words}, not {value!r}")


def _check_coroutines(kind: type[Method]) -> None:
    """Raise MethodError unless an engine can drive the method's functions: each is `async def`, and takes the peer."""
    if kind.round is Method.round:
        raise MethodError(f"{kind.__name__} has no `round`: write `async def round(self, me)`")
    for name in ("setup", "round", "serve"):
        function = inspect.unwrap(getattr(kind, name))
        what = f"{_place(function)}{kind.__name__}.{name}"
        if inspect.iscoroutinefunction(function):
            _check_arguments(function, what, name)
        elif inspect.isasyncgenfunction(function):
            raise MethodError(f"{what} contains a `yield`: a method awaits the verbs of `me`, and yields nothing")
        else:
            raise MethodError(f"{what} is not a coroutine: write `async def {name}` instead of `def {name}`")


def _check_arguments(function: Callable[..., object], what: str, name: str) -> None:
    """Raise MethodError unless the function can be called with the peer alone, as engines do."""
    signature = inspect.signature(function)
    try:
        signature.bind("self", "me")
    except TypeError:
        taken = ", ".join(signature.parameters)
        raise MethodError(
            f"{what} takes ({taken}): write `async def {name}(self, me)`; the number of the round is `me.round`"
        ) from None


def _place(function: object) -> str:
    """The file and line of a function, as the start of an error message."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}: " if code else ""


__all__ = ["METHODS", "Method", "find"]
