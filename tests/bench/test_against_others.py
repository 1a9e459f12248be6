"""`coterie bench --against`: parsing, environments, drivers that work, fail or hang, and the table."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
import torch

from coterie.bench import frameworks, watching
from coterie.bench.against_others import Contestant, Schedule, contest, contestants, figures, table, turns_of
from coterie.bench.frameworks import FRAMEWORKS, Framework, named
from coterie.bench.watching import DriverRun, watched
from coterie.bench.workloads import chosen
from coterie.cli.main import FAILED, OK, main
from coterie.core.errors import ConfigError, RunError
from coterie.terminal.steps import Steps

WORKS = """
import json, sys
told = json.loads(sys.argv[1])
print("chatter")
print(json.dumps({"version": "1.2", "first": 3.0, "seconds": [2.0] * (told["rounds"] - 1)}))
print("more chatter")
"""
FAILS = """
import sys
print("Traceback (most recent call last):", file=sys.stderr)
print("\\033[31mValueError: 3 is not 4\\033[0m", file=sys.stderr)
print("some log line", file=sys.stderr)
sys.exit(1)
"""
HANGS = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path(CHILD).write_text(str(child.pid))
time.sleep(600)
"""
ON_LINUX = pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux' /proc")


@pytest.fixture(autouse=True)
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "environments"
    monkeypatch.setenv("COTERIE_BENCH", str(home))
    return home


def driver(tmp_path: Path, code: str, name: str = "driver") -> Path:
    path = tmp_path / f"{name}.py"
    path.write_text(code)
    return path


def run(path: Path, limit: float = 60.0) -> DriverRun:
    return watched([sys.executable, str(path), '{"rounds": 3}'], limit, os.environ, path.with_suffix(".log"))


def installed(home: Path, framework: Framework) -> None:
    """An environment that is this one, and needs no installation."""
    python = home / framework.name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    stamp = [f"torch=={torch.__version__.partition('+')[0]}", *framework.packages]
    (home / framework.name / frameworks.STAMP).write_text("\n".join(stamp))


# -- which -------------------------------------------------------------------------------------


def test_frameworks_are_named_with_commas() -> None:
    assert [f.name for f in named("fluke, flower,fluke")] == ["fluke", "flower"]
    assert named("all") == list(FRAMEWORKS.values())
    assert all(f.driver.exists() for f in FRAMEWORKS.values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("flowr", "unknown framework 'flowr'. Did you mean 'flower'?"),
        (",", "--against names no framework. Valid: flower"),
    ],
)
def test_what_is_no_framework_is_said(words: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        named(words)
    assert str(caught.value).startswith(message)


def test_the_command_says_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--against", "flower", "--only", "w4"]) == FAILED
    assert "unknown workload 'w4'" in capsys.readouterr().err
    assert main(["bench", "--only", "w7"]) == FAILED
    assert "Valid: growth, w1, w2, w3, w4" in capsys.readouterr().err


# -- environments ------------------------------------------------------------------------------


def test_an_environment_is_made_once(environments: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(frameworks.venv, "create", lambda folder, **_: folder.mkdir(parents=True, exist_ok=True))
    monkeypatch.setattr(frameworks, "_pip", lambda _, words: calls.append(words))
    framework = Framework("some", "Some", ("some-package",), "fedavg", Path("driver.py"))
    said: list[str] = []
    command = framework.command(said.append)
    assert command == [str(environments / "some/bin/python"), "driver.py"]
    ours = f"torch=={torch.__version__.partition('+')[0]}"
    assert calls[0] == [ours], "torch alone and first"
    assert calls[1] == ["-c", str(environments / "some/constraints.txt"), "some-package"]
    assert (environments / "some/constraints.txt").read_text() == f"{ours}\n"
    assert said == [f"Some: installing it into {environments / 'some'}; this takes a few minutes"]
    framework.command(said.append)
    assert len(calls) == 2


def test_what_cannot_be_installed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(RunError, match=r"pip install no-such-package-at-all failed: .*no-such-package-at-all"):
        frameworks._pip(Path(sys.executable), ["no-such-package-at-all"])


def test_a_framework_sees_nothing_of_our_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")
    assert "PYTHONPATH" not in FRAMEWORKS["flower"].environment()


# -- drivers -----------------------------------------------------------------------------------


@ON_LINUX
def test_a_drivers_figures_are_read(tmp_path: Path) -> None:
    turn = run(driver(tmp_path, f"held = b'x' * 50_000_000\nimport time; time.sleep(1){WORKS}"))
    assert (turn.version, turn.first, turn.seconds) == ("1.2", 3.0, (2.0, 2.0))
    assert turn.startup == 1.0, "until the end of the first round, less a round"
    assert turn.memory > 50_000_000


def test_a_driver_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^ValueError: 3 is not 4$"):
        run(driver(tmp_path, FAILS))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os._exit(3)", "it exited with code 3 and no output"),
        ("print('hello')", "it exited without figures"),
        ('print(\'{"version": "1", "first": 1.0, "seconds": []}\')', "it exited without figures"),
        ("raise SystemExit('no model')", "no model"),
    ],
)
def test_a_driver_without_figures(tmp_path: Path, code: str, message: str) -> None:
    with pytest.raises(RunError) as caught:
        run(driver(tmp_path, code))
    assert str(caught.value) == message


@ON_LINUX
def test_a_driver_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    with pytest.raises(RunError, match=r"^not done after 3 s$"):
        run(driver(tmp_path, f"CHILD = {str(child)!r}{HANGS}"), limit=3.0)
    pid = int(child.read_text())
    for _ in range(100):
        if pid not in watching._processes() or is_zombie(pid):
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} still lives")


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


# -- the contest -------------------------------------------------------------------------------


def test_the_loop_and_the_engine_do_whatever_the_others_do(tmp_path: Path) -> None:
    path = driver(tmp_path, WORKS)
    gossiping, serving = (Framework("a", "A", (), method, path) for method in ("gossip", "fedavg"))
    both = [(one.title, one.method) for one in contestants([serving])]
    loop, ours = "plain loop", "Coterie"
    assert both == [(loop, "gossip"), (ours, "gossip"), (loop, "fedavg"), (ours, "fedavg"), ("A", "fedavg")]
    assert [(one.title, one.method) for one in contestants([gossiping])] == [
        (loop, "gossip"), (ours, "gossip"), ("A", "gossip"),
    ]  # fmt: skip


def test_a_framework_that_fails_does_not_keep_the_others(
    tmp_path: Path, environments: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("loop", "coterie"):
        driver(tmp_path, WORKS, f"{name}_driver")
    monkeypatch.setattr("coterie.bench.against_others.DRIVERS", tmp_path)
    good = Framework("good", "Good", (), "gossip", driver(tmp_path, WORKS, "good"))
    bad = Framework("bad", "Bad", (), "gossip", driver(tmp_path, FAILS, "bad"))
    for framework in (good, bad):
        installed(environments, framework)
    [work] = chosen(["w2"])
    plan = Schedule(turns=2, rounds=3, limit=60.0)
    names = turns_of([work], [bad, good], plan)
    assert len(names) == 8
    with Steps("bench", dict.fromkeys(names, 1.0)) as steps:
        everybody = contest(work, [bad, good], plan, steps)
    assert [len(one.turns) for one in everybody] == [2, 2, 0, 2]
    said = capsys.readouterr().err
    assert "w2, turn 2 of 2: Good, gossip: 2 s a round (7 of 7" in said
    assert "w2, turn 1 of 2: Bad, gossip: ValueError: 3 is not 4" in said
    assert "w2, turn 2 of 2: Bad, gossip" not in said, "who failed is not asked again"
    text = table(everybody)
    assert text.splitlines()[-1] == (f"Bad, gossip: ValueError: 3 is not 4 (its output: {environments / 'bad-w2.log'})")
    known = json.loads(json.dumps(figures(work, everybody)))
    assert [one["failure"] != "" for one in known["contestants"]] == [False, False, True, False]
    assert known["contestants"][3]["turns"] == [[2.0, 2.0], [2.0, 2.0]]


def contestant(title: str, method: str, *turns: DriverRun, failure: str = "") -> Contestant:
    return Contestant(title, method, lambda _: [], {}, list(turns), failure)


def test_the_table_takes_the_best_of_all_turns() -> None:
    everybody = [
        contestant("plain loop", "gossip", DriverRun("2.13.0", 1.0, (0.5,), 1_000)),
        contestant("Coterie", "gossip", DriverRun("0.1.0", 1.5, (1.0, 0.5), 2_000)),
        contestant("plain loop", "fedavg", DriverRun("2.13.0", 1.5, (0.6,), 1_000)),
        contestant("Coterie", "fedavg", DriverRun("0.1.0", 1.0, (0.3,), 2_000), DriverRun("0.1.0", 0.9, (0.2,), 3_000)),
        contestant("Flower", "fedavg", DriverRun("1.41.0", 11.0, (1.2, 1.0), 0)),
        contestant("fluke", "fedavg", failure="no such package"),
    ]
    assert table(everybody).splitlines() == [
        "               does    a round  against the loop  Coterie is     start-up  memory",
        "plain loop     gossip  0.5 s    1.00x             1.00x as fast  0.5 s     1 kB",
        "Coterie 0.1.0  gossip  0.5 s    1.00x             1.00x as fast  1 s       2 kB",
        "plain loop     FedAvg  0.6 s    1.00x             3.00x as fast  0.9 s     1 kB",
        # The loop takes 0.6 s and Coterie, at best, 0.2: 3 times. Start-up: the lower of 1.0 - 0.3 and 0.9 - 0.2.
        "Coterie 0.1.0  FedAvg  0.2 s    3.00x             1.00x as fast  0.7 s     3 kB",
        # A second a round is 0.6 of the loop's speed, and Coterie is 1.0 / 0.2 = 5 times as fast.
        "Flower 1.41.0  FedAvg  1 s      0.60x             5.00x as fast  10 s      –",
        "fluke, FedAvg: no such package",
    ]


def test_the_command_prints_a_table_and_writes_figures(
    tmp_path: Path, environments: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("loop", "coterie"):
        driver(tmp_path, WORKS, f"{name}_driver")
    monkeypatch.setattr("coterie.bench.against_others.DRIVERS", tmp_path)
    fake = Framework("flower", "Flower", (), "fedavg", driver(tmp_path, WORKS, "fake"))
    installed(environments, fake)
    monkeypatch.setitem(FRAMEWORKS, "flower", fake)
    out = tmp_path / "figures.json"
    assert main(["bench", "--against", "flower", "--only", "w2", "--quick", "--out", str(out)]) == OK
    printed = capsys.readouterr()
    assert "w2: 200 peers with 100 samples of 64, MLP 64-64-10, batch 25, 1 epoch\n" in printed.out
    assert "Flower 1.2" in printed.out
    assert "bench: w2 against Flower: 5 turns" in printed.err
    assert "w2, turn 1 of 1: Flower, FedAvg: 2 s a round (5 of 5" in printed.err
    [result] = json.loads(out.read_text())["results"]
    assert [one["seconds_per_round"] for one in result["contestants"]] == [2.0] * 5


@pytest.mark.slow
def test_our_own_drivers_and_fluke_really_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COTERIE_BENCH")  # its environment is made once on a machine, and takes minutes
    assert main(["bench", "--against", "fluke", "--only", "w2", "--quick"]) == OK
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert [row[0] for row in rows if "FedAvg" in row] == ["plain", "Coterie", "fluke"], out
