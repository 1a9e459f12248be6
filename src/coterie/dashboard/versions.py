"""Values by section and key, each with the version in which it last changed: what a page must be told, and no more.

A stream only remembers which version its page has. So a page that reads slowly costs no memory: it is told of the
newest values when it reads again, and never of those between.
"""

from __future__ import annotations

from typing import Any

Sections = dict[str, dict[str, Any]]


class Versions:
    def __init__(self) -> None:
        self.version = 0
        self.since_reset = 1  # the first version after everything was thrown away
        self._values: dict[tuple[str, str], tuple[int, Any]] = {}

    def put(self, sections: Sections) -> bool:
        """Take these values; whether any of them is new."""
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
        """What a section holds (a value of None says that it holds it no more)."""
        return {key for (where, key), (_, value) in self._values.items() if where == section and value is not None}

    def reset(self) -> None:
        """The run began anew: pages drop what they have."""
        self._values.clear()
        self.version += 1
        self.since_reset = self.version

    def after(self, version: int) -> dict[str, Any]:
        """What changed after this version; everything, and that it is everything, for who is new or was reset."""
        anew = version < self.since_reset
        changed: Sections = {}
        for (section, key), (when, value) in self._values.items():
            if anew or when > version:
                changed.setdefault(section, {})[key] = value
        return {"version": self.version, "anew": anew, "set": changed}
