"""Identities of peers: certificates issued by the circle's authority, and the roster of revoked ones.

This is the peer's side: recognise other peers by their certificates (`credential_of`), refuse revoked ones (`Roster`),
and present its own (`Identity`). The authority's side is in `authority`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from coterie.core.errors import CoterieError

AUTHORITY, AUTHORITY_KEY = "authority.pem", "authority.key"
CERTIFICATE, PRIVATE_KEY, ROSTER = "certificate.pem", "private.key", "roster.json"

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")  # one DNS label: TLS compares it as a host name
NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")
SERIAL = re.compile(r"[0-9a-f]{1,40}")
SIGNATURE = re.compile(r"([0-9a-f]{2}){1,256}")

LARGEST_CERTIFICATE = 16 << 10  # bytes; ours have less than 1 KiB
LARGEST_ROSTER = 1 << 20  # bytes; about 8,000 certificates
PUBLIC, PRIVATE = 0o644, 0o600  # modes of files
SIGNED_BY_A_PEER = b"coterie peer\0"  # domain separation: TLS signs with the same key

ASK = "Ask the keeper of the circle's authority for a folder made by `coterie keys issue`"


class IdentityError(CoterieError):
    """The identity of a peer is wrong or cannot be verified, or a folder of keys is invalid."""


# -- certificates ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Credential:
    """The content of a peer's certificate, after the authority's signature was verified.

    Identify a peer by its number and a certificate by its serial, never by its bytes: anyone can turn an ECDSA
    signature into another valid one, and so one certificate into two. Such duplicates are equal here.
    """

    name: str
    number: int
    serial: str
    expires: datetime
    certificate: bytes = field(compare=False)

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Whether the holder of this certificate's key signed `data` with `Identity.sign`."""
        return _signed(self._public_key, SIGNED_BY_A_PEER + data, signature)

    def signed(self, data: bytes, signature: str) -> bool:
        """The same for a signature in hexadecimal, as in messages."""
        try:
            return self.verify(data, bytes.fromhex(signature))
        except ValueError:
            return False

    @cached_property
    def _public_key(self) -> ec.EllipticCurvePublicKey:
        return public_key_of(x509.load_pem_x509_certificate(self.certificate))


def credential_of(certificate_pem: bytes, authority_pem: bytes) -> Credential:
    """The credential in a certificate. IdentityError unless this authority issued it to a peer and it is valid now."""
    credential, begins = issued_by(certificate_pem, authority_pem)
    now = utc_now()  # never cached: a certificate expires between two calls
    if now < begins:
        raise IdentityError(
            f"{credential.name}'s certificate is not valid before {utc_text(begins)}, but this machine's clock says "
            f"{utc_text(now)}: set the clock"
        )
    if now > credential.expires:
        raise IdentityError(
            f"{credential.name}'s certificate expired at {utc_text(credential.expires)}: renew it with `coterie "
            f"keys issue {credential.name}` where the circle's authority is"
        )
    return credential


@lru_cache(maxsize=1024)
def issued_by(certificate_pem: bytes, authority_pem: bytes) -> tuple[Credential, datetime]:
    """The credential and the start of its validity, regardless of the current time. Errors are not cached."""
    authority = authority_of(authority_pem)
    certificate = _parsed(certificate_pem)
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception as error:  # hostile certificates raise errors without a common base class
        raise IdentityError("not issued by this circle's authority") from error
    try:
        return _credential(certificate), certificate.not_valid_before_utc
    except Exception as error:  # as above
        raise IdentityError("issued by this circle's authority, but not a peer's certificate") from error


def _credential(certificate: x509.Certificate) -> Credential:
    """Any error means that `issue` did not make this certificate."""
    [name] = (attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME))
    [number] = (attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.SERIAL_NUMBER))
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    public_key_of(certificate)
    if constraints.ca or list(alternatives) != [x509.DNSName(str(name))]:
        raise ValueError("not a peer's extensions")
    if not NAME.fullmatch(str(name)) or not NUMBER.fullmatch(str(number)):
        raise ValueError("not a peer's name and number")
    # Re-encode it, to drop any text around the certificate.
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return Credential(str(name), int(number), serial_of(certificate), certificate.not_valid_after_utc, pem)


@lru_cache(maxsize=16)
def authority_of(pem: bytes) -> x509.Certificate:
    """An authority's certificate; IdentityError if it is not one."""
    certificate = _parsed(pem)
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        certificate.verify_directly_issued_by(certificate)
        public_key_of(certificate)
    except Exception as error:  # as in `issued_by`
        raise IdentityError("not the certificate of a circle's authority") from error
    if not constraints.ca:
        raise IdentityError("not the certificate of a circle's authority")
    return certificate


def _parsed(pem: bytes) -> x509.Certificate:
    if len(pem) > LARGEST_CERTIFICATE:
        raise IdentityError(f"{len(pem):,} bytes are too many for a certificate")
    try:
        return x509.load_pem_x509_certificate(pem)
    except Exception as error:  # as in `issued_by`
        raise IdentityError("not a certificate in PEM form") from error


def public_key_of(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not a key on the curve P-256")
    return key


def _signed(key: ec.EllipticCurvePublicKey, data: bytes, signature: bytes) -> bool:
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def serial_of(certificate: x509.Certificate) -> str:
    return f"{certificate.serial_number:x}"


def fingerprint(certificate_pem: bytes) -> str:
    """The SHA-256 of a certificate in the usual notation, for people to compare."""
    return _parsed(certificate_pem).fingerprint(hashes.SHA256()).hex(":").upper()


# -- the roster --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roster:
    """The revoked certificates as (name, serial), signed by the authority. The newest version wins."""

    circle: str
    version: int
    time: str
    revoked: tuple[tuple[str, str], ...]
    signature: bytes

    def refuses(self, serial: str) -> bool:
        return serial in self._serials

    @cached_property
    def _serials(self) -> frozenset[str]:
        return frozenset(serial for _, serial in self.revoked)

    def to_bytes(self) -> bytes:
        return _canonical({**self._content(), "signature": self.signature.hex()})

    @classmethod
    def from_bytes(cls, data: bytes, authority_pem: bytes) -> Roster:
        """IdentityError unless `data` is a well-formed roster signed by this authority."""
        key = public_key_of(authority_of(authority_pem))
        if len(data) > LARGEST_ROSTER:
            raise IdentityError(f"{len(data):,} bytes are too many for a roster")
        try:
            roster = cls._of_document(json.loads(data))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise IdentityError("not a roster") from error
        if not _signed(key, _canonical(roster._content()), roster.signature):
            raise IdentityError("not a roster signed by this circle's authority")
        return roster

    @classmethod
    def _of_document(cls, document: Any) -> Roster:
        """Any error means that the document is not a roster."""
        if set(document) != {"circle", "version", "time", "revoked", "signature"}:
            raise ValueError("wrong keys")
        if type(document["version"]) is not int or type(document["revoked"]) is not list:
            raise TypeError("wrong types")
        if any(set(entry) != {"name", "serial"} for entry in document["revoked"]):
            raise ValueError("wrong keys")
        return cls(
            circle=matching(r".{1,64}", document["circle"]),
            version=document["version"],
            time=matching(r".{1,64}", document["time"]),
            revoked=tuple((matching(NAME, e["name"]), matching(SERIAL, e["serial"])) for e in document["revoked"]),
            signature=bytes.fromhex(matching(SIGNATURE, document["signature"])),
        )

    @classmethod
    def signed_by(
        cls, key: ec.EllipticCurvePrivateKey, circle: str, version: int, revoked: tuple[tuple[str, str], ...]
    ) -> Roster:
        """A new roster, signed with the authority's key."""
        roster = cls(circle, version, utc_text(utc_now()), revoked, b"")
        signature = key.sign(_canonical(roster._content()), ec.ECDSA(hashes.SHA256()))
        return replace(roster, signature=signature)

    def _content(self) -> dict[str, object]:
        """The signed part."""
        revoked = [{"name": name, "serial": serial} for name, serial in self.revoked]
        return {"circle": self.circle, "version": self.version, "time": self.time, "revoked": revoked}


def _canonical(document: dict[str, object]) -> bytes:
    """The only byte form of a document, so that signatures can be checked."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")


def matching(pattern: str | re.Pattern[str], text: Any) -> str:
    """The text, if it matches the pattern; otherwise ValueError, or TypeError if it is not text."""
    if not re.fullmatch(pattern, text):
        raise ValueError(f"does not match {pattern}")
    return str(text)


# -- a peer's own folder -----------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """A peer's own identity: its folder of keys, verified."""

    credential: Credential
    private_key: bytes = field(repr=False)
    authority: bytes
    roster: Roster
    folder: Path

    @property
    def name(self) -> str:
        return self.credential.name

    @property
    def number(self) -> int:
        return self.credential.number

    def sign(self, data: bytes) -> bytes:
        """A signature for `verify` of this peer's credential."""
        return self._key.sign(SIGNED_BY_A_PEER + data, ec.ECDSA(hashes.SHA256()))

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return private_key_of(self.private_key)

    @classmethod
    def load(cls, folder: Path) -> Identity:
        """IdentityError with the file and the remedy if other peers would refuse this identity."""
        if (folder / AUTHORITY_KEY).exists():
            raise IdentityError(
                f"{folder} is an authority's folder. Use a peer's folder, made by `coterie keys issue NAME`"
            )
        private_key = read_file(folder / PRIVATE_KEY, ASK, private=True)
        authority, roster = authority_and_roster(folder, ASK)
        certificate = read_file(folder / CERTIFICATE, ASK)
        with naming(folder / CERTIFICATE, ASK):
            issued_by(certificate, authority)
        with naming(folder / CERTIFICATE):  # these errors contain their remedy
            credential = credential_of(certificate, authority)
        with naming(folder / PRIVATE_KEY, ASK):
            key = private_key_of(private_key)
        if key.public_key() != credential._public_key:
            raise IdentityError(f"{folder / PRIVATE_KEY}: does not match {CERTIFICATE} in the same folder. {ASK}")
        if roster.refuses(credential.serial):
            raise IdentityError(
                f"{folder / CERTIFICATE}: {credential.name}'s certificate was revoked (roster version "
                f"{roster.version}). Only the keeper of the circle's authority can issue a new one"
            )
        return cls(credential, private_key, authority, roster, folder)


def credential_in(folder: Path) -> tuple[Credential, bytes, Roster]:
    """The credential, authority and roster of a peer's folder, even if expired, revoked, or without its private key."""
    authority, roster = authority_and_roster(folder, ASK)
    certificate = read_file(folder / CERTIFICATE, ASK)
    with naming(folder / CERTIFICATE, ASK):
        credential, _ = issued_by(certificate, authority)
    return credential, authority, roster


def authority_and_roster(folder: Path, remedy: str) -> tuple[bytes, Roster]:
    """The files that the folders of authorities and peers have in common."""
    authority, roster = read_file(folder / AUTHORITY, remedy), read_file(folder / ROSTER, remedy)
    with naming(folder / AUTHORITY, remedy):
        authority_of(authority)
    with naming(folder / ROSTER, f"Copy {ROSTER} from the authority's folder or from another peer's"):
        return authority, Roster.from_bytes(roster, authority)


def private_key_of(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """IdentityError, which never contains the bytes, unless this is a private key of the kind that Coterie makes."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except Exception as error:  # malformed, encrypted, of an unknown kind: errors without a common base class
        raise IdentityError("not a private key in PEM form without a password") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("not a private key on the curve P-256")
    return key


# -- files -------------------------------------------------------------------------------------


def read_file(path: Path, remedy: str, private: bool = False) -> bytes:
    """A file's bytes; a private file must not be readable by other users."""
    try:
        with path.open("rb") as file:
            if private and os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                raise IdentityError(
                    f"{path}: other users can read this private key. Run: chmod 600 {shlex.quote(str(path))}"
                )
            return file.read()
    except FileNotFoundError as error:
        raise IdentityError(f"{path}: there is no such file. {remedy}") from error
    except OSError as error:
        raise IdentityError(f"{path}: cannot be read ({error.strerror}). {remedy}") from error


@contextmanager
def naming(path: Path, remedy: str = "") -> Iterator[None]:
    """Add the file and the remedy to errors about its content."""
    try:
        yield
    except IdentityError as error:
        raise IdentityError(f"{path}: {error}{'. ' if remedy else ''}{remedy}") from error


def utc_now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def utc_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
