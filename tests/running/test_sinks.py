"""The events of real runs in TensorBoard's files and in an offline run of Weights & Biases, read back."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coterie import wiring
from coterie.config import loading, sections
from coterie.core.errors import ConfigError, Interrupted
from coterie.core.events import PeerRound, RunStarted
from coterie.core.summary import Summary
from coterie.running import simulated
from coterie.running.sinks import Sink, Sinks

TINY = (
    "peers=3", "rounds=3", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5", "model.hidden=[4]",
    "method.name=gossip", "method.k=1", "engine.workers=1", "engine.checkpoint=1", "baseline=",
)  # fmt: skip


def load(*words: str) -> sections.Experiment:
    return loading.load("panm-digits", [*TINY, *words])


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads from the folder."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def expected(folder: Path) -> dict[int, float]:
    """The mean validation accuracy of each round, from the events alone."""
    by_round: dict[int, list[float]] = {}
    for line in (folder / "events.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["event"] == "round":
            by_round.setdefault(record["round"], []).append(record["validation"])
    return {round: sum(found) / len(found) for round, found in by_round.items()}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that are not ours
def test_tensorboard_shows_what_the_events_say(tmp_path: Path) -> None:
    summary = simulated.run(load("engine.sinks=tensorboard"), tmp_path / "run")
    found = scalars(tmp_path / "run")
    assert dict(found["accuracy/validation"]) == pytest.approx(expected(tmp_path / "run"))
    assert found["test/last"] == [(3, pytest.approx(summary["accuracy"]["last"]["mean"]))]
    assert found["exchanged/bytes"][-1] == (3, pytest.approx(summary["bytes"]["total"]))
    assert {tag for tag in found if tag.startswith("peer_")} == {
        f"peer_{p}/{what}" for p in range(3) for what in ("validation", "loss")
    }
    assert not any(tag.startswith("test/") and step < 3 for tag, points in found.items() for step, _ in points)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_that_goes_on_tells_each_round_once(tmp_path: Path) -> None:
    def stop(simulation: Any) -> None:
        simulation.stop()

    e = load("engine.sinks=tensorboard")
    with pytest.raises(Interrupted):
        simulated.run(e, tmp_path / "run", on_start=stop)
    simulated.resume(tmp_path / "run")
    steps = [step for step, _ in scalars(tmp_path / "run")["accuracy/validation"]]
    assert steps == [1, 2, 3]


NOTING = """
from dataclasses import dataclass
from coterie import Method

@dataclass(frozen=True)
class Noting(Method):
    k: int = 1

    async def round(self, me):
        await me.train()
        me.note(loss_x=10.0 * me.round + me.id, loss=1.0, neighbours=[], table={"a": 1.0})
        me.note(**{"a b/<c>": 2.0, "a_b__c_": 3.0, "broken": float("nan") if me.id else 4.0})
"""


@pytest.fixture
def noting(tmp_path: Path) -> str:
    (tmp_path / "noting.py").write_text(NOTING)
    return f"method.name={tmp_path}/noting.py:Noting"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_numbers_that_a_method_notes_are_curves(tmp_path: Path, noting: str) -> None:
    simulated.run(load(noting, "engine.sinks=tensorboard"), tmp_path / "run")
    found = {tag: points for tag, points in scalars(tmp_path / "run").items() if "notes/" in tag}
    # The mean of 10 t + 0, 1 and 2.
    assert found["notes/loss_x"] == [(1, 11.0), (2, 21.0), (3, 31.0)]
    assert found["peer_2/notes/loss_x"] == [(1, 12.0), (2, 22.0), (3, 32.0)]
    assert found["notes/broken"] == [(t, 4.0) for t in (1, 2, 3)]  # of the one peer that has a number
    assert found["notes/loss"] == [(t, 1.0) for t in (1, 2, 3)]
    means = {tag for tag in found if tag.startswith("notes/")}
    assert means == {f"notes/{name}" for name in ("loss_x", "loss", "a_b__c_", "a_b__c__4", "broken")}
    assert found["notes/a_b__c_"][0] == (1, 2.0)
    assert found["notes/a_b__c__4"][0] == (1, 3.0)
    validation_loss = scalars(tmp_path / "run")["peer_0/loss"]
    assert [value for _, value in validation_loss] != [1.0] * 3  # a note of that name is not mixed up with it


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_notes_of_a_run_that_goes_on_are_told_once(tmp_path: Path, noting: str) -> None:
    e = load(noting, "engine.sinks=tensorboard")
    with pytest.raises(Interrupted):
        simulated.run(e, tmp_path / "run", on_start=lambda simulation: simulation.stop())
    simulated.resume(tmp_path / "run")
    assert scalars(tmp_path / "run")["notes/loss_x"] == [(1, 11.0), (2, 21.0), (3, 31.0)]


class Kept(Sink):
    """A sink that keeps what it is told."""

    package = "kept"

    def _open(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []

    def log(self, round: int, values: Mapping[str, float]) -> None:
        self.points.append((round, dict(values)))

    def total(self, values: Mapping[str, float], rounds: int) -> None: ...

    def close(self) -> None: ...


def noted(sink: Kept) -> list[tuple[int, dict[str, float]]]:
    found = ((t, {tag: v for tag, v in values.items() if "notes/" in tag}) for t, values in sink.points)
    return [(t, values) for t, values in found if values]


def test_a_server_and_a_crowd_note_numbers_too(tmp_path: Path) -> None:
    sink = Kept(tmp_path, load().tables(), False)
    sink.see(RunStarted("x", 0, 60, 1, [], [], [], None))  # too many for curves of their own
    sink.see(PeerRound(60, 1, 0.0, notes={"size": 7}))
    for peer in range(60):
        sink.see(PeerRound(peer, 1, 0.0, notes={"size": peer}))
    assert noted(sink) == [(1, {"server/notes/size": 7.0}), (1, {"notes/size": 29.5})]  # (0 + 59) / 2


def test_a_real_peer_shows_its_own_numbers(tmp_path: Path) -> None:
    sink = Kept(tmp_path, load().tables(), False)  # it sees no beginning, and nobody else
    for t in (1, 2):
        sink.see(PeerRound(4, t, 0.0, notes={"loss_x": 0.5 * t, "waited": 1.0, "cluster": t, "hop.cnn": t}))
    assert noted(sink) == [(1, {"peer 4/notes/loss_x": 0.5}), (2, {"peer 4/notes/loss_x": 1.0})]


def test_rounds_that_nobody_finishes_are_told_at_the_end(tmp_path: Path) -> None:
    sink = Kept(tmp_path, load().tables(), False)
    sink.see(RunStarted("x", 0, 2, 1, [], [], [], None))
    sink.see(PeerRound(0, 1, 0.0, notes={"a": 1}))  # the other never comes
    sink.finish(Summary(rounds=1))
    assert noted(sink) == [(1, {"peer 0/notes/a": 1.0}), (1, {"notes/a": 1.0})]


def test_too_many_names_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = Kept(tmp_path, load().tables(), False)
    for t in (1, 2):
        sink.see(PeerRound(0, t, 0.0, notes={f"n{i}": i for i in range(30)}))
    assert len(noted(sink)) == 2 * 24
    said = capsys.readouterr().err
    assert said.startswith("coterie: kept gets the first 24 numbers that the method notes; 'n24' and later ones")
    assert said.count("\n") == 1


@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_has_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DISABLE_GIT", "true")
    summary = simulated.run(load("engine.sinks=wandb"), tmp_path / "run")
    (written,) = (tmp_path / "run").glob("wandb/offline-run-*/run-*.wandb")
    until = time.monotonic() + 30  # the package's own process writes the end of the file
    history, totals = read_wandb(written)
    while "test/last" not in totals and time.monotonic() < until:
        time.sleep(0.1)
        history, totals = read_wandb(written)
    means = {row["round"]: row["accuracy/validation"] for row in history if "accuracy/validation" in row}
    assert means == pytest.approx(expected(tmp_path / "run"))
    assert totals["test/last"] == pytest.approx(summary["accuracy"]["last"]["mean"])


def read_wandb(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The curves and the totals of an offline run."""
    from wandb.proto import wandb_internal_pb2

    history: list[dict[str, Any]] = []
    totals: dict[str, Any] = {}
    for data in wandb_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            history.append({i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.history.item})
        if record.HasField("summary"):
            totals |= {i.key or ".".join(i.nested_key): json.loads(i.value_json) for i in record.summary.update}
    return history, totals


def wandb_records(data: bytes, block: int = 32768) -> list[bytes]:
    """The package's files are LevelDB logs: blocks of pieces, each with a checksum (4), a length (2) and a kind (1)."""
    found, parts, at = [], b"", 7  # after the file's own header
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or a last piece
            found.append(parts)
            parts = b""
    return found


def test_a_sink_that_fails_is_left_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.joinpath("tensorboard").write_text("a file where a folder should be")
    sinks = Sinks(["tensorboard"], tmp_path, load().tables())
    sinks.see(wiring.run_started(load(), wiring.gather(load())))
    sinks.finish(Summary.from_json({"accuracy": {"last": {"mean": 0.5}}, "rounds": 3}))
    sinks.close()
    assert capsys.readouterr().err.count("tensorboard failed and is disabled") == 1


def test_unknown_and_absent_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'tensorboard'"):
        load("engine.sinks=tensorbord")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match=r"pip install 'coterie\[wandb\]'"):
        load("engine.sinks=wandb")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of packages that are not ours
def test_every_metric_is_shown_and_test_values_only_at_the_end(tmp_path: Path) -> None:
    summary = simulated.run(load("engine.sinks=tensorboard", "evaluate.metrics=auroc,log_loss"), tmp_path / "run")
    found = scalars(tmp_path / "run")
    last = summary["scores"]["log_loss"]["last"]["mean"]
    assert found["test/log_loss/last"] == [(3, pytest.approx(last))]
    assert [step for step, _ in found["log_loss/validation"]] == [1, 2, 3]
    assert [step for step, _ in found["peer_1/auroc/validation"]] == [1, 2, 3]
    assert {tag for tag in found if "test" in tag} == {
        f"test/{what}"
        for what in ("last", "selected", "auroc/last", "auroc/selected", "log_loss/last", "log_loss/selected")
    }
