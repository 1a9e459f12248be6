"""Drives a method's coroutine at one peer, from one request to the next, in every engine.

Mistakes that would otherwise go unnoticed raise an error that names the line: a request or a helper coroutine that is
never awaited, and an `await` of something that no engine can answer.
"""

from __future__ import annotations

import inspect
import sys
import traceback
import warnings
from collections.abc import Coroutine, Iterable, Iterator
from types import CoroutineType, FrameType
from typing import Any, Final

from coterie.core.errors import MethodError
from coterie.core.peer import Peer
from coterie.core.requests import ENGINES, Call, Request
from coterie.methods.base import Method

SETUP: Final = 0  # round number of a method's setup, before the first round
Part = Coroutine[Request[Any], Any, None]  # a method's setup, or one of its rounds, at one peer
MOST_NAMED = 3  # calls, in a note on an exception


def start(method: Method, me: Peer) -> Part:
    """The coroutine of the method at this peer, for the peer's current round."""
    equip(method, me)
    me.requested.clear()  # requests that were made outside of the method, as benchmarks do
    name = "setup" if me.round == SETUP else "serve" if me.id == me.server else "round"
    with _Watch():
        part: Any = getattr(method, name)(me)
    if not inspect.iscoroutine(part):  # loading checked methods that settings name, but not their decorators
        raise MethodError(
            f"{type(method).__name__}.{name} returned a {type(part).__name__} instead of a coroutine: "
            f"write `async def {name}`, and make its decorators return the coroutine"
        )
    return part


def equip(method: Method, me: Peer) -> None:
    """Set the rules of the method that verbs of `me` apply."""
    me.rule, me.release_steps = method.merge_rule(), method.release_steps()


def step(me: Peer, part: Part, answer: Any) -> Request[Any] | None:
    """Continue with an answer up to the next request; None if the part has ended."""
    with _Watch() as watch:
        try:
            request: Any = part.send(answer)
            ended = False
        except StopIteration:
            request, ended = None, True
        except Exception as error:
            if _is_of_asyncio(error):
                raise MethodError(_not_answered(traceback.walk_tb(error.__traceback__))) from error
            if _is_of_a_request(error, me):
                raise MethodError(_never_awaited(list(me.requested.values()))) from error
            for call in list(me.requested.values())[:MOST_NAMED]:
                error.add_note(f"{call.place}: {call.text} had not been awaited when the error occurred")
            raise
    if watch.dropped:
        raise MethodError(_never_awaited(watch.dropped))
    if ended:
        if me.requested:
            raise MethodError(_never_awaited(list(me.requested.values())))
        return None
    if not isinstance(request, Request):
        raise MethodError(_not_answered(_awaiting(part)))
    if me.requested.pop(request, None) is None:
        raise MethodError(_not_of_a_verb(_awaiting(part)))
    return request


def close(part: Part) -> None:
    """Abandon the part. Requests that it would have awaited later are not reported."""
    with _Watch():
        part.close()


def _is_of_a_request(error: Exception, me: Peer) -> bool:
    """Whether a method used a request as if it were the answer: `len(me.fetch(...))`."""
    names = {f"'{type(request).__name__}'" for request in me.requested}
    return isinstance(error, TypeError | AttributeError) and any(name in str(error) for name in names)


def _never_awaited(calls: list[Call]) -> str:
    first, more = calls[0], len(calls) - 1
    others = f" ({more} more like it)" if more else ""
    return f"{first.place}: {first.text} is never awaited, so it does nothing: write `await {first.text}`{others}"


# -- awaiting something other than a verb of `me` --------------------------------------------------


Frames = Iterable[tuple[FrameType, int]]  # from the outermost, each with its line number


def _not_answered(frames: Frames) -> str:
    return (
        f"{_place_in(frames)}: what is awaited here is not a verb of `me`, so no engine can answer it: "
        "await only verbs such as `me.train()`, or your own helpers that do. For slow functions, use `me.compute`"
    )


def _not_of_a_verb(frames: Frames) -> str:
    """Verbs check what a peer may do: neither test rows nor peers beyond the [graph]. Other requests are unchecked."""
    return (
        f"{_place_in(frames)}: the request that is awaited here was not made by a verb of `me` in this round, or has "
        "been awaited before: await verbs such as `me.evaluate(...)`, each call once"
    )


def _place_in(frames: Frames) -> str:
    """The innermost line that is neither in an engine nor in the standard library."""
    frame, line = [at for at in frames if not _is_library(_module_of(at[0]))][-1]
    return Call("", frame.f_code.co_filename, line).place


def _awaiting(part: Any) -> Iterator[tuple[FrameType, int]]:
    """The current line of a suspended coroutine, and of those that it awaits."""
    while isinstance(part, CoroutineType):
        if part.cr_frame is not None:
            yield part.cr_frame, part.cr_frame.f_lineno
        part = part.cr_await


def _is_of_asyncio(error: Exception) -> bool:
    """Whether it is asyncio's error that no event loop is running."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return isinstance(error, RuntimeError) and _module_of(frame).startswith("asyncio.")


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _is_library(module: str) -> bool:
    return module.startswith(ENGINES) or module.partition(".")[0] in sys.stdlib_module_names


# -- the method's own helpers that are never awaited -----------------------------------------------


class _Watch:
    """While a method runs, collects its coroutines that are dropped without being awaited, instead of a warning.

    Python's only public notification is the warning, which says less and may be filtered out. If Python lacks the
    private hook, the warning stays. Coroutines made elsewhere (of unknown origin) still cause the warning.
    """

    def __init__(self) -> None:
        self.dropped: list[Call] = []

    def __enter__(self) -> _Watch:
        self._depth = sys.get_coroutine_origin_tracking_depth()
        sys.set_coroutine_origin_tracking_depth(self._depth or 1)
        warnings._warn_unawaited_coroutine = self._note  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        warnings._warn_unawaited_coroutine = _warn  # type: ignore[attr-defined]
        sys.set_coroutine_origin_tracking_depth(self._depth)

    def _note(self, coroutine: Any) -> None:
        if coroutine.cr_origin is None:
            _warn(coroutine)
            return
        file, line, _ = coroutine.cr_origin[0]
        within, _, name = coroutine.__qualname__.rpartition(".")
        text = f"{name}()" if within.endswith("<locals>") or not within else f"self.{name}()"
        self.dropped.append(Call(text, file, line))


_warn: Any = getattr(warnings, "_warn_unawaited_coroutine", lambda _: None)
