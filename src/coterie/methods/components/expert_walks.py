"""Experts on random walks: the state of each walk in `me.state`, and the messages that carry an expert."""

from collections.abc import Iterable
from dataclasses import asdict

import torch
from torch import Tensor

from coterie.core import randomness
from coterie.core.artifact import Artifact
from coterie.core.model_registry import labelled
from coterie.core.peer import Peer
from coterie.core.release import AVERAGE, BOOKKEEPING, PARAMETERS
from coterie.core.weights import Weights
from coterie.methods.components.experts import all_experts, backbone_of, can_train, load_backbone
from coterie.methods.components.random_walk import Sign, Walk
from coterie.methods.figures import Routes

FACTS = ("branch", "creator", "round", "hop")  # of a message that carries an expert: its sign

ROUTES = Routes(
    name="walks",
    title="Routes of the experts",
    note="hop",
    restart="found",
    thing="expert",
    y_label="peer that holds it",
    caption="The peer that held each expert in each round. The peer trains the expert if it can, then sends it on.",
    restart_caption="A ring marks a lost expert: the peer with the newest copy sent it on again.",
    missing="This run has no walking experts.",
)


def walker(kind: str) -> str:
    """The name of an expert's artifact."""
    return f"expert.{labelled(kind)}"


def walk_of(me: Peer, kind: str) -> Walk:
    saved = me.state["walks"][kind]
    return Walk(Sign(**saved["sign"]), saved["had"], saved["holds"])


def keep_walk(me: Peer, kind: str, walk: Walk) -> None:
    me.state["walks"][kind] = asdict(walk)


def start_walk(me: Peer, kind: str) -> None:
    """Every client computes from the seed which of them holds the expert first."""
    clients = sorted([me.id, *me.circle])
    first = clients[randomness.number(me.seed, "walk", labelled(kind)) % len(clients)]
    walk = Walk()
    keep_walk(me, kind, walk.arrive(Sign(hop=1), 0) if me.id == first else walk)


def shelve_signs(me: Peer) -> None:
    signs = {labelled(kind): _row(walk_of(me, kind).sign) for kind in all_experts(me)}
    me.shelve("walks", signs, made_from=BOOKKEEPING)


def merge_signs(me: Peer, kind: str, signs: Iterable[Artifact]) -> None:
    """Update the walk from what others know of it, and re-send the client's copy if the expert is lost."""
    known = (_sign(rows.get(labelled(kind))) for rows in signs)
    walk = walk_of(me, kind).merge(sign for sign in known if sign is not None)
    if walk.is_lost_to(me.id, reach(me), me.round):
        walk = walk.resend(me.id, me.round)
        me.note(**{f"found.{labelled(kind)}": walk.sign.hop})
    keep_walk(me, kind, walk)


def take_in(me: Peer, kind: str) -> None:
    """Load the expert if it has arrived, one hop a round; not a duplicate, nor one of an abandoned lineage."""
    arrivals: list[tuple[dict[str, int], Weights]] = me.state["early"].pop(kind, [])
    for message in me.inbox(walker(kind)):
        misfit = message.misfit(backbone_of(me, kind), ())
        sign = _sign(torch.tensor([message.facts.get(key, -1) for key in FACTS]))
        if misfit or sign is None:
            me.decline({message.author: misfit or "its sign (branch, creator, round, hop) is missing or wrong"})
        else:
            arrivals.append((asdict(sign), Weights.of(message)))
    for fields, backbone in arrivals:
        walk = walk_of(me, kind)
        arrived = walk.arrive(Sign(**fields), me.round)
        if fields["round"] >= me.round:  # its sender is a round ahead
            me.state["early"].setdefault(kind, []).append((fields, backbone))
        elif arrived is not walk:
            keep_walk(me, kind, arrived)
            load_backbone(me, kind, backbone)


async def send_on(me: Peer, kind: str, candidates: Iterable[int], before: Weights | None) -> None:
    """Send the expert to the first of these clients that acknowledges it; `before` is the expert before training."""
    walk = walk_of(me, kind)
    made_from = PARAMETERS if kind in can_train(me) else AVERAGE
    for j in candidates:
        sign = asdict(walk.next_sign())
        if await me.send(j, walker(kind), backbone_of(me, kind), made_from=made_from, reference=before, **sign):
            keep_walk(me, kind, walk.leave())
            return
        walk = walk.resend(me.id, me.round)
        keep_walk(me, kind, walk)


def reach(me: Peer) -> int:
    """The number of rounds within which a sign reaches every client."""
    return 1 if me.links is None else len(me.circle)


def _row(sign: Sign) -> Tensor:
    return torch.tensor([sign.branch, sign.creator, sign.round, sign.hop])


def _sign(row: Tensor | None) -> Sign | None:
    """The sign in a received row of numbers; None if it is not one."""
    if row is None or row.shape != (4,) or row.dtype != torch.int64:
        return None
    branch, creator, round, hop = row.tolist()
    return Sign(branch, creator, round, hop) if min(branch, creator + 1, round, hop) >= 0 else None
