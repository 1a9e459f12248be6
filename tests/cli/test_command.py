"""The command as a person or a script meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from coterie.cli.main import FAILED, OK, STOPPED, main
from coterie.config.loading import presets
from coterie.methods import METHODS
from coterie.running.simulated import new_folder

TINY = (
    "peers=4", "rounds=3", "data.clusters=2", "data.train=10", "data.validation=5", "data.test=5", "model.hidden=[4]",
    "method.l=2", "method.k=1", "method.t1=2", "engine.threads=1", "engine.workers=1",
)  # fmt: skip


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_demo_and_its_baseline_are_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "panm-digits", *TINY, "--out", "here"]) == OK
    out = capsys.readouterr().out
    scores = ("precision", "recall", "mass")
    for word in ("panm", "local", "last", "selected", *scores, "local by", "report.html"):
        assert word in out
    here = tmp_path / "here"
    names = {p.name for p in here.iterdir()}
    assert {"config.toml", "events.jsonl", "graph.npz", "summary.json", "report.html", "baseline-local"} <= names
    summary = json.loads((here / "summary.json").read_text())
    fields = {"method", "seed", "peers", "rounds", "accuracy", "bytes", "messages", "seconds", "neighbours"}
    assert fields <= set(summary)
    assert set(summary["accuracy"]["selected"]) == {"mean", "std", "worst_decile", "per_peer"}


LEARNER = """
from dataclasses import dataclass
from typing import ClassVar

from coterie.methods.gossip import Gossip


@dataclass(frozen=True)
class Learner(Gossip):
    learns_weights: ClassVar[bool] = True


@dataclass(frozen=True)
class Silent(Learner):
    async def round(self, me):
        await me.train()
"""


@pytest.mark.parametrize(("kind", "drawn"), [("Gossip", False), ("Learner", True), ("Silent", False)])
def test_learned_weights_are_drawn(kind: str, drawn: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "learner.py").write_text(LEARNER, encoding="utf-8")
    small = [*TINY[:7], *TINY[10:], "method.k=1", "baseline="]
    assert main(["run", "panm-digits", f"method.name=learner.py:{kind}", *small, "--out", "x"]) == OK
    out = capsys.readouterr().out
    assert out.startswith(f"learner.py:{kind}: 4 peers")  # its path is nobody's concern
    assert ("weights of round 3" in out) == drawn
    assert ("the largest weight, 0.5" in out) == drawn  # half one's own, half the one neighbour's


def test_a_run_repeats_from_its_own_config(tmp_path: Path) -> None:
    assert main(["run", "panm-digits", *TINY, "baseline=", "--out", "one"]) == OK
    assert main(["run", "one/config.toml", "--out", "two"]) == OK
    one, two = (json.loads((tmp_path / n / "summary.json").read_text()) for n in ("one", "two"))
    assert {k: v for k, v in one.items() if k != "seconds"} == {k: v for k, v in two.items() if k != "seconds"}


def test_runs_go_to_a_folder_by_name_and_time(tmp_path: Path) -> None:
    assert main(["run", "panm-digits", *TINY, "baseline=", "rounds=1"]) == OK
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("panm-digits-")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "nope"], "unknown preset 'nope'"),
        (["run", "panm-digits", "method.name=panmm"], "Did you mean 'panm'"),
        (["run", "panm-digits", "roundz=3"], "Did you mean 'rounds'"),
        (["run", "panm-digits", "train.lr=fast"], "train.lr must be a number"),
        (["run", "panm-digits", "method.k=99"], "method.k must be"),
        (["run", "panm-digits", "peers=1"], "peers = 1: there is no other peer to exchange with"),
        (["run", "panm-digits", "peers=1", "method.name=gossip"], "Set peers to 2 or more, or method.name to local"),
        (["run", "panm-digits", "data.name=nowhere"], "nowhere"),
        (["run", "panm-digits", "data.partition=spiral"], "data.partition"),
        (["run", "panm-digits", "data.train=5000"], "data.train"),
        (["run", "panm-digits", "data.name=wine"], "rotation"),
        (["run", "panm-digits", "data.name=wine", "data.partition=label-swap"], "label-swap"),
        (["run", "panm-digits", "model.zoo=resnet99"], "resnet99"),
        (
            [
                "run",
                "panm-digits",
                "peers=4",
                "data.name=breast-cancer",
                "data.partition=iid",
                "model.zoo=cnn",
                *TINY[7:10],
            ],
            "mlp",
        ),
        (["run", "panm-digits", "model.zoo=mlp,cnn"], "needs one architecture"),
        (["run", "panm-digits", "data.partition=iid", "method.name=oracle"], "true clusters"),
        (["run", "missing.toml"], "missing.toml"),
        (["run", "panm-digits", "engine.name=dask"], "engine.name must be one of simulation"),
        (["run", "panm-digits", "baseline=foo"], "baseline: unknown method 'foo'"),
        (["run", "panm-digits", "engine.device=abacus"], "engine.device"),
        (["run", "--resume", "nothing-there"], "not the folder of a run"),
        (["run", "demo", "--resume", "x"], "--resume"),
        (["run", "panm-digits", "clock.dropout=2"], "clock.dropout must be at least 0 and below 1, not 2.0"),
        (["run", "panm-digits", "method=panm"], "such as method.name="),
        (["run", "panm-digits", "--out", "file"], "file is a file: choose another --out"),
        (["keys", "init", "file"], "file already exists and is not a folder"),
        (["compare", "panm", "panm-digits", "--out", "file"], "file already exists and is not a folder"),
        (["sweep", "panm-digits", "--over", "method.k="], "--over method.k=: has no values"),
        (["list", "presets", "a:b"], "unknown preset 'a:b'"),
        (["list", "methods", "panmm"], "Did you mean 'panm'"),
        (["data", "get", "imagenet"], "imagenet"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_mistakes_are_one_line_that_names_the_culprit(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    assert main(words) == FAILED
    error = capsys.readouterr().err.strip().splitlines()
    assert len([line for line in error if line.startswith("coterie:")]) == 1
    assert said in error[-1]
    assert not (tmp_path / "runs").exists()


def test_a_folder_is_not_overwritten_unless_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "panm-digits", *TINY, "baseline=", "--out", "x"]) == OK
    assert main(["run", "panm-digits", *TINY, "baseline=", "--out", "x"]) == FAILED
    assert "--overwrite" in capsys.readouterr().err
    assert main(["run", "panm-digits", *TINY, "baseline=", "--out", "x", "--overwrite"]) == OK


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    for what, names in {
        "methods": METHODS,
        "models": ["mlp", "resnet18", "densenet121"],
        "data": ["digits", "cifar100", "cinic10"],
        "presets": presets(),
    }.items():
        assert main(["list", what]) == OK
        lines = capsys.readouterr().out.splitlines()
        assert set(names) <= {line.split()[0] for line in lines}
        assert all(len(line.split()) > 1 for line in lines)


def test_list_alone_says_what_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == OK
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["methods", "models", "data", "presets"]
    assert int(lines[0][1]) == len(METHODS)


def test_a_method_is_listed_with_its_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "methods", "panm"]) == OK
    out = capsys.readouterr().out
    for field in METHODS["panm"].__dataclass_fields__.values():
        if field.metadata:
            assert f"method.{field.name}" in out
            assert field.metadata["help"] in out


def test_every_preset_is_listed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    for name in presets():
        assert main(["list", "presets", name]) == OK
        assert "[method]" in capsys.readouterr().out


def test_who_holds_what_is_printed_and_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["data", "show", "panm-digits", *TINY, "--svg", "who.svg"]) == OK
    assert "rotated 180" in capsys.readouterr().out
    assert (tmp_path / "who.svg").read_text().startswith("<svg")


def test_dividing_data_asks_no_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "panm-digits", "peers=6", "method.k=99"]) == OK  # PANM's l is 6, too many for six
    assert "6 peers" in capsys.readouterr().out


def test_settings_may_stand_before_the_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "peers=6", "panm-digits"]) == OK
    assert "6 peers" in capsys.readouterr().out
    assert main(["run", "rounds=1", "panm-digits", "demo"]) == FAILED
    assert "one experiment at a time, not panm-digits and demo" in capsys.readouterr().err


def test_which_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert re.fullmatch(r"coterie \d+\.\d+.*\n", capsys.readouterr().out)


def test_a_setting_with_dashes_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "panm-digits", "--rounds", "3"])
    assert "settings are words such as rounds=20" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["bench", "panm-digits"])
    assert "unrecognized arguments: panm-digits\n" in capsys.readouterr().err  # it takes no settings


def test_runs_that_begin_in_the_same_second_get_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda _: "20300101-000000")
    for name in ("demo-20300101-000000", "demo-20300101-000000-2"):
        assert new_folder("demo") == Path("runs", name)
        (tmp_path / "runs" / name).mkdir(parents=True)
    assert new_folder("demo") == Path("runs", "demo-20300101-000000-3")


def test_importing_starts_nothing() -> None:
    code = (
        "import sys, threading, coterie; heavy = {'torch', 'numpy', 'sklearn', 'pandas', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy; assert threading.active_count() == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_there() -> None:
    import coterie

    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = coterie.nothing_like_it


AT_ONCE = "os.kill(os.getpid(), signal.SIGINT)"
SWALLOWED = f"""
try:
    {AT_ONCE}
except KeyboardInterrupt:
    raise AttributeError("half of it is missing") from None
"""


@pytest.mark.parametrize("content", [AT_ONCE, SWALLOWED])
@pytest.mark.parametrize("module", ["argparse", "torch"])  # among the first that are imported, and among the last
def test_ctrl_c_during_an_import_is_one_line(module: str, content: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(f"import os, signal\n{content}", encoding="utf-8")
    places = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "coterie", "run", "panm-digits"]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where the tests run in the background
    )
    assert (done.returncode, done.stdout, done.stderr) == (STOPPED, "", "coterie: stopped\n")


def test_ctrl_c_leaves_a_run_that_can_go_on(tmp_path: Path) -> None:
    """The first Ctrl-C stops at a round's end; the resumed run equals the one that was never stopped."""
    words = ["panm-digits", *TINY, "baseline=", "rounds=400", "engine.checkpoint=0"]
    command = [sys.executable, "-m", "coterie", "run", *words]
    process = subprocess.Popen([*command, "--out", "stopped"], stderr=subprocess.PIPE, text=True)
    events = tmp_path / "stopped" / "events.jsonl"
    deadline = time.monotonic() + 60
    while not (events.exists() and events.stat().st_size > 5000) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == STOPPED, said
    assert "coterie run --resume stopped" in said
    assert main(["run", "--resume", "stopped"]) == OK
    assert main(["run", *words, "--out", "whole"]) == OK
    one, two = (json.loads((tmp_path / n / "summary.json").read_text()) for n in ("stopped", "whole"))
    assert {k: v for k, v in one.items() if k != "seconds"} == {k: v for k, v in two.items() if k != "seconds"}


def test_the_demo_mixes_three_architectures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["run", "rounds=2", "method.t_thr=2", "train.epochs=1", "evaluate.every=2", "--out", "here"]) == OK
    out = capsys.readouterr().out
    for word in ("mapl+", "local by", "mass", "weights of round 2"):
        assert word in out
    started = json.loads((tmp_path / "here" / "events.jsonl").read_text().splitlines()[0])
    assert set(started["architectures"]) == {"mlp", "cnn3", "lenet"}
