"""The flows with a Delta table as sink: next to the flow, or in an object store that may be struck."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.faults.flows import DECISIVE, KINDS
from harness.faults.grounds import Ground, store_places
from harness.faults.store_flows import ServedFlow, StoreFlow, look_until_told
from harness.object_stores import address, options
from scribengin.connectors.delta.folder import FolderPlace
from scribengin.connectors.delta.stored import StorePlace
from scribengin.core.errors import Unreachable
from scribengin.core.faults import POINTS
from scribengin.embedded.objects import ObjectServer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import ExitStack

    from harness.faults.grounds import Places
    from harness.faults.outcomes import Life
    from scribengin.connectors.delta.places import TablePlace

MERGED = ("decide.after", "publish.record.before", "publish.record.after", "commit.before")
"""points for a table that is merged, in which no file is renamed"""
_FULL = ("source.logged", "stage.mid_write", "stage.closed", "decide.before", "publish.record.before", "recovery.before")


@dataclass(kw_only=True)
class DeltaFlow(StoreFlow):
    """A flow that creates its tables itself."""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for files if rows are appended."""
        return MERGED if self.key else DECISIVE

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, str(self.out / sink)

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The current rows of the table."""
        return read_delta(FolderPlace(sink, self.out / sink))

    def _output(self, sink: str) -> str:
        by = ", partition_by: [bucket]" if self.partitioned else ""
        key = f", mode: upsert, key: [{self.key}]" if self.key else ""
        return f"type: delta, {self._where(sink)}{by}{key}"

    def _where(self, sink: str) -> str:
        return f"path: out/{sink}"


@dataclass(kw_only=True)
class StoredDeltaFlow(DeltaFlow, ServedFlow):
    """A DeltaFlow with its tables in an existing bucket."""

    server: ObjectServer

    @property
    def decisive(self) -> tuple[str, ...]:
        """No file is renamed in an object store."""
        return MERGED

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, str(self.server.folder), sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The current rows of the table."""
        return read_delta(StorePlace(address(self.server, sink)))

    def _where(self, sink: str) -> str:
        given = options(self.server, sink)
        login = ", ".join(f"{name}: {value}" for name, value in given["config"].items())
        return f'path: "{given["url"]}", endpoint: "{given["endpoint"]}", config: {{{login}}}'


def read_delta(place: TablePlace) -> list[dict[str, Any]]:
    """The current rows of a table; empty if it does not exist. Raises the errors of the place, Unreachable if its store is unavailable."""
    table = place.open()
    if table is None:
        return []
    try:
        rows: list[dict[str, Any]] = table.to_pyarrow_dataset(filesystem=files_of(place)).to_table().to_pylist()
    except OSError as error:
        if isinstance(place, StorePlace):
            raise Unreachable(f"{place} cannot be read: {error}", remedy="look again") from error
        raise
    return rows


def files_of(place: TablePlace) -> Any:
    """A file system of Arrow's own: with the client's, which is called back from Arrow's threads, the process may crash at its end."""
    from pyarrow.fs import AwsStandardS3RetryStrategy, LocalFileSystem, S3FileSystem, SubTreeFileSystem

    if not isinstance(place, StorePlace):
        return SubTreeFileSystem(place.uri, LocalFileSystem())
    at = place.address.with_login()
    scheme, _, host = (at.endpoint or "https://").partition("://")
    login = {} if at.login is None else {"access_key": at.login.key, "secret_key": at.login.secret}
    waits: Any = {"connect_timeout": 5.0, "request_timeout": 60.0, "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=3)}
    files = S3FileSystem(**login, endpoint_override=host or None, scheme=scheme, region=at.region, **waits)
    return SubTreeFileSystem(place.uri.removeprefix("s3://"), files)


def _flow(life: Life, folder: Path, _stack: ExitStack) -> DeltaFlow:
    return DeltaFlow(folder, life.kind, "json", life.partitioned, route=life.format)


def _stored_flow(life: Life, folder: Path, stack: ExitStack) -> StoredDeltaFlow:
    server = stack.enter_context(ObjectServer(folder / "server"))
    return StoredDeltaFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server)


def _places(decisive: tuple[str, ...]) -> Places:
    """The points of a flow without a server, whose disk may be full."""
    lacks = tuple(point for point in POINTS if point == "publish.renamed" and point not in decisive)
    places = store_places(decisive, lacks=lacks)
    del places["server"]
    return places | {"enospc": _FULL}


def _stored(title: str, route: str, partitioned: tuple[bool, ...] = (False,)) -> Ground:
    return Ground(title, (route,), KINDS, MERGED, {route: store_places(MERGED)}, _stored_flow, partitioned)


DELTA = Ground("Delta tables", ("files-to-delta",), KINDS, DECISIVE, {"files-to-delta": _places(DECISIVE)}, _flow, (False, True))
DELTA_BY_KEY = Ground("Delta tables by key", ("files-to-delta-by-key",), KINDS, MERGED, {"files-to-delta-by-key": _places(MERGED)}, _flow)
DELTA_STORED = _stored("Delta tables in object stores", "files-to-delta-stored", (False, True))
DELTA_STORED_BY_KEY = _stored("Delta tables by key in object stores", "files-to-delta-stored-by-key")


def main(folder: str, *flags: str) -> None:
    """See `look_until_told`. `folder` is the table's; or that of a server, and then the first of `flags` names the sink."""
    if flags and flags[0] != "records":
        place: TablePlace = StorePlace(address(ObjectServer(Path(folder)), flags[0]))
    else:
        place = FolderPlace("", Path(folder))
    look_until_told(lambda: read_delta(place), Unreachable, flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
