"""The workloads, and that drivers, which know nothing of Coterie, do the same ones."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from coterie.bench import against_loop, growth
from coterie.bench.engine import Engine
from coterie.bench.frameworks import DRIVERS
from coterie.bench.plain_loop import PlainLoop
from coterie.bench.workloads import WORKLOADS, Workload, chosen
from coterie.cli.bench import FOR_OTHERS, NAMES
from coterie.core.errors import ConfigError
from coterie.core.events import PeerRound, read

TINY = Workload("tiny", "MLP 3-4-10", "mlp", (3,), 4, 6, 2, hidden=(4,), held_out=2)


def driving() -> ModuleType:
    spec = importlib.util.spec_from_file_location("driving", DRIVERS / "driving.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(work: Workload) -> Any:
    """As a driver gets it."""
    return SimpleNamespace(**work.as_json())


def test_the_workloads_are_those_of_the_issue() -> None:
    w1, w2, w3 = chosen(["w1", "w2", "w3"])
    assert (w1.peers, w1.samples, w1.shape, w1.hidden, w1.batch, w1.epochs) == (100, 200, (784,), (200, 200), 100, 3)
    assert (w2.peers, w2.samples, w2.shape, w2.hidden, w2.batch, w2.epochs) == (200, 100, (64,), (64,), 25, 1)
    assert (w3.peers, w3.samples, w3.shape, w3.batch, w3.epochs) == (10, 200, (3, 32, 32), 50, 1)
    assert [work.neighbours for work in (w1, w2, w3)] == [5, 5, 5]
    assert growth.PEERS == (100, 1_000, 10_000, 50_000)


def test_the_command_knows_the_workloads() -> None:
    assert [*(work.name for work in WORKLOADS), "growth"] == list(NAMES)
    with pytest.raises(ConfigError, match="unknown workload 'w9'"):
        chosen(["w9"])


def test_drivers_have_the_same_samples() -> None:
    shares = driving().shares(told(TINY))
    assert len(shares) == TINY.peers
    for share, data in zip(shares, TINY.data(), strict=True):
        for (x, y), split in zip(share, (data.train, data.validation, data.test), strict=True):
            torch.testing.assert_close(x, split.x, rtol=0, atol=0)
            torch.testing.assert_close(y, split.y, rtol=0, atol=0)


@pytest.mark.parametrize("work", chosen(FOR_OTHERS), ids=lambda work: work.name)
def test_drivers_have_the_same_models(work: Workload) -> None:
    ours, theirs = work.net().eval(), driving().net(told(work)).eval()
    mine = list(ours.parameters())
    assert [p.shape for p in theirs.parameters()] == [p.shape for p in mine]
    with torch.no_grad():
        for p, q in zip(theirs.parameters(), mine, strict=True):
            p.copy_(q)
        x = torch.randn(2, *work.shape)
        torch.testing.assert_close(theirs(x), ours(x).logits)


def test_drivers_train() -> None:
    """Labels that say which half the input is in are learned: the loss falls."""
    driver, work = driving(), told(replace(TINY, epochs=30, lr=0.1))
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    samples = x, (x[:, 0] > 0).long()
    net = driver.net(work)
    first = torch.nn.functional.cross_entropy(net(x), samples[1])
    assert driver.train(net, samples, work) < first / 2
    share = driver.Share(samples, samples, samples)
    assert min(driver.accuracies(net, share)) > 0.9


def test_the_plain_loop_averages() -> None:
    """Weights 0 to 3 are 1.5 in the mean; gossip with all 3 others gives the same, and 0 epochs change nothing."""
    for method in ("gossip", "fedavg"):
        loop = PlainLoop(replace(TINY, epochs=0), method)
        for i, net in enumerate(loop.nets):
            torch.nn.init.constant_(net.head.weight, i)
        loop.round()
        for net in loop.nets:
            torch.testing.assert_close(net.head.weight, torch.full_like(net.head.weight, 1.5))


@pytest.mark.parametrize(("method", "spread"), [("gossip", False), ("fedavg", False), ("gossip", True)])
def test_the_engine_exchanges_models(tmp_path: Path, method: str, spread: bool) -> None:
    engine = Engine(TINY, tmp_path, method, spread=spread)
    engine.rounds(1)
    engine.stage.collect_states()
    engine.close()
    ended = [event for event in read(tmp_path / "events.jsonl") if isinstance(event, PeerRound)]
    assert {event.peer for event in ended} >= set(range(TINY.peers))
    assert all(sum(event.bytes.values()) > 0 for event in ended), "what was exchanged is counted"
    weights = torch.stack([peer.model.vector for peer in engine.peers])
    assert not torch.equal(weights[0], TINY.architecture().initial(0).vector), "nobody trained"
    torch.testing.assert_close(weights, weights[:1].expand_as(weights), msg="all averaged with all")


def test_loop_and_engine_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against_loop, "SHORTEST_TURN", 0.0)
    before = torch.get_num_threads()
    result = against_loop.compare(TINY, turns=1)
    torch.set_num_threads(before)
    assert min(value for value in vars(result).values() if isinstance(value, float)) > 0
    assert "tiny: MLP 3-4-10" in str(result)


def test_ratios_say_how_many_times_faster_the_engine_is() -> None:
    result = against_loop.Result("w2", "MLP", 6.0, 2.0, round_loop=1.0, round_engine=4.0, round_processes=0.5)
    assert (result.train_ratio, result.round_ratio, result.processes_ratio) == (3.0, 0.25, 2.0)


def test_growth_is_measured_in_a_process_of_its_own() -> None:
    grown = growth.grow(3, rounds=1)
    assert grown.peers == 3
    assert grown.seconds_per_round > 0
    assert str(growth.Growth(1_000, 0.5, 2_000_000)) == "  1,000 peers: 0.5 s a round (500 us a peer), peak memory 2 MB"
