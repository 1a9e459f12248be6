"""Every error that Coterie raises deliberately. The command prints them as one line, without a traceback.

A message names the culprit (a key, a file, a peer) and what would be valid or what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar


class CoterieError(Exception):
    """The base class: catch this to catch every deliberate error of Coterie."""

    exit_code: ClassVar[int] = 2  # with which the command exits


class ConfigError(CoterieError):
    """A setting is unknown, malformed or impossible; the message names its key."""


class DataError(CoterieError):
    """A dataset is missing, corrupt or does not fit the settings."""


class ModelError(CoterieError):
    """A model cannot be built, or does not fit the data or the method."""


class LossError(CoterieError):
    """A loss fails, or returns something that is not a loss; the message names the loss and its line."""


class MetricError(CoterieError):
    """A metric of the user's own fails, or returns something that is not a number; the message names it."""


class ArtifactError(CoterieError):
    """A shelved or received artifact is invalid (name, shape, type, size, bytes)."""


class PortableError(CoterieError):
    """A portable model cannot be run, or its output is unusable; the message says why, not whose model it is."""


class SandboxError(CoterieError):
    """The sandbox process cannot run on this machine; no model is to blame."""


class MethodError(CoterieError):
    """A method breaks its contract with the engines; the message names the line of its code and the remedy."""


class DeadlockError(CoterieError):
    """No peer can advance; the message says which peer waits for which, and for what."""


class RunError(CoterieError):
    """A run's folder, checkpoint or state does not allow the requested operation."""


class DivergedError(RunError):
    """A run, or a real peer, ended with models that are not finite; all of its output is kept."""

    exit_code = 3


class StageLost(CoterieError):  # noqa: N818 (the run continues from its last checkpoint)
    """A process or machine that executes part of a run died."""


class Interrupted(CoterieError):  # noqa: N818 (a requested stop is not an error)
    """The run stopped at a checkpoint, as requested."""


def unknown(what: str, given: str, valid: Iterable[str]) -> str:
    """The message for a name that does not exist: suggests the nearest valid one, and lists all of them."""
    names = sorted(valid)
    near = difflib.get_close_matches(given, names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return f"unknown {what} '{given}'.{hint} Valid: {', '.join(names)}"


def first_line(error: Exception) -> str:
    """The message of another package's error, cut to one short line."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
