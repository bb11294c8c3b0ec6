"""TLS between agents and gateways, with certificates that are valid, expired, of others, or missing."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.agent import own_input
from tests.agent.edge_gateway import EdgeGateway, expected, lines, log_of, one_lane, running_agent, wait_for

if TYPE_CHECKING:
    from pathlib import Path

own_input.install()


class Authority:
    """Issues certificates into files of a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
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
        own = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        made = self._build(self.name, self.key, timedelta(days=1)).add_extension(x509.BasicConstraints(True, 0), critical=True)
        signed = made.add_extension(usage, critical=True).add_extension(own, critical=False).sign(self.key, hashes.SHA256())
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(signed.public_bytes(Encoding.PEM))

    def _build(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, left: timedelta) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        named = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(key.public_key())
        return named.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(days=9)).not_valid_after(now + left)

    def issue(self, name: str, *, left: timedelta = timedelta(days=1), address: str = "127.0.0.1") -> tuple[Path, Path]:
        """The files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        built = self._build(subject, key, left).add_extension(names, critical=False).add_extension(issuer, critical=False)
        certificate, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(built.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM))
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return certificate, key_file


def server_side(certificate: tuple[Path, Path], clients: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients)
    return context


def test_records_go_over_tls_to_a_gateway_whose_certificate_is_valid(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 100))
    certificate, key = authority.issue("agent")
    with EdgeGateway(one_lane(file), tls=server_side(authority.issue("gateway"), authority.file)) as gateway:
        with running_agent(tmp_path / "a", gateway.url, ca=authority.file, certificate=certificate, key=key):
            wait_for(lambda: len(gateway.all_records()) == 100, "the records")
        assert gateway.all_records() == expected(100)


@pytest.mark.parametrize("case", ["expired", "another authority", "another address"])
def test_a_certificate_that_is_not_valid_is_reported_and_nothing_is_sent(tmp_path: Path, case: str) -> None:
    authority = Authority(tmp_path)
    words = {
        "expired": "certificate has expired",
        "another authority": "unable to get local issuer",
        "another address": "IP address mismatch",
    }
    match case:
        case "expired":
            bad = authority.issue("gateway", left=timedelta(days=-1))
        case "another authority":
            bad = Authority(tmp_path, "other").issue("gateway")
        case _:
            bad = authority.issue("gateway", address="10.1.2.3")
    file = tmp_path / "in.log"
    file.write_bytes(lines(0, 100))
    with EdgeGateway(one_lane(file), tls=server_side(bad)) as gateway:
        with running_agent(tmp_path / "a", gateway.url, ca=authority.file) as agent:
            wait_for(lambda: log_of(agent).has(words[case]), f"the message: {log_of(agent).lines}")
            assert log_of(agent).has("Renew it, correct the address, or name its authority with --ca")
        assert gateway.config_requests == []
        assert gateway.requests == []


def test_a_gateway_whose_certificate_expires_while_records_flow_loses_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file, data = tmp_path / "in.log", tmp_path / "a"
    file.write_bytes(lines(0, 100))
    tls = server_side(authority.issue("gateway"))
    with EdgeGateway(one_lane(file), tls=tls) as gateway:
        with running_agent(data, gateway.url, ca=authority.file):
            wait_for(lambda: len(gateway.all_records()) == 100, "the records")
        tls.load_cert_chain(*authority.issue("gateway", left=timedelta(days=-1)))
        with file.open("ab") as more:
            more.write(lines(100, 100))
        with running_agent(data, gateway.url, ca=authority.file) as agent:  # with the saved configuration
            wait_for(lambda: log_of(agent).has("web.access") and log_of(agent).has("certificate has expired"), "the message")
            wait_for(lambda: agent.lanes and next(iter(agent.lanes.values())).report().read == 200, "reading")
            tls.load_cert_chain(*authority.issue("gateway"))
            wait_for(lambda: len(gateway.all_records()) == 200, "all records")
        assert gateway.all_records() == expected(200)
        assert len(gateway.records) == 1


def test_a_client_certificate_that_is_missing_or_expired_is_reported(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("agent", left=timedelta(days=-1))
    with EdgeGateway(tls=server_side(authority.issue("gateway"), authority.file)) as gateway:
        with running_agent(tmp_path / "a", gateway.url, ca=authority.file, certificate=certificate, key=key) as agent:
            wait_for(lambda: log_of(agent).has("certificate expired; renew the certificate of this agent"), "the message")
        with running_agent(tmp_path / "b", gateway.url, ca=authority.file) as agent:
            wait_for(lambda: log_of(agent).has("certificate required; renew the certificate of this agent"), "the message")
