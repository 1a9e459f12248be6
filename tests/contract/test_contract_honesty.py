"""A method sees no test rows, and only an oracle sees the true clusters: every engine refuses it with the line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from contract_support import NETWORK, SIMULATION, in_processes, network, on_ray, simulate, small

from coterie.cli.main import FAILED, main
from coterie.config.sections import PROCESSES, RAY, Experiment
from coterie.core.errors import MethodError

RUN = {SIMULATION: simulate, PROCESSES: in_processes, RAY: on_ray, NETWORK: network}
ENGINES = [SIMULATION, PROCESSES, pytest.param(RAY, marks=pytest.mark.slow), NETWORK]
QUICK = ("rounds=2", "network.interval=0.2", "network.linger=5", "network.deadline=20")

# Peer 3 (it is in the last shard) asks in round 2, in line 7.
ASKS = """from coterie import Method
class Mine(Method):
    async def round(self, me):
        await me.train()
        if me.id < 3 or me.round < 2:
            return
        {}
"""
TEST_ROWS = {
    "evaluate": 'await me.evaluate([me.model], "test")',
    "predict": 'await me.predict(split="test")',
    "labels": 'me.labels("test")',
    "data": "me.data.test.x",
}
NO_TEST_ROWS = 'peer 3 asks for the test split .*a method never sees test rows.*Use "validation"'
# With an oracle's declaration in place of {}: every peer notes the clusters that it is told.
TRUTH = """from typing import ClassVar
from coterie import Method
class Mine(Method):
    needs_truth: ClassVar[bool] = {}
    async def round(self, me):
        await me.train()
        clusters = list(me.truth)
        assert clusters == [0, 0, 1, 1], clusters
        me.note(neighbours=[j for j in me.peers if clusters[j] == clusters[me.id]])
"""


def written(folder: Path, text: str) -> Experiment:
    """An experiment with this method: four peers in two clusters, {0, 1} and {2, 3}."""
    (folder / "mine.py").write_text(text)
    return small("local", f"method.name={folder / 'mine.py'}:Mine", *QUICK)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_refuses_test_rows(engine: str, tmp_path: Path) -> None:
    e = written(tmp_path, ASKS.format(TEST_ROWS["evaluate"]))
    with pytest.raises(MethodError, match=rf"mine\.py, line 7: {NO_TEST_ROWS}"):
        RUN[engine](e)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_refuses_the_truth_to_all_but_oracles(engine: str, tmp_path: Path) -> None:
    e = written(tmp_path, TRUTH.format("False"))
    told = r"mine\.py, line 7: peer \d asks for me\.truth, but only an oracle.*`needs_truth: ClassVar\[bool\] = True`"
    with pytest.raises(MethodError, match=told):
        RUN[engine](e)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_tells_an_oracle(engine: str, tmp_path: Path) -> None:
    summary = RUN[engine](written(tmp_path, TRUTH.format("True"))).summary
    # Each peer names the other one of its cluster, and nobody else.
    assert (summary["neighbours"]["precision"], summary["neighbours"]["recall"]) == (1, 1)


@pytest.mark.parametrize("asks", TEST_ROWS.values(), ids=TEST_ROWS)
def test_every_way_to_test_rows_is_closed(asks: str, tmp_path: Path) -> None:
    with pytest.raises(MethodError, match=rf"mine\.py, line 7: {NO_TEST_ROWS}"):
        simulate(written(tmp_path, ASKS.format(asks)))


def test_a_function_that_is_computed_gets_no_test_rows_either(tmp_path: Path) -> None:
    with pytest.raises(MethodError, match=rf"mine\.py, line 7: {NO_TEST_ROWS}"):
        simulate(written(tmp_path, ASKS.format("await me.compute(lambda: me.data.test.x)")))


@pytest.mark.parametrize(
    "asks",
    [
        "await Evaluate([EvaluateJob(me.model, me.data.train)])",
        "again = me.evaluate([me.model]); await again; await again",
    ],
)
def test_a_request_that_no_verb_made_is_refused(asks: str, tmp_path: Path) -> None:
    """Only verbs check what a peer may have. This also holds for a fetch around the [graph]."""
    imports = "from coterie.core.jobs import EvaluateJob; from coterie.core.requests import Evaluate; "
    with pytest.raises(MethodError, match=r"mine\.py, line 7: the request .* was not made by a verb of `me`"):
        simulate(written(tmp_path, imports + ASKS.format(asks)))


def test_a_misspelt_split_is_named(tmp_path: Path) -> None:
    told = r"mine\.py, line 7: .*split of me\.evaluate\(\).*'validaton'. Did you mean 'validation'"
    with pytest.raises(MethodError, match=told):
        simulate(written(tmp_path, ASKS.format('await me.evaluate([me.model], "validaton")')))


def test_what_a_method_sees_of_its_data(tmp_path: Path) -> None:
    """Its 12 training and 5 validation samples, in a pool without anything else; the labels in the same order."""
    sees = (
        "data = me.data; "
        "assert [len(s.pool.y) for s in (data.train, data.validation)] == [12, 5]; "
        'assert data.train.y.equal(me.labels()) and data.validation.y.equal(me.labels("validation")); '
        "await me.evaluate([me.model], 'validation')"
    )
    simulate(written(tmp_path, ASKS.format(sees)))


def test_the_command_tells_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    e = written(tmp_path, ASKS.format(TEST_ROWS["predict"]))
    (tmp_path / "e.toml").write_text(e.toml(), encoding="utf-8")
    assert main(["run", str(tmp_path / "e.toml"), "--out", str(tmp_path / "run")]) == FAILED
    assert re.search(rf"mine\.py, line 7: {NO_TEST_ROWS}", capsys.readouterr().err)


@pytest.mark.parametrize(("method", "is_oracle"), [("oracle", True), ("gossip", False)])
def test_the_list_tells_oracles(method: str, is_oracle: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "methods", method]) == 0
    assert ("an oracle: it is told the true clusters" in capsys.readouterr().out) == is_oracle
