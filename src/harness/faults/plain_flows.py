"""The flows whose places only take rows: a server of HTTP, which may be struck, and writers of Spark.

Both are at least once, and judged as that: nothing is lost or invented, and only what may stand twice does. By HTTP that is a request that
came again, with its key and the same rows; of a writer, Batches that a strike has cut off from their mark. A writer that is told a
transaction is judged as exactly once.
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
"""of a Batch's input, about"""
_CONNECTIONS = 4
_UNITS = 8
"""of a Batch, at most: the last request of each may have few rows"""


@dataclass(kw_only=True)
class HttpFlow(ServedFlow):
    """Each sink has a path of its own."""

    server: KeyServer
    ends: int
    """how often what is under way may be cut off, by an end of the driver or of the server"""
    asleep: int
    """how many drivers may send what others send"""

    @property
    def decisive(self) -> tuple[str, ...]:
        """As into a keyed store: rows are sent behind the decision, and may be refused."""
        return KEYED_DECISIVE

    def watch_program(self, sink: str) -> Sequence[str]:
        """This module's."""
        return __name__, "http", str(self.server.folder), sink

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """As a server that honours keys has them."""
        return _once(self.server, sink)

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """… and what a key stands for is the same each time."""
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
        """How many requests of a sink may come with a key that came before."""
        of_a_batch = _most_of_a_batch(self) // self._rows + _UNITS
        return self.ends * _CONNECTIONS + self.asleep * of_a_batch

    @property
    def _rows(self) -> int:
        """Of a request, at most."""
        return self.batch // _REQUESTS

    def _output(self, sink: str) -> str:
        request = f"body: array, rows: {self._rows}, connections: {_CONNECTIONS}"
        return f'type: http, url: "{self.server.uri}/{sink}", {request}, delivery: at_least_once'


@dataclass(kw_only=True)
class WriterFlow(StoreFlow):
    """Into folders beside the flow. `again`: how many Batches of a sink may stand there twice, in whole or in part."""

    again: int

    @property
    def decisive(self) -> tuple[str, ...]:
        """As over files, but for renames."""
        return _DECISIVE

    @property
    def by_transaction(self) -> bool:
        """Whether its writer leaves out what it has."""
        return self.route == BY_TRANSACTION

    @property
    def python_path(self) -> tuple[str, ...]:
        """Where Spark finds the writer."""
        return (str(writers.FOLDER),) if self.by_transaction else ()

    def watch_program(self, sink: str) -> Sequence[str]:
        """This module's."""
        return __name__, "spark", str(self.out / sink), "once" if self.by_transaction else "twice"

    def all_of(self, sink: str) -> list[dict[str, Any]]:
        """The rows that stand there, some perhaps twice."""
        return _written(self.out / sink)

    def rows_of(self, sink: str) -> list[dict[str, Any]]:
        """With a transaction all of them; else each once."""
        rows = self.all_of(sink)
        return rows if self.by_transaction else list({_as_text(row): row for row in rows}.values())

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """… and no more stands there twice than may."""
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
    """Rows: one that closes several windows may have more than its input."""
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
    """Drivers that slept: each may hand over what its successor hands over too; and the last of these may sleep before its mark."""
    asleep = sum(aim.way in ("two", "zombie") for aim in aims)
    return asleep + 1 if asleep else 0


def _http_flow(life: Life, folder: Path, stack: ExitStack) -> HttpFlow:
    server = stack.enter_context(KeyServer(folder / "server"))
    # a kill goes before each recovery, and one more start may follow
    ends = len(life.aims) + sum(aim.way == "recovery" for aim in life.aims) + 1
    asleep = _series(life.aims)
    return HttpFlow(folder, life.kind, "json", life.partitioned, route=life.format, server=server, ends=ends, asleep=asleep)


def _writer_flow(life: Life, folder: Path, _stack: ExitStack) -> WriterFlow:
    # between the write and its mark; the kill before a recovery may be there, too
    cut_off = sum(aim.way == "recovery" or (aim.way in ("kill", "die") and aim.point == "publish.record.before") for aim in life.aims)
    return WriterFlow(folder, life.kind, "json", life.partitioned, route=life.format, again=cut_off + _series(life.aims))


def _places(decisive: tuple[str, ...], *, beside: tuple[str, ...] = (), served: bool) -> Places:
    """Where a copy of the state decides otherwise, such a place cannot tell; so none is made."""
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
    """See `look_until_told`. For `http` the first of `flags` names the sink."""
    if type_ == "http":
        look_until_told(lambda: _once(KeyServer(Path(folder)), flags[0]), (), flags[1:])
    else:
        look_until_told(lambda: _written(Path(folder)), (), flags)


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
