"""What the tests of inputs share."""

from __future__ import annotations

import datetime
import ipaddress
import time
from typing import TYPE_CHECKING, Any

from scribengin.wire.protocol import LaneConfig

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scribengin.agent.inputs import RecordChunk, RecordInput

LIMIT_S = 60.0


def lane_of(kind: str, options: dict[str, Any] | None = None, **config: Any) -> LaneConfig:
    return LaneConfig("flow", "source", kind, options=options or {}, **config)


def until(true: Callable[[], Any], what: str = "") -> Any:
    """The first true value of a condition, within a generous time."""
    end = time.monotonic() + LIMIT_S
    while not (value := true()):
        assert time.monotonic() < end, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.01)
    return value


def records_of(chunk: RecordChunk) -> list[bytes]:
    """The records of a chunk; a lost or a too long one is its payload."""
    if chunk.kind != "records":
        return [chunk.payload]
    assert chunk.payload.endswith(chunk.mark)
    records = chunk.payload[: -len(chunk.mark)].split(chunk.mark)
    assert len(records) == chunk.count
    return records


def poll_until(opened: RecordInput, enough: Callable[[list[RecordChunk]], bool], most_bytes: int = 2**20) -> list[RecordChunk]:
    """Poll as a lane does, until the chunks are enough."""
    chunks: list[RecordChunk] = []
    end = time.monotonic() + LIMIT_S
    while not enough(chunks):
        assert time.monotonic() < end, f"only {chunks!r:.2000}; {opened.report()}"
        chunks += opened.poll(most_bytes)
        opened.wait(0.05)
    return chunks


def poll_records(opened: RecordInput, count: int) -> list[bytes]:
    """That many records, or more."""
    chunks = poll_until(opened, lambda chunks: sum(chunk.count for chunk in chunks) >= count)
    return [record for chunk in chunks for record in records_of(chunk)]


def poll_until_ended(opened: RecordInput, sender: threading.Thread) -> None:
    """Poll until a sender has ended: one over TLS waits for the end from this side, and there is one only while the input is polled."""
    until(lambda: opened.poll(2**20) is not None and not sender.is_alive(), "the end of the sender")


class Authority:
    """An authority that signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = name
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._pem(self._sign(name, self._key.public_key(), days=(-30, 30), authority=True)))

    def issue(self, name: str, *, days: tuple[int, int] = (-1, 30)) -> tuple[Path, Path]:
        """The files of a certificate and its key, valid from and to these days from now."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        certificate, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        certificate.write_bytes(self._pem(self._sign(name, key.public_key(), days=days, authority=False)))
        return certificate, key_file

    def _sign(self, name: str, key: Any, *, days: tuple[int, int], authority: bool) -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        named = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, self.name)]
        return (
            x509.CertificateBuilder()
            .subject_name(named[0])
            .issuer_name(named[1])
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + datetime.timedelta(days=days[0]))
            .not_valid_after(now + datetime.timedelta(days=days[1]))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @staticmethod
    def _pem(certificate: Any) -> bytes:
        from cryptography.hazmat.primitives import serialization

        return certificate.public_bytes(serialization.Encoding.PEM)


def splits(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """A stretch of bytes cut in two, at every byte."""
    for at in range(len(data) + 1):
        yield data[:at], data[at:]
