"""Every method over several processes, of this machine or of a Ray cluster: the same to the bit as in one process.

Also when a part of them is lost.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_support import ASYNCHRONOUS, CASES, Outcome, read_graph, same, simulate, small

from coterie.config.sections import PROCESSES, RAY
from coterie.core.errors import ConfigError, StageLost
from coterie.running import simulated
from coterie.running.progress import RoundProgress
from coterie.simulation.director import Simulation

ray = pytest.importorskip("ray")
cluster = pytest.importorskip("coterie.simulation.ray_stage")

# Models that walk (letters); views, a norm over the batch and peers that sit rounds out; no common rounds.
SOME = [("compfl-walks", ()), ("mapl", ("clock.dropout=0.3",)), ("gossip", ASYNCHRONOUS)]
Words = tuple[str, ...]
either = pytest.mark.parametrize("on_two", [PROCESSES, RAY], indirect=True)
# Both have the same shards; Ray takes a quarter of a minute to begin.
ray_when_there_is_time = pytest.mark.parametrize(
    "on_two", [PROCESSES, pytest.param(RAY, marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(scope="module")
def on_two(request: pytest.FixtureRequest) -> Iterator[Words]:
    """The settings for two of either kind."""
    if request.param == RAY:
        cluster.start_local(num_cpus=2)
    yield f"engine.name={request.param}", "engine.workers=2"
    if request.param == RAY:
        ray.shutdown()


@pytest.fixture(autouse=True)
def nobody_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """In circles this small, directing would be all that the first process does."""
    monkeypatch.setattr("coterie.simulation.placement.TO_DIRECT", 1e-9)


@ray_when_there_is_time
@pytest.mark.parametrize(("case", "words"), SOME)
def test_equals_the_simulation(case: str, words: Words, on_two: Words) -> None:
    same(simulate(small(case, *words)), simulate(small(case, *words, *on_two)))


@either
@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [(), ASYNCHRONOUS, ("clock.dropout=0.3", "clock.spread=3")], ids=["", "async", "away"]
)
@pytest.mark.parametrize("case", CASES)
def test_every_method_equals_the_simulation(case: str, words: Words, on_two: Words) -> None:
    same(simulate(small(case, *words)), simulate(small(case, *words, *on_two)))


def kill_one(stage: Any) -> None:
    """Of the processes that a run is spread over."""
    if hasattr(stage, "pids"):
        os.kill(stage.pids[0], signal.SIGKILL)
    else:
        ray.kill(stage._actors[0])


@either
def test_goes_on_when_a_process_is_killed(tmp_path: Path, on_two: Words) -> None:
    case, words = "gossip", ASYNCHRONOUS
    held: list[Simulation] = []

    def lose(progress: RoundProgress) -> None:
        if progress.round == 3 and len(held) == 1:
            kill_one(held[0].stage)

    e = small(case, *words, *on_two, "rounds=6", "engine.checkpoint=2")
    summary = simulated.run(e, tmp_path / "run", on_round=lose, on_start=held.append)
    assert len(held) == 2  # it was begun again
    assert held[1].start_after == 2
    vectors = [peer.model.vector for peer in held[1].stage.peers.values()]
    undisturbed = simulate(small(case, *words, "rounds=6", "engine.checkpoint=2"))
    same(undisturbed, Outcome(summary, read_graph(tmp_path / "run"), vectors))


@ray_when_there_is_time
def test_a_run_may_be_gone_on_with_on_another_engine(tmp_path: Path, on_two: Words) -> None:
    class KilledError(Exception):
        pass

    def stop(progress: RoundProgress) -> None:
        if progress.round == 2:
            raise KilledError

    e = small("gossip", *on_two, "engine.checkpoint=1")
    with pytest.raises(KilledError):
        simulated.run(e, tmp_path / "run", on_round=stop)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace(f'name = "{e.engine.name}"', 'name = "simulation"'))
    same(simulate(small("gossip")), simulate(e, tmp_path / "run", resume=True))


@ray_when_there_is_time
def test_what_goes_wrong_at_a_peer_is_told_as_ever(tmp_path: Path, on_two: Words) -> None:
    method = tmp_path / "wrong.py"
    method.write_text(
        "from coterie import Method\n"
        "from coterie.core.errors import ConfigError\n"
        "class Wrong(Method):\n"
        "    async def round(self, me):\n"
        "        if me.id >= me.round:\n"
        "            raise ConfigError(f'peer {me.id} has had enough')\n"
    )
    e = small("local", *on_two, f"method.name={method}:Wrong")
    with pytest.raises(ConfigError, match="peer 1 has had enough"):  # of several the first
        simulated.run(e, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("on_two", [RAY], indirect=True)
@pytest.mark.usefixtures("on_two")
def test_a_busy_cluster_is_used_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray.util.placement_group import placement_group, remove_placement_group

    somebody_elses = placement_group([{"CPU": 1}])
    assert somebody_elses.wait(60)
    monkeypatch.setattr(cluster, "ACTORS_TIMEOUT", 20.0)
    same(simulate(small("gossip")), simulate(small("gossip", "engine.name=ray"), tmp_path / "run"))
    assert "only 1 of 2 actors" in caplog.text
    remove_placement_group(somebody_elses)


class SlowNode:
    """A node of Ray on a machine so busy that it takes longer to begin than Ray waits."""

    ended = 0

    def __init__(self) -> None:
        raise Exception("The current node timed out during startup. This could happen because ...")

    def kill_all_processes(self, **_: bool) -> None:
        SlowNode.ended += 1


def too_slow(calls: list[str], times: int) -> Any:
    """Ray's `init` where so many starts take too long."""
    SlowNode.ended = 0

    def init(**options: Any) -> None:
        calls.append(options["address"])
        if len(calls) <= times:
            SlowNode()

    return init


def test_a_cluster_that_begins_too_slowly_is_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(ray, "init", too_slow(calls, 2))
    cluster.start_local()
    assert calls == ["local"] * 3
    assert SlowNode.ended == 2  # no process of them is left


def test_a_cluster_that_never_begins_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(ray, "init", too_slow(calls, cluster.STARTS))
    with pytest.raises(ConfigError, match=r"did not start in 5 attempts: The current node timed out.*processes"):
        cluster.start_local()
    assert len(calls) == cluster.STARTS


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("engine.address=auto",), "engine.address only applies to engine.name = ray"),
        (("engine.name=dask",), "engine.name must be one of simulation, processes, ray"),
    ],
)
def test_settings(words: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        small("gossip", *words)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:head"])
def test_a_cluster_that_does_not_answer_is_told_before_anything_is_written(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"engine.address = '{address}' does not answer"):
        simulated.run(small("gossip", "engine.name=ray", f"engine.address={address}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_argument_that_was_lost_with_its_actor_is_a_lost_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call itself ran elsewhere: Ray reports it as an error of the call."""
    from ray.exceptions import ActorDiedError, RayTaskError

    from coterie.simulation import ray_stage

    def get(_: object) -> None:
        raise RayTaskError("run", "a traceback", ActorDiedError()).as_instanceof_cause()

    monkeypatch.setattr(ray_stage.ray, "get", get)
    cluster = object.__new__(ray_stage.Cluster)
    with pytest.raises(StageLost, match="a part of the cluster is lost: The actor died unexpectedly"):
        cluster._results([None])
