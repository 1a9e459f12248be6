"""A peer's data: all of them, as the engine holds them, and the part that its method sees, without test samples."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

import torch
from torch import Tensor

from coterie.core.errors import MethodError
from coterie.core.jobs import Pool, Split
from coterie.core.requests import called

if TYPE_CHECKING:
    from coterie.data.preparation import Preparation
    from coterie.data.scaling import Scaling

FOR_METHODS: Final = ("train", "validation")  # the splits that a method may use: never "test"


@dataclass(frozen=True, eq=False)
class PeerData:
    """All of a peer's data, as the engine holds them: `held_by`. A method gets `MethodData` instead."""

    train: Split
    validation: Split
    test: Split
    scaling: Scaling | None = field(default=None, kw_only=True)  # how raw samples were scaled; None: they are raw
    preparation: Preparation | None = field(default=None, kw_only=True)  # of tables with a schema, before scaling
    label_scaling: Scaling | None = field(default=None, kw_only=True)  # of numbers to predict; None: classes
    # Predictions of ensembles' members, by name and split: they are test predictions too, so not for methods.
    predicted: dict[tuple[str, str], Tensor] = field(default_factory=dict, kw_only=True, repr=False)


class MethodData:
    """A peer's data as its method sees them (`me.data`): training and validation samples, never test samples."""

    def __init__(self, held: PeerData, peer: int) -> None:
        self._held, self._peer = held, peer

    @property
    def train(self) -> Split:
        return _on_its_own(self._held.train)

    @property
    def validation(self) -> Split:
        return _on_its_own(self._held.validation)

    @property
    def test(self) -> NoReturn:
        raise no_test_rows(self._peer, "me.data.test", sys._getframe(1))

    @property
    def scaling(self) -> Scaling | None:
        """How raw samples were scaled; None: they are raw."""
        return self._held.scaling


def _on_its_own(split: Split) -> Split:
    """The same samples in a pool of their own: the shared pool also has test rows, and other peers' rows."""
    pool = Pool(split.x, split.y, split.pool.augment)
    return Split(pool, torch.arange(len(split), device=split.rows.device))


def no_test_rows(peer: int, asked: str, caller: FrameType) -> MethodError:
    return MethodError(
        f"{called('', caller).place}: peer {peer} asks for the test split ({asked}), but a method never sees test "
        'rows: the engine alone measures on them. Use "validation"'
    )
