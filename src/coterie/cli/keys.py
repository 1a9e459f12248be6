"""`coterie keys`: make, issue, revoke and show keys. Each command imports what it needs, so that help is fast."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.network.authority import RosterMember
    from coterie.network.keys import Roster

KEYS = Path("keys")
LONGEST = 36500  # days


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `keys` with its actions to the commands of `coterie`."""
    keys = commands.add_parser("keys", help="make, issue, revoke and show the keys of a circle of peers")
    actions = keys.add_subparsers(required=True, metavar="init|issue|revoke|show")

    init = actions.add_parser("init", help="create the certificate authority of a new circle")
    init.add_argument("folder", nargs="?", type=Path, default=KEYS, metavar="DIR", help="new folder; default: keys")
    init.add_argument("--name", default="coterie", help="the circle's name; default: coterie")
    init.add_argument("--days", type=_days, default=3650, help="validity of the authority in days; default: 3650")
    init.set_defaults(command=_init)

    issue = actions.add_parser("issue", help="make a peer's folder of keys, or renew it")
    issue.add_argument("name", metavar="NAME", help="the peer's name: a-z, 0-9 and -")
    issue.add_argument("--keys", type=Path, default=KEYS, metavar="DIR", help="the authority's folder; default: keys")
    issue.add_argument("--days", type=_days, default=365, help="validity of the certificate in days; default: 365")
    issue.add_argument("--out", type=Path, metavar="FOLDER", help="the peer's folder; default: DIR/NAME")
    issue.add_argument("--force", action="store_true", help="replace the existing key in the folder")
    issue.set_defaults(command=_issue)

    revoke = actions.add_parser("revoke", help="revoke all certificates issued to a peer so far")
    revoke.add_argument("name", metavar="NAME", help="the peer's name")
    revoke.add_argument("--keys", type=Path, default=KEYS, metavar="DIR", help="the authority's folder; default: keys")
    revoke.set_defaults(command=_revoke)

    show = actions.add_parser("show", help="describe the folder of an authority or a peer, without secrets")
    show.add_argument("folder", nargs="?", type=Path, default=KEYS, metavar="DIR", help="the folder; default: keys")
    show.set_defaults(command=_show)


def _days(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LONGEST:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {LONGEST}, not {text!r}")
    return int(text)


def _init(options: argparse.Namespace) -> None:
    from coterie.network.authority import create_authority
    from coterie.network.keys import AUTHORITY_KEY

    circle = create_authority(options.folder, options.name, options.days)
    where = "" if options.folder == KEYS else f" --keys {shlex.quote(str(options.folder))}"
    print(f"{options.folder}: the authority of the circle '{circle.name}', valid until {_day(circle.expires)}")
    print(f"keep {options.folder / AUTHORITY_KEY} secret and backed up: its holder decides who is a peer")
    print(f"next: coterie keys issue NAME{where}")


def _issue(options: argparse.Namespace) -> None:
    from coterie.network.authority import issue
    from coterie.network.keys import PRIVATE_KEY

    out = options.out or options.keys / options.name
    peer = issue(options.name, options.keys, options.days, out, options.force)
    print(f"{out}: the keys of {peer.name}, peer number {peer.number}, valid until {_day(peer.expires)}")
    print(f"give this folder only to {peer.name}, over a channel that you trust: it contains {PRIVATE_KEY}")


def _revoke(options: argparse.Namespace) -> None:
    from coterie.network.authority import revoke
    from coterie.network.keys import ROSTER

    roster, new = revoke(options.name, options.keys)
    if new:
        count = "one certificate" if new == 1 else f"{new} certificates"
        print(f"revoked {count} of {options.name}: the roster now has version {roster.version}")
    else:
        print(f"all certificates of {options.name} were already revoked: the roster still has version {roster.version}")
    print(f"copy {options.keys / ROSTER} into the keys folder of any running peer")
    print("it spreads from there to all peers: the newest version wins")


def _show(options: argparse.Namespace) -> None:
    from coterie.network.authority import LEDGER
    from coterie.network.keys import CERTIFICATE, IdentityError

    if (options.folder / LEDGER).exists():
        _show_circle(options.folder)
    elif (options.folder / CERTIFICATE).exists():
        _show_peer(options.folder)
    else:
        raise IdentityError(
            f"{options.folder} has neither {LEDGER} nor {CERTIFICATE}: give the folder of an authority "
            "(`coterie keys init`) or of a peer (`coterie keys issue`)"
        )


def _show_circle(folder: Path) -> None:
    from coterie.network.authority import circle_of
    from coterie.network.keys import fingerprint

    circle = circle_of(folder)
    head = [
        ("circle", circle.name),
        ("expires", _day(circle.expires)),
        ("authority", fingerprint(circle.authority)),
        ("roster", _version(circle.roster)),
    ]
    rows = [
        (member.name, str(member.number), _day(member.certificates[-1].expires), _revoked(member, circle.roster))
        for member in circle.members
    ]
    print(_table(head))
    print()
    print(_table([("name", "number", "expires", "revoked"), *rows]))


def _show_peer(folder: Path) -> None:
    from coterie.network.keys import Identity, IdentityError, credential_in, fingerprint

    credential, authority, roster = credential_in(folder)
    try:
        usable = "yes" if Identity.load(folder) else ""
    except IdentityError as error:
        usable = f"no: {error}"
    rows = [
        ("name", credential.name),
        ("number", str(credential.number)),
        ("expires", _day(credential.expires)),
        ("authority", fingerprint(authority)),
        ("roster", _version(roster)),
        ("usable", usable),
    ]
    print(_table(rows))


def _revoked(member: RosterMember, roster: Roster) -> str:
    """Only some are revoked if a new certificate was issued after a revocation."""
    refused = sum(roster.refuses(issued.serial) for issued in member.certificates)
    return {0: "no", len(member.certificates): "yes"}.get(refused, f"{refused} of {len(member.certificates)}")


def _version(roster: Roster) -> str:
    return f"version {roster.version} of {roster.time}"


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
