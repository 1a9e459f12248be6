"""Versioned values by section and key, from which a page gets only what changed since its version.

A stream only remembers the version of its page. So a slow page costs no memory: when it reads again, it gets the newest
values and skips those in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

Sections = Mapping[str, Mapping[str, object]]  # values are whatever the page shows, as JSON


class Changes(TypedDict):
    """What a page gets."""

    version: int
    anew: bool  # whether it drops the values it has
    set: dict[str, dict[str, object]]


class Versions:
    def __init__(self) -> None:
        self.version = 0
        self.since_reset = 1  # the first version after the last reset
        self._values: dict[tuple[str, str], tuple[int, object]] = {}

    def put(self, sections: Sections) -> bool:
        """Store these values. Returns whether any changed."""
        version, changed = self.version + 1, False
        for section, values in sections.items():
            for key, value in values.items():
                old = self._values.get((section, key))
                if old is None or old[1] != value:
                    self._values[section, key] = version, value
                    changed = True
        self.version += changed
        return changed

    def keys(self, section: str) -> set[str]:
        """The keys of a section (a value of None marks a removed key)."""
        return {key for (where, key), (_, value) in self._values.items() if where == section and value is not None}

    def reset(self) -> None:
        """The run restarted: pages drop their values."""
        self._values.clear()
        self.version += 1
        self.since_reset = self.version

    def after(self, version: int) -> Changes:
        """The changes after this version; all values, marked `anew`, for a new page or after a reset."""
        anew = version < self.since_reset
        changed: dict[str, dict[str, object]] = {}
        for (section, key), (when, value) in self._values.items():
            if anew or when > version:
                changed.setdefault(section, {})[key] = value
        return {"version": self.version, "anew": anew, "set": changed}
