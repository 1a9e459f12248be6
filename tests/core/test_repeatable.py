"""MKL's mode: matrix products do not depend on memory alignment in any process that computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coterie.core.repeatable import MKL_CHOOSES_BY_ALIGNMENT, mkl_mode

AUTO, COMPATIBLE = 2, 3  # of mkl_types.h
TINY = (
    "method.name=telling.py:Telling", "rounds=1", "baseline=", "data.clusters=2", "data.train=8",
    "data.validation=4", "data.test=4",
)  # fmt: skip
METHOD = """
from coterie import Method
from coterie.core.repeatable import mkl_mode

class Telling(Method):
    async def round(self, me):
        await me.train()
        me.note(mode=mkl_mode())
"""

pytestmark = pytest.mark.skipif(mkl_mode() is None, reason="torch has no MKL here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "telling.py").write_text(METHOD)
    return tmp_path


def ran(folder: Path, *command: str, **environment: str) -> str:
    """What a command prints, in a process whose environment says nothing of MKL's mode unless told to."""
    clean = {key: value for key, value in os.environ.items() if key != "MKL_CBWR"}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def modes(folder: Path) -> list[int]:
    """By peer, as each noted it where it computed."""
    records = [json.loads(line) for line in (folder / "out" / "events.jsonl").read_text().splitlines()]
    return [record["notes"]["mode"] for record in records if record["event"] == "round"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("run", "peers=3"), marks=pytest.mark.slow),  # the scripts below run in one process, too
        ("run", "peers=3", "engine.name=processes", "engine.workers=2"),
        pytest.param(("run", "peers=3", "engine.name=ray", "engine.workers=2"), marks=pytest.mark.slow),
        ("up", "2"),
    ],
    ids=" ".join,
)
def test_every_process_that_computes_has_asked_for_it(folder: Path, words: tuple[str, ...]) -> None:
    ran(folder, "-m", "coterie", *words, "panm-digits", *TINY, "--out", "out")
    assert set(modes(folder)) == {AUTO}
    assert len(modes(folder)) == (2 if words[0] == "up" else 3)


def test_a_mode_set_in_the_environment_is_kept(folder: Path) -> None:
    ran(folder, "-m", "coterie", "run", "panm-digits", "peers=3", *TINY, "--out", "out", MKL_CBWR="COMPATIBLE")
    assert modes(folder) == [COMPATIBLE] * 3


SCRIPT = f"""
import torch
{{before}}
import coterie
from pathlib import Path
coterie.run(coterie.load("panm-digits", {["peers=3", *TINY]}), Path("out"))
"""


def test_a_script_that_computes_before_it_imports_coterie_is_warned(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT.format(before="torch.ones(8, 8) @ torch.ones(8, 8)"))
    told = ran(folder, "script.py")
    assert modes(folder) == [MKL_CHOOSES_BY_ALIGNMENT] * 3
    assert "import coterie first, or set MKL_CBWR=AUTO" in told


def test_a_script_that_only_imports_torch_before_is_not(folder: Path) -> None:
    (folder / "script.py").write_text(SCRIPT.format(before=""))
    assert "MKL_CBWR" not in ran(folder, "script.py")
    assert modes(folder) == [AUTO] * 3
