"""The certificate authority of a circle: `create_authority`, `issue` and `revoke`, for the authority's keeper.

The ledger lists all issued certificates, the roster the revoked ones. Only the roster is given to the peers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from coterie.core.errors import unknown
from coterie.core.files import locked, write_whole
from coterie.network.keys import (
    AUTHORITY,
    AUTHORITY_KEY,
    CERTIFICATE,
    LARGEST_ROSTER,
    NAME,
    PRIVATE,
    PRIVATE_KEY,
    PUBLIC,
    ROSTER,
    SERIAL,
    Credential,
    IdentityError,
    Roster,
    authority_and_roster,
    authority_of,
    issued_by,
    matching,
    naming,
    private_key_of,
    read_file,
    serial_of,
    utc_now,
    utc_text,
)

LEDGER = "ledger.json"
CLOCKS_DIFFER = timedelta(hours=1)
RESTORE = "Restore it from a backup; `coterie keys init` makes a new circle in another folder"


@dataclass(frozen=True)
class Issued:
    """One certificate in the ledger."""

    serial: str
    expires: datetime


@dataclass(frozen=True)
class RosterMember:
    """A peer in the ledger, with all certificates issued to it, the newest last."""

    name: str
    number: int
    certificates: tuple[Issued, ...] = ()


@dataclass(frozen=True)
class Circle:
    """The public content of an authority's folder."""

    name: str
    authority: bytes
    expires: datetime
    members: tuple[RosterMember, ...]
    roster: Roster


def create_authority(folder: Path, circle: str = "coterie", days: int = 3650) -> Circle:
    """Make a new circle in `folder`: its authority, an empty ledger and an empty roster."""
    if not circle.isprintable() or circle != circle.strip() or not 1 <= len(circle.encode()) <= 64:
        raise IdentityError(
            f"a circle's name must be printable text of 1 to 64 bytes, with no space at either end, not {circle!r}"
        )
    for name in (AUTHORITY, AUTHORITY_KEY, LEDGER, ROSTER, CERTIFICATE, PRIVATE_KEY):
        if (folder / name).exists():
            raise IdentityError(f"{folder / name} already exists: choose another folder for a new circle")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _sign_authority(key, circle, days)
    write_whole(folder / AUTHORITY_KEY, _key_pem(key), mode=PRIVATE)
    write_whole(folder / LEDGER, _ledger_bytes(circle, ()), mode=PUBLIC)
    write_whole(folder / ROSTER, Roster.signed_by(key, circle, 1, ()).to_bytes(), mode=PUBLIC)
    write_whole(folder / AUTHORITY, certificate.public_bytes(serialization.Encoding.PEM), mode=PUBLIC)
    return circle_of(folder)


def issue(name: str, keys: Path, days: int = 365, out: Path | None = None, force: bool = False) -> Credential:
    """Write the folder of keys of the peer `name`; a peer that had one before keeps its number."""
    out = out or keys / name
    if not NAME.fullmatch(name):
        raise IdentityError(f"{name!r} cannot be a peer's name: up to 63 of a-z, 0-9 and -, with no - at either end")
    if (out / AUTHORITY_KEY).exists():
        raise IdentityError(f"{out} is an authority's folder: choose another one for {name}")
    if (out / PRIVATE_KEY).exists() and not force:
        raise IdentityError(f"{out / PRIVATE_KEY} already exists: replace it with --force, or choose another --out")
    with _locked(keys) as (circle, key):
        if circle.expires <= utc_now():
            raise IdentityError(
                f"{keys / AUTHORITY} expired at {utc_text(circle.expires)}: make a new circle elsewhere"
            )
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        member = next((m for m in circle.members if m.name == name), RosterMember(name, len(circle.members)))
        own_key = ec.generate_private_key(ec.SECP256R1())
        certificate = _sign_peer(own_key.public_key(), member, days, authority_of(circle.authority), key)
        _enter(keys, circle, member, certificate)  # first: every certificate that exists must be revocable
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        write_whole(out / AUTHORITY, circle.authority, mode=PUBLIC)
        write_whole(out / ROSTER, circle.roster.to_bytes(), mode=PUBLIC)
        write_whole(out / PRIVATE_KEY, _key_pem(own_key), mode=PRIVATE)
        write_whole(out / CERTIFICATE, pem, mode=PUBLIC)
    return issued_by(pem, circle.authority)[0]


def revoke(name: str, keys: Path) -> tuple[Roster, int]:
    """Revoke every certificate of `name` so far; returns the roster, and how many are newly on it."""
    with _locked(keys) as (circle, key):
        members = {member.name: member for member in circle.members}
        if not members:
            raise IdentityError(f"{keys / LEDGER}: this circle has not issued any certificate yet, so none to '{name}'")
        if name not in members:
            raise IdentityError(unknown("name", name, members))
        serials = (issued.serial for issued in members[name].certificates)
        new = tuple((name, serial) for serial in serials if not circle.roster.refuses(serial))
        if not new:
            return circle.roster, 0
        roster = Roster.signed_by(key, circle.name, circle.roster.version + 1, circle.roster.revoked + new)
        if len(roster.to_bytes()) > LARGEST_ROSTER:
            raise IdentityError(f"{keys / ROSTER} would be too large for any peer to read: make a new circle elsewhere")
        write_whole(keys / ROSTER, roster.to_bytes(), mode=PUBLIC)
    return roster, len(new)


def circle_of(folder: Path) -> Circle:
    """Read an authority's folder, without its private key."""
    authority, roster = authority_and_roster(folder, RESTORE)
    ledger = read_file(folder / LEDGER, RESTORE)
    with naming(folder / LEDGER, RESTORE):
        name, members = _ledger(ledger)
    return Circle(name, authority, authority_of(authority).not_valid_after_utc, members, roster)


@contextmanager
def _locked(keys: Path) -> Iterator[tuple[Circle, ec.EllipticCurvePrivateKey]]:
    """The circle and its authority's key, under a lock on the folder, so that no number is issued twice."""
    pem = read_file(keys / AUTHORITY_KEY, f"Give the authority's folder, or create one: coterie keys init {keys}", True)
    with locked(keys / AUTHORITY_KEY, wait=True):
        with naming(keys / AUTHORITY_KEY, RESTORE):
            key = private_key_of(pem)
        circle = circle_of(keys)
        if key.public_key() != authority_of(circle.authority).public_key():
            raise IdentityError(f"{keys / AUTHORITY_KEY}: does not match {AUTHORITY} in the same folder. {RESTORE}")
        yield circle, key


def _sign_authority(key: ec.EllipticCurvePrivateKey, circle: str, days: int) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, circle)])
    public, expires = key.public_key(), utc_now() + timedelta(days=days)
    return (
        _unsigned(name, name, public, expires)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )


def _sign_peer(
    public: ec.EllipticCurvePublicKey,
    member: RosterMember,
    days: int,
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """Sign a peer's certificate, which never outlives the authority."""
    attributes = {NameOID.COMMON_NAME: member.name, NameOID.SERIAL_NUMBER: str(member.number)}
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes.items()])
    expires = min(utc_now() + timedelta(days=days), authority.not_valid_after_utc)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return (
        _unsigned(subject, authority.subject, public, expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(member.name)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _unsigned(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(utc_now(), expires) - CLOCKS_DIFFER)
        .not_valid_after(expires)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)


def _enter(keys: Path, circle: Circle, member: RosterMember, certificate: x509.Certificate) -> None:
    """Add a certificate of a new or existing member to the ledger."""
    issued = Issued(serial_of(certificate), certificate.not_valid_after_utc)
    entered = {m.name: m for m in (*circle.members, replace(member, certificates=(*member.certificates, issued)))}
    write_whole(keys / LEDGER, _ledger_bytes(circle.name, tuple(entered.values())), mode=PUBLIC)


def _ledger_bytes(circle: str, members: tuple[RosterMember, ...]) -> bytes:
    entries = [
        {
            "name": member.name,
            "number": member.number,
            "certificates": [{"serial": c.serial, "expires": utc_text(c.expires)} for c in member.certificates],
        }
        for member in members
    ]
    return (json.dumps({"circle": circle, "members": entries}, indent=2) + "\n").encode("ascii")


def _ledger(data: bytes) -> tuple[str, tuple[RosterMember, ...]]:
    """The circle's name and members; the member at index N has the number N."""
    try:
        document = json.loads(data)
        members = tuple(_member(entry) for entry in document["members"])
        names = {member.name for member in members}
        if [member.number for member in members] != list(range(len(names))):
            raise ValueError("a name or a number is missing or occurs twice")
        return matching(r".{1,64}", document["circle"]), members
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise IdentityError("not a ledger of certificates") from error


def _member(entry: Any) -> RosterMember:
    certificates = tuple(
        Issued(matching(SERIAL, c["serial"]), datetime.fromisoformat(c["expires"]).astimezone(UTC))
        for c in entry["certificates"]
    )
    return RosterMember(matching(NAME, entry["name"]), entry["number"], certificates)
