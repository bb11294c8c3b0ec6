"""TLS before a server that has none: the embedded PostgreSQL is built without."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_HANDSHAKE = b"\x16"
_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


class Authority:
    """Signs certificates. `path` is its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.path = folder / f"{name}.pem"
        made = self._made(self._name, self._key.public_key()).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.path.write_bytes(self._signed(made))

    def give(self, path: Path, *, address: str) -> None:
        """A certificate for that address, with its key, in one file."""
        own = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        made = self._made(_named(address), own.public_key()).add_extension(names, critical=False)
        plain = serialization.NoEncryption()
        path.write_bytes(
            self._signed(made) + own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
        )

    def _made(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        return builder.not_valid_before(now - dt.timedelta(hours=1)).not_valid_after(now + dt.timedelta(days=1))

    def _signed(self, made: x509.CertificateBuilder) -> bytes:
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class TlsDoor:
    """Listens on a port of its own, as a server does that has TLS (at once, or when it is asked as PostgreSQL is), and hands on to the
    server at `port`. A context manager."""

    def __init__(self, certificate: Path, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._server = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def __enter__(self) -> TlsDoor:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listening.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._hand_on, args=(client,), daemon=True).start()

    def _hand_on(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._server)) as server:
            begin = client.recv(8, socket.MSG_PEEK)
            if begin == _SSL_REQUEST:
                client.recv(8)
                client.sendall(b"S")
            if begin == _SSL_REQUEST or begin.startswith(_HANDSHAKE):
                client = self._context.wrap_socket(client, server_side=True)
            back = threading.Thread(target=_pump, args=(server, client), daemon=True)
            back.start()
            _pump(client, server)
            back.join()
            client.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
