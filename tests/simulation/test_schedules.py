"""Random schedules: whatever the speeds, latencies, absences and dropouts, a run ends, repeats and resumes."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from simulation_support import Played, play

from coterie.core import checkpoint
from coterie.core.peer import Peer
from coterie.core.weights import mean
from coterie.methods import Method
from coterie.methods.gossip import Gossip

PEERS, ROUNDS = 4, 6
times = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 7.0])


@st.composite
def windows(draw: st.DrawFn) -> tuple[float, float, float]:
    start = draw(st.sampled_from([0.0, 0.7, 1.5, 4.0, 6.0]))
    length = draw(st.sampled_from([0.5, 1.0, 2.5, 8.0, math.inf]))
    return float(draw(st.integers(0, PEERS - 1))), start, start + length


schedules = st.fixed_dictionaries(
    {
        "seconds": st.lists(times, min_size=PEERS, max_size=PEERS).map(tuple),
        "latency": st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=PEERS).map(tuple),
        "offline": st.lists(windows(), max_size=3).map(tuple),
        "dropout": st.sampled_from([0.0, 0.2, 0.4]),
        "deadline": st.sampled_from([0.0, 0.0, 1.0]),
        "asynchronous": st.booleans(),
    }
)


def in_order(played: Played) -> list[Any]:
    return sorted(played.records, key=lambda r: (r.peer, r.round))


@dataclass(frozen=True)
class Listening(Method):
    """Every other peer listens for news instead of training in a round, and all in the last until there are none."""

    asynchronous = True

    async def round(self, me: Peer) -> None:
        heard = []
        if (me.id + me.round) % 2:
            heard.append(await me.news())
        else:
            await me.train()
            me.shelve("model", me.model)
        found = await me.fetch(me.peers, "model")
        if found:
            me.model.load(mean([me.model, *found.values()]))
        while me.round == me.rounds and await me.news():
            heard.append(sorted((j, a.round) for j, a in (await me.fetch(me.peers, "model")).items()))
        me.note(heard=heard)


METHODS = [Gossip(k=2), Listening()]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
@settings(max_examples=15, phases=[Phase.explicit, Phase.generate])  # shrinking runs would take minutes
@given(schedule=schedules, data=st.data())
def test_any_schedule(method: Method, schedule: dict[str, Any], data: st.DataObject) -> None:
    how = {"peers": PEERS, "rounds": ROUNDS, **schedule}
    whole = play(method, **how)
    assert in_order(play(method, **how)) == in_order(whole)
    at = data.draw(st.integers(1, ROUNDS - 1), label="killed at the checkpoint of round")
    trees: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        save = checkpoint.save
        checkpoint.save = lambda place, round, tree: trees.update({round: tree})  # type: ignore[assignment]  # noqa: ARG005
        try:
            assert in_order(play(method, folder=Path(folder), checkpoint_every=1, **how)) == in_order(whole)
        finally:
            checkpoint.save = save
        if at not in trees:  # all peers had left before
            return
        save(Path(folder), at, trees[at])
        resumed = play(method, folder=Path(folder), saved=checkpoint.load(Path(folder)), **how)
    assert in_order(resumed) == [r for r in in_order(whole) if r.round > at]
    for a, b in zip(whole.peers, resumed.peers, strict=True):
        assert torch.equal(a.model.vector, b.model.vector)
