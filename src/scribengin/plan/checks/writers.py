"""Rules on Spark writers and HTTP sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from scribengin.connectors.http.options import OURS, TEMPLATE
from scribengin.core.loopback import is_loopback
from scribengin.core.problems import did_you_mean
from scribengin.core.secret import Secret
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.groups import placements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink
    from scribengin.spec.places import Path

_IN_FOLDERS = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
"""writers of Spark's own that write files"""
_READS_ONLY = ("binaryfile", "rate", "rate-micro-batch", "socket")
_KEEPS_NOTHING = {"console": "use type: console", "memory": "use type: files", "noop": "take the sink out; this writer discards all rows"}


def spark_writers_can_write(subject: Subject) -> Iterator[Problem]:
    """A writer of files has one path; a format that Spark cannot write or does not store is an error; an option has one value."""
    for sink in subject.flow.sinks.values():
        if sink.type == "spark":
            for place, what, remedy in _spark_faults(sink.options):
                yield subject.problem_at_key("writer-options", path_of(sink, *place), f"{called(sink)} {what}", remedy)


def _spark_faults(options: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """(where below the sink, what is wrong, remedy)"""
    given, transaction = options.get("options") or {}, options.get("transaction") or {}
    format_ = str(options.get("format", "")).lower()
    if format_ in _IN_FOLDERS and not options.get("path") and "path" not in given:
        yield (), f"writes {format_} files, but has no path", "add path: out/kept"
    if options.get("path") and "path" in given:
        yield ("options", "path"), "has a path twice", "take one of the two out"
    if format_ in _KEEPS_NOTHING:
        yield ("format",), f"has format: {format_}, which does not store rows", _KEEPS_NOTHING[format_]
    if format_ in _READS_ONLY:
        yield ("format",), f"has format: {format_}, which Spark can only read", "use a format that Spark can write"
    names = set(transaction.values())
    if transaction and len(names) < 2:
        yield (
            ("transaction",),
            "uses the same option for `app` and `version` of its transaction",
            "write the names of two different options of the writer",
        )
    for name in sorted(names & given.keys()):
        yield ("options", name), f'gives the option "{name}", which its transaction sets for each Batch', "take it out of `options`"


_NESTED = ("ARRAY", "MAP", "STRUCT", "BINARY")
_SECRET_WORDS = ("key", "token", "secret", "password", "passwd", "signature", "sig")


def addresses_can_be_sent_to(subject: Subject) -> Iterator[Problem]:
    """An address has a scheme and a host, contains no secret, and has existing columns only after the host."""
    for sink in subject.flow.sinks.values():
        if sink.type != "http":
            continue
        for index, options in placements(subject.flow, sink):
            group = (sink.to or "").partition(".")[0]
            given = path_of(sink, "url") if index is None else ("groups", group, "members", index, "at")
            yield from _address_faults(subject, sink, str(options.get("url", "")), given)


def _address_faults(subject: Subject, sink: Sink, url: str, given: Path) -> Iterator[Problem]:
    """The faults of one address, which is written at `given`."""
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f'"{url}"' if "@" not in url else f"the value of `{given[-1]}`"
        message = f"{called(sink)} sends to {shown}, which is not an HTTP address"
        yield subject.problem("http-url", given, message, "write https://HOST/PATH")
        return
    if parts.username is not None or parts.password is not None:
        message = f"{called(sink)}: `{given[-1]}` contains a user or a password"
        remedy = 'take it out and write headers: {Authorization: "Basic ${secret:env/NAME}"}: a secret is never shown'
        yield subject.problem("secret-in-plain", given, message, remedy)
    for name, value in parse_qsl(parts.query):
        if value and not TEMPLATE.search(value) and any(word in name.lower().replace("-", "_").split("_") for word in _SECRET_WORDS):
            message = f'{called(sink)}: `{given[-1]}` contains "{name}", which looks like a secret'
            remedy = f'take it out and write query: {{{name}: "${{secret:env/NAME}}"}}: a secret is never shown'
            yield subject.problem("secret-in-plain", given, message, remedy)
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        secret = any(isinstance(value, Secret) for option in ("headers", "query") for value in (sink.options.get(option) or {}).values())
        what = "rows and secrets" if secret else "rows"
        message = f"{called(sink)} sends {what} over the network without encryption: others can read and change them"
        yield subject.problem("http-plain", given, message, "write https://, if the server supports it", severity="warning")
    yield from _columns_in(subject, sink, url, f"{parts.scheme}{parts.netloc}", given)


def requests_are_said_once(subject: Subject) -> Iterator[Problem]:
    """The client sets headers that control a request; `rows` and `bytes` apply only to requests of several rows."""
    for sink in subject.flow.sinks.values():
        if sink.type != "http":
            continue
        for name in sink.options.get("headers") or {}:
            key_header = str(sink.options.get("key_header", "Idempotency-Key"))
            if name.lower() in (*OURS, key_header.lower()):
                message = f'{called(sink)} gives the header "{name}", which is set for each request'
                remedy = "take it out; `compression` sets Content-Encoding" if name.lower() == "content-encoding" else "take it out"
                yield subject.problem_at_key("http-options", path_of(sink, "headers", name), message, remedy)
        for name in ("rows", "bytes"):
            if name in sink.options and sink.options.get("body", "object") == "object":
                message = f"{called(sink)} limits the {name} of a request, but sends each row in its own request"
                yield subject.problem_at_key("http-options", path_of(sink, name), message, "write body: array, or lines, or take it out")


def _columns_in(subject: Subject, sink: Sink, url: str, before: str, where: Path) -> Iterator[Problem]:
    names = dict.fromkeys(TEMPLATE.findall(url))
    columns = {column.name: column for column in subject.resolved.of(sink.id) or ()}
    if names and sink.options.get("body", "object") != "object":
        message = f"{called(sink)} has columns in its address, but sends several rows in a request"
        yield subject.problem("http-url", where, message, "write body: object, or take the columns out of `url`")
    if TEMPLATE.search(before):
        message = f"{called(sink)} has a column in the host of its address: rows could choose the server they are sent to"
        yield subject.problem("http-url", where, message, "write a fixed host; columns are allowed only in the path and the query")
    for name in names:
        if columns and name not in columns:
            message = f"{called(sink)} has {{{name}}} in its address, which is not a column of its input"
            yield subject.problem(
                "column-unknown", where, message, did_you_mean(name, list(columns)) or f"its columns are {', '.join(columns)}"
            )
        elif columns and (type_ := columns[name].type) is not None and type_.name in _NESTED:
            message = f"{called(sink)} has {{{name}}} in its address, a column of type {type_}"
            yield subject.problem("http-url", where, message, "convert it to text in a `select` step before the sink")


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (raises for an invalid port)
    except ValueError:
        return None
    return parts
