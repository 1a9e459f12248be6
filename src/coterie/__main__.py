"""The entry point of the command: `coterie`, or `python -m coterie` if it is not on the path.

Only modules that Python has already loaded are imported before Ctrl-C is handled: the others take seconds.
"""

import sys

STOPPED = 130


def main() -> int:
    """Run the command; Ctrl-C ends it with a one-line message at any time."""
    interrupts: list[int] = []
    try:
        _note_interrupts(interrupts)
        from coterie.cli.main import main as command

        return command()
    except BaseException as error:
        # Some packages turn a Ctrl-C during their import into another exception.
        if not interrupts and not isinstance(error, KeyboardInterrupt):
            raise
        print("coterie: stopped", file=sys.stderr)
        return STOPPED
    finally:
        _end_quietly_if_interrupted()


def _note_interrupts(interrupts: list[int]) -> None:
    import signal

    def note(number: int, frame: object) -> None:  # noqa: ARG001
        interrupts.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the signal is ignored, as under nohup
        signal.signal(signal.SIGINT, note)


def _end_quietly_if_interrupted() -> None:
    """From here on, Ctrl-C ends the process without a traceback."""
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
