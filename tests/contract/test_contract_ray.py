"""Every method on a Ray cluster: the same to the bit as in one process, also when a part of the cluster is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract_support import ASYNCHRONOUS, CASES, Outcome, read_graph, same, simulate, small

from coterie import running
from coterie.engines.simulation import Simulation
from coterie.errors import ConfigError
from coterie.progress import RoundProgress

ray = pytest.importorskip("ray")

ON_TWO = ("engine.name=ray", "engine.workers=2")
# Models that walk (letters); views, a norm over the batch and peers that sit rounds out; no common rounds.
SOME = [("compfl-walks", ()), ("mapl", ("clock.dropout=0.3",)), ("gossip", ASYNCHRONOUS)]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield
    ray.shutdown()


@pytest.mark.parametrize(("case", "words"), SOME)
def test_equals_the_simulation(case: str, words: tuple[str, ...]) -> None:
    same(simulate(small(case, *words)), simulate(small(case, *words, *ON_TWO)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [(), ASYNCHRONOUS, ("clock.dropout=0.3", "clock.spread=3")], ids=["", "async", "away"]
)
@pytest.mark.parametrize("case", CASES)
def test_every_method_equals_the_simulation(case: str, words: tuple[str, ...]) -> None:
    same(simulate(small(case, *words)), simulate(small(case, *words, *ON_TWO)))


def test_goes_on_when_an_actor_is_killed(tmp_path: Path) -> None:
    case, words = "gossip", ASYNCHRONOUS
    held: list[Simulation] = []

    def kill_one(progress: RoundProgress) -> None:
        if progress.round == 3 and len(held) == 1:
            ray.kill(held[0].stage._shards[0])  # type: ignore[attr-defined]

    e = small(case, *words, *ON_TWO, "rounds=6", "engine.checkpoint=2")
    summary = running.run(e, tmp_path / "run", on_round=kill_one, on_start=held.append)
    assert len(held) == 2  # it was begun again
    assert held[1].start_after == 2
    vectors = [peer.model.vector for peer in held[1].stage.peers.values()]
    undisturbed = simulate(small(case, *words, "rounds=6", "engine.checkpoint=2"))
    same(undisturbed, Outcome(summary, read_graph(tmp_path / "run"), vectors))


def test_a_run_may_be_gone_on_with_on_another_engine(tmp_path: Path) -> None:
    class KilledError(Exception):
        pass

    def stop(progress: RoundProgress) -> None:
        if progress.round == 2:
            raise KilledError

    e = small("gossip", *ON_TWO, "engine.checkpoint=1")
    with pytest.raises(KilledError):
        running.run(e, tmp_path / "run", on_round=stop)
    config = tmp_path / "run" / "config.toml"
    config.write_text(config.read_text().replace('name = "ray"', 'name = "simulation"'))
    same(simulate(small("gossip")), simulate(e, tmp_path / "run", resume=True))


def test_what_goes_wrong_at_a_peer_is_told_as_ever(tmp_path: Path) -> None:
    method = tmp_path / "wrong.py"
    method.write_text(
        "from coterie import Method\n"
        "from coterie.errors import ConfigError\n"
        "class Wrong(Method):\n"
        "    async def round(self, me, t):\n"
        "        raise ConfigError(f'peer {me.id} has had enough')\n"
    )
    e = small("local", *ON_TWO, f"method.name={method}:Wrong")
    with pytest.raises(ConfigError, match="peer 0 has had enough"):
        running.run(e, tmp_path / "run")


@pytest.mark.slow
def test_a_busy_cluster_is_used_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from ray.util.placement_group import placement_group, remove_placement_group

    from coterie.engines import cluster

    somebody_elses = placement_group([{"CPU": 1}])
    assert somebody_elses.wait(60)
    monkeypatch.setattr(cluster, "PATIENCE", 20.0)
    same(simulate(small("gossip")), simulate(small("gossip", "engine.name=ray"), tmp_path / "run"))
    assert "only 1 of 2 actors" in caplog.text
    remove_placement_group(somebody_elses)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("engine.address=auto",), "engine.address = 'auto' is of engine.name = ray"),
        (("engine.name=dask",), "engine.name must be one of simulation, ray"),
    ],
)
def test_settings(words: tuple[Any, ...], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        small("gossip", *words)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:head"])
def test_a_cluster_that_does_not_answer_is_told_before_anything_is_written(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"engine.address = '{address}' does not answer"):
        running.run(small("gossip", "engine.name=ray", f"engine.address={address}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
