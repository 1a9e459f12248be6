"""Every method over every engine: it finishes, repeats, and keeps to the contract of `me`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable
from typing import Any

import pytest
import torch
from contract_support import (
    ASYNCHRONOUS,
    ENGINES,
    NETWORK,
    SIMULATION,
    Outcome,
    every_method_on,
    of_families,
    once,
    only_plain,
    run,
    same,
    sometimes,
    unlisted,
    when_two_rounds_are_done,
)

from coterie.config.sections import PROCESSES, RAY
from coterie.core.artifact import Artifact
from coterie.core.peer import Peer
from coterie.core.requests import Fetch, Send
from coterie.engines.shelves import Shelves
from coterie.simulation.local_stage import LocalStage
from coterie.training.recording import Repeated

SIMULATED = (SIMULATION, PROCESSES, RAY)  # engines with a virtual clock


def measured(outcome: Outcome, peers: int = 4) -> None:
    for kind in ("last", "selected"):
        accuracy = outcome.summary["accuracy"][kind]
        assert len(accuracy["per_peer"]) == peers
        assert all(0 <= a <= 1 for a in accuracy["per_peer"])
        assert accuracy["mean"] == pytest.approx(sum(accuracy["per_peer"]) / peers)
    assert all(bool(torch.isfinite(v).all()) for v in outcome.vectors)


def test_every_method_is_in_the_contract() -> None:
    assert not unlisted(), "give these methods a line in CASES of contract_support.py"


@every_method_on(*ENGINES)
def test_finishes_and_measures_every_peer(engine: str, case: str) -> None:
    outcome = once(engine, case)
    measured(outcome)
    assert outcome.summary["rounds"] == 4
    assert math.isfinite(outcome.summary["simulated_seconds"])
    assert outcome.summary["bytes"]["by_artifact"].keys() == outcome.summary["messages"]["by_artifact"].keys()


@every_method_on(*ENGINES, fast=only_plain)
def test_repeats_exactly(engine: str, case: str) -> None:
    same(once(engine, case), run(engine, case))


@every_method_on(SIMULATION, NETWORK, fast=of_families)
def test_another_seed_is_another_run(engine: str, case: str) -> None:
    other = run(engine, case, "seed=1")
    mine = once(engine, case)
    assert not any(torch.equal(a, b) for a, b in zip(mine.vectors, other.vectors, strict=True))


STACKED, ALONE = ("engine.batching=always", "engine.workers=1"), ("engine.batching=never", "engine.workers=1")


@every_method_on(SIMULATION, fast=of_families)
@pytest.mark.parametrize("recorded", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "recorded"])
def test_workers_change_nothing(engine: str, case: str, recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if recorded:
        monkeypatch.setattr(Repeated, "USES_BEFORE_RECORDING", 3)
    same(once(engine, case, *STACKED), run(engine, case, *STACKED, "engine.workers=2"))


@every_method_on(SIMULATION, fast=of_families)
def test_workers_of_the_plain_loop_change_nothing(engine: str, case: str) -> None:
    same(once(engine, case, *ALONE), run(engine, case, *ALONE, "engine.workers=3"))


@every_method_on(SIMULATION, fast=of_families)
def test_batching_changes_next_to_nothing(engine: str, case: str) -> None:
    always, never = once(engine, case, *STACKED), once(engine, case, *ALONE)
    assert always.summary["messages"] == never.summary["messages"]
    assert always.summary["bytes"] == never.summary["bytes"]
    for a, b in zip(always.vectors, never.vectors, strict=True):
        # (Batch norm over the twelve views of these tiny batches magnifies what rounding leaves.)
        torch.testing.assert_close(a, b, atol=2e-3 if case.startswith("mapl") else 1e-4, rtol=1e-3)


def content_of(artifact: Artifact) -> dict[str, bytes]:
    return {key: tensor.contiguous().numpy().tobytes() for key, tensor in artifact.items()}


@every_method_on(SIMULATION, NETWORK, fast=only_plain)
def test_artifacts_are_whole_and_nobody_changes_them(engine: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shelved: list[tuple[Artifact, dict[str, bytes]]] = []
    put = Shelves.put

    def watched(self: Shelves, artifact: Artifact, *rest: Any) -> None:
        shelved.append((artifact, content_of(artifact)))
        put(self, artifact, *rest)

    monkeypatch.setattr(Shelves, "put", watched)
    outcome = run(engine, case)
    assert bool(shelved) == (not case.startswith("local"))
    for artifact, content in shelved:
        assert content_of(artifact) == content, f"'{artifact.name}' of peer {artifact.author} was changed"
        data = artifact.to_bytes()
        assert artifact.nbytes == len(data)
        back = Artifact.from_bytes(data)
        label = (artifact.name, artifact.author, artifact.round, artifact.facts)
        assert (back.name, back.author, back.round, back.facts) == label
        assert content_of(back) == content
        assert {k: (t.dtype, t.shape) for k, t in back.items()} == {k: (t.dtype, t.shape) for k, t in artifact.items()}
    same(once(engine, case), outcome)  # watching changed nothing


@every_method_on(SIMULATION, fast=of_families)
def test_artifacts_as_bytes_change_nothing(engine: str, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a network will do to every artifact: the method must not care."""
    shelve = LocalStage.shelve

    def through_bytes(self: LocalStage, artifact: Artifact) -> None:
        shelve(self, Artifact.from_bytes(artifact.to_bytes()))

    monkeypatch.setattr(LocalStage, "shelve", through_bytes)
    same(once(engine, case), run(engine, case))


@every_method_on(SIMULATION, NETWORK, fast=only_plain)
@pytest.mark.parametrize("words", [(), sometimes("clock.dropout=0.3"), ASYNCHRONOUS], ids=["plain", "dropout", "async"])
def test_totals_are_what_was_delivered(
    engine: str, case: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == NETWORK and "clock.dropout=0.3" in words:
        pytest.skip("a network has no virtual clock; its faults are in tests/network/test_faults.py")
    messages: Counter[str] = Counter()
    size: Counter[str] = Counter()
    fetch, send = Peer.fetch, Peer.send

    class Counted:
        def __init__(self, request: Fetch, by: int) -> None:
            self.request, self.by = request, by

        def __await__(self) -> Generator[Any, Any, dict[int, Artifact]]:
            answer = yield from self.request.__await__()
            assert list(answer) == sorted(answer)
            for author, artifact in answer.items():
                assert artifact.author == author
                if author != self.by:
                    messages[artifact.name] += 1
                    size[artifact.name] += len(artifact.to_bytes())
            return answer

    def counted(self: Peer, peers: int | Iterable[int], name: str, **expected: Any) -> Counted:
        return Counted(fetch(self, peers, name, **expected), self.id)

    def counted_send(self: Peer, *what: Any, **facts: Any) -> Send:
        request = send(self, *what, **facts)  # nobody leaves for good here: all that is sent arrives
        messages[request.artifact.name] += 1
        size[request.artifact.name] += len(request.artifact.to_bytes())
        return request

    monkeypatch.setattr(Peer, "fetch", counted)
    monkeypatch.setattr(Peer, "send", counted_send)
    summary = run(engine, case, *words).summary
    assert summary["messages"] == {"total": messages.total(), "by_artifact": dict(sorted(messages.items()))}
    assert summary["bytes"] == {"total": size.total(), "by_artifact": dict(sorted(size.items()))}


@every_method_on(*SIMULATED, fast=only_plain)
@pytest.mark.parametrize(
    "words",
    [
        sometimes("clock.dropout=0.3"),
        sometimes("clock.offline=[[1, 1.5, 2.5]]"),
        ("clock.offline=[[0, 0, 2.2], [2, 1.2, 1.8]]", "clock.spread=3"),
        sometimes("clock.deadline=0.3", "clock.spread=3"),
        sometimes(*ASYNCHRONOUS),
        (*ASYNCHRONOUS, "clock.dropout=0.3", "clock.offline=[[1, 1.5, 3.5]]"),
    ],
    ids=["dropout", "away", "joins-late", "deadline", "async", "async-churn"],
)
def test_time_and_churn(engine: str, case: str, words: tuple[str, ...]) -> None:
    """Every method finishes with every peer measured, and repeats to the bit."""
    first = once(engine, case, *words)
    measured(first)
    same(first, run(engine, case, *words))


@every_method_on(*SIMULATED, fast=of_families)
def test_who_leaves_for_good_blocks_nobody(engine: str, case: str) -> None:
    outcome = run(engine, case, f"clock.offline=[[3, {when_two_rounds_are_done(case)}, inf]]")
    measured(outcome)
    assert outcome.summary["simulated_seconds"] >= 4  # the others' four rounds of a second each
