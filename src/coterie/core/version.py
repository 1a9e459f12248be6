"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """Empty where the package is used without being installed."""
    try:
        return metadata.version("coterie")
    except metadata.PackageNotFoundError:
        return ""
