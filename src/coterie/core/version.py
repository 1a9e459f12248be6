"""The version of the installed package."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache  # reading the metadata takes milliseconds
def version() -> str:
    """The version, or an empty string if the package is not installed."""
    try:
        return metadata.version("coterie")
    except metadata.PackageNotFoundError:
        return ""
