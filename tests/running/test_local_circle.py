"""What `coterie up` writes for its peers, and reads while they run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from coterie.cli.main import main
from coterie.config.loading import load
from coterie.core.events import EventLog, PeerRound, read
from coterie.core.peer import held_by
from coterie.core.run_folder import RunFolder
from coterie.network.keys import NAME, Identity
from coterie.report.run import open_run
from coterie.running.local_circle import LocalCircle, certificate_names
from coterie.running.real_peer import place, read_file
from coterie.wiring import gather

WORDS = [
    "peers=2",
    "data.partition=iid",
    "rounds=3",
    "baseline=",
    "method.name=local",
    "data.train=8",
    "data.validation=4",
    "data.test=4",
]
SPLITS = ["data.train=0.7", "data.validation=0.15", "data.test=0.15"]  # of a site


def note_round(path: Path, peer: int, round: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    log = EventLog(path)
    log.write(PeerRound(peer, round, 1.0 * round, 0.5, 0.5, 1.0, {"model": 10}, {"model": 1}))
    log.close()


def test_progress_survives_restarts_and_damaged_lines(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    circle = LocalCircle(load("panm-digits", WORDS), tmp_path, on_round=lambda p: seen.append((p.round, p.bytes)))
    north, south = circle.members

    def look() -> None:
        for member in circle.members:
            circle._show_progress(member)

    look()  # nothing is there yet
    for round in (1, 2):
        note_round(north.files.events, 0, round)
    note_round(south.files.events, 1, 1)
    look()
    assert seen == [(1, 30)]  # south is in round 2: two rounds of 10 bytes of north, one of south
    south.files.events.unlink()  # it restarts, and writes its first round again
    note_round(south.files.events, 1, 1)
    with south.files.events.open("ab") as file:
        file.write(b"{damaged\n")
    note_round(south.files.events, 1, 2)
    look()
    assert seen == [(1, 30), (2, 40)]  # round 1 of south counts once


# -- one peer per site -------------------------------------------------------------------------


def sites_in(folder: Path) -> list[str]:
    """Two files with the same columns in another order; Süd lacks a class. Returns the words of an experiment."""
    (folder / "sites").mkdir()
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"x": rng.normal(size=60), "a": rng.normal(size=60), "patient": np.arange(60) // 2})
    labels = np.where(np.arange(60) % 3, "ill", "well")
    table[:30].assign(label=labels[:30]).to_csv(folder / "sites/North.csv", index=False)
    table[30:][["patient", "a", "x"]].assign(label="ill").to_csv(folder / "sites/Süd.csv", index=False)
    words = ["data.partition=files", "data.group=patient", *SPLITS]
    common = ["model.zoo=mlp", "model.hidden=[4]", "method.name=gossip", "method.k=1", "rounds=2", "baseline="]
    return ["panm-digits", f"data.name={folder / 'sites'}", *words, *common]


def test_names_in_certificates() -> None:
    names = certificate_names(["Süd", "north", "North!", "server", "東京", "north-2", "x" * 80])
    assert names == ["sud", "north", "north-2", "server-2", "site", "north-2-2", "x" * 50]
    assert all(NAME.fullmatch(name) for name in names)


def test_each_peer_of_a_site_reads_its_own_file(tmp_path: Path) -> None:
    preset, *words = sites_in(tmp_path)
    e = load(preset, words)
    circle = LocalCircle(e, tmp_path / "run")
    circle.prepare()
    assert [member.name for member in circle.members] == ["north", "sud"]
    simulated = [held_by(peer) for peer in gather(e).participants]
    (tmp_path / "sites/North.csv").unlink()  # before the peer of Süd reads its file
    file = read_file(circle.members[1].file)
    assert file.peer.site == "Süd"
    me, alone = place(file, Identity.load(file.keys))
    mine = held_by(me)
    assert alone.dataset.classes == ("ill", "well")  # also the class that only North has
    for split in ("train", "validation", "test"):
        real, expected = getattr(mine, split), getattr(simulated[1], split)
        assert torch.equal(real.x, expected.x)
        assert torch.equal(real.y, expected.y)


ZOO = ["model.zoo=linear,mlp", "model.hidden=[4]"]


@pytest.mark.parametrize(
    ("method", "words", "expected"),
    [
        ("local", [], ["linear", "mlp", "linear"]),  # in turn
        ("local", ["model.assign=capacity", "model.capacity=1,0"], ["mlp", "linear", "mlp"]),  # mlp is larger
        ("local", ["model.assign=random", "seed=3"], None),
        ("fedavg", [], ["linear", "mlp", "linear", "linear"]),  # the server has the first peer's
    ],
)
def test_real_peers_have_the_models_of_the_simulation(
    tmp_path: Path, method: str, words: list[str], expected: list[str] | None
) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "sites").mkdir()
    for site in ("a", "b", "c"):
        table = pandas.DataFrame({"x": rng.normal(size=20), "z": rng.normal(size=20), "label": np.arange(20) % 2})
        table.to_csv(tmp_path / f"sites/{site}.csv", index=False)
    of_data = [f"data.name={tmp_path / 'sites'}", "data.partition=files", *SPLITS]
    e = load("panm-digits", [*of_data, *ZOO, *words, f"method.name={method}", "baseline="])
    circle = LocalCircle(e, tmp_path / "run")
    circle.prepare()
    files = [read_file(member.file) for member in circle.members]
    real = [place(file, Identity.load(file.keys))[0] for file in files]
    simulated = gather(e).participants
    names = [peer.architecture.name for peer in real]
    assert names == [peer.architecture.name for peer in simulated]
    assert names == expected if expected else len(set(names)) == 2
    assert [peer.kind for peer in real] == [peer.kind for peer in simulated]
    for mine, twin in zip(real, simulated, strict=True):
        assert torch.equal(mine.model.vector, twin.model.vector)


def test_up_takes_the_number_of_sites(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a number; and the real peers end where the simulated ones do."""
    words = sites_in(tmp_path)
    assert main(["up", *words, "--plain", "--out", str(tmp_path / "up")]) == 0
    assert main(["run", *words, "--plain", "--out", str(tmp_path / "run")]) == 0
    up, run = (list(read(tmp_path / name / "events.jsonl")) for name in ("up", "run"))
    assert up[0].names == run[0].names == ["North", "Süd"]
    assert {(r.peer, r.round): r.test for r in up[1:]} == {(r.peer, r.round): r.test for r in run[1:]}
    real, simulated = (open_run(tmp_path / name) for name in ("up", "run"))
    assert list(real.predictions) == list(simulated.predictions) == [0, 1]
    for peer, saved in real.predictions.items():
        assert saved.test.rows.tolist() == simulated.predictions[peer].test.rows.tolist()
    page = RunFolder(tmp_path / "up").report.read_text(encoding="utf-8")
    assert "No predictions were saved" not in page
    assert "Peer by peer, with intervals" in page
    capsys.readouterr()
    assert main(["up", "3", *words, "--plain", "--out", str(tmp_path / "three")]) != 0
    assert "peers = 3, but the data has 2 sites" in capsys.readouterr().err
