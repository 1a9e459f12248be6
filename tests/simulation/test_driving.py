"""Mistakes with `await` in a method: an error names the line, and no round silently does nothing."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulation_support import WORD, play, tiny

from coterie import wiring
from coterie.config.sections import ClockSettings
from coterie.core.errors import ConfigError, MethodError
from coterie.core.peer import Peer
from coterie.core.requests import Request
from coterie.methods import Method
from coterie.methods.gossip import average_with
from coterie.simulation.clock import Clock
from coterie.simulation.director import Simulation
from coterie.simulation.local_stage import LocalStage
from coterie.training import Trainer

THIS_FILE = __file__


def line_of(marked: str) -> int:
    """The line of this file that ends with this comment."""
    lines = Path(THIS_FILE).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {marked}"))


def place(marked: str) -> str:
    return f"{THIS_FILE}, line {line_of(marked)}: "


def refused(method: Method, rounds: int = 1) -> str:
    with pytest.raises(MethodError) as caught:
        play(method, peers=2, rounds=rounds)
    return str(caught.value)


VERBS: dict[str, Callable[[Peer], Request[Any]]] = {
    "train": lambda me: me.train(),  # verb train
    "evaluate": lambda me: me.evaluate([me.model]),  # verb evaluate
    "predict": lambda me: me.predict(),  # verb predict
    "fit": lambda me: me.fit("tree"),  # verb fit
    "compute": lambda me: me.compute(len, []),  # verb compute
    "fetch": lambda me: me.fetch(me.peers, "word"),  # verb fetch
    "send": lambda me: me.send(1, "word", WORD),  # verb send
    "receive": lambda me: me.receive("word"),  # verb receive
    "news": lambda me: me.news(),  # verb news
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_request_that_is_never_awaited(verb: str) -> None:
    class Forgets(Method):
        async def round(self, me: Peer) -> None:
            VERBS[verb](me)

    told = refused(Forgets())
    assert told.startswith(f"{place(f'verb {verb}')}me.{verb}() is never awaited, so it does nothing")
    assert told.endswith(f"write `await me.{verb}()`")


@pytest.mark.parametrize("part", ["setup", "round", "serve"])
def test_in_every_part_of_a_method(part: str) -> None:
    class Forgets(Method):
        server = True

        async def setup(self, me: Peer) -> None:
            if part == "setup":
                me.predict()  # in setup

        async def round(self, me: Peer) -> None:
            if part == "round" and me.round == 2:
                me.train()  # in round

        async def serve(self, me: Peer) -> None:
            if part == "serve":
                me.fetch(me.peers, "word")  # in serve

    trainer = Trainer("never", 1, 1)
    stage = LocalStage(Forgets(), wiring.gather(tiny("fedavg", peers=2)).participants, 2, trainer)
    with pytest.raises(MethodError) as caught:
        Simulation(stage, Clock(ClockSettings(), 2, 0)).run()
    trainer.close()
    assert str(caught.value).startswith(place(f"in {part}"))


def test_several_are_counted() -> None:
    class Forgets(Method):
        async def round(self, me: Peer) -> None:
            me.train()  # first of three
            me.predict()
            me.news()

    told = refused(Forgets())
    assert told.startswith(place("first of three"))
    assert told.endswith("(2 more like it)")


def test_through_a_function_of_the_package_the_line_is_the_methods_own() -> None:
    ours: dict[str, Any] = {"__name__": "coterie.methods.helpers"}
    exec("def train_on(me):\n    return me.train()", ours)

    class Forgets(Method):
        async def round(self, me: Peer) -> None:
            ours["train_on"](me)  # through a helper

    assert refused(Forgets()).startswith(f"{place('through a helper')}me.train()")


def test_a_coroutine_of_the_package_that_is_never_awaited() -> None:
    class Forgets(Method):
        async def round(self, me: Peer) -> None:
            average_with(me, me.peers)  # type: ignore[unused-coroutine]  # ours dropped

    assert refused(Forgets()).startswith(f"{place('ours dropped')}average_with() is never awaited")


def test_a_built_in_method_has_only_its_own_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that started the run is above the method in the stack, and is not to blame."""
    from coterie.methods.local import Local

    ours: dict[str, Any] = {"__name__": "coterie.methods.local"}
    exec(compile("async def round(self, me):\n    me.train()", "local.py", "exec"), ours)
    monkeypatch.setattr(Local, "round", ours["round"])
    assert refused(Local()).startswith("local.py, line 2: me.train()")


def test_a_request_may_be_awaited_later_in_the_round() -> None:
    class Later(Method):
        async def round(self, me: Peer) -> None:
            training = me.train()
            me.shelve("word", WORD)
            got = await me.fetch(me.peers, "word")
            me.note(got=list(got), loss=await training)

    played = play(Later(), peers=2)
    assert [record.notes["got"] for peer in (0, 1) for record in played.rounds(peer)] == [[1], [0]]


def test_a_request_of_the_setup_is_not_awaited_in_a_round() -> None:
    class TooLate(Method):
        async def setup(self, me: Peer) -> None:
            me.state["request"] = me.train()  # for later

        async def round(self, me: Peer) -> None:
            await me.state["request"]

    assert refused(TooLate()).startswith(place("for later"))


class OnPurposeError(Exception):
    pass


def test_another_exception_is_not_masked_but_gets_a_note() -> None:
    class Raises(Method):
        async def round(self, me: Peer) -> None:
            me.train()  # before the exception
            raise OnPurposeError

    with pytest.raises(OnPurposeError) as caught:
        play(Raises())
    assert caught.value.__notes__ == [
        f"{place('before the exception')}me.train() had not been awaited when the error occurred"
    ]


def test_an_error_of_coterie_is_not_masked() -> None:
    class Raises(Method):
        async def round(self, me: Peer) -> None:
            me.train()
            raise ConfigError("enough")

    with pytest.raises(ConfigError, match=r"^enough"):
        play(Raises())


# -- the method's helpers ----------------------------------------------------------------------


async def share(me: Peer) -> None:
    me.shelve("word", WORD)


class Sharing(Method):
    async def _share(self, me: Peer) -> None:
        await share(me)

    async def round(self, me: Peer) -> None: ...


def test_a_helper_that_is_never_awaited() -> None:
    class Forgets(Sharing):
        async def round(self, me: Peer) -> None:
            self._share(me)  # type: ignore[unused-coroutine]  # helper dropped
            await me.train()

    told = refused(Forgets())
    assert (
        told
        == f"{place('helper dropped')}self._share() is never awaited, so it does nothing: write `await self._share()`"
    )


def test_a_helper_that_is_kept_and_never_awaited() -> None:
    class Forgets(Sharing):
        async def round(self, me: Peer) -> None:
            shared = share(me)  # helper kept
            await me.train()
            assert shared

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        told = refused(Forgets())
    assert told.startswith(f"{place('helper kept')}share() is never awaited")
    assert not warned  # nor is Python's own warning there, of the peers that were under way


def test_helpers_that_are_awaited() -> None:
    class Shares(Sharing):
        async def round(self, me: Peer) -> None:
            await self._share(me)
            me.note(got=list(await me.fetch(me.peers, "word")))

    assert play(Shares(), peers=2).notes(0, "got") == [[1]]


def test_warnings_from_other_code_are_unchanged() -> None:
    """A coroutine that was made elsewhere, and is dropped while a method acts, is no fault of the method."""
    kept = [share(None)]  # type: ignore[arg-type]

    class Drops(Method):
        async def round(self, me: Peer) -> None:  # noqa: ARG002
            kept.clear()

    before = warnings._warn_unawaited_coroutine  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning, match="coroutine 'share' was never awaited"):
        play(Drops())
    assert warnings._warn_unawaited_coroutine is before  # type: ignore[attr-defined]
    assert sys.get_coroutine_origin_tracking_depth() == 0


# -- what no engine can answer -----------------------------------------------------------------


async def nap(seconds: float) -> None:
    await asyncio.sleep(seconds)  # the nap


@pytest.mark.parametrize("seconds", [0, 0.1])
def test_sleeping_is_no_verb(seconds: float) -> None:
    """Without the check, a round that slept for 0 seconds ended there."""

    class Sleeps(Method):
        async def round(self, me: Peer) -> None:
            await nap(seconds)
            await me.train()

    assert refused(Sleeps()).startswith(f"{place('the nap')}what is awaited here is not a verb of `me`")


def test_what_is_no_coroutine_at_all() -> None:
    class Plain(Method):
        def round(self, me: Peer) -> None:  # type: ignore[override]
            pass

    assert refused(Plain()).startswith(
        "Plain.round returned a NoneType instead of a coroutine: write `async def round`"
    )


def test_a_request_that_is_used_as_its_answer() -> None:
    class Uses(Method):
        async def round(self, me: Peer) -> None:
            others: Any = me.fetch(me.peers, "word")  # used as answer
            len(others)

    assert refused(Uses()).startswith(f"{place('used as answer')}me.fetch() is never awaited")
