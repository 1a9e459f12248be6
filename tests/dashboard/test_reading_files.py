"""Files are followed as they grow, whatever state they are in, and a large one is never read twice."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from dashboard_support import make_run, record, start, write_round

from coterie.config.loading import load
from coterie.core import tail
from coterie.core.events import EventLog, PeerAway, PeerRound
from coterie.core.tail import Tail
from coterie.dashboard.history import MOST_POINTS, History
from coterie.dashboard.ties import Places, favourites, matrix, rows
from coterie.dashboard.versions import Versions
from coterie.dashboard.view import RunView
from coterie.report.layout import spring_layout
from coterie.running.folders import RunEntry, find_runs
from coterie.running.progress import Progress, RoundProgress


def line(**values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(a=1) + b'{"a": ')
    follow = Tail(path)
    assert follow.look() == (False, [{"a": 1}])
    assert follow.look() == (False, [])
    with path.open("ab") as file:
        file.write(b"2}\n" + line(a=3))
    assert follow.look() == (False, [{"a": 2}, {"a": 3}])
    assert follow.trouble == ""


def test_a_damaged_line_is_skipped_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(a=1) + b"\xff\x00 no record\n" + b"[1]\n" + line(a=2))
    follow = Tail(path)
    assert follow.look()[1] == [{"a": 1}, {"a": 2}]
    assert follow.trouble == "events.jsonl: line 2 is damaged and was skipped."


def test_a_file_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(line(a=1) + line(a=2))
    follow = Tail(path)
    follow.look()
    (tmp_path / "new").write_bytes(line(a=1) + line(a=20) + line(a=3))
    (tmp_path / "new").replace(path)
    assert follow.look() == (True, [{"a": 1}, {"a": 20}, {"a": 3}])
    path.write_bytes(line(a=9))  # cut
    assert follow.look() == (True, [{"a": 9}])


def test_a_large_file_is_read_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "STEP", 50)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(line(number=i) for i in range(10)) + line(long="x" * 200) + line(number=10))
    follow, found, looks = Tail(path), [], 0
    while looks == 0 or follow.behind:
        found += follow.look()[1]
        looks += 1
    found += follow.look()[1]
    assert [r["number"] for r in found if "number" in r] == list(range(11))
    assert len(found) == 12
    assert looks > 3


def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    follow = Tail(tmp_path / "events.jsonl")
    assert follow.look() == (False, [])
    assert follow.trouble == ""


def test_the_figures_of_a_round() -> None:
    """Of 0.2, 0.4, 0.6 and 0.8 the mean is 0.5, and the quantiles 0.1 and 0.25 lie at 0.2 + 0.2 * (0.3, 0.75)."""
    history = History()
    history.see(start(4, 10))
    for peer, accuracy in enumerate([0.2, 0.4, 0.6, 0.8]):
        assert history.points(set()) == {}, "a round is shown when everybody has finished it"
        history.see(record(peer, 1, accuracy))
    [point] = history.points(set()).values()
    assert point["validation"] == pytest.approx(0.5)
    assert point["band"] == pytest.approx([0.26, 0.35, 0.65, 0.74])
    assert point["each"] == [0.2, 0.4, 0.6, 0.8]
    assert (sum(history.bytes.values()), history.messages["model"]) == (400, 4)


def test_a_mean_is_the_one_of_the_terminal_to_the_last_bit() -> None:
    """0.58249 must not become 0.5825, and then 58.3%; nor may the order of peers matter: 0.1 + 0.2 + 0.3 is not 0.6."""
    for scores in ([0.58249] * 3, [0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [i / 7 for i in range(7)]):
        history, told = History(), list[RoundProgress]()
        progress = Progress(len(scores), 1, None, told.append)
        history.see(start(len(scores), 1))
        for peer, accuracy in enumerate(scores):
            history.see(record(peer, 1, accuracy))
            later = len(scores) - 1 - peer  # a simulation's peers may end their round in another order
            progress.see(PeerRound(later, 1, 0.0, scores[later]))
        [point] = history.points(set()).values()
        assert point["validation"] == told[0].validation


def test_no_figure_waits_for_a_peer_that_left() -> None:
    history = History()
    for event in (start(3, 10), record(0, 1, 0.4), record(1, 1, 0.6)):
        history.see(event)
    assert history.done(set()) == 0
    assert history.done({2}) == 1
    history.see(vars(PeerAway(2, 1, 1.0, None)))
    assert history.done(set()) == 1
    assert history.points(set())["0"]["validation"] == pytest.approx(0.5)


def test_who_was_away_and_came_back() -> None:
    history = History()
    for event in (start(1, 10), record(0, 1), vars(PeerAway(0, 2, 1.0, 1.0)), record(0, 3)):
        history.see(event)
    assert history.back == {0: 3}


def test_many_rounds_become_few_points() -> None:
    history = History()
    history.see(start(1, 1_000))
    for round in range(1, 1_001):
        history.see(record(0, round, round / 1_000))
    points = history.points(set())
    assert len(points) <= MOST_POINTS
    assert max(p["round"] for p in points.values()) == 1_000
    assert all(p["validation"] == pytest.approx(p["round"] / 1_000) for p in points.values())


def test_what_is_no_record_is_left_out() -> None:
    history = History()
    history.see(start(1, 10))
    for bad in ({}, {"event": "round"}, {"event": "nothing"}, record("x", 1), {**start(1, 1), "peers": 10**9}):  # type: ignore[arg-type]
        history.see(bad)
    assert history.trouble
    history.see(record(0, 1))
    assert history.at == {0: 1}


def test_ties_and_matrix() -> None:
    """Peers 0 and 2 are of one cluster, so the matrix has the order 0, 2, 1; its largest weight is 0.5."""
    history = History()
    history.see(start(3, 10, clusters=[0, 1, 0]))
    history.see(record(0, 1, weights={"0": 0.5, "2": 0.5}))
    history.see(record(1, 1, neighbours=[0, 2]))  # in equal parts, where no weights are told
    history.see(record(2, 1, weights={"0": 0.25, "1": 0.125, "2": 0.625, "77": 1.0}))
    assert rows(history) == {"0": [[2, 0.5]], "1": [[2, 0.5], [0, 0.5]], "2": [[0, 0.25], [1, 0.125]]}
    assert favourites(history, 1) == {"who": [0, 2], "of": 2, "weight": 0.5}
    found = matrix(history)
    assert found is not None
    assert (found["order"], found["clusters"], found["most"]) == ([0, 2, 1], [0, 0, 1], 0.5)
    import base64

    # Rows 0, 2, 1 and columns 0, 2, 1 in units of 0.5/255: 0.5 is 255, 0.25 is 128 (127.5, to even), 0.125 is 64.
    assert list(base64.b64decode(found["cells"])) == [0, 255, 0, 128, 0, 64, 255, 255, 0]


def test_peers_without_known_clusters_are_ordered_by_their_most_frequent_class() -> None:
    """Peers 0 and 2 have most samples of class 1, peer 1 of class 0; as in the report's matrix, peer 1 is first."""
    history = History()
    history.see({**start(3, 10), "classes": [[1, 9], [9, 1], [2, 8]]})
    history.see(record(0, 1, weights={"2": 0.5}))
    found = matrix(history)
    assert found is not None
    assert found["order"] == [1, 0, 2]


def test_places_are_those_of_the_report_and_follow_the_ties() -> None:
    """Peers 0 and 3 take from each other, 1 and 2 too: each is nearer to its partner than to any other peer."""
    history, places = History(), Places()
    history.see(start(4, 10))
    for peer, partner in ((0, 3), (1, 2), (2, 1), (3, 0)):
        history.see(record(peer, 1, weights={str(partner): 1.0}))
    at = places.of(history)
    nearest = [min((math.dist(a, b), j) for j, b in enumerate(at) if j != i)[1] for i, a in enumerate(at)]
    assert nearest == [3, 2, 1, 0]
    pairs = np.zeros((4, 4))
    pairs[[0, 1, 2, 3], [3, 2, 1, 0]] = 1.0
    assert at == np.round(spring_layout(pairs), 3).tolist()
    assert places.of(history) is at  # not computed again
    history.see(record(0, 2, weights={"1": 1.0}))
    assert places.of(history) != at


def test_a_page_gets_only_what_changed() -> None:
    versions = Versions()
    versions.put({"peers": {"0": 1, "1": 2}})
    first = versions.after(0)
    assert first["anew"]
    assert first["set"] == {"peers": {"0": 1, "1": 2}}
    versions.put({"peers": {"0": 1, "1": 3}})
    assert versions.after(first["version"]) == {"version": 2, "anew": False, "set": {"peers": {"1": 3}}}
    assert not versions.put({"peers": {"0": 1, "1": 3}})
    versions.reset()
    versions.put({"peers": {"0": 1}})
    assert versions.after(2) == {"version": 4, "anew": True, "set": {"peers": {"0": 1}}}


def test_a_resumed_run_restarts_on_the_page(tmp_path: Path) -> None:
    """Its log is cut to the checkpoint, in a new file: what came after is forgotten, and counted once."""
    log = make_run(tmp_path / "run", peers=2)
    for round in (1, 2):
        write_round(log, round, [0.5, 0.5])
    view = RunView(RunEntry("run", tmp_path / "run", "simulation"))
    view.refresh()
    assert view.versions.after(0)["set"]["figures"]["it"]["bytes"] == 400
    again = EventLog(log.path)
    again.keep_until(1)
    write_round(again, 2, [0.7, 0.7])
    while view.refresh():
        pass
    view.refresh()
    told = view.versions.after(1)
    assert told["anew"]
    assert told["set"]["figures"]["it"]["bytes"] == 400
    assert told["set"]["points"]["1"]["validation"] == pytest.approx(0.7)


def test_a_damaged_config_leaves_what_the_events_say(tmp_path: Path) -> None:
    make_run(tmp_path / "run", peers=2).close()
    (tmp_path / "run" / "config.toml").write_text("no toml [[", encoding="utf-8")
    view = RunView(RunEntry("run", tmp_path / "run", "simulation"))
    view.refresh()
    about = view.versions.after(0)["set"]["about"]["it"]
    assert (about["method"], about["seed"], about["peers"], about["data"]) == ("gossip", 0, 2, None)


def test_a_run_that_has_just_begun_is_listed_before_there_are_events(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.toml").write_text(load("panm-digits", ["rounds=7"]).toml(), encoding="utf-8")
    os.utime(tmp_path / "old" / "config.toml", (1e9, 1e9))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text("[server]\nport = 80\n", encoding="utf-8")
    found = find_runs(tmp_path, {})
    assert {id: run.listed()["state"] for id, run in found.items()} == {"new": "starting", "old": "unfinished"}
    assert (found["new"].listed()["method"], found["new"].listed()["rounds"]) == ("panm", 7)
    view = RunView(found["new"])
    assert not view.refresh()
    assert view.versions.after(0)["set"]["figures"]["it"]["state"] == "starting"


def test_runs_are_found_up_to_three_folders_down(tmp_path: Path) -> None:
    for name in ("a", "table/b", "table/deep/c", "table/deep/er/d", ".hidden", "a/models"):
        make_run(tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "up" / "peers" / "peer-0").mkdir(parents=True)
    make_run(tmp_path / "up")
    make_run(tmp_path / "up/peers/peer-0")
    found = find_runs(tmp_path, {})
    assert {id: run.kind for id, run in found.items()} == {
        "a": "simulation", "table/b": "simulation", "table/deep/c": "simulation", "up": "circle",
    }  # fmt: skip
    assert find_runs(tmp_path, found)["a"] is found["a"]


COST = {"name": "cost", "label": "cost", "higher_is_better": False, "unit": ""}


def test_the_main_metric_of_a_run_and_the_others() -> None:
    history = History()
    history.see({**start(2, 1), "metrics": [COST], "select": "cost"})
    history.see({**record(0, 1, 0.5), "scores": {"cost": [2.0, 3.0]}})
    history.see({**record(1, 1, 0.7), "scores": {"cost": [4.0, None]}})
    assert [metric.name for metric in history.metrics] == ["cost", "accuracy"]
    [point] = history.points(set()).values()
    assert (point["validation"], point["test"], point["of"]) == (3.0, 3.0, 2)  # of the cost
    assert point["others"]["accuracy"]["validation"] == pytest.approx(0.6)
    assert history.validation == {0: 2.0, 1: 4.0}
    assert history.curves(1) == {"cost": [[1, 4.0]], "accuracy": [[1, 0.7]]}


def test_a_regression_has_no_accuracy_to_show() -> None:
    history = History()
    history.see({**start(2, 1), "metrics": [COST], "select": "cost", "task": "regression"})
    for peer in range(2):
        history.see({**record(peer, 1, None), "scores": {"cost": [1.0 + peer, None]}})
    [point] = history.points(set()).values()
    assert (point["validation"], point["test"]) == (1.5, None)
    assert point["others"] == {}
    assert history.trouble == ""


@pytest.mark.parametrize("metrics", [3, [3], [{}], {"name": "x"}])
def test_damaged_metrics_leave_accuracy(metrics: object) -> None:
    history = History()
    history.see({**start(1, 1), "metrics": metrics})
    history.see({**record(0, 1, 0.5), "scores": [1]})
    assert [metric.name for metric in history.metrics] == ["accuracy"]
    assert history.points(set())["0"]["validation"] == 0.5
