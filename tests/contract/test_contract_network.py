"""Every method as real peers: the same models and the same messages as in the simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from contract_support import (
    CASES,
    METHODS,
    TIMING_MATTERS,
    Outcome,
    method_of,
    network,
    of_families,
    only_plain,
    simulate,
    slow_unless,
    small,
)

from coterie.config.sections import Experiment
from coterie.core import checkpoint
from coterie.running.local_circle import LocalCircle

# The engine of a real peer trains alone, so the simulation that it is compared with does, too. A deadline that is never
# reached, however busy the machine is; short intervals, because the runs are.
NETWORK = ("engine.batching=never", "network.deadline=60", "network.interval=0.2", "network.linger=30")


def simulated(e: Experiment) -> Outcome:
    from contract_support import simulate

    return simulate(e)


REPEATABLE = [case for case in CASES if case not in TIMING_MATTERS]


@pytest.mark.parametrize("case", slow_unless(only_plain, REPEATABLE))
def test_equals_the_simulation(case: str) -> None:
    e = small(case, *NETWORK)
    real, expected = network(e), simulated(e)
    assert real.summary["messages"] == expected.summary["messages"]
    assert real.summary["bytes"] == expected.summary["bytes"]
    assert real.summary["accuracy"]["last"] == expected.summary["accuracy"]["last"]
    if not e.method.asynchronous:  # else what came before the end depends on who was faster
        assert real.summary["accuracy"]["selected"] == expected.summary["accuracy"]["selected"]
    for mine, theirs in zip(real.vectors, expected.vectors, strict=True):
        torch.testing.assert_close(mine, theirs, atol=0, rtol=0)  # to the bit: the same operations in the same order


@pytest.mark.parametrize("case", ["gossip", pytest.param("fedpae", marks=pytest.mark.slow)])
def test_scores_and_predictions_equal_those_of_the_simulation(case: str, tmp_path: Path) -> None:
    metrics = ("evaluate.metrics=auroc,log_loss", "evaluate.select=log_loss", "evaluate.predictions=always")
    e = small(case, *NETWORK, *metrics)
    real, expected = network(e, tmp_path / "real"), simulate(e, tmp_path / "simulated")
    assert real.summary["scores"] == expected.summary["scores"]
    for number in range(4):  # each in its own folder
        [mine] = (tmp_path / "real").glob(f"peers/*/predictions/peer-{number}.npz")
        with np.load(mine) as here, np.load(tmp_path / "simulated" / "predictions" / mine.name) as there:
            assert here.files == there.files
            for key in here.files:
                np.testing.assert_array_equal(here[key], there[key])


@pytest.mark.parametrize("case", slow_unless(of_families, (c for c in CASES if not METHODS[method_of(c)].server)))
def test_asynchronous_runs_finish(case: str) -> None:
    outcome = network(small(case, *NETWORK, "engine.asynchronous=true"))
    assert len(outcome.summary["accuracy"]["last"]["per_peer"]) == 4
    assert all(bool(torch.isfinite(v).all()) for v in outcome.vectors)


@pytest.mark.parametrize("encoding", ["zstd", "fp16", "topk"])
def test_compression_is_counted_as_it_crossed(encoding: str) -> None:
    plain = simulated(small("gossip", *NETWORK))
    packed = network(small("gossip", *NETWORK, f"network.compress={encoding}"))
    assert packed.summary["messages"] == plain.summary["messages"]
    assert packed.summary["bytes"]["total"] < plain.summary["bytes"]["total"]
    for mine, theirs in zip(packed.vectors, plain.vectors, strict=True):
        assert torch.isfinite(mine).all()
        if encoding == "zstd":
            assert torch.equal(mine, theirs)
        if encoding == "fp16":
            torch.testing.assert_close(mine, theirs, atol=2e-2, rtol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("case", REPEATABLE)
def test_processes_equal_the_simulation(case: str, tmp_path: Path) -> None:
    """What `coterie up 4` does, with a process for every peer."""
    e = small(case, *NETWORK)
    circle = LocalCircle(e, tmp_path / "run")
    circle.prepare()
    real, expected = circle.run(), simulated(e)
    assert real["messages"] == expected.summary["messages"]
    assert real["bytes"] == expected.summary["bytes"]
    for member, theirs in zip(circle.members, expected.vectors, strict=True):
        found = checkpoint.load(member.out / "checkpoint")
        assert found is not None
        assert torch.equal(found[1]["vector"], theirs)
