"""A run of three peers, a server and two rounds, small enough to work every figure out by hand."""

from __future__ import annotations

import pytest

from coterie.core.events import Event, PeerRound, RunStarted


@pytest.fixture
def tiny() -> list[Event]:
    start = RunStarted(
        "panm",
        7,
        3,
        2,
        ["mlp", "cnn", "mlp"],
        [40, 50, 60],
        [[40, 0], [25, 25], [0, 60]],
        [0, 0, 1],
        "0.1.0",
        "digits, rotation",
    )
    return [
        start,
        PeerRound(
            0, 1, 1.0, 0.5, 0.4, 1.0, {"model": 100, "probe": 5}, {"model": 2, "probe": 1},
            {"neighbours": [2], "weights": {"0": 0.5, "2": 0.5}},
        ),
        PeerRound(1, 1, 2.0, 0.8, 0.7, 0.5, {"model": 50}, {"model": 1}, {"neighbours": [0, 1]}),
        PeerRound(2, 1, 1.5, 0.6, 0.5, 0.7, {}, {}, {"neighbours": [0]}),
        PeerRound(3, 1, 2.0, bytes={"model": 1000}, messages={"model": 3}),  # the server
        PeerRound(
            0, 2, 3.0, 0.5, 0.6, 0.9, {"model": 100}, {"model": 2},
            {"neighbours": [1, 2], "weights": {"0": 0.25, "1": 0.5, "2": 0.25, "3": 0.125}},
        ),
        PeerRound(
            1, 2, 4.5, 0.8, 0.9, 0.6, {"model": 50}, {"model": 1},
            {"neighbours": [0], "weights": {"0": 1.0}},
        ),
        PeerRound(2, 2, 4.0, 0.6, 0.1, 0.7, {}, {}, {"neighbours": []}),
        PeerRound(3, 2, 4.0, bytes={"model": 1000}, messages={"model": 3}, notes={"weights": {"0": 1.0}}),
    ]  # fmt: skip
