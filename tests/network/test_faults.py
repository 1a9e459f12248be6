"""What happens to others happens to them: peers that are killed, frozen, cut off, late, or out of disk.

Real processes throughout. What a test measured it prints: `pytest -s -m slow tests/network/test_faults.py`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faults_support import (
    RealCircle,
    Seat,
    Switch,
    every_round_once,
    need_namespaces,
    real_circle,
    received_from,
    wait_until,
)

from coterie.cli.main import main
from coterie.config import loading, sections
from coterie.core.artifact import Artifact
from coterie.core.errors import RunError
from coterie.core.events import Offence, PeerRound, of_kind, read
from coterie.network.audit import verify
from coterie.network.deadlines import FACTOR, LEAST, RECENT, Deadline, Pace
from coterie.network.exchange import MessageNumbers
from coterie.network.mailbox import EMPTY, MOST_UNREAD, Mailbox
from coterie.network.node import GRACE
from coterie.running import simulated
from coterie.running.local_circle import LocalCircle
from coterie.running.real_peer import _lock

STARTING = 300.0  # seconds that processes may take to import torch and meet, however busy the machine is
SCHEDULING = 3.0  # seconds that a busy machine may keep a process from noticing that a wait is over

# Every peer its own sample of the digits; a round of gossip trains for some tenths of a second.
GOSSIP = (
    "method.name=gossip", "baseline=", "data.partition=iid", "data.train=40", "data.validation=10", "data.test=10",
    "train.epochs=60", "evaluate.every=10", "engine.threads=1",
)  # fmt: skip


def report(**figures: Any) -> None:
    print("".join(f"\n    {key.replace('_', ' ')}: {value}" for key, value in figures.items()))


def waits(records: Sequence[PeerRound]) -> list[float]:
    """Seconds that each round waited for others."""
    return [float(record.notes["waited"]) for record in records]


def never_over_the_deadline(records: Sequence[PeerRound]) -> None:
    """No round waited longer than what the rounds before it taught (one fetch a round; the first knows nothing)."""
    waited = waits(records)
    for at in range(1, len(waited)):
        deadline = max(LEAST, FACTOR * max(waited[max(0, at - RECENT) : at]))
        assert waited[at] <= deadline + GRACE + SCHEDULING, f"round {records[at].round} waited {waited[at]} s"


def offences(out: Path) -> list[Offence]:
    found: list[Offence] = of_kind(read(out / "events.jsonl"), Offence)
    return found


# -- kill -9 -----------------------------------------------------------------------------------


class Disturbed:
    """A local circle whose peers are killed when they are in given rounds; it starts them again by itself."""

    def __init__(self, e: sections.Experiment, out: Path, plan: dict[str, list[tuple[int, float]]]) -> None:
        self.circle = LocalCircle(e, out)
        self.circle.prepare()
        self.members = {member.name: member for member in self.circle.members}
        self.plan, self.error, self.summary = plan, None, {}
        self._run = threading.Thread(target=self._go)

    def _go(self) -> None:
        try:
            self.summary = self.circle.run()
        except BaseException as error:  # told by the thread that waits for this one
            self.error = error

    def finish(self, seconds: float) -> dict[str, Any]:
        """Kill as planned, then wait until all have finished: the run's summary."""
        self._run.start()
        killers = [threading.Thread(target=self._kill, args=(name, when)) for name, when in self.plan.items()]
        for thread in killers:
            thread.start()
        self._run.join(seconds)
        if self._run.is_alive():
            self.circle.stop()
            raise AssertionError(
                f"not finished within {seconds:g} s: {[(m.name, m.round) for m in self.circle.members]}"
            )
        if self.error:
            raise self.error
        for thread in killers:
            thread.join()
        return self.summary

    def _kill(self, name: str, moments: list[tuple[int, float]]) -> None:
        member = self.members[name]
        for round, later in moments:
            while member.round < round:
                if not self._run.is_alive():
                    return
                time.sleep(0.01)
            time.sleep(later)
            assert member.process is not None
            os.kill(member.process.pid, signal.SIGKILL)


def check_logs(circle: LocalCircle) -> None:
    """Every round once in everybody's log, nothing held against anybody, and audits that verify."""
    for member in circle.members:
        records: list[PeerRound] = of_kind(read(member.out / "events.jsonl"), PeerRound)
        every_round_once(records, circle.e.rounds)
        assert not offences(member.out)
        verify(member.out / "audit.jsonl")


def test_a_killed_peer_comes_back_where_it_was(tmp_path: Path) -> None:
    e = loading.load("panm-digits", [*GOSSIP, "peers=3", "method.k=2", "rounds=12", "network.interval=0.3"])
    disturbed = Disturbed(e, tmp_path / "run", {"peer-1": [(4, 0.1)]})
    disturbed.finish(STARTING)
    check_logs(disturbed.circle)
    assert disturbed.members["peer-1"].restarts == 1
    assert "resuming in round" in (disturbed.members["peer-1"].out / "output.txt").read_text(encoding="utf-8")
    for name in ("peer-0", "peer-2"):
        never_over_the_deadline(of_kind(read(disturbed.members[name].out / "events.jsonl"), PeerRound))


THIRD = (
    "peers=10", "baseline=", "data.clusters=2", "data.train=40", "data.validation=20", "data.test=100",
    "train.epochs=60", "method.l=4", "method.k=2", "rounds=40", "evaluate.every=5", "engine.threads=1",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_third_of_ten_peers_killed_at_random_costs_nobody_the_run(tmp_path: Path, seed: int) -> None:
    """Within two points of the undisturbed run, on 1,000 test samples (the noise is in docs/faults or the report)."""
    e = loading.load("panm-digits", [*THIRD, f"seed={seed}"])
    undisturbed = simulated.run(e, tmp_path / "undisturbed")  # as a simulation: equal to real peers, to the bit
    chance = random.Random(seed)
    victims = chance.sample(range(10), 4)
    plan = {f"peer-{i}": [(chance.randint(1, 34), chance.uniform(0, 0.5))] for i in victims}
    disturbed = Disturbed(e, tmp_path / "run", plan)
    summary = disturbed.finish(1800)
    check_logs(disturbed.circle)
    assert {m.name: m.restarts for m in disturbed.circle.members if m.restarts} == dict.fromkeys(plan, 1)
    logs = {m.name: of_kind(read(m.out / "events.jsonl"), PeerRound) for m in disturbed.circle.members}
    for name, records in logs.items():
        if name not in plan:
            never_over_the_deadline(records)
    before, after = (s["accuracy"]["last"] for s in (undisturbed, summary))
    apart = [b - a for a, b in zip(before["per_peer"], after["per_peer"], strict=True)]
    spread = (sum((x - sum(apart) / 10) ** 2 for x in apart) / 9) ** 0.5
    idle = {name: sum(waits(records)) for name, records in logs.items()}
    longest = {name: max(waits(records)[1:]) for name, records in logs.items()}
    report(
        killed_after_round={name: moments[0][0] for name, moments in plan.items()},
        accuracy=f"{before['mean']:.3f} undisturbed, {after['mean']:.3f} disturbed",
        noise=f"difference by peer {spread:.3f} (deviation), of their mean {spread / 10**0.5:.4f}",
        seconds=f"{summary['seconds']:.0f}, of which idle {min(idle.values()):.1f} to {max(idle.values()):.1f}",
        longest_wait=f"{max(longest.values()):.1f} s",
    )
    assert abs(after["mean"] - before["mean"]) <= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "flt"])
def test_a_server_that_is_killed_comes_back_and_serves_on(tmp_path: Path, method: str) -> None:
    words = [*GOSSIP, f"method.name={method}", "peers=3", "rounds=16", "network.interval=0.3"]
    e = loading.load("panm-digits", words)
    disturbed = Disturbed(e, tmp_path / "run", {"server": [(3, 0.05), (8, 0.1)], "peer-1": [(8, 0.1)]})
    summary = disturbed.finish(900)
    check_logs(disturbed.circle)
    assert disturbed.members["server"].restarts == 2
    letters = [m.name for m in disturbed.circle.members for _ in (m.out / "letters").glob("*.letter")]
    assert len(letters) <= 2 * 3  # of the last two checkpoints; the others are gone
    report(seconds=f"{summary['seconds']:.0f}", accuracy=summary["accuracy"]["last"]["mean"])


@pytest.mark.slow
def test_when_all_were_killed_the_first_to_start_waits_for_the_others(tmp_path: Path) -> None:
    with real_circle(tmp_path, *GOSSIP, "peers=3", "method.k=2", "rounds=40", "network.interval=0.5") as circle:
        circle.add("north", "east", "south")
        circle.start()
        circle.until_round(5, STARTING)
        for seat in circle.seats.values():
            seat.kill()
        last = {seat.name: seat.round for seat in circle.seats.values()}
        circle.start("north")
        wait_until(lambda: circle["north"].said().count("listens on") == 2, STARTING, "the return of north")
        circle.start("east", "south")
        circle.until_done(STARTING)
        for seat in circle.seats.values():
            every_round_once(seat.rounds(), 40)
            alone = [r.round for r in seat.rounds() if not r.messages]
            assert not alone, f"{seat.name} was killed in round {last[seat.name] + 1}, and alone in {alone}"


@pytest.mark.slow
def test_peers_end_with_the_command_that_looks_after_them(tmp_path: Path) -> None:
    settings = [*GOSSIP, "method.name=local", "rounds=100000"]
    command = [sys.executable, "-m", "coterie", "up", "1", "panm-digits", *settings, "--plain"]
    command += ["--out", str(tmp_path / "up")]
    up = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        seat = Seat("peer-0", tmp_path / "peer-0.toml", tmp_path / "up" / "peers" / "peer-0")
        wait_until(lambda: seat.round > 0, STARTING, "the first round")
        process = Path("/proc") / str(seat.status()["process"])
        assert process.exists()
    finally:
        up.kill()
        up.wait()
    seconds = wait_until(lambda: not process.exists(), 30, "the end of the peer")
    report(ended_after=f"{seconds:.1f} s")


WALK = (
    *GOSSIP, "method.name=compfl", "method.setting=device-by-device", "peers=4", "train.epochs=300",
    "network.interval=0.3",
)  # fmt: skip


def holder_of(circle: RealCircle) -> Seat:
    """Who trains the one expert there is: the others are a round ahead, and wait for news of it."""
    found: list[Seat] = []

    def one_is_behind() -> bool:
        rounds = {seat.name: seat.round for seat in circle.seats.values()}
        found[:] = [circle[name] for name, round in rounds.items() if round < max(rounds.values())]
        return len(found) == 1

    wait_until(one_is_behind, STARTING, "somebody who holds the expert")
    return found[0]


def hops(*seats: Seat) -> dict[int, tuple[int, str]]:
    """By hop of the expert: in which round, and where. No hop is made twice."""
    made: dict[int, tuple[int, str]] = {}
    for seat in seats:
        for record in seat.rounds():
            if "hop.mlp" in record.notes:
                assert record.notes["hop.mlp"] not in made, f"hop {record.notes['hop.mlp']} at two places"
                made[record.notes["hop.mlp"]] = (record.round, seat.name)
    rounds = [round for _, (round, _) in sorted(made.items())]
    assert rounds == sorted(rounds)
    return made


@pytest.mark.slow
def test_a_walking_expert_outlives_kill_9_of_its_holder(tmp_path: Path) -> None:
    with real_circle(tmp_path, *WALK, "rounds=60") as circle:
        circle.add("north", "east", "south", "west")
        circle.start()
        circle.until_round(8, STARTING)
        victim = holder_of(circle)
        at = victim.round
        victim.kill()
        others = [seat for seat in circle.seats.values() if seat is not victim]
        circle.until_done(2 * STARTING, *(seat.name for seat in others))
        made = hops(*others)
        after = {name for round, name in made.values() if round > at + 10}
        assert after == {seat.name for seat in others}, "it does not get around any more"
        assert max(round for round, _ in made.values()) >= 59
        missed = [t for t in range(at + 1, 61) if t not in {round for round, _ in made.values()}]
        found = [r.round for seat in others for r in seat.rounds() if "found.mlp" in r.notes]
        assert len(found) <= 1, "sent on anew by two"
        report(killed_in_round=at + 1, rounds_without_it=missed, sent_on_anew_in=found)


@pytest.mark.slow
@pytest.mark.parametrize("later", [0, 14])  # rounds: before anybody misses the expert, or once it is sent on anew
def test_a_holder_that_comes_back_does_not_bring_a_second_one(tmp_path: Path, later: int) -> None:
    with real_circle(tmp_path, *WALK, "rounds=60") as circle:
        circle.add("north", "east", "south", "west")
        circle.start()
        circle.until_round(8, STARTING)
        victim = holder_of(circle)
        victim.kill()
        others = [seat.name for seat in circle.seats.values() if seat is not victim]
        circle.until_round(victim.round + later, STARTING, *others)
        victim.start()
        circle.until_done(2 * STARTING)
        made = hops(*circle.seats.values())
        last = [round for round, _ in made.values() if round > 50]
        assert len(last) == len(set(last)), "in one round at two places"
        report(came_back_in_round=min((r.round for r in victim.rounds() if r.round > 20), default=None), hops=len(made))


# -- freezing ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_frozen_peer_is_waited_for_no_longer_than_the_deadline(tmp_path: Path) -> None:
    with real_circle(tmp_path, *GOSSIP, "peers=4", "method.k=3", "rounds=4000", "network.interval=0.5") as circle:
        circle.add("north", "east", "south", "west")
        circle.start()
        circle.until_round(30, STARTING)
        others = [circle[name] for name in ("north", "east", "south")]
        at = {seat.name: seat.round for seat in others}
        circle["west"].signal(signal.SIGSTOP)
        time.sleep(10)
        gone_on = {seat.name: seat.round - at[seat.name] for seat in others}
        longest = max(max(waits([r for r in seat.rounds() if r.round >= at[seat.name]])) for seat in others)
        assert min(gone_on.values()) >= 3
        before = {seat.name: received_from(seat)["west"] for seat in others}
        circle["west"].signal(signal.SIGCONT)
        seconds = wait_until(
            lambda: all(received_from(seat)["west"] > before[seat.name] for seat in others), 30, "word from west"
        )
        report(rounds_in_its_absence=gone_on, longest_wait=f"{longest:.1f} s", back_after=f"{seconds:.1f} s")
        for seat in others:
            never_over_the_deadline(seat.rounds()[1:])
        assert [r.round for r in circle["west"].rounds()] == list(range(1, circle["west"].round + 1))


# -- coming and going --------------------------------------------------------------------------


@pytest.mark.slow
def test_one_joins_late_one_leaves_for_good_and_one_comes_back_far_behind(tmp_path: Path) -> None:
    words = (*GOSSIP, "peers=4", "method.k=3", "rounds=300", "network.interval=0.5", "network.patience=20")
    with real_circle(tmp_path, *words) as circle:
        circle.add("north", "east", "south", "west")
        circle.start()
        circle.until_round(5, STARTING)

        circle["west"].signal(signal.SIGTERM)  # for good
        assert circle["west"].wait(30) == 130
        circle["south"].kill()  # for long
        stopped_at = circle["south"].round

        circle.add("late", index=0)  # its certificate, too, is issued only now
        before = circle["north"].round
        circle["late"].start()
        circle.until_round(1, STARTING, "late")
        first = circle["late"].rounds()[0].round
        assert before <= first <= circle["north"].round + 1
        wait_until(lambda: received_from(circle["north"]).get("late", 0) > 0, 30, "anything from the newcomer")

        circle["south"].start()
        circle.until_round(stopped_at + 2, STARTING, "south")
        behind = circle["north"].round - circle["south"].round
        circle.until_done(900, "north", "east", "south", "late")
        for name in ("north", "east", "south"):
            every_round_once(circle[name].rounds(), 300)
        every_round_once(circle["late"].rounds(), 300, first)
        ahead = {a for r in circle["south"].rounds() for a in r.notes.get("stale", {}).values()}
        stale = {
            a for name in ("north", "east") for r in circle[name].rounds() for a in r.notes.get("stale", {}).values()
        }
        assert min(ahead) < -4  # what it got was of later rounds, and it noted of how much later
        late = [seat.rounds()[-1].time for seat in (circle["north"], circle["east"], circle["late"], circle["south"])]
        report(
            newcomer_began=f"in round {first}, when the others had finished {before}",
            south=f"stopped after round {stopped_at}, came back {behind} rounds behind",
            staleness=f"it saw {min(ahead)} to {max(ahead)}, others of it {sorted(stale)[-3:]}",
            seconds=[f"{x:.0f}" for x in late],
        )
        for name in ("north", "east", "south", "late"):
            assert not offences(circle[name].out)


# -- cables ------------------------------------------------------------------------------------


@pytest.fixture
def namespaces() -> None:
    need_namespaces()


def on_the_switch(circle: RealCircle, switch: Switch) -> list[Seat]:
    names = [f"peer-{i}" for i in range(switch.count)]
    addresses = {name: f"{switch.address(i)}:7400" for i, name in enumerate(names)}
    circle.place(addresses, {name: switch.namespace(i) for i, name in enumerate(names)})
    return [circle[name] for name in names]


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("seconds", [20, 6])
def test_both_sides_of_a_cut_go_on_and_find_each_other_again(tmp_path: Path, seconds: int) -> None:
    words = (*GOSSIP, "peers=6", "method.k=3", "rounds=4000")
    with Switch(6) as switch, real_circle(tmp_path, *words) as circle:
        seats = on_the_switch(circle, switch)
        circle.start()
        circle.until_round(10, STARTING)
        left = {f"peer-{i}" for i in range(3)}

        def across(seat: Seat) -> int:
            return sum(n for name, n in received_from(seat).items() if (name in left) != (seat.name in left))

        began = {seat.name: seat.round for seat in seats}
        switch.cut = frozenset(range(3))
        time.sleep(seconds)
        gone_on = {seat.name: seat.round - began[seat.name] for seat in seats}
        before = {seat.name: across(seat) for seat in seats}
        switch.cut = frozenset()
        healed: dict[str, float] = {}
        mended = time.monotonic()
        while len(healed) < 6 and time.monotonic() - mended < 60:
            for seat in seats:
                if seat.name not in healed and across(seat) > before[seat.name]:
                    healed[seat.name] = time.monotonic() - mended
            time.sleep(0.05)
        report(
            rounds_while_cut=list(gone_on.values()),
            exchanged_again_after=[f"{healed.get(seat.name, float('inf')):.1f} s" for seat in seats],
            longest_wait=f"{max(max(waits(seat.rounds()[1:])) for seat in seats):.1f} s",
        )
        assert min(gone_on.values()) >= seconds // 10  # of a short cut, the deadline is the most part
        # A status is written every second: so late may we see what has been for that long.
        assert max(healed.get(seat.name, 99.0) for seat in seats) <= 5 + 1
        for seat in seats:
            assert not offences(seat.out)
            assert "certificate" not in seat.said()


@pytest.mark.slow
@pytest.mark.usefixtures("namespaces")
def test_a_bad_line_only_takes_longer(tmp_path: Path) -> None:
    """100 ms for every packet, each way, and one in twenty lost."""
    words = (*GOSSIP, "peers=4", "method.k=3", "rounds=25")
    took = {}
    for kind, (delay, loss) in {"good": (0.0, 0.0), "bad": (0.1, 0.05)}.items():
        (tmp_path / kind).mkdir()
        with Switch(4, delay, loss) as switch, real_circle(tmp_path / kind, *words) as circle:
            seats = on_the_switch(circle, switch)
            circle.start()
            circle.until_done(STARTING + 300)
            for seat in seats:
                every_round_once(seat.rounds(), 25)
                assert not offences(seat.out)
            messages = sum(sum(r.messages.values()) for seat in seats for r in seat.rounds())
            spent = max(seat.rounds()[-1].time - seat.rounds()[0].time for seat in seats)
            waited = sum(sum(waits(seat.rounds()[1:])) for seat in seats) / 4
            took[kind] = (
                f"{spent:.1f} s for 24 rounds, of which waited {waited:.1f}; {messages} of {25 * 4 * 3} artifacts "
                f"arrived; {switch.bytes / 1e6:.1f} MB in {switch.packets} packets, {switch.lost} lost"
            )
            assert messages >= 0.9 * 25 * 4 * 3
    report(**took)


# -- disks -------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: Path) -> None:
    """With zeros, until there is no room for another page."""
    with suppress(OSError), file.open("wb", buffering=0) as ballast:
        while True:
            ballast.write(bytes(4096))


def test_a_full_disk_is_said_and_what_was_saved_still_serves(tmp_path: Path, small_disk: Path) -> None:
    words = (*GOSSIP, "method.name=local", "peers=1", "rounds=12", "evaluate.every=1")
    with real_circle(tmp_path, *words) as circle:
        circle.add("north")
        (tmp_path / "of-north").symlink_to(small_disk)
        seat = circle["north"]
        seat.start()
        circle.until_round(3, STARTING)
        ballast = small_disk / "ballast"
        fill(ballast)
        assert seat.wait(60) == 2
        last = seat.said().splitlines()[-1]
        assert last.startswith("coterie: ")
        assert str(tmp_path / "of-north") in last
        assert "disk" in last
        assert "Traceback" not in seat.said()
        ballast.unlink()
        finished = seat.round
        assert list((small_disk / "checkpoint").glob("round-*.safetensors"))
        seat.start()
        circle.until_done(STARTING)
        assert 3 <= finished < 12
        every_round_once(seat.rounds(), 12)


@pytest.mark.slow
def test_a_full_disk_at_one_peer_is_no_matter_for_the_others(tmp_path: Path, small_disk: Path) -> None:
    """Whichever file is the first that cannot be written: a checkpoint, the log, the audit."""
    with real_circle(tmp_path, *GOSSIP, "peers=3", "method.k=2", "rounds=80", "network.interval=0.5") as circle:
        circle.add("north", "east", "south")
        (tmp_path / "of-north").symlink_to(small_disk)
        circle.start()
        for round in (5, 25):
            circle.until_round(round, STARTING)
            fill(small_disk / "ballast")
            assert circle["north"].wait(60) == 2
            last = circle["north"].said().splitlines()[-1]
            report(said=last.replace(str(tmp_path), ""))
            assert str(tmp_path / "of-north") in last
            assert "disk" in last
            assert "Traceback" not in circle["north"].said()
            circle.until_round(circle["east"].round + 3, 60, "east", "south")
            (small_disk / "ballast").unlink()
            circle.start("north")
        circle.until_done(STARTING)
        for seat in circle.seats.values():
            every_round_once(seat.rounds(), 80)
            verify(seat.out / "audit.jsonl")


def test_a_start_counts_as_later_than_the_last_even_if_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _lock(tmp_path) as first:
        assert first > 1_700_000_000 * 10**9
        with pytest.raises(RunError, match="in use by another process"), _lock(tmp_path):
            pass
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    with _lock(tmp_path) as second:
        assert second == first + 1
    (tmp_path / "running").write_text("?")
    with _lock(tmp_path) as third:
        assert third == 5


def test_what_a_crash_left_damaged_is_said_and_the_one_before_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    circle = RealCircle(tmp_path, *GOSSIP, "method.name=local", "peers=1", "rounds=6", "evaluate.every=1")
    circle.add("north")
    seat = circle["north"]
    assert main(["peer", str(seat.file)]) == 0
    whole = seat.rounds()
    newest = max((seat.out / "checkpoint").glob("round-*.safetensors"))
    damaged = bytearray(newest.read_bytes())
    damaged[-100] ^= 1  # one bit of one weight
    newest.write_bytes(damaged)
    with (seat.out / "events.jsonl").open("rb+") as events:
        events.truncate(events.seek(0, os.SEEK_END) - 20)
    capsys.readouterr()
    assert main(["peer", str(seat.file)]) == 0
    said = capsys.readouterr().out
    assert f"the checkpoint {newest} cannot be read" in said
    assert "using the one before" in said
    assert "resuming in round 6" in said
    assert [(r.round, r.test) for r in seat.rounds()] == [(r.round, r.test) for r in whole]


# -- letters -----------------------------------------------------------------------------------


def letter(round: int) -> tuple[Artifact, bytes]:
    artifact = Artifact("average", 7, round, {})
    return artifact, artifact.to_bytes()


def filled(folder: Path, *numbers: int) -> Mailbox:
    box = Mailbox(folder)
    box.open(EMPTY)
    for number in numbers:
        assert box.put(*letter(number), "north", f"a1.{number}")
    return box


def rounds_of(letters: Sequence[Artifact]) -> list[int]:
    return [artifact.round for artifact in letters]


def test_a_letter_that_was_used_before_a_checkpoint_does_not_come_again(tmp_path: Path) -> None:
    """Killed after the checkpoint was written, and before the used letters' files were gone."""
    box = filled(tmp_path, 0, 1)
    assert rounds_of(box.take("average")) == [0, 1]
    box.put(*letter(2), "north", "a1.2")
    saved = box.state()
    box.put(*letter(3), "north", "a1.3")
    again = Mailbox(tmp_path)
    again.open(saved)
    assert rounds_of(again.take("average")) == [2, 3]
    assert not again.put(*letter(3), "north", "a1.3")


def test_a_letter_is_kept_until_no_checkpoint_before_its_use_is_left(tmp_path: Path) -> None:
    """The newest checkpoint may turn out to be damaged: the one before needs what was used in between."""
    box = filled(tmp_path, 0)
    first = box.state()
    box.drop_used()
    assert rounds_of(box.take("average")) == [0]
    second = box.state()
    box.drop_used()
    again = Mailbox(tmp_path)
    again.open(first)
    assert rounds_of(again.take("average")) == [0]
    again = Mailbox(tmp_path)
    again.open(second)
    assert again.take("average") == []
    again.drop_used()
    assert not list(tmp_path.glob("*.letter"))


def test_a_round_that_is_begun_again_never_takes_the_number_of_another_letter(tmp_path: Path) -> None:
    """A server that was killed in round 3, and comes back with fewer peers, must still be heard in round 4."""

    def numbers(round: int, *to: int) -> dict[int, str]:
        numbers = MessageNumbers("a1")
        numbers.begin_round(round)
        return {peer: numbers.next(peer) for peer in to}

    box = filled(tmp_path)
    assert box.put(*letter(3), "north", numbers(3, 5, 6, 7)[7])
    assert not box.put(*letter(3), "north", numbers(3, 6, 7)[7])  # its twin
    assert box.put(*letter(4), "north", numbers(4, 7)[7])
    assert rounds_of(box.take("average")) == [3, 4]


def test_half_a_letter_is_none(tmp_path: Path) -> None:
    filled(tmp_path, 0)
    (tmp_path / ".north.a1.000000000001.letter-0123.part").write_bytes(b"half")
    (tmp_path / "north.a1.000000000001.letter").write_bytes(letter(1)[1][:-3])
    box = Mailbox(tmp_path)
    box.open(EMPTY)
    assert rounds_of(box.take("average")) == [0]
    assert box.put(*letter(1), "north", "a1.1")


def test_the_deadline_is_learned_from_what_happened_more_than_once() -> None:
    deadline = Deadline(0, 60)
    assert deadline.seconds == 60
    deadline.learn(9)
    assert deadline.seconds == 27
    deadline.learn(1)  # so the first round was an exception
    assert deadline.seconds == 3
    deadline.learn(4)
    assert deadline.seconds == 12
    deadline.learn(40)
    assert deadline.seconds == 27
    deadline.learn(40)
    assert deadline.seconds == 60  # never more than the run's patience
    for _ in range(RECENT):
        deadline.learn(0.01)
    assert deadline.seconds == LEAST
    assert Deadline(5, 60).seconds == 5


def test_the_pace_of_rounds() -> None:
    pace = Pace()
    assert pace.of_rounds(5) == 0  # nothing is known: then one waits
    for seconds in (1.0, 9.0, 2.0):
        pace.learn(seconds)
    assert pace.of_rounds(5) == 10
    assert pace.of_rounds(0) == 0


def test_one_senders_letters_do_not_fill_the_disk(tmp_path: Path) -> None:
    box = Mailbox(tmp_path / "letters")
    box.open(EMPTY)
    letter = Artifact("walk", 1, 1, {})
    for count in range(MOST_UNREAD):
        assert not box.is_full("ada")
        assert box.put(letter, letter.to_bytes(), "ada", f"1.{count}")
    assert box.is_full("ada")
    assert not box.is_full("ad")
    box.take("walk")
    assert not box.is_full("ada")
