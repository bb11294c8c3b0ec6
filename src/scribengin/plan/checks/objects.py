"""Rules on object stores: valid urls, one writer for each prefix, complete logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.delta import is_stored
from scribengin.connectors.delta.options import REACHED
from scribengin.connectors.objects.address import ENDPOINT_FAULT, below, url_fault
from scribengin.connectors.objects.login import FROM_FLOW
from scribengin.core.problems import suggestion
from scribengin.plan.checks.subject import Subject, called, path_of
from scribengin.plan.groups import placements
from scribengin.spec.model import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.core.problems import Problem
    from scribengin.spec.model import Sink

_TYPES = ("objects", "hdfs")


def urls_lead_somewhere(subject: Subject) -> Iterator[Problem]:
    """The url has a bucket and a prefix, the server a valid address, and neither contains a secret."""
    for node in _nodes(subject):
        option = _option(node)
        own = str(node.options.get(option, "")) if isinstance(node, Source) or node.to is None else ""
        fault = url_fault(own, node.type) if own else None  # what members say is looked at where they stand
        if fault is not None:
            yield subject.problem("object-url", path_of(node, option), f"{called(node)}: {option} {fault[0]}", fault[1])
        endpoint = node.options.get("endpoint")
        if endpoint is not None and (endpoint_fault := ENDPOINT_FAULT(str(endpoint))) is not None:
            message = f"{called(node)}: endpoint {endpoint_fault[0]}"
            yield subject.problem("object-url", path_of(node, "endpoint"), message, endpoint_fault[1])
        elif endpoint is not None and "@" in str(endpoint):
            remedy = 'take it out and write config: {secret_access_key: "${secret:env/NAME}"}: a secret is never shown'
            yield subject.problem("secret-in-plain", path_of(node, "endpoint"), f"{called(node)}: `endpoint` contains a login", remedy)
        for name in node.options.get("config") or {}:
            if name not in FROM_FLOW:
                message = f'{called(node)}: config has "{name}", which is not part of a login'
                remedy = suggestion(name, FROM_FLOW, "it can have")
                yield subject.problem("object-login", path_of(node, "config", name), message, remedy)


def folders_need_no_address(subject: Subject) -> Iterator[Problem]:
    """A table in a local folder needs no server address and no login."""
    for sink in (each for each in subject.flow.sinks.values() if each.type == "delta" and not _urls(subject, each)):
        for name in (option.name for option in REACHED if option.name in sink.options):
            message = f'{called(sink)} has "{name}", but its path {sink.options.get("path")} is a local folder'
            yield subject.problem_at_key("object-url", path_of(sink, name), message, "write path: s3://BUCKET/PREFIX, or take it out")


def one_writer_a_prefix(subject: Subject) -> Iterator[Problem]:
    """Two sinks never write below one prefix: neither could tell which objects are its own."""
    seen: list[tuple[str, str, Sink]] = []
    for sink in subject.flow.sinks.values():
        where = path_of(sink, _option(sink) if sink.to is None else "to")
        for url in _urls(subject, sink):
            endpoint = str(sink.options.get("endpoint"))
            for other_url, other_endpoint, other in seen:
                if endpoint == other_endpoint and (below(url).startswith(below(other_url)) or below(other_url).startswith(below(url))):
                    message = f'{called(sink)} writes to {url}, sink "{other.id}" to {other_url}'
                    yield subject.problem("object-two-writers", where, message, "give each its own prefix; none may be inside another")
                    break
            else:
                continue
            break
        seen += [(url, str(sink.options.get("endpoint")), sink) for url in _urls(subject, sink)]


def _option(node: Sink | Source) -> str:
    """The option with the location."""
    return "path" if node.type == "delta" else "url"


def _urls(subject: Subject, sink: Sink) -> list[str]:
    """The locations it writes to: its own url, or those of its group's members. A sink with errors may have none."""
    option = _option(sink)
    said = [str(options[option]) for _, options in placements(subject.flow, sink) if option in options]
    return [url for url in said if sink.type in _TYPES or (sink.type == "delta" and is_stored(url))]


def _nodes(subject: Subject) -> Iterator[Sink | Source]:
    yield from (source for source in subject.flow.sources.values() if source.type in _TYPES and "url" in source.options)
    yield from (sink for sink in subject.flow.sinks.values() if _urls(subject, sink))
