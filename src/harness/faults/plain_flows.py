"""The flows into places that only accept rows: an HTTP server, which may be struck, and Spark writers.

Both are at-least-once, and checked as such: nothing is lost or invented, and only what may be duplicated is. For HTTP, that is a request
that was repeated with its key and the same rows; for a writer, a Batch whose mark was prevented by a strike. A writer with a transaction is
checked as exactly-once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from harness import writers
from harness.faults.flows import KINDS
from harness.faults.grounds import Ground, store_places
from harness.faults.keyed_flows import KEYED_DECISIVE
from harness.faults.store_flows import ServedFlow, StoreFlow, look_until_told
from harness.key_server import KeyServer, once
from scribengin.core.faults import OFFER_POINTS
from scribengin.testing.checker import visible_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import ExitStack

    from harness.faults.flows import FaultFlow
    from harness.faults.grounds import Places
    from harness.faults.outcomes import Aim, Life
    from scribengin.testing.checker import Findings

BY_HTTP = "files-to-http"
AT_LEAST_ONCE, BY_TRANSACTION = "files-to-spark", "files-to-spark-by-transaction"
_DECISIVE = ("decide.after", "publish.record.before", "publish.record.after", "commit.before")
_REQUESTS = 20
"""approximate number of requests in the input of a Batch"""
_CONNECTIONS = 4
_UNITS = 8
"""maximum number of task outputs of a Batch; the last request of each may have few rows"""


@dataclass(kw_only=True)
class HttpFlow(ServedFlow):
    """A flow with one path on the server for each sink."""

    server: KeyServer
    ends: int
    """how often requests in progress may be cut off by an end of the driver or the server"""
    asleep: int
    """how many suspended drivers may send what their successors send too"""

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for a keyed store: rows are sent after the decision, and may be refused."""
        return KEYED_DECISIVE

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, "http", str(self.server.folder), sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """The rows of a server that ignores repeated keys."""
        return _once(self.server, sink)

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """Check the outputs, and that all requests with the same key have the same rows."""
        findings = super().judge(ledger=ledger, out=out)
        for sink in self.sinks:
            requests = self.server.requests(sink)
            first = {each.key: each.rows for each in once(requests)}
            findings.torn += [f"key {each.key} came with other rows" for each in requests if each.rows != first[each.key]]
            again = len(requests) - len(first)
            if again > self.again:
                findings.imbalance.append(f"{again} requests to {sink} came again, it may be {self.again}")
        return findings

    @property
    def again(self) -> int:
        """The maximum number of a sink's requests whose key was received before."""
        of_a_batch = _most_of_a_batch(self) // self._rows + _UNITS
        return self.ends * _CONNECTIONS + self.asleep * of_a_batch

    @property
    def _rows(self) -> int:
        """The maximum number of rows in a request."""
        return self.batch // _REQUESTS

    def _output(self, sink: str) -> str:
        request = f"body: array, rows: {self._rows}, connections: {_CONNECTIONS}"
        return f'type: http, url: "{self.server.uri}/{sink}", {request}, delivery: at_least_once'


@dataclass(kw_only=True)
class WriterFlow(StoreFlow):
    """A flow into folders next to it. `again` is the number of a sink's Batches that may be duplicated, completely or partly."""

    again: int

    @property
    def decisive(self) -> tuple[str, ...]:
        """The same as for files, without renames."""
        return _DECISIVE

    @property
    def by_transaction(self) -> bool:
        """True if the writer skips writes that exist already."""
        return self.route == BY_TRANSACTION

    @property
    def python_path(self) -> tuple[str, ...]:
        """The folder in which Spark finds the writer."""
        return (str(writers.FOLDER),) if self.by_transaction else ()

    def watch_program(self, sink: str) -> Sequence[str]:
        """See StoreFlow: this module."""
        return __name__, "spark", str(self.out / sink), "once" if self.by_transaction else "twice"

    def all_of(self, sink: str) -> list[dict[str, Any]]:
        """All existing rows, including duplicates."""
        return _written(self.out / sink)

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """All rows if the writer has a transaction; else each row once."""
        rows = self.all_of(sink)
        return rows if self.by_transaction else list({_as_text(row): row for row in rows}.values())

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """Check the outputs, and that no more rows are duplicated than allowed."""
        findings = super().judge(ledger=ledger, out=out)
        for sink in self.sinks if not self.by_transaction else ():
            counts = Counter(map(_as_text, self.all_of(sink)))
            twice, most = sum(count > 1 for count in counts.values()), self.again * _most_of_a_batch(self)
            if twice > most:
                findings.imbalance.append(f"{twice} rows stand twice in {sink}, it may be {most}")
        return findings

    def _output(self, sink: str) -> str:
        if self.by_transaction:
            return f"type: spark, format: shelf, path: out/{sink}, transaction: {{app: by, version: turn}}"
        return f"type: spark, format: parquet, path: out/{sink}, delivery: at_least_once"


def _most_of_a_batch(flow: FaultFlow) -> int:
    """The maximum number of rows of a Batch: one that closes several windows may have more rows than its input."""
    return 2 * flow.batch


def _once(server: KeyServer, sink: str) -> list[dict[str, Any]]:
    return [row for request in once(server.requests(sink)) for row in request.rows]


def _written(folder: Path) -> list[dict[str, Any]]:
    return [row for path in visible_files(folder) for row in _rows_of(path)]


def _rows_of(path: Path) -> Iterable[dict[str, Any]]:
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
        return rows
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def _as_text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))


def _series(aims: Iterable[Aim]) -> int:
    """The maximum number of suspended drivers in a series: each may write what its successor writes too, and the last one may be suspended
    before its mark."""
    asleep = sum(aim.way in ("two", "zombie") for aim in aims)
    return asleep + 1 if asleep else 0


def _http_flow(life: Life, folder: Path, stack: ExitStack) -> HttpFlow:
    server = stack.enter_context(KeyServer(folder / "server"))
    # a kill precedes each recovery, and one more start may follow
    ends = len(life.aims) + sum(aim.way == "recovery" for aim in life.aims) + 1
    asleep = _series(life.aims)
    return HttpFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server, ends=ends, asleep=asleep)


def _writer_flow(life: Life, folder: Path, _stack: ExitStack) -> WriterFlow:
    # between a write and its mark; the kill before a recovery may be there too
    cut_off = sum(aim.way == "recovery" or (aim.way in ("kill", "die") and aim.point == "publish.record.before") for aim in life.aims)
    return WriterFlow(folder, life.kind, "json", life.partitioned, route=life.format, again=cut_off + _series(life.aims))


def _places(decisive: tuple[str, ...], *, beside: tuple[str, ...] = (), served: bool) -> Places:
    """The points; without copies of the state, because such a place cannot detect that a copy decides differently."""
    places = store_places(decisive, beside=beside)
    return {way: points for way, points in places.items() if way != "moved" and (served or way != "server")}


HTTP = Ground("HTTP", (BY_HTTP,), KINDS, KEYED_DECISIVE, {BY_HTTP: _places(KEYED_DECISIVE, beside=OFFER_POINTS, served=True)}, _http_flow)
SPARK = Ground(
    "writers of Spark",
    (AT_LEAST_ONCE, BY_TRANSACTION),
    KINDS,
    _DECISIVE,
    dict.fromkeys((AT_LEAST_ONCE, BY_TRANSACTION), _places(_DECISIVE, served=False)),
    _writer_flow,
)


def main(type_: str, folder: str, *flags: str) -> None:
    """See `look_until_told`. For `http`, the first of `flags` is the sink."""
    if type_ == "http":
        look_until_told(lambda: _once(KeyServer(Path(folder)), flags[0]), (), flags[1:])
    else:
        look_until_told(lambda: _written(Path(folder)), (), flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
