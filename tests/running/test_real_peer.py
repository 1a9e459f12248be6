"""A peer from its file: what it says when something does not fit, and what it does with data of its own."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from circle_support import Circle

from coterie.cli import main
from coterie.core import randomness
from coterie.core.errors import ConfigError, CoterieError, DataError, RunError
from coterie.core.events import EventLog, PeerRound, RunStarted
from coterie.core.version import version
from coterie.network.agreement import AgreementError
from coterie.network.keys import Identity
from coterie.report.summary import summarise
from coterie.running import real_peer
from coterie.running.real_peer import PeerFile, place, read_file, summarise_peer, take_part
from coterie.wiring import run_started


def together(*files: PeerFile, say: Callable[[str], None] = lambda _: None) -> list[Any]:
    async def work() -> list[Any]:
        return await asyncio.gather(*(take_part(f, say=say) for f in files), return_exceptions=True)

    return asyncio.run(asyncio.wait_for(work(), 60))


@pytest.fixture
def two(tmp_path: Path) -> Circle:
    return Circle(tmp_path, ("north", "south"))


def write_table(path: Path, labels: list[str], rows: int = 40, columns: tuple[str, ...] = ("a", "b")) -> None:
    rng = np.random.default_rng(len(labels))
    numbers = rng.normal(size=(rows, len(columns))).round(3).tolist()
    lines = [",".join(map(str, [*row, labels[i % len(labels)]])) for i, row in enumerate(numbers)]
    path.write_text("\n".join([",".join([*columns, "kind"]), *lines]))


def test_two_with_tables_of_their_own(two: Circle, tmp_path: Path) -> None:
    """South has never seen one of the labels; the files lie beside the peers', wherever the command is run."""
    write_table(tmp_path / "n.csv", ["x", "y", "z"])
    write_table(tmp_path / "s.csv", ["z", "x"])
    labels = 'labels = ["x", "y", "z"]'
    done = together(two.file("north", data="n.csv", more=labels), two.file("south", data="s.csv", more=labels))
    for summary in done:
        assert summary["rounds"] == 2
        assert summary["messages"] == 2  # one model of the other in each round
    started = json.loads((tmp_path / "south" / "events.jsonl").read_text().splitlines()[0])
    assert started["classes"][0][1] == 0
    assert (started["version"], started["data"]) == (version(), "s.csv, iid")
    status = json.loads((tmp_path / "north" / "status.json").read_text())
    assert [p["name"] for p in status["peers"]] == ["south"]
    assert status["peers"][0]["sent"] == 2


def test_a_peer_records_the_start_as_the_circle_does_but_only_its_own_data(two: Circle) -> None:
    """For two peers, a simulation records two architectures, two numbers of samples and two rows of class counts."""
    file = two.file("south", more="train = 0.6")
    me, circle = place(file, Identity.load(file.keys))
    whole, own = run_started(file.experiment, circle), run_started(file.experiment, circle, me)
    assert whole.data == "wine, iid"
    assert own == replace(
        whole, architectures=[whole.architectures[me.id]], samples=[whole.samples[me.id]],
        classes=[whole.classes[me.id]], clusters=None,
    )  # fmt: skip


def test_a_peer_selects_the_same_round_as_its_circle(tmp_path: Path) -> None:
    """Rounds 1 to 3 have the same validation accuracy. Rounds 2 and 3 have the lower loss, and round 2 is earlier."""
    start = RunStarted("local", 0, 1, 4, ["mlp"], [5], [[5]], None)
    figures = [(0.5, 0.1, 1.0), (0.5, 0.2, 0.9), (0.5, 0.3, 0.9), (0.4, 0.4, 0.8)]  # validation, test, loss
    events = [start, *(PeerRound(0, t, float(t), *of_round) for t, of_round in enumerate(figures, 1))]
    log = EventLog(tmp_path / "events.jsonl")
    log.write(*events)
    log.close()
    own, whole = summarise_peer(tmp_path, "north", 1.0), summarise(events, 1.0)
    assert own["accuracy"] == {"last": 0.4, "selected": 0.2}
    assert {key: spread["per_peer"] for key, spread in whole["accuracy"].items()} == {"last": [0.4], "selected": [0.2]}


def test_a_label_that_nobody_agreed_on(two: Circle, tmp_path: Path) -> None:
    write_table(tmp_path / "n.csv", ["x", "y", "q"])
    file = two.file("north", data="n.csv", more='labels = ["x", "y"]')
    with pytest.raises(DataError, match=r"not in data.labels \(x, y\) in 13 rows, the first is row 2 "):
        asyncio.run(take_part(file, say=lambda _: None))


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ({"more": "train = 0.6"}, {"method": "fixed"}, "method.name is \"gossip\" at 'north' and \"fixed\" at 'south'"),
        ({"data": "wine"}, {"data": "digits"}, "input shape is [13] at 'north' and [1,8,8] at 'south'"),
    ],
)
def test_a_mismatch_is_refused_at_once_and_names_both_values(
    two: Circle, mine: dict[str, str], theirs: dict[str, str], said: str
) -> None:
    heard: list[str] = []
    north, south = two.file("north", **mine), two.file("south", **theirs)

    async def work() -> None:
        waiting = asyncio.create_task(take_part(north, say=heard.append))
        try:
            with pytest.raises(AgreementError, match="runs a different experiment") as error:
                await asyncio.wait_for(take_part(south, say=lambda _: None), 20)
            assert said.replace("here", "HERE").split(" HERE")[0] in str(error.value)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(work())
    assert any("'south' was refused" in text and said in text for text in heard)


def disagreement(north: PeerFile, south: PeerFile) -> tuple[str, str]:
    """What south, whose only seed is north, ends with; and what north says of it."""
    heard: list[str] = []

    async def work() -> str:
        waiting = asyncio.create_task(take_part(north, say=heard.append))
        with pytest.raises(AgreementError) as error:
            await asyncio.wait_for(take_part(south, say=lambda _: None), 20)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return str(error.value)

    ended = asyncio.run(work())
    return ended, next(text for text in heard if "'south' was refused" in text)


def test_how_a_named_dataset_was_divided_is_part_of_the_agreement(two: Circle) -> None:
    """Otherwise a row that one peer tests on may be one that the other trains on."""
    north, south = two.file("north", more="train = 0.6"), two.file("south", more="train = 0.5")
    for text in disagreement(north, south):
        assert re.search(r"division of the dataset is \"wine \w{12}\" at 'north' and \"wine \w{12}\" at 'south'", text)
        assert "Use the same [data] settings, number of peers and seed" in text


def test_a_peer_whose_torch_draws_other_numbers_is_refused(two: Circle, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another build of torch may: the seed is the same, the stream is not."""
    number, wire = randomness.number, real_peer._wire

    def wire_with_another_stream(file: PeerFile, identity: Identity, *rest: Any) -> Any:
        monkeypatch.setattr(randomness, "number", lambda *keys: number(*keys) + (identity.name == "south"))
        return wire(file, identity, *rest)

    monkeypatch.setattr(real_peer, "_wire", wire_with_another_stream)
    for text in disagreement(two.file("north"), two.file("south")):
        assert re.search(r"random numbers is \"\w{8}\" at 'north' and \"\w{8}\" at 'south'", text)
        assert "install the same versions" in text


def test_columns_are_part_of_the_agreement(two: Circle, tmp_path: Path) -> None:
    """Each is told which one differs, by its number and by the name that it has at home."""
    write_table(tmp_path / "n.csv", ["x", "y"])
    write_table(tmp_path / "s.csv", ["x", "y"], columns=("a", "c"))
    ended, said = disagreement(two.file("north", data="n.csv"), two.file("south", data="s.csv"))
    assert "column 2 differs between the two peers. Columns are counted from 1" in ended
    assert ended.endswith("(in the local table, column 2 is 'c')")
    assert said.endswith("(in the local table, column 2 is 'b')")


def test_categories_are_part_of_the_agreement(two: Circle, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,sex,kind\n" + "1,f,x\n2,m,y\n" * 20)
    north, south = (
        two.file(name, data="t.csv", more=f'categories = {{ sex = ["{texts}"] }}')
        for name, texts in (("north", 'f", "m'), ("south", 'm", "f'))
    )
    ended, _ = disagreement(north, south)
    assert "column 2 differs between the two peers" in ended
    assert "the same data.categories (in the local table, column 2 is 'sex')" in ended


def test_labels_that_differ_are_not_named(two: Circle, tmp_path: Path) -> None:
    write_table(tmp_path / "n.csv", ["ill", "sound"])
    write_table(tmp_path / "s.csv", ["sound", "unclear"])
    for text in disagreement(two.file("north", data="n.csv"), two.file("south", data="s.csv")):
        assert "labels differ between the two peers. List all labels in the same order as data.labels" in text
        assert not re.search("ill|sound|unclear", text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"peer": 'name = "west"'}, "peer.name = 'west', but the certificate in .* is that of 'north'"),
        ({"peer": "index = 7"}, "peer.index = 7 is too large: the data are divided among 2 peers"),
        ({"method": "fedavg"}, "fedavg needs a server: set peer.server"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_starts(two: Circle, words: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        asyncio.run(take_part(two.file("north", **words), say=lambda _: None))


def test_a_seed_needs_a_name(two: Circle) -> None:
    file = two.file("north")
    file = read_file(file.path, ["peer.seeds=127.0.0.1:7400", "method.k=1"])
    with pytest.raises(ConfigError, match=r"peer.seeds: '127.0.0.1:7400' is not NAME@HOST:PORT"):
        file.seeds()


def test_unknown_keys_of_a_peer_file(two: Circle, capsys: pytest.CaptureFixture[str]) -> None:
    path = two.file("north").path
    path.write_text(path.read_text() + "sedes = []\n")
    assert main.main(["peer", str(path)]) == 2
    assert "unknown key 'sedes'. Did you mean 'seeds'?" in capsys.readouterr().err


def test_a_port_that_is_taken(two: Circle) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", two.ports["north"]))
        taken.listen()
        with pytest.raises(CoterieError, match=r"peer.listen = '127.0.0.1:\d+' cannot be used.*is the port taken"):
            asyncio.run(take_part(two.file("north"), say=lambda _: None))


def test_one_process_at_a_time(two: Circle) -> None:
    async def work() -> None:
        first = asyncio.create_task(take_part(two.file("north"), say=lambda _: None))
        await asyncio.sleep(0.5)
        with pytest.raises(RunError, match="in use by another process: stop that process of this peer"):
            await take_part(two.file("north"), say=lambda _: None)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)

    asyncio.run(work())


def test_a_finished_peer_is_not_started_again_by_accident_but_another_method_is_refused(two: Circle) -> None:
    together(two.file("north"), two.file("south"))
    before = (two.folder / "north" / "events.jsonl").read_text()
    done = together(two.file("north"), two.file("south"))
    assert (two.folder / "north" / "events.jsonl").read_text() == before
    assert all(summary["rounds"] == 2 for summary in done)
    with pytest.raises(RunError, match="holds a run with another method"):
        asyncio.run(take_part(two.file("north", method="local"), say=lambda _: None))


OWN = """
from dataclasses import dataclass

from coterie import Method


@dataclass(frozen=True)
class Mine(Method):
    async def round(self, me):
        await me.train(lr=0.05)
"""


def test_a_peer_that_goes_on_with_another_source_says_so(two: Circle, caplog: pytest.LogCaptureFixture) -> None:
    mine = two.folder / "mine.py"
    mine.write_text(OWN)
    files = [two.file(name, method=f"{mine}:Mine") for name in two.names]
    assert not any("mixture" in summary for summary in together(*files))
    (checkpoint,) = (two.folder / "north" / "checkpoint").glob("round-*2*")
    checkpoint.unlink()  # north was killed in its second round
    mine.write_text(OWN.replace("0.05", "0.06"))
    files = [two.file(name, method=f"{mine}:Mine") for name in two.names]
    north, south = together(*files)
    assert north["mixture"] == ["after round 1: mine.py changed"]
    assert "north resumes after round 1, but mine.py changed: its results will be a mixture" in caplog.text
    assert "mixture" not in south  # it had finished


def test_what_must_be_a_section(tmp_path: Path) -> None:
    (tmp_path / "north.toml").write_text("peer = 3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="peer is a section"):
        read_file(tmp_path / "north.toml")


def test_a_server_that_does_not_come(two: Circle) -> None:
    file = two.file("north", method="fedavg", peer='server = "hub"')
    file = read_file(file.path, ["network.gather=1"])
    with pytest.raises(CoterieError, match=r"the server 'hub' \(peer.server\) did not appear"):
        asyncio.run(take_part(file, say=lambda _: None))


def test_status_of_a_peer_and_of_nothing(two: Circle, capsys: pytest.CaptureFixture[str]) -> None:
    together(two.file("north"), two.file("south"))
    assert main.main(["status", str(two.folder / "north")]) == 0
    shown = capsys.readouterr().out
    assert "north (number 0)" in shown
    assert "finished, round 2/2" in shown
    assert re.search(r"^south +finished +2 ", shown, re.MULTILINE)
    assert main.main(["status", str(two.folder / "north"), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["round"], status["rounds"]) == ("done", 2, 2)
    assert main.main(["status", str(two.folder / "keys")]) == 2
    assert "has no status.json" in capsys.readouterr().err


def test_nothing_private_in_what_a_peer_writes(two: Circle) -> None:
    together(two.file("north"), two.file("south"))
    secret = Identity.load(two.folder / "keys" / "north").private_key.split(b"\n")[1]
    for path in (two.folder / "north").rglob("*"):
        assert not path.is_file() or secret not in path.read_bytes()
