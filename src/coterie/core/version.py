"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """The version, or an empty string if the package is not installed."""
    try:
        return metadata.version("coterie")
    except metadata.PackageNotFoundError:
        return ""
