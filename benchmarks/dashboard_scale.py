"""Responsiveness of the dashboard with 1,000 peers: time to a usable page, and to the effect of a click under load.

python benchmarks/dashboard_scale.py --peers 1000 --rounds 100

It writes a synthetic run, serves it, opens it in headless Chromium, and keeps writing a round per second while it
clicks. Needs Playwright and a browser: chromium on the PATH, or named in COTERIE_BROWSER.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coterie.core.events import EventLog, PeerRound, RunStarted
from coterie.running.state import RunState

CLUSTERS, NEIGHBOURS, CLASSES = 10, 10, 10


class Writer:
    """Writes a run that looks like PANM's: more and more neighbours from the same cluster, rising accuracy."""

    def __init__(self, folder: Path, peers: int, rounds: int) -> None:
        self.folder, self.peers, self.rounds, self.round = folder, peers, rounds, 0
        folder.mkdir(parents=True, exist_ok=True)
        head = f'seed = 0\nrounds = {rounds}\npeers = {peers}\n[method]\nname = "panm"\n[data]\nname = "synthetic"\n'
        (folder / "config.toml").write_text(head, encoding="utf-8")
        self.log = EventLog(folder / "events.jsonl")
        self.random = random.Random(0)
        kinds, classes = ["mlp"] * peers, [[10] * CLASSES] * peers
        clusters = [p % CLUSTERS for p in range(peers)]
        self.log.write(RunStarted("panm", 0, peers, rounds, kinds, [100] * peers, classes, clusters, "synthetic"))
        self.log.flush()

    def alive(self) -> RunState:
        """The state of a running run, with every peer training."""
        state = RunState(self.folder, self.rounds)
        state.activities = lambda: [
            {"peer": p, "round": self.round + 1, "state": "training"} for p in range(self.peers)
        ]
        return state

    def write_round(self) -> None:
        self.round += 1
        t, draw = self.round, self.random
        level = 0.9 - 0.7 * math.exp(-t / 30)
        for peer in range(self.peers):
            kin = [q for q in range(peer % CLUSTERS, self.peers, CLUSTERS) if q != peer]
            same = min(NEIGHBOURS, t // 5)
            others = draw.sample(kin, same) + draw.sample(range(self.peers), NEIGHBOURS - same)
            neighbours = sorted({q for q in others if q != peer})
            weights = {str(q): 1 / (1 + len(neighbours)) for q in (peer, *neighbours)}
            accuracy = min(1.0, max(0.0, draw.gauss(level, 0.05)))
            notes = {"neighbours": neighbours, "weights": weights}
            record = PeerRound(
                peer, t, 1.5 * t, accuracy, accuracy, 1 - accuracy, {"model": 500_000}, {"model": 10}, notes
            )
            self.log.write(record)
        self.log.flush()


def measured(page: Any, act: str, wait: str) -> float:
    """Milliseconds from an action in the page until its effect has been drawn."""
    took: float = page.evaluate(
        """async ([act, wait]) => {
            const began = performance.now();
            new Function(act)();
            const done = new Function(`return ${wait}`);
            while (!done()) await new Promise(requestAnimationFrame);
            await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
            return performance.now() - began;
        }""",
        [act, wait],
    )
    return took


FILTER = "const f = document.getElementById('peers-filter'); f.value = '{}'; f.dispatchEvent(new Event('input'))"
ACTIONS = {
    "filter": (FILTER.format("cluster 3"), "document.body.textContent.includes(' matching, ')"),
    "filter off": (FILTER.format(""), "!document.body.textContent.includes(' matching, ')"),
    "next page": (
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Next').click()",
        "document.body.textContent.includes('51 to 100')",
    ),
    "previous page": (
        "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Previous').click()",
        "document.body.textContent.includes('1 to 50 of')",
    ),
    "select a peer": (
        "document.querySelector('[aria-label=Peers] tbody button').click()",
        "document.querySelector('[aria-label=Peers] tr.chosen')",
    ),
    "deselect it": (
        "document.querySelector('[aria-label=Peers] tr.chosen button').click()",
        "!document.querySelector('[aria-label=Peers] tr.chosen')",
    ),
}


def browse(url: str, writer: Writer, seconds: float, shot: Path | None) -> None:
    from playwright.sync_api import sync_playwright

    path = os.environ.get("COTERIE_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)  # to measure in it
        for name in ("first visit", "second visit"):  # the first must read all events so far
            began = time.perf_counter()
            page.goto(url)
            page.wait_for_selector("[aria-label=Peers] tbody tr")
            usable = time.perf_counter() - began
            page.wait_for_function(
                f"document.querySelector('dl.tiles b').textContent.startsWith('{writer.round:,} ')", timeout=120_000
            )
            whole = time.perf_counter() - began
            print(f"{name}: usable after {usable:.2f} s, all {writer.round} rounds after {whole:.2f} s")
            page.goto("about:blank")
        page.goto(url)
        page.wait_for_selector("[aria-label=Peers] tbody tr")
        click_while_it_writes(page, writer, seconds)
        if shot:
            page.screenshot(path=str(shot), full_page=True)
        browser.close()


def click_while_it_writes(page: Any, writer: Writer, seconds: float) -> None:
    ended = threading.Event()

    def keep_writing() -> None:
        while not ended.wait(1.0):
            writer.write_round()

    writing = threading.Thread(target=keep_writing, daemon=True)
    first = writer.round
    page.evaluate("""() => { window.frames_ = []; let last = performance.now();
        const next = (now) => { frames_.push(now - last); last = now; requestAnimationFrame(next); };
        requestAnimationFrame(next); }""")
    writing.start()
    took: dict[str, list[float]] = {name: [] for name in ACTIONS}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for name, (act, wait) in ACTIONS.items():
            took[name].append(measured(page, act, wait))
            time.sleep(0.15)
    ended.set()
    writing.join()
    for name, values in took.items():
        print(f"{name}: median {statistics.median(values):.0f} ms, longest {max(values):.0f} ms of {len(values)}")
    frames = sorted(page.evaluate("window.frames_"))
    late = frames[int(0.99 * len(frames))]
    print(f"frames: 99 of 100 within {late:.0f} ms, longest {frames[-1]:.0f} ms")
    print(f"rounds written meanwhile: {writer.round - first}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=100, help="rounds written before the page is opened")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of clicking")
    parser.add_argument("--shot", type=Path, help="also save a picture of the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        writer = Writer(Path(folder) / "large", options.peers, options.rounds + 200)
        for _ in range(options.rounds):
            writer.write_round()
        stack.enter_context(writer.alive())
        size = (Path(folder) / "large/events.jsonl").stat().st_size
        print(f"{options.peers} peers, {options.rounds} rounds, {size / 1e6:.0f} MB of events")
        command = [sys.executable, "-m", "coterie", "dashboard", folder, "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        try:
            browse(f"{url}#/run/large", writer, options.seconds, options.shot)
            with open(f"/proc/{server.pid}/status", encoding="utf-8") as status:  # noqa: PTH123
                print(next(line.strip() for line in status if line.startswith("VmHWM")), "(peak memory of the server)")
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
