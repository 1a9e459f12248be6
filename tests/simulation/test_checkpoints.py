"""Checkpoints: a killed run resumes as if it had not been interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from simulation_support import WORD, Played, Swap, now, play, tiny

from coterie.config.sections import Experiment
from coterie.core import checkpoint
from coterie.core.errors import Interrupted, RunError
from coterie.core.peer import Peer
from coterie.core.weights import Weights
from coterie.methods import Method
from coterie.running import simulated
from coterie.simulation.director import Simulation

WALK = '''
"""A model that walks: sent on to a random peer, averaged with what has come."""
import os, time
from dataclasses import dataclass
from coterie.methods import Method
from coterie.core.weights import mean

@dataclass(frozen=True)
class Walk(Method):
    async def round(self, me):
        time.sleep(float(os.environ.get("WALK_SLEEP", "0")))
        await me.train()
        (to,) = me.sample(1)
        await me.send(to, "walker", me.model, steps=me.round)
        come = me.inbox("walker")
        me.state["met"] = [*me.state.get("met", []), *(a.author for a in come)]
        me.model.load(mean([me.model, *come]))
        me.shelve("model", me.model)
        others = await me.fetch(me.sample(1), "model")
        me.model.load(mean([me.model, *others.values()]))
        chosen = [me.id, *others]
        me.note(neighbours=sorted(set(me.state["met"]) - {me.id}), weights=dict.fromkeys(chosen, 1 / len(chosen)))
'''
# Messages take three times as long as a fast peer's round: there are always some in transit.
CLOCK = ("clock.speed=12", "clock.spread=3", "clock.latency=[0.5, 3.0]")


def walk(folder: Path, *words: str) -> Experiment:
    path = folder / "walk.py"
    path.write_text(WALK, encoding="utf-8")
    return tiny(f"{path}:Walk", *CLOCK, "engine.checkpoint=2", *words, peers=4, rounds=12)


def equal(one: Path, other: Path) -> None:
    """Two run folders hold the same results."""
    first, second = (json.loads((out / "summary.json").read_text(encoding="utf-8")) for out in (one, other))
    for summary in (first, second):
        del summary["seconds"]
    assert first == second
    with np.load(one / "graph.npz") as a, np.load(other / "graph.npz") as b:
        assert set(a) == set(b)
        for key in a:
            np.testing.assert_array_equal(a[key], b[key])


def checkpoints(out: Path) -> list[Path]:
    return sorted((out / "checkpoint").glob("round-*.safetensors"))


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_kill_9_and_resume(mode: str, tmp_path: Path) -> None:
    e = walk(tmp_path, f"engine.asynchronous={str(mode == 'async').lower()}")
    simulated.run(e, tmp_path / "whole")
    (tmp_path / "config.toml").write_text(e.toml(), encoding="utf-8")
    killed = tmp_path / "killed"
    program = (
        "import sys; from pathlib import Path; from coterie.config.loading import load;"
        "from coterie.running.simulated import run;"
        "run(load(sys.argv[1]), Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "config.toml"), str(killed)],
        env={**os.environ, "WALK_SLEEP": "0.01"},
    )
    try:
        while len(checkpoints(killed)) < 2:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.002)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "summary.json").exists()
    found = checkpoint.load(killed / "checkpoint")
    assert found is not None
    assert found[1]["in_flight"], "letters were on their way"
    simulated.resume(killed)
    equal(tmp_path / "whole", killed)


class KilledError(Exception):
    """Stands for the end of the process."""


def die_at(monkeypatch: pytest.MonkeyPatch, round: int) -> None:
    save = checkpoint.save

    def save_and_die(folder: Path, at: int, tree: dict[str, Any]) -> None:
        save(folder, at, tree)
        if at == round:
            raise KilledError

    monkeypatch.setattr(checkpoint, "save", save_and_die)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("harm", ["cut", "empty", "rubbish"])
def test_a_corrupt_newest_checkpoint_falls_back(
    harm: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    e = walk(tmp_path, f"engine.asynchronous={str(mode == 'async').lower()}")
    simulated.run(e, tmp_path / "whole")
    with monkeypatch.context() as patch:
        die_at(patch, 6)
        with pytest.raises(KilledError):
            simulated.run(e, tmp_path / "killed")
    older, newest = checkpoints(tmp_path / "killed")
    data = newest.read_bytes()
    newest.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "rubbish": b"\xff" * len(data)}[harm])
    found = checkpoint.load(tmp_path / "killed" / "checkpoint")
    assert found is not None
    assert found[0] == 4
    simulated.resume(tmp_path / "killed")
    equal(tmp_path / "whole", tmp_path / "killed")
    for path in (older, newest):
        path.write_bytes(b"")
    for path in checkpoints(tmp_path / "killed"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="no checkpoint can be read"):
        checkpoint.load(tmp_path / "killed" / "checkpoint")


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_killed_again_and_again(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    e = walk(tmp_path, f"engine.asynchronous={str(mode == 'async').lower()}")
    simulated.run(e, tmp_path / "whole")
    for at in (2, 4, 8):
        with monkeypatch.context() as patch:
            die_at(patch, at)
            with pytest.raises(KilledError):
                simulated.run(e, tmp_path / "killed") if at == 2 else simulated.resume(tmp_path / "killed")
    simulated.resume(tmp_path / "killed")
    equal(tmp_path / "whole", tmp_path / "killed")


def test_killed_before_the_first_checkpoint(tmp_path: Path) -> None:
    e = tiny("gossip", "method.k=1")
    simulated.run(e, tmp_path / "whole")

    def die(simulation: Simulation) -> None:  # noqa: ARG001
        raise KilledError

    with pytest.raises(KilledError):
        simulated.run(e, tmp_path / "killed", on_start=die)
    simulated.resume(tmp_path / "killed")
    equal(tmp_path / "whole", tmp_path / "killed")


def test_checkpoints_change_nothing(tmp_path: Path) -> None:
    simulated.run(walk(tmp_path, "engine.asynchronous=true"), tmp_path / "with")
    simulated.run(walk(tmp_path, "engine.asynchronous=true", "engine.checkpoint=0"), tmp_path / "without")
    equal(tmp_path / "with", tmp_path / "without")
    assert len(checkpoints(tmp_path / "with")) == 2
    assert not checkpoints(tmp_path / "without")


def test_a_stop_is_prompt_even_if_a_peer_has_finished(tmp_path: Path) -> None:
    """Asked to stop when the fast peer is done and the slow one in round 1: it must not go on to the end."""
    e = tiny("local", "engine.asynchronous=true", "clock.speed=[120, 120, 1]", rounds=6)
    held: list[Simulation] = []
    done_at_stop: list[int] = []

    def stop_when_done(progress: Any) -> None:  # noqa: ARG001
        done_at_stop.append(sum(p.done for p in held[0].participants))
        held[0].stop()

    with pytest.raises(Interrupted):
        simulated.run(e, tmp_path / "run", on_start=held.append, on_round=stop_when_done)
    simulated.resume(tmp_path / "run")
    simulated.run(e, tmp_path / "whole")
    one, other = (json.loads((tmp_path / n / "summary.json").read_text())["accuracy"] for n in ("run", "whole"))
    assert one == other


@pytest.mark.parametrize(
    ("optimizer", "lr"), [("adamw", 0.003), ("nadam", 0.003), ("rmsprop", 0.001), ("adagrad", 0.01)]
)
def test_kept_optimiser_state_survives(
    optimizer: str, lr: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the schedule, which depends on the round."""
    words = [f"train.optimizer={optimizer}", f"train.lr={lr}", "train.keep_optimizer=true", "train.schedule=cosine"]
    experiment = walk(tmp_path, *words, "train.warmup=2", "train.balance=weights")
    simulated.run(experiment, tmp_path / "whole")
    with monkeypatch.context() as patch:
        die_at(patch, 6)
        with pytest.raises(KilledError):
            simulated.run(experiment, tmp_path / "killed")
    simulated.resume(tmp_path / "killed")
    equal(tmp_path / "whole", tmp_path / "killed")
    files = sorted((tmp_path / "whole" / "models").glob("*.safetensors"))
    assert len(files) == 4
    for file in files:
        one, other = load_file(file), load_file(tmp_path / "killed" / "models" / file.name)
        assert all(torch.equal(one[name], other[name]) for name in one)


# -- what a checkpoint must not know: the future of those who were ahead -------------------------------


def cut_and_resumed(method: Method, folder: Path, at: int, **how: Any) -> tuple[Played, Played]:
    """The whole run, and the one that goes on from its checkpoint of a round."""
    trees: dict[int, dict[str, Any]] = {}
    save = checkpoint.save
    try:
        checkpoint.save = lambda place, round, tree: trees.update({round: tree}) or save(place, round, tree)  # type: ignore[func-returns-value]
        whole = play(method, folder=folder, checkpoint_every=1, **how)
    finally:
        checkpoint.save = save
    # Through the file form, as a new process would read it.
    save(folder / "one", at, trees[at])
    return whole, play(method, folder=folder / "again", saved=checkpoint.load(folder / "one"), **how)


def goes_on_alike(method: Method, folder: Path, at: int, **how: Any) -> None:
    whole, resumed = cut_and_resumed(method, folder, at, **how)
    assert sorted((r for r in whole.records if r.round > at), key=lambda r: (r.peer, r.round)) == sorted(
        resumed.records, key=lambda r: (r.peer, r.round)
    )
    for a, b in zip(whole.peers, resumed.peers, strict=True):
        assert torch.equal(a.model.vector, b.model.vector)
        assert a.state == b.state


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_peer_that_misses_a_later_round_is_not_yet_away(asynchronous: bool, at: int, tmp_path: Path) -> None:
    """Those ahead have sat rounds out that lie after the checkpoint."""
    how = {"rounds": 9, "peers": 4, "seconds": (1, 1.5, 6, 1.2), "dropout": 0.4}
    goes_on_alike(Swap(), tmp_path, at, asynchronous=asynchronous, **how)


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("leaves", [2.2, 3.5, 5.5, 9.0])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_peer_that_leaves_later_is_still_present(asynchronous: bool, leaves: float, at: int, tmp_path: Path) -> None:
    """Peer 0, fast, leaves for good after its own cut and before the slow peer comes to the checkpoint."""
    how = {"rounds": 6, "seconds": (1, 1.5, 5), "offline": ((0, leaves, float("inf")),), "deadline": 1.0}
    goes_on_alike(Swap(), tmp_path, at, asynchronous=asynchronous, **how)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_peer_that_returns_later_has_not_yet_caught_up(at: int, tmp_path: Path) -> None:
    """Peer 2 catches up at 9.5 past the checkpoint; peer 1, back at 3.5, must not follow it there."""
    how = {"rounds": 12, "seconds": (1, 1, 1), "offline": ((2, 0.5, 9.5), (1, 2.5, 3.5), (1, 5.5, 6.5))}
    goes_on_alike(Swap(), tmp_path, at, **how)


@pytest.mark.parametrize("at", [4, 6, 8])
def test_rounds_that_a_peer_skipped_stay_skipped(at: int, tmp_path: Path) -> None:
    """Peer 0 is away from 2.5 to 9.2 and jumps ahead; the slow peer 1 then asks for a round it skipped."""
    how = {"rounds": 12, "seconds": (1, 1.9, 1), "offline": ((0, 2.5, 9.2),)}
    goes_on_alike(Swap(), tmp_path, at, **how)


@dataclass(frozen=True)
class Chain(Method):
    """Peers 0 and 1 wait for no other; peer 2 fetches from peer 0, however far that is ahead."""

    async def round(self, me: Peer) -> None:
        await me.train()
        me.shelve("word", WORD)
        if me.id == 2:
            me.note(got=[a.round for a in (await me.fetch(0, "word")).values()])


def test_versions_kept_do_not_depend_on_checkpoints(tmp_path: Path) -> None:
    """A peer twenty rounds behind gets the same version with checkpoints and without."""
    how = {"rounds": 30, "seconds": (1, 1, 20)}
    without = play(Chain(), **how).notes(2, "got")
    assert play(Chain(), folder=tmp_path, checkpoint_every=7, **how).notes(2, "got") == without
    goes_on_alike(Chain(), tmp_path, 1, **how)


@dataclass(frozen=True)
class Letters(Method):
    """Every peer sends to every other in each round, and notes what has arrived, in order."""

    async def round(self, me: Peer) -> None:
        await me.train()
        for other in me.peers:
            await me.send(other, "word", WORD)
        me.note(come=[(a.author, a.round) for a in me.inbox("word")], at=now(me))


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("seconds", [(1, 2, 4), (4, 2, 1), (2, 1, 6)])
def test_messages_arrive_once_and_in_the_same_order(seconds: tuple[float, ...], at: int, tmp_path: Path) -> None:
    goes_on_alike(Letters(), tmp_path, at, rounds=8, seconds=seconds, latency=(2.0,), asynchronous=True)


def test_messages_from_far_ahead_arrive_once_over_two_resumes(tmp_path: Path) -> None:
    """Peer 0 is done when peer 2 ends round 1: its messages of rounds 5 to 8 are in the first checkpoint."""
    how: dict[str, Any] = {"rounds": 8, "seconds": (1, 1, 20), "asynchronous": True}
    whole, _ = cut_and_resumed(Letters(), tmp_path, 1, **how)
    play(Letters(), folder=tmp_path / "b", checkpoint_every=2, saved=checkpoint.load(tmp_path / "one"), **how)
    files = sorted((tmp_path / "b").glob("round-*"))
    later = checkpoint.load(tmp_path / "b")
    assert later is not None
    assert files
    again = play(Letters(), folder=tmp_path / "c", saved=later, **how)
    assert again.notes(2, "come") == whole.notes(2, "come")[later[0] :]


# -- the tree ------------------------------------------------------------------------------------------


def test_a_tree_survives_exactly(tmp_path: Path) -> None:
    weights = tiny_weights()
    tree = {
        "plain": [1, 2.5, "x", None, True, float("inf")],
        "tuple": (1, (2, [3])),
        "keys": {1: "a", "1": "b", (1, 2): "c"},
        "tensor": torch.arange(3, dtype=torch.int64),
        "half": torch.ones(2, dtype=torch.float16),
        "empty": torch.empty(0, 4),
        "weights": weights,
        "nested": [{"!": "not a marker", "deep": [weights]}],
    }
    checkpoint.save(tmp_path, 3, tree)
    found = checkpoint.load(tmp_path)
    assert found is not None
    round, back = found
    assert round == 3
    assert list(back) == list(tree)
    assert [back[k] for k in ("plain", "tuple", "keys")] == [tree[k] for k in ("plain", "tuple", "keys")]
    for key in ("tensor", "half", "empty"):
        assert torch.equal(back[key], tree[key])  # type: ignore[arg-type]
        assert back[key].dtype == tree[key].dtype  # type: ignore[union-attr]
    for found_weights in (back["weights"], back["nested"][0]["deep"][0]):
        assert found_weights.layout == weights.layout
        assert torch.equal(found_weights.vector, weights.vector)
    assert back["nested"][0]["!"] == "not a marker"


def tiny_weights() -> Weights:
    return Weights.of({"a": torch.randn(2, 3), "b": torch.randn(4)})


def test_what_cannot_be_kept_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"checkpoint\.participants\[0\]\.x holds a set"):
        checkpoint.save(tmp_path, 1, {"participants": [{"x": {1, 2}}]})


def test_only_the_last_two_are_kept(tmp_path: Path) -> None:
    for round in (1, 2, 3, 10):
        checkpoint.save(tmp_path, round, {"round": round})
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["round-000003.safetensors", "round-000010.safetensors"]
    assert checkpoint.load(tmp_path) == (10, {"round": 10})
    assert checkpoint.load(tmp_path / "nothing") is None
