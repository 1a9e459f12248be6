"""Real peers with files of their own scale by their training rows together (data.scale = "pooled")."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from circle_support import Circle
from faults_support import every_round_once, real_circle

from coterie.cli.main import main
from coterie.core import checkpoint
from coterie.core.errors import CoterieError
from coterie.core.peer import held_by
from coterie.data.scaling import Scaling
from coterie.network.engine import NetworkEngine
from coterie.network.pooling import Pooling
from coterie.running.real_peer import PeerFile, read_file, take_part
from coterie.running.saved_models import find, read
from coterie.wiring import own_data

NAMES = "north", "south", "east"
SITES = {"north": (40, 100.0), "south": (25, 130.0), "east": (31, 90.0)}  # rows, and the mean of the pressure


def write_tables(folder: Path) -> None:
    for number, (name, (rows, mean)) in enumerate(SITES.items()):
        rng = np.random.default_rng(number)
        kind = np.arange(rows) % 2
        frame = pandas.DataFrame({"pressure": rng.normal(mean + 5 * kind, 10), "pulse": rng.normal(70, 5, rows)})
        frame.assign(kind=[f"k{k}" for k in kind]).to_csv(folder / f"{name}.csv", index=False)


@pytest.fixture
def three(tmp_path: Path) -> Circle:
    write_tables(tmp_path)
    return Circle(tmp_path, NAMES)


def files(circle: Circle, *changes: str, more: str = 'scale = "pooled"', **options: str) -> dict[str, PeerFile]:
    """The files of all peers; the changes apply to the circle's settings."""
    made = {name: circle.file(name, data=f"{name}.csv", more=more, **options) for name in circle.names}
    return {name: read_file(file.path, ["method.k=1", *changes]) for name, file in made.items()}


def together(peers: dict[str, PeerFile], **options: Any) -> dict[str, Any]:
    async def work() -> list[Any]:
        parts = (take_part(file, say=lambda _: None, **options) for file in peers.values())
        return await asyncio.gather(*parts, return_exceptions=True)

    return dict(zip(peers, asyncio.run(asyncio.wait_for(work(), 120)), strict=True))


def training_rows(peers: dict[str, PeerFile]) -> np.ndarray:
    """The raw rows that the peers train on, one after the other."""
    raw = []
    for number, file in enumerate(peers.values()):
        unscaled = own_data(replace(file.experiment, data=replace(file.experiment.data, scale="none")), number)
        start, stop, *_ = unscaled.cuts[0]
        raw.append(unscaled.dataset.x[unscaled.rows[start:stop]])
    return np.concatenate(raw)


def scaling_of(out: Path) -> Scaling:
    return read(find(out, None)).manifest.scaling


def check_scaling(scaling: Scaling, rows: np.ndarray) -> None:
    np.testing.assert_allclose(scaling.mean, rows.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(scaling.deviation, rows.std(axis=0), rtol=1e-9)


def test_peers_scale_by_all_training_rows(three: Circle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engines: list[NetworkEngine] = []
    peers = files(three)
    done = together(peers, on_start=engines.append)
    rows = training_rows(peers)
    assert {name: summary["messages"] for name, summary in done.items()} == dict.fromkeys(NAMES, 2 + 2)  # sums, models
    scalings = [scaling_of(file.out) for file in peers.values()]
    assert scalings == [scalings[0]] * 3
    check_scaling(scalings[0], rows)
    held = [data for engine in engines if (data := held_by(engine.me))]
    scaled = np.concatenate([data.train.x.numpy() for data in held])
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-6)
    for file in peers.values():  # the sums left once to each of the others
        sent = [json.loads(line) for line in (file.out / "audit.jsonl").read_text().splitlines()]
        assert len([record for record in sent if record.get("name") == "feature sums"]) == 2
        assert not any(record.get("name") == "feature scale" for record in sent)
    capsys.readouterr()
    assert main(["predict", str(peers["east"].out), "--input", str(tmp_path / "south.csv")]) == 0
    assert main(["export", str(peers["east"].out), "--out", str(tmp_path / "model")]) == 0
    told = json.loads((tmp_path / "model" / "manifest.json").read_text())["input"]["scaling"]
    assert told["mean"] == list(scalings[0].mean)


def test_another_scale_is_refused(three: Circle) -> None:
    peers = files(three) | {"south": three.file("south", data="south.csv", more='scale = "standard"')}

    async def work() -> Any:
        tasks = [asyncio.create_task(take_part(file, say=lambda _: None)) for file in peers.values()]
        done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return [task.exception() for task in done]

    [error, *_] = asyncio.run(asyncio.wait_for(work(), 120))
    assert "data.scale is " in str(error)
    assert '"pooled" at' in str(error)
    assert '"standard" at' in str(error)


# -- sums that do not come, or cannot be right -----------------------------------------------------

STEP = '''
from dataclasses import dataclass, replace

import torch

from coterie import CoterieError, parameter
from coterie.methods.gossip import Gossip


def changed(me, release):
    """What peer 1 does to its sums."""
    if me.id != 1 or release.made_from != "feature sums":
        return release
    {does}


@dataclass(frozen=True)
class Odd(Gossip):
    def release_steps(self):
        return (changed,)
'''
CASES = {
    "negative": ("content['count'][0] = -3", "the number of values of some feature is negative"),
    "not finite": ("content['mean'][1] = float('nan')", "'mean' has numbers that are not finite"),
    "another shape": ("content['squares'] = torch.zeros(5).double()", "'squares' should be (2,) float64 but is (5,)"),
    "squares below 0": ("content['squares'][0] = -1", "the sum of squares of some feature is negative"),
}


def with_step(circle: Circle, does: str) -> dict[str, PeerFile]:
    path = circle.folder / "odd.py"
    path.write_text(STEP.replace("{does}", does))
    return files(circle, f"method.name={path}:Odd", "network.patience=3", "network.deadline=1")


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peer 1 does not judge its own sums: it just stays, and serves them."""
    merged = Pooling._merged

    async def stays(self: Pooling, like: Any) -> Scaling:
        if self.me.id == 1:
            await asyncio.Event().wait()
        return await merged(self, like)

    monkeypatch.setattr(Pooling, "_merged", stays)


@pytest.mark.usefixtures("stubborn")
@pytest.mark.parametrize("case", CASES)
def test_a_contribution_that_cannot_be_right_is_declined_with_the_name_of_its_peer(three: Circle, case: str) -> None:
    does, reason = CASES[case]
    peers = with_step(
        three, f"content = dict(release.content)\n    {does}\n    return replace(release, content=content)"
    )

    async def work() -> list[Any]:
        tasks = {name: asyncio.create_task(take_part(file, say=lambda _: None)) for name, file in peers.items()}
        south = tasks.pop("south")
        errors = await asyncio.gather(*tasks.values(), return_exceptions=True)
        south.cancel()
        await asyncio.gather(south, return_exceptions=True)
        return errors

    for error in asyncio.run(asyncio.wait_for(work(), 120)):
        assert "those of 'south' are unusable" in str(error)
        assert reason in str(error)
        assert "use data.scale = 'standard' at all peers" in str(error)
    for file in peers.values():
        assert not (file.out / "checkpoint").exists()  # the run did not start


def test_a_peer_does_not_start_with_sums_of_its_own_that_cannot_be_right(three: Circle) -> None:
    peers = with_step(three, "return replace(release, content={**release.content, 'count': -release.content['count']})")
    assert "those of 'south' are unusable" in str(together(peers)["south"])


def test_sums_that_do_not_come_are_waited_for_no_longer_than_the_patience(three: Circle) -> None:
    done = together(with_step(three, "raise CoterieError('they stay at home')"))
    assert "they stay at home" in str(done["south"])
    for name in ("north", "east"):
        assert "the feature sums of all peers, but those of 'south' did not come within 3 seconds" in str(done[name])


def test_a_circle_that_is_not_complete_does_not_begin(three: Circle) -> None:
    peers = files(three, "network.gather=2")
    del peers["south"]
    for error in together(peers).values():
        assert "needs the feature sums of all peers, but of 3 (`peers`) there are" in str(error)


def test_what_a_step_releases_is_what_all_peers_merge(three: Circle) -> None:
    """Noise on the sums of one peer, say: the peer itself uses the noised ones, too."""
    peers = with_step(
        three, "return replace(release, content={**release.content, 'mean': release.content['mean'] + 1})"
    )
    together(peers)
    scalings = [scaling_of(file.out) for file in peers.values()]
    assert scalings == [scalings[0]] * 3
    counts = [len(training_rows({name: file})) for name, file in peers.items()]
    expected = training_rows(peers).mean(axis=0) + counts[1] / sum(counts)
    np.testing.assert_allclose(scalings[0].mean, expected, rtol=1e-9)


# -- peers that come late, or again ----------------------------------------------------------------


def test_a_newcomer_gets_the_scaling_of_the_circle(three: Circle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two begin, and the third joins them later: its rows do not change what the others scale by."""
    peers = files(three, "peers=2", "rounds=40")
    late = peers.pop("east")
    save, started, joined = NetworkEngine._save, asyncio.Event(), asyncio.Event()

    async def waits(self: NetworkEngine, t: int) -> None:
        """The two that begin do not finish before the third is there, however slow the machine is."""
        await save(self, t)
        if self.node.identity.name != "east" and t > 1:
            await joined.wait()

    monkeypatch.setattr(NetworkEngine, "_save", waits)

    async def work() -> None:
        begin = {"say": lambda _: None, "on_round": lambda *_: started.set()}
        tasks = [asyncio.create_task(take_part(file, **begin)) for file in peers.values()]
        await started.wait()
        await take_part(late, say=lambda _: None, on_round=lambda *_: joined.set())
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(work(), 120))
    check_scaling(scaling_of(late.out), training_rows(peers))
    assert scaling_of(late.out) == scaling_of(peers["north"].out) == scaling_of(peers["south"].out)


def test_a_peer_that_crashes_before_its_first_checkpoint_scales_as_the_others_do(
    three: Circle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others have its sums and go on. It starts over, and gets the scaling that its sums are part of."""
    peers = files(three, "rounds=40")
    save, crashed = NetworkEngine._save, asyncio.Event()

    async def crashes(self: NetworkEngine, t: int) -> None:
        if self.me.id == 1 and not crashed.is_set():
            crashed.set()
            raise CoterieError("a crash")
        await save(self, t)

    monkeypatch.setattr(NetworkEngine, "_save", crashes)

    async def work() -> None:
        tasks = [asyncio.create_task(take_part(file, say=lambda _: None)) for file in peers.values()]
        with pytest.raises(CoterieError, match="a crash"):
            await tasks[1]
        await asyncio.gather(take_part(peers["south"], say=lambda _: None), tasks[0], tasks[2])

    asyncio.run(asyncio.wait_for(work(), 120))
    scalings = [scaling_of(file.out) for file in peers.values()]
    assert scalings == [scalings[0]] * 3
    check_scaling(scalings[0], training_rows(peers))


def test_a_peer_that_resumes_does_not_scale_twice(three: Circle) -> None:
    peers, engines = files(three), dict[int, NetworkEngine]()
    together(peers, on_start=lambda engine: engines.__setitem__(engine.me.id, engine))

    def look(engine: NetworkEngine) -> None:
        """After its checkpoint was read, before it meets anybody."""
        before, after = held_by(engines[engine.me.id].me), held_by(engine.me)
        assert before is not None
        assert after is not None
        assert after.scaling == before.scaling
        for split in ("train", "validation", "test"):
            assert torch.equal(getattr(after, split).x, getattr(before, split).x)
        raise CoterieError("seen")

    assert [str(error) for error in together(peers, on_start=look).values()] == ["seen"] * 3


def test_a_killed_peer_resumes_with_the_scaling_that_it_had(tmp_path: Path) -> None:
    """The killed one is scaled once more, from its raw rows; the others are gone by then and cannot tell it."""
    words = [
        "method.name=gossip", "method.k=1", "baseline=", "peers=2", "rounds=20", "data.name=wine", "data.partition=iid",
        "data.train=0.6", "data.validation=0.2", "data.test=0.2", "data.scale=pooled", "model.hidden=[4]",
        "network.interval=0.2", "network.linger=3", "network.patience=3", "train.epochs=40", "engine.threads=1",
    ]  # fmt: skip
    with real_circle(tmp_path, *words) as circle:
        circle.add("north", "south")
        circle.start()
        circle.until_round(2, 120)
        circle["south"].kill()
        before = checkpoint.load(circle["south"].out / "checkpoint")
        circle.until_done(120, "north")
        circle["south"].start()
        circle.until_done(120, "south")
        assert "resuming in round" in circle["south"].said()
        every_round_once(circle["south"].rounds(), 20)
        scalings = [scaling_of(circle[name].out) for name in ("north", "south")]
    assert before is not None
    saved: Any = before[1]["scaling"]
    assert scalings == [Scaling(tuple(saved["mean"]), tuple(saved["deviation"]))] * 2
    kept: Any = before[1]["shelves"]
    assert {"feature sums", "feature scale"} <= {artifact["name"] for artifact in kept}
