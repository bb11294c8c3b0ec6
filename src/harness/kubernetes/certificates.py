"""The identities of a cluster: a certificate authority, certificates of servers and clients, and kubeconfig files."""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from scribengin.core.storage import make_folder, replace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_VALID = timedelta(days=30)
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")


class CertificateAuthority:
    """A certificate authority of one cluster. All its files are in one folder, the private keys readable for this user only."""

    def __init__(self, folder: Path) -> None:
        """Create it, with its certificate in `ca.crt`."""
        self.folder = folder
        make_folder(folder)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-cluster-ca")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = folder / "ca.crt"
        replace(self.certificate, made.public_bytes(Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + _VALID)
        )

    def issue(self, file: str, user: str, groups: Sequence[str] = ()) -> tuple[Path, Path]:
        """Make a certificate of 127.0.0.1, valid for servers and for clients.

        Args:
            file: the beginning of its two files' names.
            user: the name of the user, which is its common name.
            groups: the groups of the user, which are its organizations.

        Returns:
            The files of the certificate and of its private key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [*(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups)]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in _NAMES]
        made = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([*names, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        certificate = self.folder / f"{file}.crt"
        replace(certificate, made.public_bytes(Encoding.PEM))
        return certificate, self._write_key(self.folder / f"{file}.key", key)

    def key_pair(self, file: str) -> tuple[Path, Path]:
        """Make a key pair without a certificate, such as the one that signs the tokens of service accounts.

        Args:
            file: the beginning of its two files' names.

        Returns:
            The files of the public and of the private key.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        public = self.folder / f"{file}.pub"
        replace(public, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return public, self._write_key(self.folder / f"{file}.key", key)

    @staticmethod
    def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
        replace(path, key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()), private=True)
        return path


def write_kubeconfig(path: Path, server: str, ca: Path, user: dict[str, Any], namespace: str = "default") -> Path:
    """Write a kubeconfig file with one context. All certificates are inside it, so that it is valid wherever it is copied.

    Args:
        path: the file.
        server: the URL of the API server.
        ca: the file of the certificate authority.
        user: the user's credentials by the names of the format, such as `token`; the values of file names are read here.
        namespace: the namespace of requests that name none.

    Returns:
        The file.
    """
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": b64encode(ca.read_bytes()).decode()}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user", "namespace": namespace}}],
        "current-context": "test",
    }
    replace(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n", private=True)
    return path


def client_certificate(certificate: Path, key: Path) -> dict[str, str]:
    """The credentials of a client certificate for `write_kubeconfig`."""
    return {
        "client-certificate-data": b64encode(certificate.read_bytes()).decode(),
        "client-key-data": b64encode(key.read_bytes()).decode(),
    }
