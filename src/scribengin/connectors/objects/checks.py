"""Checks of places in object stores and HDFS, also of Delta tables there: valid urls, one writer for each prefix, complete logins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scribengin.connectors.addresses import store_url_fault
from scribengin.connectors.objects.address import ENDPOINT_FAULT, FROM_FLOW, below
from scribengin.core.problems import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scribengin.connectors.check_contract import CheckedNode
    from scribengin.core.problems import Problem


def urls_lead_somewhere(node: CheckedNode) -> Iterator[Problem]:
    """Check that the url has a bucket and a prefix, that the server has a valid address, and that neither contains a secret."""
    form = node.declared.store_url
    if form is None:
        return
    option = form.option
    if option not in node.options if node.role == "source" else not urls_of(node):
        return
    own = str(node.options.get(option, "")) if node.group is None else ""
    fault = store_url_fault(own, form) if own else None  # the options of a group's members are checked where the members are written
    if fault is not None:
        yield node.problem("object-url", node.path(option), f"{node.called}: {option} {fault[0]}", fault[1])
    endpoint = node.options.get("endpoint")
    if endpoint is not None and (endpoint_fault := ENDPOINT_FAULT(str(endpoint))) is not None:
        yield node.problem("object-url", node.path("endpoint"), f"{node.called}: endpoint {endpoint_fault[0]}", endpoint_fault[1])
    elif endpoint is not None and "@" in str(endpoint):
        remedy = 'take it out and write config: {secret_access_key: "${secret:env/NAME}"}: a secret is never shown'
        yield node.problem("secret-in-plain", node.path("endpoint"), f"{node.called}: `endpoint` contains a login", remedy)
    for name in node.options.get("config") or {}:
        if name not in FROM_FLOW:
            message = f'{node.called}: config has "{name}", which is not part of a login'
            yield node.problem("object-login", node.path("config", name), message, suggestion(name, FROM_FLOW, "it can have"))


def one_writer_a_prefix(node: CheckedNode) -> Iterator[Problem]:
    """Check that no two sinks write below one prefix: neither could determine which objects are its own."""
    form = node.declared.store_url
    if form is None:
        return
    endpoint = str(node.options.get("endpoint"))
    seen = [(url, other) for other in node.earlier() if str(other.options.get("endpoint")) == endpoint for url in urls_of(other)]
    for url in urls_of(node):
        for other_url, other in seen:
            if below(url).startswith(below(other_url)) or below(other_url).startswith(below(url)):
                where = node.path(form.option if node.group is None else "to")
                message = f'{node.called} writes to {url}, sink "{other.id}" to {other_url}'
                yield node.problem("object-two-writers", where, message, "give each its own prefix; none may be inside another")
                return


def urls_of(sink: CheckedNode) -> list[str]:
    """The urls that a sink writes to: its own, or those of its group's members. A sink with errors, or with a local folder, may
    have none."""
    form = sink.declared.store_url
    if form is None:
        return []
    said = [str(options[form.option]) for _, options in sink.placements() if form.option in options]
    return [url for url in said if form.names_store(url)]
