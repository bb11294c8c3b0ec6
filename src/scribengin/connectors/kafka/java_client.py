"""A sink's settings for the Java client, which Spark's own sink uses: names that differ from those of librdkafka."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.core.errors import SinkError
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAME = frozenset(
    {
        "batch.size",
        "client.dns.lookup",
        "client.id",
        "connections.max.idle.ms",
        "delivery.timeout.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
    }
)
"""settings with the same name and meaning in both clients"""
_RENAMED = {
    "message.timeout.ms": "delivery.timeout.ms",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "ssl.key.password": "ssl.key.password",
}
_PEM = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
    "ssl.key.pem": "ssl.keystore.key",
}
"""`.location` names a file, which is read in the driver: the Java client gets its text"""
_LOGIN = ("sasl.username", "sasl.password")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_MEMORY_BYTES = 64 * 2**20
"""for waiting messages, and so for the largest message"""


def java_settings(node: str, options: Mapping[str, Any], *, largest_bytes: int = 0) -> dict[str, str]:
    """The settings of the Java client's producer, with secrets in plain text. `options` are the sink's; `largest_bytes` is the size of the
    largest possible message. Raises SinkError, which contains no value, for a setting that the client does not have."""
    config = {name: value.reveal() if isinstance(value, Secret) else str(value) for name, value in options["config"].items()}
    memory_bytes = max(_MEMORY_BYTES, 2 * largest_bytes)
    found = {
        "bootstrap.servers": str(options["bootstrap"]),
        "client.id": "scribengin",
        "acks": "all",
        "enable.idempotence": "true",
        "compression.type": options["compression"],
        "linger.ms": str(round(options["linger"] * 1000)),
        "max.request.size": str(memory_bytes),
        "buffer.memory": str(memory_bytes),
    }
    for name, value in config.items():
        shown = options["config"][name]
        if isinstance(shown, Secret) and name not in {*_LOGIN, *_PEM, "ssl.key.password"}:
            raise _wrong(node, f"config has {name} as a secret, which the Java client's log would show", "write it in plain")
        if name in _SAME:
            found[name] = value
        elif name in _RENAMED:
            found[_RENAMED[name]] = value
        elif name in _PEM:
            found[_PEM[name]] = _pem(node, name, value, shown)
        elif name not in _LOGIN:
            known = sorted({*_SAME, *_RENAMED, *_PEM, *_LOGIN})
            raise _wrong(node, f'config has "{name}", which the Java client does not know', f"remove it, or use one of {', '.join(known)}")
    for store in ("truststore", "keystore"):
        if any(name.startswith(f"ssl.{store}.") for name in found):
            found[f"ssl.{store}.type"] = "PEM"
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    found["security.protocol"] = found.get("security.protocol", "PLAINTEXT").upper()
    if found["security.protocol"].startswith("SASL"):
        found["sasl.jaas.config"] = _login(node, found.get("sasl.mechanism", "GSSAPI"), config)
    return found


def _login(node: str, mechanism: str, config: Mapping[str, str]) -> str:
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise _wrong(node, f"config has sasl.mechanism {mechanism}", f"use one of {', '.join(_LOGIN_MODULES)}")
    missing = [name for name in _LOGIN if name not in config]
    if missing:
        raise _wrong(node, f"config has sasl.mechanism {mechanism} and no {missing[0]}", f"add {missing[0]}: ${{secret:env/NAME}}")
    # in this order: in its log, Spark's Kafka code masks everything between the first quote of the password and the last quote of all
    return f"{module} required password={_quoted(config['sasl.password'])} username={_quoted(config['sasl.username'])};"


def _quoted(text: str) -> str:
    """Quoted so that Java's StreamTokenizer reads it back."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _pem(node: str, name: str, value: str, shown: object) -> str:
    text = value
    if name.endswith(".location"):
        try:
            text = Path(value).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "no text"
            raise _wrong(node, f"config has {name}, whose file {shown} cannot be read as PEM: {reason}", "name a PEM file") from error
    if "-----BEGIN " not in text:
        raise _wrong(node, f"config has {name}, which is not in PEM format", "write it as PEM (-----BEGIN …)")
    if "PRIVATE KEY-----" in text and "BEGIN PRIVATE KEY" not in text and "BEGIN ENCRYPTED PRIVATE KEY" not in text:
        raise _wrong(node, f"config has {name}, a key that is not in PKCS#8", "convert it: openssl pkcs8 -topk8 -in OLD -out NEW")
    return text


def _wrong(node: str, what: str, remedy: str) -> SinkError:
    return SinkError(
        f'''sink "{node}": {what}; with delivery: at_least_once Spark's own sink writes, with the Java client''',
        remedy=f"{remedy}; or write delivery: exactly_once, which uses librdkafka",
        code="kafka-java-client",
        node=node,
    )
