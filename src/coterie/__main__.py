"""The command from its very start: `coterie`, and `python -m coterie` for where it is not on the path.

Only what Python has loaded anyway is imported before Ctrl-C is looked after: the rest takes seconds.
"""

import sys

STOPPED = 130


def main() -> int:
    """Run the command; Ctrl-C ends it with one line, whenever it comes."""
    interrupts: list[int] = []
    try:
        _note_interrupts(interrupts)
        from coterie.cli.main import main as command

        return command()
    except BaseException as error:
        # Some packages make an error of their own of a Ctrl-C that comes while they are imported.
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

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody wants it ignored, as nohup does
        signal.signal(signal.SIGINT, note)


def _end_quietly_if_interrupted() -> None:
    """All is said: from here on, Ctrl-C ends the process without a traceback."""
    import signal

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
