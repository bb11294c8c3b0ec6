"""Topics of a source or a sink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scribengin.connectors.kafka.options import topics_pattern
from scribengin.connectors.location_contract import DataLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def topics_read(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """Those of a source, each by its name; for `pattern` all that match it."""
    at = _servers(options)
    for name in dict.fromkeys([*options.get("topics", ()), *options.get("assign", {})]):
        yield DataLocation("topic", at, str(name))
    if options.get("pattern"):
        yield DataLocation("topic", at, str(options["pattern"]), many=True)


def topics_written(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """That of a sink; for a template all topics that may come of it."""
    template = str(options.get("topic", ""))
    pattern = topics_pattern(template)
    many = pattern != re.escape(template)
    yield DataLocation("topic", _servers(options), pattern if many else template, many=many)


def _servers(options: Mapping[str, Any]) -> str:
    return ",".join(sorted(each.strip() for each in str(options.get("bootstrap", "")).split(",")))
