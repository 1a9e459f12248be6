"""An empty torchvision, for frameworks that import one which is not used in what is measured.

Builds of torchvision fit one build of torch alone: beside another, importing it fails. Then, and only then, this
stands in for it: every name is there, as a class that does nothing.
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
            module.__path__ = []  # a package: it has modules of its own
