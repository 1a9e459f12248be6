"""Run folders and events: what is refused, what is overwritten, what a crash may leave."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from simulation_support import tiny

from coterie.core import events
from coterie.core.errors import CoterieError, RunError
from coterie.core.events import EventLog, PeerRound
from coterie.running import simulated
from coterie.running.progress import RoundProgress


def test_an_existing_folder_is_refused_then_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()  # an empty one is as good as none
    first = simulated.run(tiny("local", rounds=1), out)
    before = (out / "summary.json").read_bytes()
    with pytest.raises(RunError, match=r"already exists.*--overwrite.*--resume"):
        simulated.run(tiny("local", rounds=2), out)
    assert (out / "summary.json").read_bytes() == before
    (out / "stale").touch()
    second = simulated.run(tiny("local", rounds=2), out, overwrite=True)
    assert (first["rounds"], second["rounds"]) == (1, 2)
    assert not (out / "stale").exists()


def test_what_is_not_a_run_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    for overwrite in (False, True):
        with pytest.raises(RunError):
            simulated.run(tiny("local", rounds=1), tmp_path, overwrite=overwrite)
    with pytest.raises(RunError):
        simulated.run(tiny("local", rounds=1), tmp_path / "thesis.tex", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text(encoding="utf-8") == "years of work"


def test_a_config_alone_does_not_make_a_run(tmp_path: Path) -> None:
    """Many folders have a config.toml; only one with a run's events is a run's."""
    (tmp_path / "config.toml").write_text("[tool.other]\n", encoding="utf-8")
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(RunError, match="not the folder of a run"):
        simulated.run(tiny("local", rounds=1), tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_overwriting_with_a_mistake_keeps_the_old_run(tmp_path: Path) -> None:
    simulated.run(tiny("local", rounds=1), tmp_path / "run")
    with pytest.raises(CoterieError):
        simulated.run(tiny("local", "data.name=nowhere.csv", rounds=1), tmp_path / "run", overwrite=True)
    assert (tmp_path / "run" / "summary.json").exists()


def test_resuming_a_finished_run_returns_its_summary(tmp_path: Path) -> None:
    summary = simulated.run(tiny("gossip", "method.k=1"), tmp_path / "run")
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir()}
    assert simulated.resume(tmp_path / "run") == json.loads(json.dumps(summary))
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "run").iterdir()} == files


def test_a_damaged_summary_is_named(tmp_path: Path) -> None:
    simulated.run(tiny("local", rounds=1), tmp_path / "run")
    (tmp_path / "run" / "summary.json").write_text('{"x', encoding="utf-8")
    with pytest.raises(RunError, match=r"summary.json cannot be read .*delete it"):
        simulated.resume(tmp_path / "run")


class StoppedError(Exception):
    pass


def stopped(out: Path) -> None:
    """A run of six rounds that was killed after the fourth, with a checkpoint of it."""

    def stop(progress: RoundProgress) -> None:
        if progress.round == 4:
            raise StoppedError

    with pytest.raises(StoppedError):
        simulated.run(tiny("gossip", "method.k=1", "engine.checkpoint=1", rounds=6), out, on_round=stop)


def test_events_that_lack_rounds_are_not_gone_on_with(tmp_path: Path) -> None:
    stopped(tmp_path / "run")
    path = tmp_path / "run" / "events.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"round":2,' not in line), encoding="utf-8")
    with pytest.raises(RunError, match=r"events.jsonl has no events of round 2, .*--overwrite"):
        simulated.resume(tmp_path / "run")


def test_without_a_checkpoint_it_says_that_it_begins_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stopped(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    assert simulated.resume(tmp_path / "run")["rounds"] == 6
    assert "has no checkpoint: starting over at round 1" in caplog.text


def test_a_circle_of_real_peers_is_not_gone_on_with_as_a_simulation(tmp_path: Path) -> None:
    stopped(tmp_path / "run")
    (tmp_path / "run" / "peers").mkdir()
    with pytest.raises(RunError, match="coterie up --resume"):
        simulated.resume(tmp_path / "run")


def test_resuming_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not the folder of a run"):
        simulated.resume(tmp_path)


def test_the_config_repeats_the_run(tmp_path: Path) -> None:
    from coterie.config import loading

    words = ["clock.offline=[[1, 0.5, inf]]", "clock.latency=[0.25, 1e-05]", "engine.asynchronous=true"]
    e = tiny("gossip", "method.k=1", *words)
    simulated.run(e, tmp_path / "run")
    assert loading.load(str(tmp_path / "run" / "config.toml")) == e


def test_a_peer_that_left_early_has_no_accuracy_of_another(tmp_path: Path) -> None:
    """`per_peer` has one entry for every peer, also for those that left before their first measurement."""
    e = tiny("local", "clock.speed=12", "clock.offline=[[0, 0.5, inf]]")
    accuracy = simulated.run(e, tmp_path / "run")["accuracy"]["last"]
    assert len(accuracy["per_peer"]) == 3
    assert accuracy["per_peer"][0] is None


# -- events ------------------------------------------------------------------------------------


def written(path: Path) -> list[str]:
    log = EventLog(path)
    for round in range(1, 5):
        log.write(
            PeerRound(0, round, float(round), 0.5, 0.25, 1.0, {"model": 10}, {"model": 1}, {"weights": {"1": 0.5}})
        )
    log.close()
    return path.read_text(encoding="utf-8").splitlines()


def test_events_are_read_as_written(tmp_path: Path) -> None:
    written(tmp_path / "events.jsonl")
    assert [e.round for e in events.read(tmp_path / "events.jsonl") if isinstance(e, PeerRound)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "told",
    [
        {"huge": 2**70},
        {"half a character": "\ud83d"},
        {"weights": {3: 0.25}},
        {"word": "Gr\u00fc\u00dfe"},
        {"tiny": 1e-9},
    ],
)
def test_whatever_a_method_notes_is_read_as_written(tmp_path: Path, told: dict[str, object]) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.write(PeerRound(0, 1, 1.0, notes=told))
    log.close()
    [found] = events.read(tmp_path / "events.jsonl")
    assert isinstance(found, PeerRound)
    assert found.notes == json.loads(json.dumps(told))


def test_what_is_no_number_is_read_as_none(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.write(PeerRound(0, 1, 1.0, notes={"ratio": math.nan}))
    log.close()
    [found] = events.read(tmp_path / "events.jsonl")
    assert isinstance(found, PeerRound)
    assert found.notes == {"ratio": None}


def test_events_of_older_versions_may_have_nan(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"event":"round","peer":0,"round":1,"time":1.0,"notes":{"ratio":NaN}}\n', encoding="utf-8")
    [found] = events.read(path)
    assert isinstance(found, PeerRound)
    assert math.isnan(found.notes["ratio"])


@pytest.mark.parametrize("kept", [1, 20, -2, -1])
def test_a_torn_last_line_is_dropped(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "events.jsonl"
    *whole, last = written(path)
    path.write_text("\n".join([*whole, last[:kept]]), encoding="utf-8")
    assert [e.round for e in events.read(path) if isinstance(e, PeerRound)] == [1, 2, 3]


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("rubbish", ["{", "null", '{"event":"nothing"}', '{"event":"round","peer":0}'])
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_corrupt_line_before_the_last_is_an_error(tmp_path: Path, number: int, rubbish: str, end: str) -> None:
    path = tmp_path / "events.jsonl"
    lines = written(path)
    lines[number - 1] = rubbish
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    with pytest.raises(RunError, match=rf"events\.jsonl, line {number}: "):
        list(events.read(path))


def test_bytes_that_are_no_text_are_an_error_too(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    written(path)
    data = bytearray(path.read_bytes())
    data[5] = 0xFF
    path.write_bytes(data)
    with pytest.raises(RunError, match="line 1"):
        list(events.read(path))


def test_keep_until_forgets_later_rounds(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    lines = written(path)
    log = EventLog(path)
    assert [e.round for e in log.keep_until(2) if isinstance(e, PeerRound)] == [1, 2]
    assert path.read_text(encoding="utf-8").splitlines() == lines[:2]
    log.write(PeerRound(0, 3, 3.0))
    log.close()
    assert [e.round for e in events.read(path) if isinstance(e, PeerRound)] == [1, 2, 3]
