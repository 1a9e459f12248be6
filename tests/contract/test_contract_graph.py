"""Every method in a [graph]: it exchanges along the edges alone, or is refused before anything trains."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract_support import CASES, METHODS, method_of, network, only_plain, simulate, slow_unless, small

from coterie import wiring
from coterie.cli.main import main
from coterie.config import loading
from coterie.config.sections import Experiment
from coterie.core.errors import ConfigError, MethodError
from coterie.core.events import PeerRound, of_kind, read
from coterie.core.others import Others
from coterie.core.peer import Peer
from coterie.core.requests import Fetch, Send
from coterie.methods.base import Method
from coterie.running import simulated
from coterie.simulation.fetching import Fetching
from coterie.simulation.mail import Mail
from coterie.simulation.participants import Participant

PEERS = 10
RING = ("graph.kind=ring", f"peers={PEERS}", "rounds=3", "evaluate.every=3")
NEXT_TO = {i: {(i - 1) % PEERS, (i + 1) % PEERS} for i in range(PEERS)}
WHO_ASKS_NOBODY = ("local", "local-ensemble")


def on_a_ring(case: str) -> Experiment:
    """CompFL model by model with one kind of model: else those who can train the larger would not be connected."""
    zoo = ("model.zoo=mlp",) if case == "compfl-gossip" else ()
    return small(case, *RING, *zoo)


def has_server(case: str) -> bool:
    """With the parameters of this case."""
    return small(case, "graph.kind=complete").method.with_server()


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, int]]:
    """Who asked whom, or sent to whom, as the engine was asked; how often."""
    found: Counter[tuple[int, int]] = Counter()
    opened, sent = Fetching.open, Mail.send

    def open_(self: Fetching, p: Participant, request: Fetch) -> None:
        found.update((p.id, j) for j in request.peers)
        opened(self, p, request)

    def send(self: Mail, p: Participant, request: Send) -> None:
        found[p.id, request.to] += 1
        sent(self, p, request)

    monkeypatch.setattr(Fetching, "open", open_)
    monkeypatch.setattr(Mail, "send", send)
    return found


@pytest.mark.parametrize("case", slow_unless(only_plain, CASES))
def test_along_the_edges_of_a_ring_or_refused(case: str, exchanges: Counter[tuple[int, int]], tmp_path: Path) -> None:
    if has_server(case):
        with pytest.raises(ConfigError, match=f"method.name = {method_of(case).replace('+', '.')} has a server.*ring"):
            on_a_ring(case)
        return
    outcome = simulate(on_a_ring(case), tmp_path / "run")
    assert all(j in NEXT_TO[i] for i, j in exchanges)
    # Whatever is exchanged at all gets around everywhere, and is counted.
    asked = {i for i, _ in exchanges}
    assert asked == (set() if method_of(case) in WHO_ASKS_NOBODY else set(range(PEERS)))
    records: list[PeerRound] = of_kind(list(read(tmp_path / "run" / "events.jsonl")), PeerRound)
    counted = sum(sum(r.messages.values()) for r in records)
    assert counted == outcome.summary["messages"]["total"] <= exchanges.total()
    for r in records:
        assert set(r.notes.get("neighbours", ())) <= NEXT_TO[r.peer]
        assert {int(j) for j in r.notes.get("weights", ())} <= {r.peer, *NEXT_TO[r.peer]}


@pytest.mark.parametrize(
    ("case", "words", "each"),
    [
        ("gossip", ["method.k=5"], 2),  # of five wanted, two are there
        ("gossip", ["method.k=1"], 1),
        ("fixed", ["method.k=5"], 2),
        ("pens", ["method.l=5", "method.k=5"], 2),
        ("panm", ["method.l=5", "method.k=5", "method.tau=9"], 2),
        ("dfedavgm", ["method.k=4"], 2),  # the graph takes its ring's place
        ("mapl", ["method.t_thr=9"], 2),
    ],
)
def test_messages_of_a_peer_and_round(case: str, words: list[str], each: int, tmp_path: Path) -> None:
    simulate(small(case, *RING, *words), tmp_path / "run")
    records: list[PeerRound] = of_kind(list(read(tmp_path / "run" / "events.jsonl")), PeerRound)
    assert len(records) == 3 * PEERS
    assert {sum(r.messages.values()) for r in records} == {each}


def test_oracle_takes_those_of_its_kind_that_are_next_to_it(tmp_path: Path) -> None:
    """Two clusters of five on a ring of ten: peers 0, 4, 5 and 9 have one of their kind beside them, the others two."""
    simulate(small("oracle", *RING, "method.k=5"), tmp_path / "run")
    records: list[PeerRound] = of_kind(list(read(tmp_path / "run" / "events.jsonl")), PeerRound)
    assert {r.peer for r in records if r.messages["model"] == 1} == {0, 4, 5, 9}
    assert {r.peer for r in records if r.messages["model"] == 2} == {1, 2, 3, 6, 7, 8}


@pytest.mark.parametrize("case", ["gossip", "pens", "panm-grad", "mapl", "fedpae", "dfedavgm", "compfl-gossip"])
def test_plan_counts_the_same(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a method's course does not depend on training: to the message."""
    e = on_a_ring(case)
    file = tmp_path / "e.toml"
    file.write_text(e.toml(), encoding="utf-8")
    expected = simulate(e).summary["messages"]["total"]
    assert main(["plan", str(file)]) == 0
    said = capsys.readouterr().out
    if not e.method.unforeseen:
        assert f"in {expected} messages" in said
    else:
        assert "messages" in said


# -- whoever asks around the edges ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stubborn(Method):
    """Peer 0 asks the circle, or sends to it, as if there were no graph."""

    sends: bool = False

    async def round(self, me: Peer) -> None:
        me.shelve("model", me.model)
        if me.id:
            return
        if self.sends:
            await me.send(5, "model", me.model)
        await me.fetch(me.circle, "model")


@pytest.mark.parametrize(("sends", "verb"), [(False, "fetches 'model' from peer 2"), (True, "sends 'model' to peer 5")])
@pytest.mark.parametrize("engine", ["simulation", "processes"])
def test_a_method_of_ones_own_cannot_go_around_the_graph(sends: bool, verb: str, engine: str, tmp_path: Path) -> None:
    named = f"{Path(__file__).resolve()}:Stubborn"
    e = small("gossip", *RING, f"engine.name={engine}", "engine.workers=2")
    tables = {**e.tables(), "method": {"name": named, "sends": sends}}
    with pytest.raises(MethodError, match=f"peer 0 {verb}, but the .* has no edge between the two.*me.peers") as error:
        simulated.run(loading.from_tables(tables), tmp_path / "run")
    assert f"{Path(__file__).name}, line " in str(error.value)
    complete = loading.from_tables({**tables, "graph": {"kind": "complete"}})
    assert simulated.run(complete, tmp_path / "complete")["messages"]["total"] == 3 * (9 + sends)


def test_real_peers_refuse_around_the_graph_too(tmp_path: Path) -> None:
    e = small("gossip", "graph.kind=ring", "network.interval=0.2", "network.linger=1", "network.deadline=5")
    tables = {**e.tables(), "method": {"name": f"{Path(__file__).resolve()}:Stubborn", "sends": False}}
    with pytest.raises(MethodError, match="peer 0 fetches 'model' from peer 2"):  # a ring of four: 0 and 2 are opposite
        network(loading.from_tables(tables), tmp_path / "run")


@pytest.mark.parametrize("case", ["gossip", "panm", "mapl", "dfedavgm"])
def test_real_peers_compute_what_the_simulation_does(case: str) -> None:
    e = small(
        case, "graph.kind=ring", "engine.batching=never", "network.deadline=60", "network.interval=0.2",
        "network.linger=30",
    )  # fmt: skip
    real, expected = network(e), simulate(e)
    assert real.summary["messages"] == expected.summary["messages"]
    for mine, theirs in zip(real.vectors, expected.vectors, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


# -- the rule itself -------------------------------------------------------------------------------


def test_who_is_a_peer_of_whom() -> None:
    members = wiring.gather(small("gossip", *RING)).participants
    assert [list(me.peers) for me in members] == [sorted(NEXT_TO[i]) for i in range(PEERS)]
    assert all(list(me.linked) == list(me.peers) for me in members)
    assert [list(me.circle) for me in members] == [[j for j in range(PEERS) if j != i] for i in range(PEERS)]
    members[0].meet([1, 5, 7])  # on a network: who is there now
    assert (list(members[0].peers), list(members[0].circle)) == ([1], [1, 5, 7])
    assert [j for j in range(PEERS) if members[0].may_exchange_with(j)] == [0, 1, 9]
    free = wiring.gather(small("gossip", "peers=10")).participants[0]
    assert free.peers is free.circle
    assert all(free.may_exchange_with(j) for j in range(PEERS))


def test_who_is_among_the_others() -> None:
    others = Others(5, 2)
    assert [j for j in range(-1, 7) if j in others] == [0, 1, 3, 4]
    assert np.int64(3) in others
    assert "3" not in others


@pytest.mark.parametrize("words", [["graph.kind=ring", "baseline=fedavg"], ["graph.kind=ring", "method.name=ifca"]])
def test_a_server_is_refused_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["run", "panm-digits", *words, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "has a server, which reaches every peer, so graph.kind = ring would have no effect. Remove [graph]" in said
    assert not out.exists()


def test_a_comparison_names_the_method_that_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "compared"
    assert main(["compare", "gossip", "fedavg", "panm-digits", "graph.kind=ring", "--out", str(out)]) == 2
    assert "method.name = fedavg has a server" in capsys.readouterr().err
    assert not list(out.glob("*/events.jsonl"))


def test_a_setting_without_a_server_is_named_as_a_remedy() -> None:
    with pytest.raises(ConfigError, match="this one has none with other parameters"):
        small("compfl", "graph.kind=ring")


def test_a_file_of_edges_that_would_not_be_read_is_refused_on_a_complete_graph_too(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"graph.file = .* would be ignored, because graph.kind = 'complete'"):
        small("gossip", f"graph.file={tmp_path / 'edges.txt'}")


def test_the_bytes_of_a_complete_graph_are_as_ever(tmp_path: Path) -> None:
    """DFedAvgM tells its neighbours how many it has where there is a graph alone: bytes of old records stay true."""
    found: dict[str, Any] = {}
    for kind in ("complete", "ring"):
        simulate(small("dfedavgm", f"graph.kind={kind}"), tmp_path / kind)
        summary = json.loads((tmp_path / kind / "summary.json").read_text(encoding="utf-8"))
        found[kind] = summary["bytes"]["total"] / summary["messages"]["total"]
    assert found["ring"] > found["complete"]


def test_every_method_is_here() -> None:
    assert {method_of(case) for case in CASES} == set(METHODS)
