"""Local: each peer trains alone. The baseline that collaboration must beat."""

from dataclasses import dataclass
from typing import ClassVar

from coterie.core.peer import Peer
from coterie.core.task import TASKS
from coterie.methods.base import Method


@dataclass(frozen=True)
class Local(Method):
    summary: ClassVar[str] = "train alone; nothing is exchanged"
    mixed: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = TASKS

    async def round(self, me: Peer) -> None:
        await me.train()
