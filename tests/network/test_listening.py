"""News over real sockets: who is done training hears of what others publish, however late they are."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path

from coterie.config import loading
from coterie.network.engine import NetworkEngine
from coterie.running.local_circle import LocalCircle
from coterie.running.real_peer import read_file, take_part

SMALL = (
    "method.name=fedpae", "method.models=1", "method.patience=2", "method.k=2", "method.population=8",
    "method.generations=3", "peers=4", "rounds=4", "baseline=", "data.clusters=2", "data.train=12", "data.validation=5",
    "data.test=5", "model.hidden=[4]", "train.epochs=1", "train.batch=6", "engine.threads=1",
    "network.interval=0.2", "network.linger=30", "network.gather=1.5", "network.patience=60",
)  # fmt: skip


def run(out: Path, late: float = 0.0, never: bool = False, words: tuple[str, ...] = ()) -> dict[str, NetworkEngine]:
    """A circle of four in which the last comes late, or not at all."""
    circle = LocalCircle(loading.load("panm-digits", [*SMALL, *words]), out)
    circle.prepare(overwrite=True)
    engines: dict[str, NetworkEngine] = {}

    async def life(name: str, file: Path, wait: float) -> None:
        await asyncio.sleep(wait)
        await take_part(read_file(file), say=lambda _: None, on_start=partial(engines.__setitem__, name))

    async def all_of_them() -> None:
        members = circle.members[: 3 if never else 4]
        waits = [0.0, 0.0, 0.0, late][: len(members)]
        await asyncio.gather(*(life(m.name, m.file, w) for m, w in zip(members, waits, strict=True)))

    asyncio.run(all_of_them())
    return engines


def test_a_late_peers_model_is_picked_up_when_it_arrives(tmp_path: Path) -> None:
    """It comes seconds after the others have done all their training."""
    engines = run(tmp_path / "run", late=4.0 + 2.0 * (os.getloadavg()[0] > 4))
    by_number = {engine.me.id: engine.me for engine in engines.values()}
    for number, me in by_number.items():
        assert {f"{j}/model-0" for j in range(4) if j != number} == set(me.state["bench"])


def test_nobody_waits_for_ever_for_who_never_comes(tmp_path: Path) -> None:
    engines = run(tmp_path / "run", never=True, words=("network.patience=3",))
    assert len(engines) == 3
    for engine in engines.values():
        assert len(engine.me.state["bench"]) == 2
        assert engine.round == 5


NOISY = '''
from dataclasses import dataclass
import torch
from coterie.methods.fedpae import FedPAE


@dataclass(frozen=True)
class Noisy(FedPAE):
    """Peer 3 always has something new to announce, and never a model."""

    async def round(self, me):
        while me.id == 3:
            me.shelve("noise", {"w": torch.zeros(1)})
            await me.train()
        await super().round(me)
'''


def test_who_only_makes_noise_keeps_nobody_for_ever(tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    words = [*SMALL, f"method.name={tmp_path / 'noisy.py'}:Noisy", "network.linger=3", "network.gather=60"]
    circle = LocalCircle(loading.load("panm-digits", words), tmp_path / "run")
    circle.prepare(overwrite=True)
    engines: dict[str, NetworkEngine] = {}

    async def honest_ones() -> None:
        tasks = [
            asyncio.ensure_future(
                take_part(read_file(m.file), say=lambda _: None, on_start=partial(engines.__setitem__, m.name))
            )
            for m in circle.members
        ]
        noisy = tasks.pop(3)
        async with asyncio.timeout(100):
            await asyncio.gather(*tasks)
        noisy.cancel()
        await asyncio.gather(noisy, return_exceptions=True)

    asyncio.run(honest_ones())
    honest = [engine for engine in engines.values() if engine.me.id != 3]
    assert all(engine.round == 5 and len(engine.me.state["bench"]) == 2 for engine in honest)
