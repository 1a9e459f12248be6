"""Every method can be planned. What is exchanged is foreseen exactly, unless the method says what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from contract_support import ASYNCHRONOUS, CASES, once, small

from coterie.planning.plan import Plan, plan

ONE = "engine.workers=1"
QUICKLY = ("gossip", "fedavg", "panm", "mapl", "fedpae", "compfl-walks")  # the others take a minute, all together


def planned(case: str, *words: str) -> Plan:
    found = plan(small(case, ONE, *words), all_rounds=True)
    assert found.rehearsed == found.rounds == 4
    assert found.seconds > 0
    assert set(found.bytes) == set(found.messages)
    return found


def same(found: Plan, actual: dict[str, Any]) -> None:
    exchanged = actual["bytes"]["by_artifact"]
    if found.unforeseen:
        assert set(found.bytes) == set(exchanged)
    else:
        assert found.bytes == exchanged
        assert found.messages == actual["messages"]["by_artifact"]


@pytest.mark.parametrize("case", [c if c in QUICKLY else pytest.param(c, marks=pytest.mark.slow) for c in CASES])
def test_what_is_exchanged_is_foreseen(case: str) -> None:
    same(planned(case), once("simulation", case).summary)


@pytest.mark.parametrize("case", ["gossip", "panm", "mapl-explore", "fedpae-early"])
def test_peers_that_do_not_wait_are_planned_too(case: str) -> None:
    same(planned(case, *ASYNCHRONOUS), once("simulation", case, *ASYNCHRONOUS).summary)


@pytest.mark.parametrize("case", ["gossip", "fedavg", "compfl-walks"])
def test_peers_that_are_away_are_planned_too(case: str) -> None:
    away = ("clock.dropout=0.3", "clock.deadline=5")
    same(planned(case, *away), once("simulation", case, *away).summary)
