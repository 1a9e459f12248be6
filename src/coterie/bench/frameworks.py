"""Other frameworks: the packages to install in a separate environment for each, and the driver that runs it."""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from coterie.core.errors import ConfigError, RunError, unknown

DRIVERS = Path(__file__).parent / "drivers"
LONGEST_INSTALLATION = 1800  # seconds
STAMP = "installed"
# For their processes. Telemetry would be measured too; and Ray's workers, which lower their priority by default, would
# starve on a busy machine.
ENVIRONMENT = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
ALL = "all"


@dataclass(frozen=True)
class Framework:
    name: str
    title: str
    packages: tuple[str, ...]
    method: str  # its method nearest to the workload: "gossip" or "fedavg"
    driver: Path

    def command(self, say: Callable[[str], None]) -> list[str]:
        return [str(self.python(say)), str(self.driver)]

    def python(self, say: Callable[[str], None]) -> Path:
        """The Python of its environment, which is created if it does not exist."""
        folder = home() / self.name
        program = folder / "bin" / "python"
        wanted = "\n".join([_torch(), *self.packages])
        stamp = folder / STAMP
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
            say(f"{self.title}: installing it into {folder}; this takes a few minutes")
            _install(folder, program, self.packages)
            stamp.write_text(wanted, encoding="utf-8")
        return program

    def environment(self) -> dict[str, str]:
        """The environment variables of its process, isolated from Coterie's packages."""
        ours = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
        return {**{key: value for key, value in os.environ.items() if key not in ours}, **ENVIRONMENT}


def _framework(name: str, title: str, *packages: str, method: str = "fedavg") -> Framework:
    return Framework(name, title, packages, method, DRIVERS / f"{name}_driver.py")


FRAMEWORKS = {
    framework.name: framework
    for framework in (
        _framework("flower", "Flower", "flwr[simulation]"),
        _framework("fluke", "fluke", "fluke-fl"),
        _framework("gossipy", "gossipy", "gossipy-dfl", method="gossip"),
        # Its torch extra needs a torchvision that no newer torch supports, so the rest of the extra is listed here.
        # With the numpy that it needs, newer versions of the last two cannot be imported.
        _framework("p2pfl", "p2pfl", "p2pfl[dp]", "lightning", "torchmetrics", "pyarrow<20", "huggingface_hub<1"),
    )
}


def home() -> Path:
    """The folder of the environments: $COTERIE_BENCH, or ~/.cache/coterie/bench."""
    from_environment = os.environ.get("COTERIE_BENCH")
    return Path(from_environment).expanduser() if from_environment else Path.home() / ".cache/coterie/bench"


def named(words: str) -> list[Framework]:
    """The frameworks in `flower,fluke`, or `all`."""
    names = list(FRAMEWORKS) if words == ALL else [word.strip() for word in words.split(",") if word.strip()]
    if not names:
        raise ConfigError(f"--against names no framework. Valid: {', '.join(FRAMEWORKS)}, {ALL}")
    for name in names:
        if name not in FRAMEWORKS:
            raise ConfigError(unknown("framework", name, [*FRAMEWORKS, ALL]))
    return [FRAMEWORKS[name] for name in dict.fromkeys(names)]


def _torch() -> str:
    """The same torch as here, so that the comparison is not between versions of torch."""
    return f"torch=={torch.__version__.partition('+')[0]}"


def _install(folder: Path, python: Path, packages: Sequence[str]) -> None:
    venv.create(folder, with_pip=True, clear=True)
    constraints = folder / "constraints.txt"
    constraints.write_text(f"{_torch()}\n", encoding="utf-8")
    # As in scripts/setup: torch alone and first, because its exact version decides which build is installed.
    _pip(python, [_torch()])
    _pip(python, ["-c", str(constraints), *packages])


def _pip(python: Path, words: Sequence[str]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LONGEST_INSTALLATION)
    except subprocess.TimeoutExpired:
        raise RunError(f"pip install {words[-1]} was not done after {LONGEST_INSTALLATION} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no error message"])[-1]
        raise RunError(f"pip install {words[-1]} failed: {last}")
