"""A method that forgets `await` or `async` is told so by every engine, with the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_support import network, simulate, small

from coterie.cli.main import FAILED, main
from coterie.config.sections import PROCESSES, RAY
from coterie.core.errors import MethodError

# Lines are counted from 1: the third round of peer 3 (it is in the last shard) forgets to await in line 6.
FORGETS = """from coterie import Method
class Mine(Method):
    async def round(self, me):
        await me.train()
        if me.id == 3 and me.round == 3:
            me.train()
"""
DROPS = FORGETS.replace(
    "            me.train()\n", "            self.helper(me)\n    async def helper(self, me): ...\n"
)


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return f"{folder / 'mine.py'}:Mine"


@pytest.fixture(params=["simulation", PROCESSES, pytest.param(RAY, marks=pytest.mark.slow), "network"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("coterie.simulation.placement.TO_DIRECT", 1e-9)
    if request.param == RAY:
        ray = pytest.importorskip("ray")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield request.param
    if request.param == RAY:
        ray.shutdown()


@pytest.mark.parametrize(("text", "call"), [(FORGETS, "me.train()"), (DROPS, "self.helper()")])
def test_a_missing_await_is_told_with_its_line(engine: str, text: str, call: str, tmp_path: Path) -> None:
    words = (f"method.name={written(tmp_path, text)}", "engine.workers=2", "network.interval=0.2", "network.linger=5")
    told = rf"mine\.py, line 6: {call.replace('(', '[(]').replace(')', '[)]')} is never awaited.*`await"
    go, more = (network, ()) if engine == "network" else (simulate, (f"engine.name={engine}",))
    with pytest.raises(MethodError, match=told):
        go(small("local", *words, *more))


# In each, line 4 is where the function begins.
PARTS = {
    "setup": "    def setup(self, me): pass\n    async def round(self, me): pass\n",
    "round": "    def round(self, me): me.train()\n",
    "serve": "    def serve(self, me): pass\n    async def round(self, me): pass\n",
}
COMMANDS = {
    "run": ("run", "panm-digits", "method.name={}", "--out", "out"),
    "compare": ("compare", "{}", "panm-digits", "--out", "out"),
    "sweep": ("sweep", "panm-digits", "--over", "method.name={},local", "--out", "out"),
    "list": ("list", "methods", "{}"),
    "plan": ("plan", "panm-digits", "method.name={}"),
    "up": ("up", "2", "panm-digits", "method.name={}", "--out", "out"),
    "peer": ("peer", "peer.toml", "method.name={}"),
    "baseline": ("run", "panm-digits", "baseline={}", "--out", "out"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("part", PARTS)
def test_a_missing_async_is_told_before_anything_runs(
    part: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    method = written(tmp_path, "from coterie import Method\nclass Mine(Method):\n    server = True\n" + PARTS[part])
    Path("peer.toml").write_text('base = "panm-digits"\n[peer]\nkeys = "keys"\n')
    assert main([word.format(method) for word in COMMANDS[command]]) == FAILED
    told = capsys.readouterr().err
    assert f"mine.py, line 4: Mine.{part} is not a coroutine: write `async def {part}` instead of `def {part}`" in told
    assert told.count("\n") == 1
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            "    def setup(self, me): await me.train()\n",
            "mine.py, line 3: 'await' outside async function: write `async def`",
        ),
        ("    async def round(self, me): yield 1\n", "mine.py, line 3: Mine.round contains a `yield`"),
        ("    async def setup(self, me): pass\n", "Mine has no `round`: write `async def round(self, me)`"),
        (
            "    async def round(self, me, t): pass\n",
            "mine.py, line 3: Mine.round takes (self, me, t): write `async def round(self, me)`; "
            "the number of the round is `me.round`\n",
        ),
        (
            "    async def serve(self, me, t): pass\n    async def round(self, me): pass\n",
            "mine.py, line 3: Mine.serve takes (self, me, t): write `async def serve(self, me)`",
        ),
        ("    async def round(self): pass\n", "mine.py, line 3: Mine.round takes (self): write"),
        ("    async def round(self, me, *, t): pass\n", "mine.py, line 3: Mine.round takes (self, me, t): write"),
        ("    x = y\n", "cannot be imported: NameError: name 'y' is not defined (/"),
    ],
)
def test_other_slips(body: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    method = written(tmp_path, f"from coterie import Method\nclass Mine(Method):\n{body}")
    assert main(["list", "methods", method]) == FAILED
    assert told in capsys.readouterr().err


def test_decorators_that_say_what_they_wrap(tmp_path: Path) -> None:
    text = """import functools
from coterie import Method
def logged(function):
    @functools.wraps(function)
    def inner(*given):
        return function(*given)
    return inner
class Mine(Method):
    @logged
    async def round(self, me):
        await me.train()
"""
    e = small("local", f"method.name={written(tmp_path, text)}")
    assert simulate(e).summary["accuracy"] == simulate(small("local")).summary["accuracy"]
