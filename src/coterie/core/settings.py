"""Declares settings: the fields of a section's dataclass, each with its default, its help text and its properties."""

from __future__ import annotations

import dataclasses
from typing import Any

UNSET: Any = object()


def setting(default: Any, help: str, *, effect: bool = True, fingerprint: Any = UNSET) -> Any:
    """Declare a setting: a field of the dataclass of its section.

    Args:
        default: its default value, or a function that makes it, for values that can be changed in place.
        help: what the reference and `coterie list` say of it.
        effect: whether it affects the results of a run; without effect are, say, the number of workers or what else is
            written. Runs that differ only in settings without effect count as the same run.
        fingerprint: for a setting without effect, the value that stands for all others in the fingerprint of a run; by
            default the default. It must never change: records of earlier runs are found by their fingerprints.

    Returns:
        A dataclass field.
    """
    metadata: dict[str, Any] = {"help": help}
    if not effect:
        metadata["fingerprint"] = default if fingerprint is UNSET else fingerprint
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def without_effect(kind: type[Any]) -> dict[str, Any]:
    """The settings of a section that do not affect results, each with its value in fingerprints."""
    fields = dataclasses.fields(kind)
    return {f.name: f.metadata["fingerprint"] for f in fields if "fingerprint" in f.metadata}
