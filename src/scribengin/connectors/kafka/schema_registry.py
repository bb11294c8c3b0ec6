"""A schema registry, accessed with the client of confluent-kafka. Each schema is requested once per process, by its id.

The registry is used while values are decoded. If it answers that an id is unknown or not Avro, the value becomes a dead letter. If it does
not answer, or rejects the login, the record is not at fault, and the task stops.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from scribengin.connectors.addresses import split_url
from scribengin.core.errors import EnvironmentFault, SinkError, SourceError, Unreachable
from scribengin.core.secret import Secret
from scribengin.formats.avro import UnknownSchemaError
from scribengin.formats.avro_schema import AvroSchemaError, WriterSchema, parse_writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.core.errors import ScribenginError


_NUMBERS = frozenset({"timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity", "cache.latest.ttl.sec"})
"""settings that the client requires as numbers; the flow's map contains texts"""
_NO_SCHEMA = 40403
"""the registry's own error code for an unknown id; a proxy or another server sends 404 without it"""
_NO_SUBJECT = (40401, 40402)
"""its error codes for an unknown subject, and for an unknown version of a subject"""
_NOT_TAKEN = (409, 422)
"""statuses for a schema that is incompatible with older ones of its subject, or that the registry considers invalid"""
_BUSY = frozenset({408, 425, 429})
_NETWORK = ("httpx", "httpcore", "confluent_kafka.")
"""modules whose errors mean that the registry did not answer, or that no login token could be obtained"""

_clients: dict[tuple[tuple[str, Any], ...], Any] = {}
_schemas: dict[tuple[str, int], WriterSchema] = {}
"""(registry, id) → schema, in this process; the schema of an id never changes"""


class SchemaRegistry:
    """A `Lookup` of schemas in a registry. Raises SourceError, or SinkError for a sink, for settings that the client rejects;
    EnvironmentFault if a package is missing.

    Args:
        node: The id of the node, for messages.
        options: The options of the node; used are `registry`, `registry_config` and `timeout`.
        role: `source` or `sink`: which error is raised, and for messages.
    """

    def __init__(self, node: str, options: Mapping[str, Any], role: str = "source") -> None:
        self._node = node
        self._called = f'{role} "{node}"'
        self._kind: type[ScribenginError] = SinkError if role == "sink" else SourceError
        self._url = str(options["registry"])
        self._timeout_s = float(options["timeout"])
        if not all(_is_address(url.strip()) for url in self._url.split(",")):
            raise self._kind(
                f"{self._called}: registry is not an address of a schema registry, or contains a login",
                remedy="write registry: https://HOST:PORT, and a login as registry_config: {basic.auth.user.info: ${secret:env/NAME}}",
                node=node,
            )
        self.client = self._client(options["registry_config"])
        """the SchemaRegistryClient of confluent-kafka, shared in this process"""

    def schema(self, schema_id: int) -> WriterSchema:
        """The schema with this id. Raises UnknownSchemaError for an error that makes a dead letter, Unreachable if the registry does not
        answer, SourceError for a rejected login or an address that is not a registry."""
        known = _schemas.get((self._url, schema_id))
        if known is None:
            try:
                given = self.client.get_schema(schema_id)
                texts = self._texts(given, set())
            except UnknownSchemaError:
                raise
            except Exception as error:
                raise self._fault(error, schema_id) from error
            if given.schema_type not in (None, "AVRO"):
                raise UnknownSchemaError(f"it was written by schema {schema_id}, which is {given.schema_type}, not Avro")
            try:
                known = parse_writer(texts[-1], tuple(texts[:-1]))
            except AvroSchemaError as error:
                raise UnknownSchemaError(f"it was written by schema {schema_id}, which cannot decode a record: {error}") from error
            _schemas[self._url, schema_id] = known
        return known

    def latest(self, subject: str) -> tuple[int, WriterSchema] | None:
        """The id and the newest schema of a subject; None if the subject does not exist. Sends a request each time. Raises as `schema`."""
        try:
            found = self.client.get_latest_version(subject)
        except Exception as error:
            if getattr(error, "http_status_code", None) == 404 and getattr(error, "error_code", None) in _NO_SUBJECT:
                return None
            raise self._fault(error) from error
        finally:
            self.client.clear_latest_caches()
        return found.schema_id, self.schema(found.schema_id)

    def register(self, subject: str, text: str) -> int:
        """Returns the id of an Avro schema (JSON) in a subject, and registers the schema if it is missing. Sends one request per process
        and schema. Raises as `schema`, and SourceError (SinkError) for a schema that the registry rejects as incompatible."""
        schema = import_module("confluent_kafka.schema_registry").Schema(text, "AVRO")
        try:
            return int(self.client.register_schema(subject, schema))
        except Exception as error:
            if getattr(error, "http_status_code", None) in _NOT_TAKEN:
                raise self._kind(
                    f"{self._called}: the schema registry at {self._url} rejected the schema for {subject}: {error}",
                    remedy="change the rows' columns so that they fit the older schemas, the subject's compatibility, or the subject",
                    code="registry-schema",
                    node=self._node,
                ) from error
            raise self._fault(error) from error

    def _fault(self, error: Exception, schema_id: int | None = None) -> ScribenginError | UnknownSchemaError:
        """Convert an error of the client to a Scribengin error."""
        status: int | None = getattr(error, "http_status_code", None)
        if status == 404 and getattr(error, "error_code", None) == _NO_SCHEMA:
            return UnknownSchemaError(f"it was written by schema {schema_id}, which {self._url} does not have")
        where = f"{self._called}: the schema registry at {self._url}"
        if status in (401, 403):
            return self._kind(
                f"{where} rejected the login of this user ({status})",
                remedy="check registry_config: basic.auth.user.info, ssl.certificate.location",
                code="registry-login",
                node=self._node,
            )
        told = str(error) or type(error).__name__
        refused = status is not None and status < 500 and status not in _BUSY
        if refused or (status is None and not type(error).__module__.startswith(_NETWORK)):
            return self._kind(
                f"{where} gave an answer that is not from a schema registry ({told})",
                remedy="check the address",
                code="registry",
                node=self._node,
            )
        return Unreachable(f"{where} does not answer within {self._timeout_s:g} s ({told})", remedy="check that it runs", node=self._node)

    def _texts(self, given: Any, seen: set[tuple[str, int]]) -> list[str]:
        """The texts of the schemas that `given` references, each after those that it references itself, and that of `given` last."""
        texts: list[str] = []
        for reference in given.references or ():
            key = (reference.subject, reference.version)
            if key not in seen:
                seen.add(key)
                texts += self._texts(self.client.get_version(reference.subject, reference.version, deleted=True).schema, seen)
        return [*texts, given.schema_str or ""]

    def _client(self, config: Mapping[str, Any]) -> Any:
        given = {name: value.reveal() if isinstance(value, Secret) else value for name, value in config.items()}
        # few retries here: a Batch that fails for this reason is retried anyway, and reports the reason
        own = {"url": self._url, "timeout": self._timeout_s, "max.retries": 2, "retries.wait.ms": 100, "retries.max.wait.ms": 1000}
        try:
            settings = own | {name: float(value) if name in _NUMBERS else value for name, value in given.items()}
            key = tuple(sorted(settings.items()))
            if key not in _clients:
                _clients[key] = _client_class()(settings)
        except (ValueError, TypeError, OSError) as error:
            raise self._kind(
                f"{self._called}: the schema registry client rejected its settings: {error}",
                remedy="correct registry_config",
                node=self._node,
            ) from error
        return _clients[key]


def _is_address(url: str) -> bool:
    parts = split_url(url)
    return parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _client_class() -> Any:
    try:
        return import_module("confluent_kafka.schema_registry").SchemaRegistryClient
    except ImportError as error:
        raise EnvironmentFault(
            f"registry: needs packages that are not installed: {error}",
            remedy="install them: pip install 'scribengin[schema-registry]'",
            code="registry-client",
        ) from error
