"""The tutorial "Three peers on three machines", followed literally: three network namespaces are the machines.

Needs root and `ip`, as a CI machine has; else it is skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_support import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial-three-peers.md"
NAMES = ("north", "south", "west")
BRIDGE = "coterie-tut"
PREFIX = "10.213.7."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and ip (iproute2)"),
]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def machines() -> Iterator[None]:
    """Three hosts on one bridge, that know each other by name."""
    remove_machines()
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "set", BRIDGE, "up")
    for number, name in enumerate(NAMES, 1):
        ip("netns", "add", f"tut-{name}")
        ip("link", "add", f"tut{number}", "type", "veth", "peer", "name", "eth0", "netns", f"tut-{name}")
        ip("link", "set", f"tut{number}", "master", BRIDGE, "up")
        ip("-n", f"tut-{name}", "addr", "add", f"{PREFIX}{number}/24", "dev", "eth0")
        ip("-n", f"tut-{name}", "link", "set", "eth0", "up")
        ip("-n", f"tut-{name}", "link", "set", "lo", "up")
        hosts = Path("/etc/netns") / f"tut-{name}" / "hosts"
        hosts.parent.mkdir(parents=True, exist_ok=True)
        hosts.write_text(
            "127.0.0.1 localhost\n" + "".join(f"{PREFIX}{i} {n}.example\n" for i, n in enumerate(NAMES, 1))
        )
    yield
    remove_machines()


def remove_machines() -> None:
    for name in NAMES:
        subprocess.run(["ip", "netns", "delete", f"tut-{name}"], capture_output=True)
        shutil.rmtree(Path("/etc/netns") / f"tut-{name}", ignore_errors=True)
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True)


def command(line: str) -> list[str]:
    program, *words = line.split()
    assert program == "coterie"
    return [sys.executable, "-m", "coterie", *words]


def start(name: str, folder: Path, line: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.out").open("ab") as output:
        return subprocess.Popen(
            ["ip", "netns", "exec", f"tut-{name}", *command(line)],
            cwd=folder / name, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")},
        )  # fmt: skip


def run(name: str, folder: Path, line: str) -> str:
    done = subprocess.run(
        ["ip", "netns", "exec", f"tut-{name}", *command(line)], cwd=folder / name, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def text_of(language: str, beginning: str) -> str:
    [found] = [b.text for b in blocks(PAGE) if b.language == language and b.text.startswith(beginning)]
    return found


@pytest.mark.usefixtures("machines")
def test_followed_literally(tmp_path: Path) -> None:
    keeper = tmp_path / "keeper"
    keeper.mkdir()
    for line in text_of("sh", "coterie keys init").splitlines():
        subprocess.run(command(line), cwd=keeper, check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    subprocess.run([sys.executable, "-c", text_of("python", "from sklearn")], cwd=keeper, check=True)
    for name in NAMES:
        shutil.copytree(keeper / "keys" / name, tmp_path / name / "keys")
        shutil.copy(keeper / f"{name}.csv", tmp_path / name / "patients.csv")
        (tmp_path / name / "circle.toml").write_text(text_of("toml", "# circle.toml"))
        (tmp_path / name / "peer.toml").write_text(text_of("toml", f"# {name}: peer.toml"))
    [starting] = {b.text.strip() for b in blocks(PAGE) if b.text.startswith("coterie peer")}
    peers = {name: start(name, tmp_path, starting) for name in NAMES}
    try:
        wait_for(lambda: rounds_of(tmp_path / "west") >= 5, 180)
        status = run("north", tmp_path, text_of("sh", "coterie status").strip())
        assert "south" in status
        assert "west" in status
        kill_inside(peers["west"])
        before = rounds_of(tmp_path / "north")
        wait_for(lambda: rounds_of(tmp_path / "north") >= before + 5, 60)  # the others go on
        peers["west"] = start("west", tmp_path, starting)
        for process in peers.values():
            assert process.wait(300) == 0, (tmp_path / "west.out").read_text()
    finally:
        for process in peers.values():
            process.kill()
    for name in NAMES:
        assert rounds_of(tmp_path / name) == 200
    audit = run("north", tmp_path, text_of("sh", "coterie audit").strip())
    assert "intact" in audit
    assert "prototypes" in audit


def rounds_of(folder: Path) -> int:
    events = folder / "peer" / "events.jsonl"
    return events.read_text().count('"event":"round"') if events.exists() else 0


def wait_for(condition: object, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "took too long"
        time.sleep(0.1)


def kill_inside(process: subprocess.Popen[bytes]) -> None:
    """`ip netns exec` becomes the command itself: its process is the peer's."""
    process.send_signal(signal.SIGKILL)
    process.wait()
