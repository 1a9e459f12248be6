"""Memory of w1's models with many peers, with and without engine.spill, each in a separate process.

    python benchmarks/spill.py [--peers 400]

Anonymous memory must stay in RAM; the system may write pages of mapped files to disk. Linux only.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workloads import PRESET, words


def largest(process: subprocess.Popen[bytes]) -> dict[str, int]:
    """The peak of each kind of memory, in bytes, by sampling."""
    most = {"RssAnon": 0, "RssFile": 0, "RssShmem": 0}
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        for kind in most:
            match = re.search(rf"{kind}:\s+(\d+) kB", status)
            most[kind] = max(most[kind], 1024 * int(match[1]) if match else 0)
        time.sleep(0.05)
    return most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--peers", type=int, default=400)
    peers = parser.parse_args().peers
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [*words("w1", folder), f"peers={peers}", "data.train=10", "data.validation=5", "data.test=5"]
        settings += ["rounds=3", "train.batch=10", "train.epochs=1", "engine.models=false", "engine.checkpoint=0"]
        for spill in ("", str(folder / "spill")):
            command = [sys.executable, "-m", "coterie", "run", PRESET, *settings, f"engine.spill={spill}", "--plain"]
            out = folder / ("spilled" if spill else "in-memory")
            with subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL) as process:
                most = largest(process)
            if process.returncode:
                raise SystemExit("the run failed")
            kinds = ", ".join(f"{kind} {most[kind] / 1e6:,.0f} MB" for kind in most)
            print(f"{out.name:>10}: {kinds}", flush=True)


if __name__ == "__main__":
    main()
