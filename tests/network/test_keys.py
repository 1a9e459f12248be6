"""Identities: what the commands make, what TLS and gRPC do with it, and that nothing hostile passes or gets out."""

from __future__ import annotations

import argparse
import asyncio
import base64
import dataclasses
import json
import os
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from coterie.cli.keys import add_commands
from coterie.core.errors import CoterieError
from coterie.core.files import write_whole
from coterie.network import authority as keeper
from coterie.network import keys
from coterie.network.authority import circle_of, create_authority, issue, revoke
from coterie.network.keys import Credential, Identity, IdentityError, Roster, credential_of

PEER_FILES = {"authority.pem", "certificate.pem", "private.key", "roster.json"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A circle with two peers that no test changes; `other` beside it is another one with an `ada` of its own."""
    folder = tmp_path_factory.mktemp("circles")
    for circle in ("circle", "other"):
        create_authority(folder / circle)
        issue("ada", folder / circle)
    issue("bob", folder / "circle")
    return folder


@pytest.fixture
def circle(shared: Path, tmp_path: Path) -> Path:
    """A copy of the circle, to be changed."""
    return shutil.copytree(shared / "circle", tmp_path / "circle")


@pytest.fixture
def ada(circle: Path) -> Path:
    return circle / "ada"


@pytest.fixture
def coterie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`coterie keys` with these words, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(words: str) -> None:
        parser = argparse.ArgumentParser(prog="coterie")
        add_commands(parser.add_subparsers(required=True))
        options = parser.parse_args(["keys", *words.split()])
        options.command(options)

    return run


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def authority_key(folder: Path) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key((folder / "authority.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def certificate(folder: Path, file: str = "certificate.pem") -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / file).read_bytes())


# -- what is made ------------------------------------------------------------------------------


def test_init_makes_an_authority(coterie: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    coterie("init --name consortium --days 100")
    made = Path("keys")
    assert {path.name for path in made.iterdir()} == {"authority.pem", "authority.key", "ledger.json", "roster.json"}
    assert (mode(made), mode(made / "authority.key")) == (0o700, 0o600)
    authority = certificate(made, "authority.pem")
    assert authority.subject == authority.issuer
    assert authority.subject.rfc4514_string() == "CN=consortium"
    constraints = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert (constraints.value.ca, constraints.value.path_length) == (True, 0)
    usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (usage.key_cert_sign, usage.digital_signature) == (True, False)
    remaining = authority.not_valid_after_utc - datetime.now(UTC)
    assert timedelta(days=99) < remaining <= timedelta(days=100)
    assert circle_of(made).roster.version == 1
    assert "next: coterie keys issue NAME\n" in capsys.readouterr().out


@pytest.mark.parametrize("file", ["authority.pem", "authority.key", "ledger.json", "roster.json", "private.key"])
def test_init_overwrites_nothing(file: str, coterie: Callable[[str], None], tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / file).write_text("precious", encoding="utf-8")
    with pytest.raises(IdentityError, match=f"there/{file} already exists: choose another folder"):
        coterie("init there")
    assert [path.read_text(encoding="utf-8") for path in (tmp_path / "there").iterdir()] == ["precious"]


@pytest.mark.parametrize("name", ["", " x", "x ", "a\nb", "x" * 65, "é" * 33, "\udc80"])
def test_names_that_no_circle_can_have(name: str, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match="a circle's name must be"):
        create_authority(tmp_path / "keys", name)


def test_a_circles_name_may_be_of_any_script(tmp_path: Path) -> None:
    create_authority(tmp_path, "Göttinger Kreis 輪")
    issue("ada", tmp_path)
    assert circle_of(tmp_path).name == Identity.load(tmp_path / "ada").roster.circle == "Göttinger Kreis 輪"


def test_issue_makes_a_peers_folder(coterie: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    coterie("init")
    coterie("issue ada --days 10")
    coterie("issue bob --out elsewhere/bob")
    folder = Path("keys/ada")
    assert {path.name for path in folder.iterdir()} == {path.name for path in Path("elsewhere/bob").iterdir()}
    assert {path.name for path in folder.iterdir()} == PEER_FILES
    assert (mode(folder), mode(folder / "private.key"), mode(Path("elsewhere/bob"))) == (0o700, 0o600, 0o700)
    assert (folder / "authority.pem").read_bytes() == Path("keys/authority.pem").read_bytes()
    assert "keys/ada: the keys of ada, peer number 0" in capsys.readouterr().out
    ada, bob = Identity.load(folder), Identity.load(Path("elsewhere/bob"))
    assert [(peer.name, peer.number) for peer in (ada, bob)] == [("ada", 0), ("bob", 1)]
    remaining = ada.credential.expires - datetime.now(UTC)
    assert timedelta(days=9) < remaining <= timedelta(days=10)


def test_what_a_peers_certificate_says(shared: Path) -> None:
    made = certificate(shared / "circle/bob")
    authority = certificate(shared / "circle", "authority.pem")
    said = {a.oid: a.value for a in made.subject}
    assert said == {NameOID.COMMON_NAME: "bob", NameOID.SERIAL_NUMBER: "1"}
    assert made.issuer == authority.subject
    assert isinstance(made.signature_hash_algorithm, hashes.SHA256)
    key = made.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"

    def extension(kind: Any, of: x509.Certificate = made) -> Any:
        return of.extensions.get_extension_for_class(kind).value

    assert list(extension(x509.SubjectAlternativeName)) == [x509.DNSName("bob")]
    assert set(extension(x509.ExtendedKeyUsage)) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    assert not extension(x509.BasicConstraints).ca
    assert extension(x509.KeyUsage).digital_signature
    assert not extension(x509.KeyUsage).key_cert_sign
    identifier = extension(x509.SubjectKeyIdentifier, authority).digest
    assert extension(x509.AuthorityKeyIdentifier).key_identifier == identifier
    before = datetime.now(UTC) - made.not_valid_before_utc
    assert timedelta(hours=1) <= before < timedelta(hours=2)


@pytest.mark.parametrize("name", ["0", "a", "hospital-a", "a" * 63, "0-0"])
def test_names_that_a_peer_can_have(name: str, circle: Path) -> None:
    assert issue(name, circle).name == name
    assert Identity.load(circle / name).name == name


@pytest.mark.parametrize(
    "name", ["", "Ada", "-a", "a-", "a" * 64, "a.b", "a_b", "a b", "../a", "é", "a\n", "*", "/etc"]
)
def test_names_that_no_peer_can_have(name: str, circle: Path) -> None:
    before = sorted(circle.rglob("*"))
    with pytest.raises(IdentityError, match="cannot be a peer's name"):
        issue(name, circle)
    assert sorted(circle.rglob("*")) == before


def test_renewal_keeps_the_number(circle: Path, tmp_path: Path) -> None:
    old = Identity.load(circle / "ada")
    issue("carol", circle)
    issue("ada", circle, out=tmp_path / "again")
    new = Identity.load(tmp_path / "again")
    assert new.number == old.number == 0
    assert Identity.load(circle / "carol").number == 2
    assert new.credential.serial != old.credential.serial
    assert new.private_key != old.private_key
    assert Identity.load(circle / "ada") == old  # both are valid
    ledger = json.loads((circle / "ledger.json").read_text(encoding="utf-8"))
    [member] = [member for member in ledger["members"] if member["name"] == "ada"]
    assert member["number"] == 0
    assert [c["serial"] for c in member["certificates"]] == [old.credential.serial, new.credential.serial]
    assert datetime.fromisoformat(member["certificates"][1]["expires"]) == new.credential.expires


def test_a_key_is_replaced_only_by_force(coterie: Callable[[str], None]) -> None:
    coterie("init")
    coterie("issue ada")
    old, ledger = Path("keys/ada/private.key").read_bytes(), Path("keys/ledger.json").read_bytes()
    with pytest.raises(IdentityError, match=r"keys/ada/private.key already exists: replace it with --force"):
        coterie("issue ada")
    assert Path("keys/ada/private.key").read_bytes() == old
    assert Path("keys/ledger.json").read_bytes() == ledger
    coterie("issue ada --force")
    assert Identity.load(Path("keys/ada")).private_key != old
    assert mode(Path("keys/ada/private.key")) == 0o600


def test_a_peers_keys_do_not_go_into_an_authoritys_folder(circle: Path, shared: Path) -> None:
    for folder in (circle, shared / "other"):
        with pytest.raises(IdentityError, match="is an authority's folder"):
            issue("ada", circle, out=folder, force=True)


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    made = create_authority(tmp_path, days=10)
    assert issue("ada", tmp_path, days=365).expires == made.expires


def test_an_expired_authority_issues_nothing(tmp_path: Path) -> None:
    create_authority(tmp_path, days=-1)
    with pytest.raises(IdentityError, match=r"authority.pem expired at"):
        issue("ada", tmp_path)
    assert not (tmp_path / "ada").exists()


def test_numbers_are_given_once_if_several_issue_at_a_time(circle: Path) -> None:
    names = [f"peer-{i}" for i in range(12)]
    with ThreadPoolExecutor(6) as several:
        issued = list(several.map(lambda name: issue(name, circle), names))
    assert sorted(credential.number for credential in issued) == list(range(2, 14))
    assert len(circle_of(circle).members) == 14


@pytest.mark.parametrize("days", ["0", "-1", "1.5", "x", "36501", "1" * 20, "²"])
def test_days_that_cannot_be(days: str, coterie: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        coterie(f"init --days={days}")
    assert "must be a whole number from 1 to 36500" in capsys.readouterr().err


# -- files -------------------------------------------------------------------------------------


@pytest.fixture
def no_umask() -> Any:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("no_umask")
def test_private_files_are_private_from_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: dict[str, int] = {}
    open_file = os.open

    def watched(path: Any, flags: int, mode_asked: int = 0o777, **more: Any) -> int:
        handle = open_file(path, flags, mode_asked, **more)
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL
            seen[Path(path).name.split("-")[0]] = stat.S_IMODE(os.fstat(handle).st_mode)
        return handle

    monkeypatch.setattr(os, "open", watched)
    create_authority(tmp_path / "keys")
    issue("ada", tmp_path / "keys")
    assert {name for name, bits in seen.items() if bits == 0o600} == {".authority.key", ".private.key"}
    assert {bits for name, bits in seen.items() if not name.endswith(".key")} == {0o644}
    assert mode(tmp_path / "keys/authority.key") == mode(tmp_path / "keys/ada/private.key") == 0o600
    assert mode(tmp_path / "keys") == mode(tmp_path / "keys/ada") == 0o700


def test_a_file_is_whole_or_as_before(ada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in ada.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(ada / "roster.json", b"new")
    assert {path: path.read_bytes() for path in ada.iterdir()} == before


def test_an_issue_that_fails_gives_the_number_to_the_next(circle: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        issue("carol", circle, out=tmp_path / "file")
    assert issue("dora", circle).number == 2


# -- revoking ----------------------------------------------------------------------------------


def test_revoke(coterie: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    coterie("init --name lab")
    for words in ("issue ada", "issue ada --out second", "issue bob"):
        coterie(words)
    folders = [Path("keys/ada"), Path("second"), Path("keys/bob")]
    ada, second, bob = (Identity.load(folder).credential for folder in folders)
    capsys.readouterr()
    coterie("revoke ada")
    said = capsys.readouterr().out
    assert "revoked 2 certificates of ada: the roster now has version 2" in said
    assert "copy keys/roster.json into the keys folder of any running peer" in said
    assert "newest version wins" in said
    data = Path("keys/roster.json").read_bytes()
    document = json.loads(data)
    assert set(document) == {"circle", "version", "time", "revoked", "signature"}
    assert (document["circle"], document["version"]) == ("lab", 2)
    assert document["revoked"] == [{"name": "ada", "serial": ada.serial}, {"name": "ada", "serial": second.serial}]
    read = Roster.from_bytes(data, Path("keys/authority.pem").read_bytes())
    assert [read.refuses(credential.serial) for credential in (ada, second, bob)] == [True, True, False]

    for folder in folders:
        Identity.load(folder)  # these have the old roster still
        shutil.copy("keys/roster.json", folder)
    for folder in folders[:2]:
        with pytest.raises(IdentityError, match=f"{folder}/certificate.pem: ada's certificate was revoked"):
            Identity.load(folder)
    assert Identity.load(folders[2]).roster == read

    coterie("revoke ada")
    assert "still has version 2" in capsys.readouterr().out
    assert Path("keys/roster.json").read_bytes() == data
    coterie("issue ada --force")
    assert Identity.load(Path("keys/ada")).number == 0
    coterie("revoke bob")
    assert "revoked one certificate of bob: the roster now has version 3" in capsys.readouterr().out
    assert [name for name, _ in circle_of(Path("keys")).roster.revoked] == ["ada", "ada", "bob"]


def test_the_roster_is_signed_over_its_canonical_bytes(circle: Path) -> None:
    """As anybody can check it who has the authority's certificate and the format's description."""
    revoke("ada", circle)
    document = json.loads((circle / "roster.json").read_bytes())
    signature = bytes.fromhex(document.pop("signature"))
    signed = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    key = certificate(circle, "authority.pem").public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    key.verify(signature, signed, ec.ECDSA(hashes.SHA256()))


def test_revoking_an_unknown_name(circle: Path, tmp_path: Path) -> None:
    with pytest.raises(IdentityError, match=r"unknown name 'adah'. Did you mean 'ada'. Valid: ada, bob"):
        revoke("adah", circle)
    create_authority(tmp_path / "empty")
    with pytest.raises(IdentityError, match="this circle has not issued any certificate yet"):
        revoke("ada", tmp_path / "empty")


def test_no_roster_is_made_that_nobody_would_read(circle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "LARGEST_ROSTER", 250)
    before = (circle / "roster.json").read_bytes()
    with pytest.raises(IdentityError, match="too large"):
        revoke("ada", circle)
    assert (circle / "roster.json").read_bytes() == before


# -- showing -----------------------------------------------------------------------------------


def test_show_an_authority(coterie: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("init", "issue ada", "issue bob", "issue carol", "revoke bob", "revoke carol", "issue carol --force"):
        coterie(words)
    capsys.readouterr()
    coterie("show")
    said = capsys.readouterr().out
    year = f"{circle_of(Path('keys')).members[0].certificates[0].expires:%Y-%m-%d}"
    rows = [line.split() for line in said.splitlines()]
    assert rows[-4] == ["name", "number", "expires", "revoked"]
    assert rows[-3:-1] == [["ada", "0", year, "no"], ["bob", "1", year, "yes"]]
    assert rows[-1] == ["carol", "2", year, "1", "of", "2"]
    assert keys.fingerprint(Path("keys/authority.pem").read_bytes()) in said
    assert "version 3 of " in said
    Path("keys/authority.key").unlink()  # kept elsewhere
    coterie("show keys")
    assert capsys.readouterr().out == said


def test_show_a_peer(coterie: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("init", "issue ada", "issue bob"):
        coterie(words)
    capsys.readouterr()
    coterie("show keys/bob")
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (said["name"], said["number"], said["usable"]) == ("bob", "1", "yes")
    assert said["expires"] == f"{Identity.load(Path('keys/bob')).credential.expires:%Y-%m-%d}"
    der = certificate(Path("keys"), "authority.pem").public_bytes(serialization.Encoding.DER)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    assert said["authority"].replace(":", "").lower() == digest.finalize().hex()
    assert said["roster"].startswith("version 1 of 20")
    coterie("revoke bob")
    shutil.copy("keys/roster.json", "keys/bob")
    capsys.readouterr()
    coterie("show keys/bob")
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (said["name"], said["roster"][:9]) == ("bob", "version 2")
    assert said["usable"].startswith("no: keys/bob/certificate.pem: bob's certificate was revoked")


def test_show_something_else(coterie: Callable[[str], None]) -> None:
    with pytest.raises(IdentityError, match=r"nowhere has neither ledger.json nor certificate.pem: give the folder"):
        coterie("show nowhere")


def test_nothing_private_is_printed(coterie: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("init", "issue ada", "revoke ada", "issue ada --force", "show", "show keys/ada"):
        coterie(words)
    identity = Identity.load(Path("keys/ada"))
    said = capsys.readouterr().out + repr(identity) + str(identity)
    assert "PRIVATE" not in said
    for file in ("keys/authority.key", "keys/ada/private.key"):
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            assert line not in said


def test_the_command_imports_nothing_heavy() -> None:
    code = "import sys, coterie.cli.keys; sys.exit('cryptography' in sys.modules or 'torch' in sys.modules)"
    # Only what this module itself brings: the package's own __init__ is not looked at.
    code = (
        "import sys, types; p = types.ModuleType('coterie'); p.__path__ = [sys.argv[1]]; sys.modules['coterie'] = p; "
        + code
    )
    package = Path(keys.__file__).parents[1]
    assert subprocess.run([sys.executable, "-c", code, str(package)], check=False).returncode == 0


# -- loading -----------------------------------------------------------------------------------


def test_load(shared: Path) -> None:
    identity = Identity.load(shared / "circle/ada")
    assert (identity.name, identity.number, identity.folder) == ("ada", 0, shared / "circle/ada")
    assert identity.credential == credential_of(identity.credential.certificate, identity.authority)
    assert identity.credential.serial == f"{certificate(shared / 'circle/ada').serial_number:x}"
    assert identity.credential.expires.tzinfo is UTC
    assert issubclass(IdentityError, CoterieError)


@pytest.mark.parametrize("file", sorted(PEER_FILES))
def test_load_without_a_file(file: str, ada: Path) -> None:
    (ada / file).unlink()
    with pytest.raises(
        IdentityError, match=f"ada/{file}: there is no such file. Ask the keeper .* `coterie keys issue`"
    ):
        Identity.load(ada)
    (ada / file).mkdir(mode=0o700)
    with pytest.raises(IdentityError, match=f"ada/{file}: cannot be read .Is a directory"):
        Identity.load(ada)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"-----BEGIN CERTIFICATE-----\n", b"x" * 2_000_000, b"[" * 99_999]
)
@pytest.mark.parametrize("file", sorted(PEER_FILES))
def test_load_with_a_damaged_file(file: str, content: bytes, ada: Path) -> None:
    (ada / file).write_bytes(content)
    with pytest.raises(IdentityError, match=rf"ada/{file}: .*\. (Ask the keeper|Copy roster.json from)") as caught:
        Identity.load(ada)
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o644, 0o610, 0o666])
def test_load_with_a_key_that_others_can_read(bits: int, ada: Path) -> None:
    (ada / "private.key").chmod(bits)
    with pytest.raises(IdentityError, match=r"private.key: other users can read .* Run: chmod 600 .*ada/private.key"):
        Identity.load(ada)
    (ada / "private.key").chmod(0o400)
    Identity.load(ada)


def test_the_authoritys_key_must_be_private_too(circle: Path) -> None:
    (circle / "authority.key").chmod(0o644)
    for act in (issue, revoke):
        with pytest.raises(IdentityError, match=r"chmod 600 .*authority.key"):
            act("dora", circle)


def test_load_with_the_key_of_another(circle: Path) -> None:
    shutil.copy(circle / "bob/private.key", circle / "ada")
    with pytest.raises(IdentityError, match=r"ada/private.key: does not match certificate.pem in the same folder. Ask"):
        Identity.load(circle / "ada")


@pytest.mark.parametrize("kind", ["encrypted", "rsa", "ed25519", "p384"])
def test_load_with_a_key_of_another_kind(kind: str, ada: Path) -> None:
    how: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if kind == "encrypted":
        how = serialization.BestAvailableEncryption(b"secret")
    key: Any = {
        "encrypted": lambda: ec.generate_private_key(ec.SECP256R1()),
        "rsa": lambda: rsa.generate_private_key(65537, 2048),
        "ed25519": ed25519.Ed25519PrivateKey.generate,
        "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    }[kind]()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)
    (ada / "private.key").write_bytes(pem)
    with pytest.raises(IdentityError, match=r"ada/private.key: not a private key (in PEM form without|on the curve)"):
        Identity.load(ada)


def test_load_with_files_of_another_authority(circle: Path, shared: Path) -> None:
    theirs, ours = shared / "other/ada", circle / "ada"
    shutil.copy(theirs / "roster.json", ours)
    with pytest.raises(
        IdentityError, match=r"ada/roster.json: not a roster signed by this circle's authority. Copy roster.json"
    ):
        Identity.load(ours)
    shutil.copy(theirs / "authority.pem", ours)
    with pytest.raises(IdentityError, match=r"ada/certificate.pem: not issued by this circle's authority. Ask"):
        Identity.load(ours)


def test_load_an_authoritys_folder(circle: Path) -> None:
    with pytest.raises(
        IdentityError, match=r"is an authority's folder. Use a peer's folder, made by `coterie keys issue NAME`"
    ):
        Identity.load(circle)


def test_load_expired(circle: Path) -> None:
    issue("ada", circle, days=-1, force=True)
    with pytest.raises(
        IdentityError, match=r"ada/certificate.pem: ada's .* expired at .*: renew it with `coterie keys issue ada`"
    ):
        Identity.load(circle / "ada")


def test_load_before_it_is_valid(ada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "utc_now", lambda: datetime.now(UTC) - timedelta(minutes=59))
    Identity.load(ada)  # clocks differ
    monkeypatch.setattr(keys, "utc_now", lambda: datetime.now(UTC) - timedelta(hours=2))
    with pytest.raises(IdentityError, match=r"ada/certificate.pem: .* is not valid before .*: set the clock"):
        Identity.load(ada)


def test_validity_is_judged_at_every_call(ada: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem, authority = (ada / "certificate.pem").read_bytes(), (ada / "authority.pem").read_bytes()
    assert credential_of(pem, authority) is credential_of(pem, authority)  # parsed once
    monkeypatch.setattr(keys, "utc_now", lambda: datetime.now(UTC) + timedelta(days=366))
    with pytest.raises(IdentityError, match="expired"):
        credential_of(pem, authority)
    monkeypatch.undo()
    assert credential_of(pem, authority).name == "ada"


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "[" * 99_999, '{"circle": "x", "members": 3}', '{"circle": 1, "members": []}']
)
def test_a_damaged_ledger(content: str, circle: Path) -> None:
    (circle / "ledger.json").write_text(content, encoding="utf-8")
    for act in (issue, revoke):
        with pytest.raises(IdentityError, match=r"ledger.json: not a ledger of certificates. Restore it from a backup"):
            act("dora", circle)


def test_a_ledger_with_a_number_twice(circle: Path) -> None:
    ledger = json.loads((circle / "ledger.json").read_text(encoding="utf-8"))
    ledger["members"][1]["number"] = 0
    (circle / "ledger.json").write_text(json.dumps(ledger), encoding="utf-8")
    with pytest.raises(IdentityError, match="not a ledger"):
        issue("dora", circle)


def test_an_authority_with_the_key_of_another(circle: Path, shared: Path) -> None:
    shutil.copy(shared / "other/authority.key", circle)
    with pytest.raises(IdentityError, match=r"authority.key: does not match authority.pem in the same folder. Restore"):
        issue("dora", circle)


def test_an_authority_that_is_not_there(tmp_path: Path) -> None:
    for act in (issue, revoke):
        with pytest.raises(
            IdentityError, match=r"none/authority.key: there is no such file. .* coterie keys init .*none"
        ):
            act("ada", tmp_path / "none")


# -- certificates that are not what they should be ---------------------------------------------


def forged(
    key: Any,
    issuer: x509.Name,
    *,
    subject: dict[x509.ObjectIdentifier, str] | None = None,
    ca: bool | None = False,
    dns: tuple[str, ...] = ("mallory",),
    public: Any = None,
) -> bytes:
    """What a careless authority could sign, or somebody else in its name."""
    subject = {NameOID.COMMON_NAME: "mallory", NameOID.SERIAL_NUMBER: "7"} if subject is None else subject
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid, value) for oid, value in subject.items()]))
        .issuer_name(issuer)
        .public_key(public or ec.generate_private_key(ec.SECP256R1()).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if dns:
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_a_certificate_signed_in_the_authoritys_name(shared: Path) -> None:
    authority = (shared / "circle/authority.pem").read_bytes()
    issuer = certificate(shared / "circle", "authority.pem").subject
    assert credential_of(forged(authority_key(shared / "circle"), issuer), authority).number == 7
    mine = ec.generate_private_key(ec.SECP256R1())
    ada: Any = serialization.load_pem_private_key((shared / "circle/ada/private.key").read_bytes(), None)
    for key in (mine, authority_key(shared / "other"), ada, rsa.generate_private_key(65537, 2048)):
        with pytest.raises(IdentityError, match="not issued by this circle's authority"):
            credential_of(forged(key, issuer), authority)


NO_PEERS: dict[str, dict[str, Any]] = {
    "authority": {"ca": True},
    "no constraints": {"ca": None},
    "no names": {"dns": ()},
    "another's name": {"dns": ("ada",)},
    "two names": {"dns": ("mallory", "ada")},
    "wildcard": {"dns": ("*",), "subject": {NameOID.COMMON_NAME: "*", NameOID.SERIAL_NUMBER: "7"}},
    "no number": {"subject": {NameOID.COMMON_NAME: "mallory"}},
    "no subject": {"subject": {}},
    "negative": {"subject": {NameOID.COMMON_NAME: "mallory", NameOID.SERIAL_NUMBER: "-1"}},
    "padded": {"subject": {NameOID.COMMON_NAME: "mallory", NameOID.SERIAL_NUMBER: "07"}},
    "huge": {"subject": {NameOID.COMMON_NAME: "mallory", NameOID.SERIAL_NUMBER: "9" * 60}},
    "rsa": {"public": rsa.generate_private_key(65537, 2048).public_key()},
    "p384": {"public": ec.generate_private_key(ec.SECP384R1()).public_key()},
}


@pytest.mark.parametrize("case", NO_PEERS)
def test_a_certificate_of_the_authority_that_is_no_peers(case: str, shared: Path) -> None:
    issuer = certificate(shared / "circle", "authority.pem").subject
    pem = forged(authority_key(shared / "circle"), issuer, **NO_PEERS[case])
    with pytest.raises(IdentityError, match="by this circle's authority, but not a peer's"):
        credential_of(pem, (shared / "circle/authority.pem").read_bytes())


def test_the_authority_is_no_peer_and_a_peer_no_authority(shared: Path) -> None:
    authority, ada = (shared / "circle" / file for file in ("authority.pem", "ada/certificate.pem"))
    with pytest.raises(IdentityError, match="but not a peer's"):
        credential_of(authority.read_bytes(), authority.read_bytes())
    with pytest.raises(IdentityError, match="not the certificate of a circle's authority"):
        credential_of(ada.read_bytes(), ada.read_bytes())


def test_text_around_a_certificate_is_no_part_of_it(shared: Path) -> None:
    pem, authority = (shared / "circle" / file for file in ("ada/certificate.pem", "authority.pem"))
    plain = credential_of(pem.read_bytes(), authority.read_bytes())
    assert credential_of(b"hello\n" + pem.read_bytes() + b"\n\n", authority.read_bytes()) == plain
    with pytest.raises(IdentityError, match="too many for a certificate"):
        credential_of(pem.read_bytes() + b"\n" * 20_000, authority.read_bytes())


@given(data=st.binary(max_size=2000), armoured=st.booleans())
def test_any_bytes_for_a_certificate(data: bytes, armoured: bool, shared: Path) -> None:
    pem = _armour(data) if armoured else data
    with pytest.raises(IdentityError):
        credential_of(pem, (shared / "circle/authority.pem").read_bytes())
    with pytest.raises(IdentityError):
        credential_of((shared / "circle/ada/certificate.pem").read_bytes(), pem)


@given(place=st.integers(0, 10_000), bits=st.integers(1, 255), authoritys=st.booleans())
def test_a_changed_byte_in_a_certificate(place: int, bits: int, authoritys: bool, shared: Path) -> None:
    authority = (shared / "circle/authority.pem").read_bytes()
    whose, file = ("circle", "authority.pem") if authoritys else ("circle/ada", "certificate.pem")
    der = bytearray(certificate(shared / whose, file).public_bytes(serialization.Encoding.DER))
    der[place % len(der)] ^= bits
    try:
        found = credential_of(_armour(bytes(der)), authority)
    except IdentityError:
        return
    # One byte is not signed, and not always looked at: how many bits of the signature's last byte are unused.
    assert found == credential_of((shared / "circle/ada/certificate.pem").read_bytes(), authority)


def test_a_twin_of_a_certificate_is_revoked_with_it(circle: Path) -> None:
    """If (r, s) is an ECDSA signature, so is (r, -s): other bytes, which nobody needed a key for."""
    made, authority = certificate(circle / "ada"), (circle / "authority.pem").read_bytes()
    der = made.public_bytes(serialization.Encoding.DER)
    r, s = decode_dss_signature(made.signature)
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of P-256
    bits = b"\0" + encode_dss_signature(r, order - s)
    algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
    content = made.tbs_certificate_bytes + algorithm + b"\x03" + bytes([len(bits)]) + bits
    twin = credential_of(_armour(b"\x30\x82" + len(content).to_bytes(2, "big") + content), authority)
    original = credential_of(_armour(der), authority)
    assert twin.certificate != original.certificate
    assert twin == original
    assert revoke("ada", circle)[0].refuses(twin.serial)


def _armour(der: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE-----\n"


# -- signatures --------------------------------------------------------------------------------


@given(data=st.binary(max_size=300), other=st.binary(max_size=300), noise=st.binary(max_size=100))
def test_signatures(data: bytes, other: bytes, noise: bytes, shared: Path) -> None:
    ada, bob = (Identity.load(shared / "circle" / name) for name in ("ada", "bob"))
    signature = ada.sign(data)
    assert ada.credential.verify(data, signature)
    assert ada.credential.verify(other, signature) == (data == other)
    assert not bob.credential.verify(data, signature)
    assert not ada.credential.verify(data, noise)
    assert not ada.credential.verify(data, signature + b"\0")
    assert not ada.credential.verify(data, signature[:-1])


def test_a_peer_cannot_be_made_to_sign_for_tls(shared: Path) -> None:
    """What is signed begins with words of our own; so no signature of ours fits a handshake's bytes."""
    ada = Identity.load(shared / "circle/ada")
    handshake = b" " * 64 + b"TLS 1.3, server CertificateVerify\0" + bytes(32)
    key = certificate(shared / "circle/ada").public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert not keys._signed(key, handshake, ada.sign(handshake))


# -- hostile rosters ---------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
FIELDS = ("circle", "version", "time", "revoked", "signature")


@pytest.fixture(scope="module")
def signed(shared: Path) -> Roster:
    """One with entries."""
    ada = Identity.load(shared / "circle/ada").credential
    return Roster.signed_by(authority_key(shared / "circle"), "coterie", 5, ((ada.name, ada.serial), ("x", "ff")))


@given(data=st.binary(max_size=500) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_for_a_roster(data: bytes, shared: Path) -> None:
    with pytest.raises(IdentityError):
        Roster.from_bytes(data, (shared / "circle/authority.pem").read_bytes())


@given(key=st.sampled_from(FIELDS), value=JSON)
def test_a_changed_field_in_a_roster(key: str, value: Any, signed: Roster, shared: Path) -> None:
    document = json.loads(signed.to_bytes())
    authority = (shared / "circle/authority.pem").read_bytes()
    assert Roster.from_bytes(json.dumps(document, indent=3).encode(), authority) == signed  # as anybody may write it
    document[key] = value
    if document != json.loads(signed.to_bytes()) or type(value) is not type(json.loads(signed.to_bytes())[key]):
        with pytest.raises(IdentityError):
            Roster.from_bytes(json.dumps(document).encode(), authority)


@given(place=st.integers(0, 10_000), bits=st.integers(1, 255))
def test_a_changed_byte_in_a_roster(place: int, bits: int, signed: Roster, shared: Path) -> None:
    data = bytearray(signed.to_bytes())
    data[place % len(data)] ^= bits
    with pytest.raises(IdentityError):
        Roster.from_bytes(bytes(data), (shared / "circle/authority.pem").read_bytes())


def changed(**fields: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda document: {**document, **fields}


@pytest.mark.parametrize(
    "change",
    [
        changed(more=1),
        changed(version=True),
        changed(version=5.0),
        changed(version="5"),
        changed(version=6),
        changed(revoked=[]),
        changed(revoked={"name": "x", "serial": "ff"}),
        changed(revoked=[["name", "serial"]]),
        changed(revoked=[{"name": "x"}]),
        changed(revoked=[{"name": 1, "serial": 2}]),
        changed(revoked=[{"name": "x", "serial": "FF"}]),
        changed(revoked="name"),
        changed(signature=""),
        changed(signature="zz"),
        changed(signature=None),
        changed(circle="other"),
        list,
        lambda document: [document],
        lambda document: {key: document[key] for key in FIELDS[:-1]},
    ],
)
def test_rosters_that_are_none(change: Callable[[dict[str, Any]], Any], signed: Roster, shared: Path) -> None:
    data = json.dumps(change(json.loads(signed.to_bytes()))).encode()
    with pytest.raises(IdentityError, match="not a roster"):
        Roster.from_bytes(data, (shared / "circle/authority.pem").read_bytes())


@pytest.mark.parametrize(
    "data",
    [b"[" * 1_000_000, b'{"version":' + b"9" * 900_000 + b"}", b"\xff" * 1000, b"{}" * 1_000_000, b"\xef\xbb\xbf{}"],
    ids=["deep", "digits", "not text", "huge", "mark"],
)
def test_rosters_made_to_harm(data: bytes, shared: Path) -> None:
    with pytest.raises(IdentityError):
        Roster.from_bytes(data, (shared / "circle/authority.pem").read_bytes())


def test_a_roster_needs_its_own_authority(signed: Roster, shared: Path) -> None:
    assert Roster.from_bytes(signed.to_bytes(), (shared / "circle/authority.pem").read_bytes()) == signed
    for wrong in ("other/authority.pem", "circle/ada/certificate.pem", "circle/ledger.json"):
        with pytest.raises(IdentityError):
            Roster.from_bytes(signed.to_bytes(), (shared / wrong).read_bytes())
    by_ada = Identity.load(shared / "circle/ada")._key
    again = Roster.signed_by(by_ada, "coterie", 6, ())
    with pytest.raises(IdentityError, match="not a roster signed by this circle's authority"):
        Roster.from_bytes(again.to_bytes(), (shared / "circle/authority.pem").read_bytes())


def test_refuses(signed: Roster) -> None:
    assert signed.refuses("ff")
    assert not signed.refuses("f")
    assert not dataclasses.replace(signed, revoked=()).refuses("ff")


# -- TLS ---------------------------------------------------------------------------------------


def tls(folder: Path, side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.load_verify_locations(folder / "authority.pem")
    context.load_cert_chain(folder / "certificate.pem", folder / "private.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # what newer Pythons do by themselves
    return context


def handshake(server: Path, client: Path, name: str) -> tuple[str, str]:
    """Over loopback: whom the client sees, and whom the server. An error of either side is raised."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as aside:
        listening.settimeout(10)

        def serve() -> str:
            with listening.accept()[0] as raw:
                raw.settimeout(10)
                with tls(server, ssl.PROTOCOL_TLS_SERVER).wrap_socket(raw, server_side=True) as served:
                    served.sendall(b"welcome")
                    return whom(served, server)

        served = aside.submit(serve)
        try:
            with socket.create_connection(listening.getsockname(), timeout=10) as raw:
                context = tls(client, ssl.PROTOCOL_TLS_CLIENT)
                with context.wrap_socket(raw, server_hostname=name) as connected:
                    assert connected.recv(7) == b"welcome"
                    return whom(connected, client), served.result()
        finally:
            served.exception()  # has ended before the port is closed


def whom(connection: ssl.SSLSocket, folder: Path) -> str:
    der = connection.getpeercert(binary_form=True)
    assert der
    pem = ssl.DER_cert_to_PEM_cert(der).encode()
    return credential_of(pem, (folder / "authority.pem").read_bytes()).name


def test_mutual_tls(shared: Path) -> None:
    ada, bob = shared / "circle/ada", shared / "circle/bob"
    assert handshake(ada, bob, "ada") == ("ada", "bob")


def test_mutual_tls_with_a_name_of_digits(circle: Path) -> None:
    issue("127", circle)
    assert handshake(circle / "127", circle / "bob", "127") == ("127", "bob")


def test_tls_refuses_anothers_name(shared: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(shared / "circle/ada", shared / "circle/bob", "bob")


def test_tls_refuses_another_circle(shared: Path) -> None:
    for server, client in (("circle/ada", "other/ada"), ("other/ada", "circle/ada")):
        with pytest.raises((ssl.SSLError, OSError)):
            handshake(shared / server, shared / client, "ada")


def test_tls_refuses_the_expired(circle: Path) -> None:
    issue("ada", circle, days=-1, force=True)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(circle / "ada", circle / "bob", "ada")


# -- gRPC --------------------------------------------------------------------------------------


class Mirror(grpc.GenericRpcHandler):
    """Answers who the caller is, as a peer on the network finds out."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    def service(self, _: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.who)

    async def who(self, _: bytes, context: Any) -> bytes:
        [pem] = context.auth_context()["x509_pem_cert"]
        caller: Credential = credential_of(pem, self.identity.authority)
        return f"{caller.name} {caller.number}".encode()


async def call(server: Identity, client: Identity | None, name: str) -> str:
    """What a real server answers to a client that expects `name` to be there."""
    running = grpc.aio.server()
    running.add_generic_rpc_handlers((Mirror(server),))
    pair = (server.private_key, server.credential.certificate)
    secure = grpc.ssl_server_credentials([pair], server.authority, require_client_auth=True)
    port = running.add_secure_port("127.0.0.1:0", secure)
    await running.start()
    own = (client.authority, client.private_key, client.credential.certificate) if client else (server.authority,)
    options = [("grpc.ssl_target_name_override", name)]
    try:
        async with grpc.aio.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(*own), options) as channel:
            answer: bytes = await channel.unary_unary("/mirror/who")(b"", timeout=10)
            return answer.decode()
    finally:
        await running.stop(None)


def test_grpc(shared: Path) -> None:
    ada, bob = (Identity.load(shared / "circle" / name) for name in ("ada", "bob"))
    assert asyncio.run(call(ada, bob, "ada")) == "bob 1"


def test_grpc_refuses_whom_it_should(shared: Path) -> None:
    ada, bob = (Identity.load(shared / "circle" / name) for name in ("ada", "bob"))
    other = Identity.load(shared / "other/ada")
    calls: list[tuple[Identity, Identity | None, str]] = [
        (ada, bob, "bob"),
        (ada, other, "ada"),
        (other, ada, "ada"),
        (ada, None, "ada"),
    ]
    for server, client, name in calls:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            asyncio.run(call(server, client, name))
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_it_can_be_used_from_several_threads(shared: Path) -> None:
    keys.issued_by.cache_clear()
    names: list[str] = []
    pem, authority = (shared / "circle" / file for file in ("ada/certificate.pem", "authority.pem"))

    def ask() -> None:
        names.extend(credential_of(pem.read_bytes(), authority.read_bytes()).name for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names == ["ada"] * 200
