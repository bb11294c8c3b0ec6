"""A tier without Spark for lives of the edge that are to be short: `python -m harness.faults.edge_reader FLOW STATE OUT`.

It uses the source `type: agents` as a Batch does: entries are logged before they are read, a result takes its name in one step, and what is
committed is reported to the channel. Killed anywhere, it goes on where it was.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scribengin.connectors.agents.channel import channel_of, report_committed
from scribengin.connectors.agents.contract import CommitReport, RunPositions
from scribengin.connectors.agents.options import SOURCE
from scribengin.connectors.catalog import open_source
from scribengin.connectors.contract import BatchLimits, ConnectorContext, SourceStream
from scribengin.core.errors import Unreachable
from scribengin.core.storage import replace
from scribengin.core.types import parse_schema, with_added
from scribengin.local.prepare import prepare
from scribengin.plan.agent_lanes import lanes_of

if TYPE_CHECKING:
    from scribengin.connectors.contract import SourceReader

_SCHEMA = "n BIGINT NOT NULL, status INT, page STRING, sum BIGINT, pad STRING"
_SOURCE = "access"
_WAIT_S = 0.2


class EdgeReader:
    """Reads the channel of a flow's source into files of JSON lines.

    Args:
        flow: The flow file.
        state: The state folder of the flow.
        out: Where the files go, `part-NNNNNN.jsonl`; the log of entries is in `entries` beside it.
    """

    def __init__(self, flow: Path, state: Path, out: Path) -> None:
        plan = prepare(flow, state=state).plan
        source = plan.flow.sources[_SOURCE]
        options = SOURCE.filled(source.options)
        self._channel = channel_of(options, plan.flow.folder.resolve(), _SOURCE)
        (self._name,) = next(iter(lanes_of(plan).values())).readers
        context = ConnectorContext(_SOURCE, plan.flow.folder.resolve(), options, with_added(parse_schema(_SCHEMA), options))
        self._source = open_source("agents", context)
        self._decoder = self._source.decoder()
        self._out, self._entries = out, out.with_name(f"{out.name}.entries")
        for folder in (self._out, self._entries):
            folder.mkdir(parents=True, exist_ok=True)
        self._committed = RunPositions()
        self._told: dict[str, dict[str, int]] = {}
        self._number = 0

    def run(self) -> None:
        """Read on until the process is killed."""
        while True:
            try:
                reader = self._restored()
                while True:
                    self._report()
                    if entry := reader.split(BatchLimits()):
                        replace(self._entries / f"{self._number:06d}.json", json.dumps([each.as_json() for each in entry]).encode())
                        self._carry_out(entry)
                    else:
                        time.sleep(_WAIT_S)
            except Unreachable as error:
                print(error, file=sys.stderr, flush=True)
                time.sleep(1.0)

    def _restored(self) -> SourceReader:
        reader: SourceReader = self._source.reader()
        entries = []
        self._number = 0
        for path in sorted(self._entries.glob("*.json")):
            entries.append([SourceStream.from_json(each) for each in json.loads(path.read_bytes())])
            self._carry_out(entries[-1])
        reader.restore(entries)
        return reader

    def _carry_out(self, entry: list[SourceStream]) -> None:
        """Write the rows of an entry, unless they are there, and count it as committed."""
        path = self._out / f"part-{self._number:06d}.jsonl"
        if not path.exists():
            rows: list[dict[str, Any]] = []
            for stream in entry:
                for block in () if stream.skipped else self._source.read(stream):
                    rows += self._decoder.rows(block).rows
            replace(path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))
        for stream in entry:
            self._committed.restore(stream.place)
        self._number += 1

    def _report(self) -> None:
        committed: dict[str, dict[str, int]] = {}
        for (agent, incarnation), number in self._committed.next.items():
            committed.setdefault(agent, {})[incarnation] = number
        if committed != self._told:
            report_committed(self._channel, _SOURCE, CommitReport(self._name, committed))
            self._told = committed


if __name__ == "__main__":
    EdgeReader(*map(Path, sys.argv[1:4])).run()
