"""Checks of HTTP sinks: their addresses must be usable, and their options without contradictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from scribengin.connectors.http.options import OURS, TEMPLATE
from scribengin.core.net import is_loopback
from scribengin.core.problems import did_you_mean
from scribengin.core.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode, Keys
    from scribengin.core.problems import Problem

_NESTED = ("ARRAY", "MAP", "STRUCT", "BINARY")
_SECRET_WORDS = ("key", "token", "secret", "password", "passwd", "signature", "sig")


def addresses_can_be_sent_to(sink: CheckedNode) -> Iterator[Problem]:
    """An address must have a scheme and a host, must not contain a secret, and may name existing columns only after the host."""
    for given, options in sink.placements():
        yield from _address_faults(sink, str(options.get("url", "")), given)


def _address_faults(sink: CheckedNode, url: str, given: Keys) -> Iterator[Problem]:
    """The faults of one address, which is written at the key `given`."""
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        shown = f'"{url}"' if "@" not in url else f"the value of `{given[-1]}`"
        message = f"{sink.called} sends to {shown}, which is not an HTTP address"
        yield sink.problem("http-url", given, message, "write https://HOST/PATH")
        return
    if parts.username is not None or parts.password is not None:
        message = f"{sink.called}: `{given[-1]}` contains a user or a password"
        remedy = 'take it out and write headers: {Authorization: "Basic ${secret:env/NAME}"}: a secret is never shown'
        yield sink.problem("secret-in-plain", given, message, remedy)
    for name, value in parse_qsl(parts.query):
        if value and not TEMPLATE.search(value) and any(word in name.lower().replace("-", "_").split("_") for word in _SECRET_WORDS):
            message = f'{sink.called}: `{given[-1]}` contains "{name}", which looks like a secret'
            remedy = f'take it out and write query: {{{name}: "${{secret:env/NAME}}"}}: a secret is never shown'
            yield sink.problem("secret-in-plain", given, message, remedy)
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        secret = any(isinstance(value, Secret) for option in ("headers", "query") for value in (sink.options.get(option) or {}).values())
        what = "rows and secrets" if secret else "rows"
        message = f"{sink.called} sends {what} over the network without encryption: others can read and change them"
        yield sink.problem("http-plain", given, message, "write https://, if the server supports it", severity="warning")
    yield from _columns_in(sink, url, f"{parts.scheme}{parts.netloc}", given)


def requests_are_said_once(sink: CheckedNode) -> Iterator[Problem]:
    """Headers that control a request are set by the client only; `rows` and `bytes` apply only to requests with several rows."""
    for name in sink.options.get("headers") or {}:
        key_header = str(sink.options.get("key_header", "Idempotency-Key"))
        if name.lower() in (*OURS, key_header.lower()):
            message = f'{sink.called} gives the header "{name}", which is set for each request'
            remedy = "take it out; `compression` sets Content-Encoding" if name.lower() == "content-encoding" else "take it out"
            yield sink.problem_at_key("http-options", sink.path("headers", name), message, remedy)
    for name in ("rows", "bytes"):
        if name in sink.options and sink.options.get("body", "object") == "object":
            message = f"{sink.called} limits the {name} of a request, but sends each row in its own request"
            yield sink.problem_at_key("http-options", sink.path(name), message, "write body: array, or lines, or take it out")


def _columns_in(sink: CheckedNode, url: str, before: str, where: Keys) -> Iterator[Problem]:
    names = dict.fromkeys(TEMPLATE.findall(url))
    columns = {column.name: column for column in sink.columns or ()}
    if names and sink.options.get("body", "object") != "object":
        message = f"{sink.called} has columns in its address, but sends several rows in a request"
        yield sink.problem("http-url", where, message, "write body: object, or take the columns out of `url`")
    if TEMPLATE.search(before):
        message = f"{sink.called} has a column in the host of its address: rows could choose the server they are sent to"
        yield sink.problem("http-url", where, message, "write a fixed host; columns are allowed only in the path and the query")
    for name in names:
        if columns and name not in columns:
            message = f"{sink.called} has {{{name}}} in its address, which is not a column of its input"
            yield sink.problem(
                "column-unknown", where, message, did_you_mean(name, list(columns)) or f"its columns are {', '.join(columns)}"
            )
        elif columns and (type_ := columns[name].type) is not None and type_.name in _NESTED:
            message = f"{sink.called} has {{{name}}} in its address, a column of type {type_}"
            yield sink.problem("http-url", where, message, "convert it to text in a `select` step before the sink")


def _split(url: str) -> Any:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 (raises for an invalid port)
    except ValueError:
        return None
    return parts
