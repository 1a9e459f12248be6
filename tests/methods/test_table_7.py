"""What methods exchange, against the formulas of MAPL's Table 7: bytes are four a number, and headers."""

from __future__ import annotations

import pytest
from methods_support import STILL, gather, play, small

from coterie.core.peer import Peer

PEERS, ROUNDS, CLASSES = 4, 3, 10


def numbers(me: Peer, part: str = "") -> int:
    layout = me.model.layout
    return sum(slot.size for slot in (layout.within(part) if part else layout.slots))


def formula(method: str, me: Peer, d: int) -> int:
    """Numbers exchanged in all; theta is the backbone, phi the head (with its bias)."""
    theta, phi, m, t = numbers(me, "backbone"), numbers(me, "head"), PEERS, ROUNDS
    edges = m * (m - 1) // 2
    return {
        "fedsim": 2 * m * phi * t,
        "fedclassavg": 2 * m * phi * t,
        "fedproto": 2 * m * d * CLASSES * t,
        "fedavg": 2 * m * (theta + phi) * t,
        "dfedavgm": 2 * edges * (theta + phi) * t,
        # heads stay at home after the one round of warm-up; the server tells each peer its row, and whom it answered
        "pfedsim": 2 * m * (theta + phi) + (t - 1) * (m * (theta + phi) + m * theta),
        "flt": m * (theta + phi) + m * d * 5 + 2 * m * (theta + phi) * t,
        "mapl": 2 * edges * (d * CLASSES + phi - CLASSES) * t,  # the head's weights without the bias
    }[method]


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("fedsim", ()),
        ("fedclassavg", ()),
        ("fedproto", ()),
        ("fedavg", ()),
        ("dfedavgm", ("method.k=0",)),
        ("pfedsim", ("method.t_warm=1",)),
        ("flt", ("method.embeddings=5", "method.related=1.0")),
        ("mapl", ("method.t_thr=1", "method.step=0")),
    ],
)
def test_bytes_grow_with_the_features_as_the_formula(method: str, words: tuple[str, ...]) -> None:
    """Twice, with 30 and with 90 features: what headers take hardly differs, so the difference is the numbers'."""
    totals, expected, messages = [], [], []
    for d in (30, 90):
        sizes = (f"model.d_z={d}", f"model.d_p={d}", "model.projector_hidden=2")
        e = small(method, *sizes, STILL, *words, peers=PEERS, rounds=ROUNDS)
        members = gather(e)
        played = play(e, members)
        records = [r for peer in range(len(members)) for r in played.rounds(peer)]
        totals.append(sum(sum(r.bytes.values()) for r in records))
        messages.append(sum(sum(r.messages.values()) for r in records))
        expected.append(4 * formula(method, members[0], d))
    assert messages[0] == messages[1]
    assert totals[0] > expected[0]
    per_message = (totals[1] - totals[0] - (expected[1] - expected[0])) / messages[0]
    assert abs(per_message) <= 16  # a digit more in a header, and its padding
