"""The figures of a run against values worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from coterie.core.errors import RunError
from coterie.core.events import Event, NotFinite, PeerRound, RunStarted
from coterie.core.summary import NeighbourScores, Summary
from coterie.report import summary as module
from coterie.report.measures import by_architecture
from coterie.report.summary import mass_by_round, neighbours_by_round, summarise, write_graph, write_json
from coterie.terminal.display import results


def test_last_accuracy(tiny: list[Event]) -> None:
    last = summarise(tiny, 1.0)["accuracy"]["last"]
    assert last["per_peer"] == [0.6, 0.9, 0.1]
    assert last["mean"] == pytest.approx(1.6 / 3)
    # The mean of squares is (0.36 + 0.81 + 0.01) / 3 = 1.18 / 3.
    assert last["std"] == pytest.approx(math.sqrt(1.18 / 3 - (1.6 / 3) ** 2))
    assert last["worst_decile"] == 0.1


def test_equal_validation_is_decided_by_loss_then_by_the_earlier_round(tiny: list[Event]) -> None:
    selected = summarise(tiny, 1.0)["accuracy"]["selected"]
    assert selected["per_peer"] == [0.6, 0.7, 0.5]  # lower loss in round 2, lower loss in round 1, all equal
    assert selected["mean"] == pytest.approx(0.6)
    assert selected["std"] == pytest.approx(math.sqrt(0.02 / 3))
    assert selected["worst_decile"] == 0.5


def test_accuracy_by_architecture(tiny: list[Event]) -> None:
    """Peers 0 and 2 have an mlp, peer 1 a cnn. Last: (0.6 + 0.1) / 2 and 0.9; selected: (0.6 + 0.5) / 2 and 0.7."""
    summary = summarise(tiny, 1.0)
    assert summary["accuracy"]["last"]["by_architecture"] == {"cnn": 0.9, "mlp": pytest.approx(0.35)}
    assert summary["accuracy"]["selected"]["by_architecture"] == {"cnn": 0.7, "mlp": pytest.approx(0.55)}
    assert "by architecture                   cnn 90.0%, mlp 35.0%" in results(summary, Path("x"))


def test_who_was_never_measured_does_not_count_for_its_architecture(tiny: list[Event]) -> None:
    without = [e for e in tiny if not (isinstance(e, PeerRound) and e.peer == 2)]
    assert summarise(without, 1.0)["accuracy"]["last"]["by_architecture"] == {"cnn": 0.9, "mlp": 0.6}
    without = [e for e in tiny if not (isinstance(e, PeerRound) and e.peer == 1)]
    assert summarise(without, 1.0)["accuracy"]["last"]["by_architecture"]["cnn"] is None


def test_one_architecture_is_not_broken_down(tiny: list[Event]) -> None:
    start = tiny[0]
    assert isinstance(start, RunStarted)
    alike = [replace(start, architectures=["mlp"] * 3), *tiny[1:]]
    summary = summarise(alike, 1.0)
    assert "by_architecture" not in summary["accuracy"]["last"]
    assert "by architecture" not in results(summary, Path("x"))


@pytest.mark.parametrize("method", ["fedpae", "local-ensemble"])
def test_an_ensemble_has_no_architecture(tiny: list[Event], method: str) -> None:
    """Each peer has models of several: the one that it begins with does not tell what its accuracy is of."""
    start = tiny[0]
    assert isinstance(start, RunStarted)
    assert len(set(start.architectures)) == 2
    events = [replace(start, method=method), *tiny[1:]]
    assert "by_architecture" not in summarise(events, 1.0)["accuracy"]["last"]
    assert by_architecture(events, "accuracy", "test") == {}


def test_what_peers_had_measured_beside_is_by_architecture_too(tiny: list[Event]) -> None:
    also = [
        replace(e, notes={**e.notes, "beside": {"mixture": {"test": 0.2 * (1 + e.peer)}}})
        if isinstance(e, PeerRound) and e.test is not None
        else e
        for e in tiny
    ]
    found = summarise(also, 1.0)["beside"]["mixture"]["by_architecture"]  # 0.2, 0.4 and 0.6, by peer
    assert found == {"cnn": 0.4, "mlp": pytest.approx(0.4)}


def test_what_compfl_notes_of_its_losses_is_the_mean_of_what_each_client_noted_last(tiny: list[Event]) -> None:
    """Peer 0 notes 1 and then 3, peer 1 notes 5 in round 1 alone, peer 2 nothing finite: (3 + 5) / 2."""
    noted = {(0, 1): 1.0, (0, 2): 3.0, (1, 1): 5.0, (2, 2): None, (3, 2): 99.0}
    events = [
        replace(e, notes={**e.notes, "lf_over_ce.mlp": noted[e.peer, e.round]})
        if isinstance(e, PeerRound) and (e.peer, e.round) in noted
        else e
        for e in tiny
    ]
    assert summarise(events, 1.0)["lf_over_ce"] == {"mlp": 4.0}
    assert "lf_over_ce" not in summarise(tiny, 1.0)


def test_better_validation_comes_before_lower_loss(tiny: list[Event]) -> None:
    better = PeerRound(1, 3, 5.0, 0.81, 0.2, 9.0)
    events = [*tiny, better]
    assert summarise(events, 1.0)["accuracy"]["selected"]["per_peer"] == [0.6, 0.2, 0.5]


def test_a_server_is_no_peer(tiny: list[Event]) -> None:
    events = [*tiny, PeerRound(3, 2, 4.0, 1.0, 1.0, 0.0)]
    assert summarise(events, 1.0)["accuracy"] == summarise(tiny, 1.0)["accuracy"]


def test_what_was_exchanged_and_when(tiny: list[Event]) -> None:
    summary = summarise(tiny, 12.5)
    assert summary["bytes"] == {"total": 2305, "by_artifact": {"model": 2300, "probe": 5}}  # the server's too
    assert summary["messages"] == {"total": 13, "by_artifact": {"model": 12, "probe": 1}}
    assert summary["simulated_seconds"] == 4.5
    assert summary["seconds"] == 12.5
    assert [summary[k] for k in ("method", "seed", "peers", "rounds")] == ["panm", 7, 3, 2]


def test_neighbours_against_the_true_clusters(tiny: list[Event]) -> None:
    scores = neighbours_by_round(tiny)
    # Round 1: peer 0 lists a stranger, peer 1 its one relative (and itself, which does not count), peer 2 a
    # stranger; peer 2 is alone in its cluster and has no recall.
    assert scores[1] == pytest.approx((1 / 3, 1 / 2))
    # Round 2: one of two, one of one, and peer 2 lists nobody.
    assert scores[2] == pytest.approx((3 / 4, 1.0))
    assert summarise(tiny, 1.0)["neighbours"] == {"precision": 0.75, "recall": 1.0, "mass": 0.875}
    # Over both rounds: (1/3 + 3/4) / 2, (1/2 + 1) / 2, and mass, below, (0.5 + 0.875) / 2.
    assert summarise(tiny, 1.0)["neighbours_mean"] == pytest.approx(
        {"precision": 13 / 24, "recall": 0.75, "mass": 0.6875}
    )


def test_a_round_without_listed_neighbours_has_no_precision(tiny: list[Event]) -> None:
    """As in a method's first round, before any peer knows another. Recall is 0 then: none of its cluster is known."""
    lonely = [replace(e, notes={"neighbours": [e.peer]}) if isinstance(e, PeerRound) and e.round == 1 else e
              for e in tiny]  # fmt: skip
    assert neighbours_by_round(lonely)[1] == (0.0, 0.0)
    assert summarise(lonely, 1.0)["neighbours_mean"] == {"precision": 0.75, "recall": 0.5, "mass": 0.875}
    never = [replace(e, notes={"neighbours": []}) if isinstance(e, PeerRound) else e for e in tiny]
    assert summarise(never, 1.0)["neighbours_mean"] == {"recall": 0.0}


def test_the_terminal_shows_the_last_round_and_the_mean(tiny: list[Event]) -> None:
    summary = summarise(tiny, 1.0)
    text = results(summary, Path("runs/x"))
    assert "neighbours from the same cluster    precision 0.75, recall 1.00, mass 0.88\n" in text
    assert "the same, mean over rounds          precision 0.54, recall 0.75, mass 0.69\n" in text
    old = replace(summary, neighbours_mean=NeighbourScores())
    assert "mean over rounds" not in results(old, Path("runs/x"))


def test_the_mass_inside_the_clusters(tiny: list[Event]) -> None:
    # Round 1: half of peer 0's weight is its own. Round 2: peer 0 has 0.75 of 1 (the server's 0.125 left out) on
    # itself and peer 1, peer 1 all on peer 0, and peer 2 notes none.
    assert mass_by_round(tiny) == {1: 0.5, 2: 0.875}


def test_only_the_weights_of_the_last_noted_round_count(tiny: list[Event]) -> None:
    later = PeerRound(0, 3, 5.0, notes={"neighbours": [1]})
    assert summarise([*tiny, later], 1.0)["neighbours"] == {"precision": 1.0, "recall": 1.0}
    empty = PeerRound(0, 3, 5.0, notes={"neighbours": [1], "weights": {}})
    assert summarise([*tiny, empty], 1.0)["neighbours"] == {"precision": 1.0, "recall": 1.0}


def test_a_method_without_weights_has_no_mass_and_one_without_lists_nothing_else(tiny: list[Event]) -> None:
    def noting(what: str) -> list[Event]:
        return [replace(e, notes={k: v for k, v in e.notes.items() if k == what}) if isinstance(e, PeerRound) else e
                for e in tiny]  # fmt: skip

    assert summarise(noting("neighbours"), 1.0)["neighbours"] == {"precision": 0.75, "recall": 1.0}
    assert summarise(noting("weights"), 1.0)["neighbours"] == {"mass": 0.875}


def test_without_the_truth_there_are_no_neighbour_scores(tiny: list[Event]) -> None:
    assert isinstance(tiny[0], RunStarted)
    events = [replace(tiny[0], clusters=None), *tiny[1:]]
    assert "neighbours" not in summarise(events, 1.0)


@pytest.mark.parametrize(("peers", "worst"), [(9, 0.0), (19, 0.0), (20, 0.005), (35, 0.01)])
def test_the_worst_tenth_is_at_least_one_peer(peers: int, worst: float) -> None:
    start = RunStarted("local", 0, peers, 1, [], [], [], None)
    events: list[Event] = [start, *(PeerRound(p, 1, 0.0, 0.5, p / 100, 1.0) for p in range(peers))]
    assert summarise(events, 1.0)["accuracy"]["last"]["worst_decile"] == pytest.approx(worst)


def test_nothing_measured() -> None:
    summary = summarise([RunStarted("local", 0, 2, 1, [], [], [], None)], 1.0)
    nothing: dict[str, object] = {"mean": None, "std": None, "worst_decile": None, "per_peer": [None, None]}
    assert summary["accuracy"] == {"last": nothing, "selected": nothing}
    assert summary["bytes"] == {"total": 0, "by_artifact": {}}


def test_no_beginning() -> None:
    with pytest.raises(RunError, match="the run's start is missing"):
        summarise([PeerRound(0, 1, 0.0)], 1.0)


def test_a_dense_graph(tiny: list[Event], tmp_path: Path) -> None:
    assert write_graph(tiny, tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz") as graph:
        assert graph["rounds"].tolist() == [1, 2]
        assert graph["weights"].tolist() == [
            [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
            [[0.25, 0.5, 0.25], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]],  # without the server's row and column
        ]
    assert [p.name for p in tmp_path.iterdir()] == ["graph.npz"]


def test_a_large_graph_is_sparse(tiny: list[Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DENSE_GRAPH_NUMBERS", 17)  # of 2 x 3 x 3
    assert write_graph(tiny, tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz") as graph:
        assert graph["rounds"].tolist() == [1, 2]
        rows = zip(*(graph[k].tolist() for k in ("round", "row", "column", "weight")), strict=True)
        assert sorted(rows) == [
            (1, 0, 0, 0.5), (1, 0, 2, 0.5), (2, 0, 0, 0.25), (2, 0, 1, 0.5), (2, 0, 2, 0.25), (2, 1, 0, 1.0),
        ]  # fmt: skip


def test_a_large_graph_keeps_some_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DENSE_GRAPH_NUMBERS", 0)
    monkeypatch.setattr(module, "SPARSE_GRAPH_ROUNDS", 3)
    rounds = (PeerRound(0, t, 0.0, notes={"weights": {"1": t / 16}}) for t in range(1, 8))
    assert write_graph([RunStarted("x", 0, 2, 7, [], [], [], None), *rounds], tmp_path / "graph.npz")
    with np.load(tmp_path / "graph.npz") as graph:
        assert graph["rounds"].tolist() == graph["round"].tolist() == [1, 4, 7]
        assert graph["weight"].tolist() == [1 / 16, 4 / 16, 7 / 16]


def test_no_graph(tmp_path: Path) -> None:
    events: list[Event] = [RunStarted("local", 0, 1, 1, [], [], [], None), PeerRound(0, 1, 0.0)]
    assert not write_graph(events, tmp_path / "graph.npz")
    assert not list(tmp_path.iterdir())


def test_the_summary_file(tiny: list[Event], tmp_path: Path) -> None:
    summary = summarise(tiny, 1.0)
    write_json(tmp_path / "summary.json", summary)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]
    assert Summary.read(tmp_path / "summary.json") == summary


def test_the_summary_file_to_the_letter(tmp_path: Path) -> None:
    """The names and order of all fields: one peer, one round, everything that a method can note, and it diverged."""
    notes = {
        "neighbours": [1], "weights": {"0": 1.0}, "waited": 0.5, "helped": 1, "lf_over_ce.mlp": 0.25, "own_share": 0.5,
        "beside": {"alone": {"test": 0.25}},
    }  # fmt: skip
    events: list[Event] = [
        RunStarted("x", 7, 2, 1, ["mlp", "cnn"], [4, 4], [[4], [4]], [0, 0]),
        PeerRound(0, 1, 2.0, 0.75, 0.5, None, {"model": 8}, {"model": 1}, notes),
        NotFinite(0, 1, 2.0),
    ]
    write_json(tmp_path / "summary.json", replace(summarise(events, 3.0), mixture=("after round 1: x",)))
    # One of two peers: `change` is 0.5 / 0.25 - 1, and `idle` the mean of 0.5 s of 2 s, and of nothing.
    spread = '"std": 0.0, "worst_decile": {0}, "per_peer": [{0}, null], "by_architecture": {{"cnn": null, "mlp": {0}}}'
    last, alone = (f'{{"mean": {value}, {spread.format(value)}}}' for value in (0.5, 0.25))
    alone = alone.removesuffix("}") + ', "change": {"least": 1.0, "mean": 1.0, "most": 1.0}}'
    scores = '{"precision": 1.0, "recall": 1.0, "mass": 1.0}'
    expected = (
        '{"method": "x", "seed": 7, "peers": 2, "rounds": 1, '
        f'"accuracy": {{"last": {last}, "selected": {last}}}, "validation": {{"last": 0.75, "selected": 0.75}}, '
        '"bytes": {"total": 8, "by_artifact": {"model": 8}}, "messages": {"total": 1, "by_artifact": {"model": 1}}, '
        '"simulated_seconds": 2.0, "idle": {"mean": 0.125, "most": 0.25}, "over_time": [], "seconds": 3.0, '
        f'"not_finite": {{"peers": [0], "since": 1}}, "beside": {{"alone": {alone}, "own_share": 0.5}}, '
        f'"helped": 1.0, "lf_over_ce": {{"mlp": 0.25}}, "neighbours": {scores}, "neighbours_mean": {scores}, '
        '"mixture": ["after round 1: x"]}'
    )
    written = (tmp_path / "summary.json").read_text()
    assert written == json.dumps(json.loads(expected), indent=2) + "\n"
    rebuilt = replace(Summary.read(tmp_path / "summary.json"))  # from the typed fields, not from the JSON that was read
    assert json.dumps(rebuilt.to_json(), indent=2) + "\n" == written
