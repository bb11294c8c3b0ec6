"""Objects, or files of an HDFS, below an address."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from scribengin.connectors.addresses import split_url
from scribengin.connectors.location_contract import DataLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def objects_below(options: Mapping[str, Any]) -> Iterator[DataLocation]:
    """Those below the url, whoever logs in there."""
    url = split_url(str(options.get("url", "")))
    if url is not None:
        endpoint = split_url(str(options.get("endpoint") or ""))
        store = f"{endpoint.netloc}/" if endpoint is not None and endpoint.netloc else ""
        place = PurePosixPath("/", store + url.netloc.rpartition("@")[2], url.path.strip("/"))
        yield DataLocation("objects", f"{url.scheme}:/{place}", many=True)
