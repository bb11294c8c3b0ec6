"""The table of a source or a sink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from scribengin.connectors.addresses import split_url
from scribengin.connectors.location_contract import DataLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def table_of(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """The same whoever logs in."""
    url = split_url(str(options.get("server", "")))
    if url is not None:
        host = url.netloc.rpartition("@")[2].lower()
        port = "" if re.search(r":\d+$", host) else ":5432"
        yield DataLocation("table", f"{host}{port}/{url.path.strip('/')}", str(options.get("table", "")).removeprefix("public."))
