"""Counts offences of peers, and ignores a peer for increasing times after several of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from coterie.core.formatting import plain

OFFENCES_UNTIL_IGNORED = 3
FIRST_PAUSE = 30.0  # seconds
LONGEST_PAUSE = 3600.0


class Penalties:
    def __init__(self, now: Callable[[], float], on_offence: Callable[[str, str], None]) -> None:
        self.now, self.on_offence = now, on_offence
        self.offences: Counter[str] = Counter()
        self.latest: dict[str, str] = {}  # by peer: its last offence
        self._ignored_until: dict[str, float] = {}
        self._pause: dict[str, float] = {}

    def record(self, name: str, what: str) -> None:
        """Count and report an offence; every third one makes the peer ignored for a while.

        `what` often quotes received data, so it is shortened and escaped first.
        """
        self.offences[name] += 1
        self.latest[name] = plain(what)
        self.on_offence(name, self.latest[name])
        if self.offences[name] % OFFENCES_UNTIL_IGNORED == 0:
            pause = self._pause.get(name, FIRST_PAUSE)
            self._ignored_until[name] = self.now() + pause
            self._pause[name] = min(2 * pause, LONGEST_PAUSE)

    def ignores(self, name: str) -> bool:
        return name in self._ignored_until and self._ignored_until[name] > self.now()
