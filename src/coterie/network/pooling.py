"""The common scaling of real peers (data.scale = "pooled"): each releases sums over its rows, and merges those of all.

It happens before the setup of the method. The sums are an artifact as any other: they pass the release chain, and the
audit log lists them. Every peer merges what was released, its own sums included, so all get the same scaling.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypedDict

import torch
from torch import Tensor

from coterie.core.artifact import Artifact
from coterie.core.errors import CoterieError
from coterie.core.peer import hold
from coterie.core.release import AVERAGE, FEATURE_SUMS
from coterie.data.feature_sums import FeatureSums, scaling_of_all
from coterie.data.pool import Unscaled
from coterie.data.scaling import POOLED, Scaling
from coterie.engines.driving import Part
from coterie.network.attendance import Attendance

SUMS, SCALE = ARTIFACTS = FEATURE_SUMS, "feature scale"
PAUSE = 0.25  # seconds between two attempts to fetch what is missing
NEEDS = f"data.scale = '{POOLED}' needs the feature sums of all peers"
OTHERWISE = "or use data.scale = 'standard' at all peers"


class SavedScaling(TypedDict):
    mean: list[float]
    deviation: list[float]


class Pooling:
    """Scales the samples of one peer as all peers do."""

    def __init__(self, attendance: Attendance, drive: Callable[[Part], Awaitable[None]]) -> None:
        """`drive` runs a coroutine that awaits verbs of `me`."""
        self.attendance, self.run, self.node = attendance, attendance.run, attendance.node
        self.me, self._drive = attendance.run.me, drive
        self.scaling: Scaling | None = None  # the common one, once it is known

    async def pool(self, unscaled: Unscaled) -> None:
        """Exchange sums with all peers and scale by the result; a newcomer gets the scaling of a running circle."""
        me, own = self.me, unscaled.sums().tensors()
        me.shelve(SUMS, own, made_from=FEATURE_SUMS)  # also of a newcomer: it may be one that others still wait for
        scaling = await (self._adopted(own["mean"]) if self.attendance.newcomer else self._merged(own))
        me.shelve(SCALE, _tensors(scaling), made_from=AVERAGE)
        self._use(scaling, unscaled)

    def _use(self, scaling: Scaling, unscaled: Unscaled) -> None:
        self.scaling = scaling
        hold(self.me, unscaled.scaled_by(scaling))

    def saved(self) -> SavedScaling | None:
        """The common scaling, for a checkpoint."""
        known = self.scaling
        return None if known is None else {"mean": list(known.mean), "deviation": list(known.deviation)}

    def restore(self, saved: SavedScaling | None) -> None:
        """Scale by what a checkpoint has, without asking anybody."""
        if saved is not None and self.run.unscaled is not None:
            self._use(Scaling(tuple(saved["mean"]), tuple(saved["deviation"])), self.run.unscaled)

    # -- the peers that begin together ---------------------------------------------------------

    async def _merged(self, like: Mapping[str, Tensor]) -> Scaling:
        found: dict[int, FeatureSums] = {}
        until = time.monotonic() + self.run.settings.patience
        while missing := [j for j in self._circle() if j not in found]:
            received = await self._fetched(missing, SUMS, like)
            sums = {j: FeatureSums.of_tensors(artifact) for j, artifact in received.items()}
            self._decline({j: fault for j, one in sums.items() if (fault := one.fault())})
            found |= sums
            if len(sums) < len(missing):
                if time.monotonic() > until:
                    self._give_up(j for j in missing if j not in found)
                await asyncio.sleep(PAUSE)
        return scaling_of_all([found[j] for j in sorted(found)])

    def _circle(self) -> list[int]:
        """This peer and all others, also silent ones, which may be restarting; without the server."""
        numbers = {e.credential.number for e in self.node.book.companions()} - {self.me.server}
        expected = self.run.expected - bool(self.run.server)
        if len(numbers) + 1 != expected:
            here = ", ".join(f"'{name}'" for name in sorted([self.node.identity.name, *map(self._name, numbers)]))
            raise CoterieError(
                f"{NEEDS}, but of {expected} (`peers`) there are {len(numbers) + 1}: {here}. Start the missing ones or "
                f"correct `peers`, then restart this peer; {OTHERWISE}"
            )
        return sorted([self.me.id, *numbers])

    # -- a peer that joins later ---------------------------------------------------------------

    async def _adopted(self, like: Tensor) -> Scaling:
        """The scaling of the peers that are there, which must agree."""
        until = time.monotonic() + self.run.settings.patience
        while True:
            received = await self._fetched(self.attendance.peers(), SCALE, {"mean": like, "deviation": like})
            self._decline({j: "a deviation is not above 0" for j, a in received.items() if (a["deviation"] <= 0).any()})
            scalings = {j: _scaling(artifact) for j, artifact in sorted(received.items())}
            if len(set(scalings.values())) > 1:
                raise CoterieError(
                    f"the peers {', '.join(self._names(scalings))} scale differently: compare their data.scale and "
                    "start them anew (--fresh)"
                )
            if scalings:
                return next(iter(scalings.values()))
            if time.monotonic() > until:
                self._give_up(self.attendance.peers())
            await asyncio.sleep(PAUSE)

    # -- both ----------------------------------------------------------------------------------

    async def _fetched(self, peers: Sequence[int], name: str, like: Mapping[str, Tensor]) -> dict[int, Artifact]:
        """What these peers have shelved; an error if something arrived that is not like this."""
        received: dict[int, Artifact] = {}
        before = Counter(self.node.penalties.offences)

        async def fetch() -> None:
            received.update(await self.me.fetch(peers, name, like=like))

        await self._drive(fetch())
        self._decline({int(j): reason for j, reason in self.me.notes.get("declined", {}).items()})
        for j in (j for j in peers if j not in received):  # the node drops what is not even an artifact
            if self.node.penalties.offences[self._name(j)] > before[self._name(j)]:
                self._refuse(j, self.node.penalties.latest[self._name(j)])
        return received

    def _decline(self, wrong: Mapping[int, str]) -> None:
        for j, reason in sorted(wrong.items()):
            self.node.penalties.record(self._name(j), reason)
            self._refuse(j, reason)

    def _refuse(self, peer: int, reason: str) -> NoReturn:
        """The run must not start with sums that cannot be right: every peer would scale by them."""
        raise CoterieError(
            f"{NEEDS}, but those of '{self._name(peer)}' are unusable ({reason}): correct that peer, {OTHERWISE}"
        )

    def _give_up(self, missing: Iterable[int]) -> NoReturn:
        names = ", ".join(self._names(missing)) or "any peer"
        raise CoterieError(
            f"{NEEDS}, but those of {names} did not come within {self.run.settings.patience:g} seconds "
            f"(network.patience): start what is missing, then restart this peer; {OTHERWISE}"
        )

    def _names(self, peers: Iterable[int]) -> list[str]:
        return [f"'{self._name(j)}'" for j in sorted(peers)]

    def _name(self, number: int) -> str:
        if number == self.me.id:
            return self.node.identity.name
        return self.node.book.by_number.get(number, str(number))


def _tensors(scaling: Scaling) -> dict[str, Tensor]:
    return {key: torch.tensor(getattr(scaling, key), dtype=torch.float64) for key in ("mean", "deviation")}


def _scaling(tensors: Mapping[str, Tensor]) -> Scaling:
    return Scaling(*(tuple(tensors[key].tolist()) for key in ("mean", "deviation")))
