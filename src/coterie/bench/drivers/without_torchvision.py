"""A stub of torchvision, for frameworks that import it without using it in the benchmark.

A build of torchvision works with exactly one build of torch; with another, importing it fails. Only then does this stub
replace it: every name exists, as a class that does nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

NAMES = ("", ".datasets", ".datasets.utils", ".models", ".transforms", ".ops", ".io", ".utils")


class Empty(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stand_in() -> None:
    """Make `import torchvision` succeed."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for end in NAMES:
            module = sys.modules[f"torchvision{end}"] = Empty(f"torchvision{end}")
            module.__path__ = []  # marks it as a package
