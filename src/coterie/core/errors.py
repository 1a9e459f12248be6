"""Every error that Coterie raises on purpose. The command prints them as one line, without a traceback.

A message names the culprit (a key, a file, a peer) and what would be valid or what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class CoterieError(Exception):
    """The root: catch this to catch everything Coterie raises on purpose."""

    exit_code: ClassVar[int] = 2  # of the command


class ConfigError(CoterieError):
    """A setting is unknown, malformed or impossible; the message names its key."""


class DataError(CoterieError):
    """A dataset is absent, corrupt or does not fit what was asked of it."""


class ModelError(CoterieError):
    """A model cannot be built, or does not fit the data or the method."""


class LossError(CoterieError):
    """A loss fails, or returns what is no loss; the message names it and its line."""


class ArtifactError(CoterieError):
    """What was shelved or received is not what it must be (name, shape, type, size, bytes)."""


class PortableError(CoterieError):
    """A portable model cannot be run, or what it answers is no use; the message says why, not whose it is."""


class SandboxError(CoterieError):
    """The process that runs others' models cannot be had on this machine: nobody's model is to blame."""


class MethodError(CoterieError):
    """A method breaks the contract with the engines; the message names the line of its code, and the remedy."""


class DeadlockError(CoterieError):
    """No peer can advance; the message says who waits for whom, and for what."""


class RunError(CoterieError):
    """A run's folder, checkpoint or state does not allow what was asked."""


class DivergedError(RunError):
    """A run, or a real peer, came to its end with models that are not finite; everything that it made is kept."""

    exit_code = 3


class StageLost(CoterieError):  # noqa: N818 (the run goes on from its last checkpoint)
    """A process or a machine that a run was spread over is gone."""


class Interrupted(CoterieError):  # noqa: N818 (a stop that was asked for is not an error)
    """The run was asked to stop, and did so at a checkpoint."""


def unknown(what: str, given: str, valid: Iterable[str]) -> str:
    """The text for a name that does not exist: the nearest valid one, and all of them."""
    names = sorted(valid)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"unknown {what} '{given}'.{hint} Valid: {', '.join(names)}"


def first_line(error: Exception) -> str:
    """What another package's error says, short enough for a line of ours."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
