"""Keys and certificates of a project: an authority of its own, the server's certificate, a key for each site."""

import datetime
import ipaddress
import os
from pathlib import Path
from typing import Any

from apiece.engines.remote.flower import MissingFlower
from apiece.errors import UserError
from apiece.files import replace_file

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise MissingFlower("keys need a package that comes with Flower: pip install 'apiece[flower]'") from None

YEARS = 10  # of the authority
DAYS = 397  # of the server's certificate


def write_secret(path: Path, content: bytes) -> None:
    """A file that its owner alone may read, whole or not at all."""
    with replace_file(path) as temporary:
        temporary.write_bytes(content)
    os.chmod(path, 0o600)


def make_authority(folder: Path, name: str) -> None:
    """A key and a certificate that signs the server's: ca.key, which stays with whoever sets up, and ca.crt."""
    key = ec.generate_private_key(ec.SECP384R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"apiece {name}")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA384())
    )
    write_secret(folder / "ca.key", _private(key))
    _write(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))


def make_certificate(authority: Path, folder: Path, hosts: list[str]) -> None:
    """The server's key and certificate (server.key, server.crt) for these names and addresses."""
    try:
        signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
        issuer = x509.load_pem_x509_certificate((authority / "ca.crt").read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"the authority in {authority} cannot be read: {error}") from None
    key, now = ec.generate_private_key(ec.SECP384R1()), datetime.datetime.now(datetime.UTC)
    names = [_host(host) for host in dict.fromkeys(hosts)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),
            critical=False,
        )
        .sign(signer, hashes.SHA384())
    )
    write_secret(folder / "server.key", _private(key))
    _write(folder / "server.crt", certificate.public_bytes(serialization.Encoding.PEM))


def make_site_key(path: Path) -> str:
    """A site's key, as `ssh-keygen -t ecdsa -b 384` makes it; the text of its public half, also beside it as .pub."""
    key = ec.generate_private_key(ec.SECP384R1())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    write_secret(path, key.private_bytes(*form))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    _write(path.with_suffix(".pub"), public + b"\n")
    return public.decode()


def days_left(path: Path) -> float:
    """How many days a certificate is valid yet; negative if it is no longer.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     make_authority(Path(place), "wards")
    ...     make_certificate(Path(place), Path(place), ["localhost", "127.0.0.1"])
    ...     round(days_left(Path(place) / "server.crt"))
    397
    """
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"the certificate {path} cannot be read: {error}") from None
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left.total_seconds() / 86400


def _private(key: Any) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _host(host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(signs: bool) -> Any:
    unused = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
    more = dict(encipher_only=False, decipher_only=False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=signs, crl_sign=signs, **unused, **more)


def _write(path: Path, content: bytes) -> None:
    with replace_file(path) as temporary:
        temporary.write_bytes(content)
