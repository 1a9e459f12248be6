"""Models of other architectures in `me.state`: a run that was broken off goes on with them, in every engine."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_support import simulate, small

from coterie.config.sections import PROCESSES, RAY, Experiment
from coterie.core.events import PeerRound, of_kind, read
from coterie.running import simulated
from coterie.running.local_circle import LocalCircle
from coterie.simulation.director import Simulation

# The peers have an mlp. What each keeps beside it: models of other architectures, two of which it trains, wherever a
# state may hold them. Anything but a model there would not train. Who comes to round 3 first, ends.
PROXIES = """
from pathlib import Path
from coterie import Method
from coterie.core.model import Model
from coterie.core.weights import Frozen

def models_in(state):
    return [state["proxy"], *state["more"], state["by"]["name"][0], state["frozen"].content]

class Mine(Method):
    async def setup(self, me):
        linear, cnn = me.own_initial("linear"), me.own_initial("cnn3")
        me.state.update(proxy=cnn, more=[linear, me.own_initial("cnn3", 1)], by={"name": (linear.copy(),)})
        me.state.update(frozen=Frozen(me.own_initial("resnet8")), own=me.initial())

    async def round(self, me):
        there = Path(__file__).with_name("was-there")
        if me.round == 3 and not there.exists():
            there.touch()
            raise SystemError("the end")
        kinds = [model.architecture.name for model in models_in(me.state)]
        assert kinds == ["cnn3", "linear", "cnn3", "linear", "resnet8"], kinds
        assert me.state["own"].architecture is me.architecture
        assert type(me.state["own"]) is Model
        await me.train()
        await me.train(model=me.state["proxy"])
        await me.train(model=me.state["more"][0])
        scores = await me.evaluate(models_in(me.state), "validation")
        me.note(scores=[score.loss for score in scores])
"""
WORDS = (
    "engine.workers=2",
    "network.deadline=60",
    "network.interval=0.2",
    "network.linger=30",
    "engine.batching=never",
)


def scores(out: Path) -> dict[tuple[int, int], list[float]]:
    rounds: list[PeerRound] = of_kind(read(out / "events.jsonl"), PeerRound)
    return {(r.peer, r.round): r.notes["scores"] for r in rounds}


def over(engine: str, out: Path, e: Experiment, go_on: bool) -> None:
    if engine != "network":
        simulate(e, out, resume=go_on)
        return
    circle = LocalCircle(e, out)  # processes, which are really started again
    if not go_on:
        circle.prepare()
    circle.run()


@pytest.mark.parametrize("engine", ["simulation", PROCESSES, pytest.param(RAY, marks=pytest.mark.slow), "network"])
def test_models_of_other_architectures_survive(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.simulation.placement.TO_DIRECT", 1e-9)
    (tmp_path / "mine.py").write_text(PROXIES)
    method = (f"method.name={tmp_path / 'mine.py'}:Mine", *WORDS)
    where = ("peers=2",) if engine == "network" else (f"engine.name={engine}", "engine.checkpoint=1")
    e = small("local", *method, *where)
    with pytest.raises(Exception, match="the end"):  # the error of a method, or whoever tells of it
        over(engine, tmp_path / "run", e, go_on=False)
    over(engine, tmp_path / "run", e, go_on=True)
    simulate(small("local", *method, f"peers={e.peers}"), tmp_path / "undisturbed")
    expected = scores(tmp_path / "undisturbed")
    assert len(expected) == 4 * e.peers
    assert scores(tmp_path / "run") == expected


def test_models_come_home_from_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads `me.state` after a run finds models, wherever peers were."""
    monkeypatch.setattr("coterie.simulation.placement.TO_DIRECT", 1e-9)
    (tmp_path / "mine.py").write_text(PROXIES)
    (tmp_path / "was-there").touch()
    held: list[Simulation] = []
    e = small("local", f"method.name={tmp_path / 'mine.py'}:Mine", *WORDS, f"engine.name={PROCESSES}")
    simulated.run(e, tmp_path / "run", on_start=held.append)
    kinds = {peer.state["frozen"].content.architecture.name for peer in held[0].stage.peers.values()}
    assert kinds == {"resnet8"}
