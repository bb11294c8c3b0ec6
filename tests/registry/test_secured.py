"""Logins by SASL and connections by TLS, with a ZooKeeper that is set up for both."""

from __future__ import annotations

import gc
import socket
import ssl
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

import pytest
from registry_benches import DEADLINE_S, LOGIN

from scribengin.core.errors import Unreachable
from scribengin.core.secret import Secret
from scribengin.embedded.jars import pyspark_jars
from scribengin.embedded.server import free_ports, java_command, start_server
from scribengin.registry.access import DigestLogin, RegistryAddress, SaslLogin, Tls
from scribengin.registry.contract import Create, Forbidden
from scribengin.registry.zookeeper import open_zookeeper

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_JARS = ("zookeeper-*.jar", "metrics-core-*.jar", "snappy-java-*.jar", "netty-*.jar", "commons-cli-*.jar", "commons-io-*.jar")


@dataclass(frozen=True)
class Secured:
    plain: str
    secure: str
    ca: Path
    other_ca: Path


def write_certificate(folder: Path, name: str) -> Path:
    """A self-signed one for 127.0.0.1: `<name>.pem`, and with its key `<name>.key.pem`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return folder / f"{name}.pem"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    ca, other_ca = write_certificate(folder, "server"), write_certificate(folder, "other")
    jaas = folder / "jaas.conf"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_ada="lovelace"; };\n')
    plain, secure = free_ports(2)
    settings = {
        "tickTime": 500,
        "dataDir": folder / "data",
        "clientPort": plain,
        "clientPortAddress": "127.0.0.1",
        "secureClientPort": secure,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": folder / "server.key.pem",
        "ssl.keyStore.type": "PEM",
        "ssl.clientAuth": "none",
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr",
    }
    config = folder / "zookeeper.cfg"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = java_command(
        "org.apache.zookeeper.server.ZooKeeperServerMain", pyspark_jars(*_JARS), [config], heap_mib=256, folder=folder / "run"
    )
    command.insert(1, f"-Djava.security.auth.login.config={jaas}")
    server = start_server("ZooKeeper", command, pid_file=folder / "run" / "pid.json", log=folder / "log")
    try:
        server.wait_ready(lambda: speaks(plain, None) and speaks(secure, ca), DEADLINE_S)
        yield Secured(f"127.0.0.1:{plain}", f"127.0.0.1:{secure}", ca, other_ca)
    finally:
        server.stop(20)


def speaks(port: int, ca: Path | None) -> bool:
    """Whether the server is reached there, over TLS where it has a certificate."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        if ca is not None:
            ssl.create_default_context(cafile=ca).wrap_socket(connection, server_hostname="127.0.0.1").close()
        return True
    return False


def sasl(secret: str) -> SaslLogin:
    return SaslLogin(secret=Secret(secret, "${secret:env/ADA}"))


def test_who_logs_in_by_sasl_owns_what_it_makes(secured: Secured) -> None:
    address = RegistryAddress((secured.plain,), "/sasl")
    with closing(open_zookeeper(address, login=sasl("ada:lovelace"), wait_s=DEADLINE_S)) as client:
        client.commit(Create("a/b", {"n": 1}))
        assert client.read("a/b") is not None
    with pytest.raises(Forbidden):
        open_zookeeper(address, login=LOGIN, wait_s=DEADLINE_S)


def test_a_wrong_password_by_sasl_is_told_at_once(secured: Secured) -> None:
    with pytest.raises(Forbidden, match="rejects this login") as caught:
        open_zookeeper(RegistryAddress((secured.plain,), "/sasl"), login=sasl("ada:byron"), wait_s=DEADLINE_S)
    assert "byron" not in str(caught.value)


def test_over_tls_with_a_certificate_that_is_trusted(secured: Secured) -> None:
    address = RegistryAddress((secured.secure,), "/tls")
    login = DigestLogin(Secret("masters:sesame", "${secret:env/MASTERS}"))
    with closing(open_zookeeper(address, login=login, tls=Tls(ca=secured.ca), wait_s=DEADLINE_S)) as client:
        client.commit(Create("a", {}))
        assert client.read("a") is not None


def test_a_server_whose_certificate_is_not_trusted_is_not_spoken_to(secured: Secured) -> None:
    with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        open_zookeeper(RegistryAddress((secured.secure,), "/tls"), login=LOGIN, tls=Tls(ca=secured.other_ca), wait_s=3)
    gc.collect()  # a socket that was left open would be told here


def test_a_server_that_has_another_name_than_its_certificate_is_not_spoken_to(secured: Secured) -> None:
    port = secured.secure.rpartition(":")[2]
    elsewhere = RegistryAddress((f"localhost:{port}",), "/tls")
    with pytest.raises(Unreachable, match="certificate is not valid for 'localhost'"):
        open_zookeeper(elsewhere, login=LOGIN, tls=Tls(ca=secured.ca), wait_s=3)
    with closing(open_zookeeper(elsewhere, login=LOGIN, tls=Tls(ca=secured.ca, check_host=False), wait_s=DEADLINE_S)):
        pass
    gc.collect()  # a socket that was left open would be told here
