"""A table in an object store, accessed in two ways: by Scribengin's `Store`, and by the client's own store.

<path>/_delta_log/…                                the table's log, which readers use
<path>/part-<batch>-<unit>-<n>-<attempt>.parquet   output of tasks; it is in the table once the log names it
<path>/_scribengin/owners/…                        the lineages that write here; only the last one may write. See `objects.manifests`
<path>/_scribengin/<lineage>/generation.json       the number of its commits in the log; see `commits`
<path>/_scribengin/<lineage>/batches/…             this sink's commit records, put-if-absent
<path>/_scribengin/<lineage>/staged/<batch>/…      keys that tasks were about to write
<path>/_scribengin/<lineage>/published/<batch>     `mode: upsert`: this Batch and all before it are merged
<path>/_scribengin/rows/part-…                     `mode: upsert`: rows to be merged
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scribengin.connectors.delta.client import client
from scribengin.connectors.delta.places import TablePlace
from scribengin.connectors.files.maintenance import OLD_S
from scribengin.connectors.objects.audit import read_again
from scribengin.connectors.objects.manifests import INTERNAL, Manifests, lineages
from scribengin.connectors.objects.orphans import OURS
from scribengin.connectors.objects.s3 import CONNECT_S, REQUEST_S, RETRIES, RETRY_S, S3Store, Uploads, fault_of
from scribengin.core.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import deltalake

    from scribengin.connectors.objects.address import ObjectsAddress
    from scribengin.core.errors import ScribenginError
    from scribengin.core.numbered_log import NumberedLog
    from scribengin.core.store import Store

ROWS = f"{INTERNAL}/rows"
_ANSI = re.compile(r"\x1b\[\d+m|↳")
_OF_STORE = ("Server returned", "Error performing", "<Code>")
"""text in errors of the client that came from the store"""


@dataclass(frozen=True, slots=True)
class StoredLineage:
    """A lineage of a table in a store. See TableWriter."""

    store: Store
    name: str

    @property
    def path(self) -> Path:
        """See TableWriter."""
        return Path(INTERNAL, self.name)

    @property
    def commits(self) -> NumberedLog:
        """See TableWriter. The last record may name the lineage that has taken over."""
        return Manifests(self.store, self.name).commits

    def read_mark(self) -> int:
        """The newest merged Batch; -1 if none is known."""
        return max((int(name) for name in self._marks()), default=-1)

    def write_mark(self, number: int) -> None:
        """Record that this Batch is merged."""
        self.store.put(f"{self._top}/{number:010d}", b"")
        self.store.delete(*(f"{self._top}/{name}" for name in self._marks() if int(name) < number))

    @property
    def _top(self) -> str:
        return f"{INTERNAL}/{self.name}/published"

    def _marks(self) -> list[str]:
        return [entry.key.rpartition("/")[2] for entry in self.store.list(self._top)]


class StorePlace(TablePlace):
    """A table in an object store, see TablePlace. Picklable: its address includes the resolved login."""

    def __init__(self, address: ObjectsAddress) -> None:
        self.node = address.node
        self.address = address
        self._opened: Store | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def uri(self) -> str:
        """See TablePlace."""
        return self.address.url.rstrip("/")

    @property
    def options(self) -> dict[str, str]:
        """See TablePlace."""
        self.address = self.address.with_login()
        return client_options(self.address)

    def open(self) -> deltalake.DeltaTable | None:
        """See TablePlace. The client's own check for a table is not used: while a store does not answer it blocks all threads, also the one
        that renews the lease."""
        library = client()
        try:
            table: deltalake.DeltaTable = library.DeltaTable(self.uri, storage_options=self.options)
        except library.exceptions.TableNotFoundError:
            return None
        except (library.exceptions.DeltaError, OSError, ValueError) as error:
            raise self.fault(error, "cannot be read as a Delta table") from error
        return table

    @property
    def store(self) -> Store:
        """The store, with keys relative to the table."""
        opened = self._opened
        if opened is None:
            opened = self._opened = self.address.open()
        return opened

    def fault(self, error: Exception, what: str) -> ScribenginError:
        """See TablePlace. Errors of the store itself have the same texts as in its sinks."""
        text = " ".join(_ANSI.sub("", str(error)).split())
        if any(word in text for word in _OF_STORE):
            # the last cause is after the list of requests; the store's answer is recognised by its tags
            return fault_of(self.address, text if "<Code>" in text else text.rpartition("HTTP error")[2].strip(), what)
        said = f'sink "{self.node}": the table {self} {what}: {text}'
        return SinkError(said, remedy="correct the table or the flow", code="delta", node=self.node)

    def lineages(self) -> Sequence[StoredLineage]:
        """See TablePlace."""
        return [StoredLineage(self.store, name) for name in lineages(self.store)]

    def read(self, name: str) -> bytes | None:
        """See TablePlace."""
        return self.store.get(name)

    def put(self, name: str, data: bytes) -> bool:
        """See TablePlace."""
        return self.store.put(name, data)

    def made(self) -> None:
        """Does nothing: a store's confirmed writes are durable."""

    def committed(self, *, files: bool) -> None:
        """Does nothing, like `made`."""

    def log(self) -> Iterator[tuple[int, bytes]]:
        """See TablePlace."""
        for entry in self.store.list("_delta_log"):
            version, _, kind = entry.key.rpartition("/")[2].partition(".")
            if kind == "json" and version.isdigit():
                yield int(version), self.store.get(entry.key) or b""

    def read_again(self, file: Mapping[str, Any]) -> tuple[int, list[str]]:
        """See TablePlace."""
        rows, wrong = read_again(self.store, file)
        return rows, [wrong] if wrong else []

    def waiting(self) -> Collection[str]:
        """The keys that tasks of the newest lineage announced before they wrote. Keys that other lineages announced will not be used by any
        Batch."""
        return {key for each in self.lineages()[-1:] for _, key in Manifests(self.store, each.name).notes.staged()}

    def strays(self) -> Iterator[str]:
        """See TablePlace: rows that are merged, or never will be; and incomplete uploads, of which `delete` removes our own."""
        before_s = time.time() - OLD_S
        found = [entry.key for entry in self.store.list(ROWS) if entry.modified_s < before_s]
        if isinstance(self.store, S3Store) and self.store.login is not None:
            found += [key for key, _ in Uploads(self.store).unfinished()]
        waiting = self.waiting()
        yield from (key for key in found if key not in waiting)

    def delete(self, name: str) -> int | None:
        """See TablePlace."""
        there = self.store.head(name)
        if there is not None:
            self.store.delete(name)
            return there.size
        if OURS.match(name.rpartition("/")[2]):
            # unfinished uploads may have left parts; parts of other writers cannot be distinguished from uploads in progress
            self.store.abandon(name)
        return None


def client_options(address: ObjectsAddress) -> dict[str, str]:
    """The client's options for the store, equivalent to those of Scribengin's own. Raises the errors of `ObjectsAddress.authorities`."""
    given = {
        "aws_region": address.region,
        "aws_virtual_hosted_style_request": "false" if address.path_style else "true",
        # only one writer can create a version of the log, so no lock table is needed
        "aws_conditional_put": "etag",
        "connect_timeout": f"{CONNECT_S}s",
        "timeout": f"{REQUEST_S}s",
        "max_retries": str(RETRIES),
        "retry_timeout": f"{RETRY_S}s",
    }
    if address.server is not None:
        given |= {"aws_endpoint": address.server, "allow_http": str(address.server.startswith("http://")).lower()}
    login = address.login
    if login is not None:
        given |= {"aws_access_key_id": login.key, "aws_secret_access_key": login.secret}
        given |= {"aws_session_token": login.token} if login.token else {}
    if address.ca_file is not None:
        host = urlsplit(address.server).hostname if address.server is not None else "amazonaws.com"
        # the client accepts certificate authorities only together with a proxy, for all hosts: this proxy is never used
        given |= {"proxy_ca_certificate": address.authorities(), "proxy_url": "http://127.0.0.1:9", "proxy_excludes": host or ""}
    return given
