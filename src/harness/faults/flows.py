"""The flows that are struck, each small, with its input and a check of its output.

The check never uses Scribengin: it computes the expected result from the input in plain Python, and reads the output as plain files.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from harness.faults.reader import start_reader
from scribengin.testing.checker import Findings, Found, check_records, compare_rows, read_output
from scribengin.testing.records import SCHEMA, RecordKey, make_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from harness.faults.reader import ReaderProcess

FOLD_EVERY = 2
"""the number of records that a struck driver folds together; small, so that folding happens"""
KINDS = ("tail", "coins", "filter", "aggregate", "join", "dedupe")
FORMATS = ("json", "csv", "text", "parquet")
DECISIVE = ("decide.after", "publish.record.after", "publish.renamed", "commit.before")
"""points at which a kill leaves work for a recovery, and at which a successor has decided already"""
STATEFUL = frozenset({"aggregate", "join", "dedupe"})
SLICE = timedelta(minutes=10)
"""the time span of the records of one part"""
_START = datetime(2026, 1, 1, tzinfo=UTC)
_LATE_FROM_PART, _LATE_BY, _LATE_EVERY = 3, timedelta(hours=5), 10
_FAR = timedelta(hours=1000)
CLOSER_PART = 5000
"""the first part that contains a closer: a record far in the future, which moves the watermark past all others"""


@dataclass(frozen=True, slots=True)
class FlowKind:
    """The definition of one kind of query. Files have `rows` records each; a Batch reads `max_files` files."""

    rows: int
    max_files: int
    steps: str
    last: str
    """the step that the sink's Python step reads"""
    columns: str
    """the columns of that step"""
    watermark: str = ""
    labels: bool = False
    closers: int = 0


_TEXT = "line STRING"
STATELESS = FlowKind(30, 2, "", "records", f"{SCHEMA}, ts TIMESTAMP")
_BY_WINDOW = """SELECT unix_seconds(window(ts, '10 minutes').start) AS at, bucket, count(*) AS n, sum(seq) AS total
      FROM records GROUP BY window(ts, '10 minutes'), bucket"""
_KINDS = {
    "tail": STATELESS,
    "coins": STATELESS,
    "rolled": STATELESS,
    "filter": replace(STATELESS, steps="  some: {from: records, filter: seq % 3 <> 0}\n", last="some"),
    "aggregate": FlowKind(
        30,
        1,
        f"  windows:\n    from: records\n    sql: |\n      {_BY_WINDOW}\n",
        "windows",
        "at BIGINT, bucket STRING, n BIGINT, total BIGINT",
        "1m",
        closers=2,
    ),
    "join": FlowKind(
        30,
        1,
        "  labelled: {from: [records, labels], join: {key: [part, seq], time: {records: ts, labels: at}, within: 10m}}\n",
        "labelled",
        f"{SCHEMA}, ts TIMESTAMP, label STRING, at TIMESTAMP",
        "30m",
        labels=True,
        closers=2,
    ),
    "dedupe": FlowKind(
        30,
        1,
        "  once: {from: records, dedupe: {key: [part, seq], time: ts, within: 30m}}\n",
        "once",
        f"{SCHEMA}, ts TIMESTAMP",
        "30m",
        closers=2,
    ),
}
_STEPS = '''"""Steps that change nothing: what goes in must come out."""

import json
import random

from scribengin import record, to


def _as_line(row):
    plain = {name: value if value is None or isinstance(value, (int, str)) else value.isoformat() for name, value in row.items()}
    return {"line": json.dumps(plain, ensure_ascii=False), "bucket": row["bucket"]}


@record
def copied(row: dict) -> dict:
    return row


@record
def as_line(row: dict) -> dict:
    return LINE(row)


@record
def tossed(row: dict):
    return to("heads", row) if random.random() < 0.5 else to("tails", row)


@record
def tossed_line(row: dict):
    line = LINE(row)
    return to("heads", line) if random.random() < 0.5 else to("tails", line)
'''


@dataclass
class FaultFlow:
    """A flow in `folder`: its kind of query, the output format, with or without `partition_by`. Its input grows during its life."""

    folder: Path
    kind: str
    format: str
    partitioned: bool
    run: str = "run"
    parts: int = 0
    """number of existing input files, without closers"""
    closers: int = 0
    """number of existing closers"""
    batch_rows: int = 0
    """number of input records of each Batch; 0 for the small number of the flow's kind"""

    @property
    def name(self) -> str:
        """The name of the flow."""
        return "struck"

    @property
    def flow(self) -> Path:
        """The flow file."""
        return self.folder / "flow.yaml"

    @property
    def out(self) -> Path:
        """The folder with the folders of the sinks."""
        return self.folder / "out"

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / ".scribengin"

    @property
    def python_path(self) -> tuple[str, ...]:
        """Folders in which its processes look for modules first."""
        return ()

    @property
    def sinks(self) -> tuple[str, ...]:
        """The ids of the sinks, which are also the names of their folders."""
        return ("heads", "tails") if self.kind == "coins" else ("kept",)

    @property
    def places(self) -> tuple[str, ...]:
        """The folders below `out` that contain the output."""
        return self.sinks

    @property
    def by_unit(self) -> bool:
        """True if task outputs commit by themselves; never for files."""
        return False

    @property
    def ordered(self) -> bool:
        """True if the records of a part stay in order."""
        return self.kind not in STATEFUL

    @property
    def batch(self) -> int:
        """The number of input records of each Batch, without those that `dedupe` repeats."""
        return self._kind.rows * self._kind.max_files

    @property
    def has_records(self) -> bool:
        """True if the output contains the records of the input, each with its checksum."""
        return self.kind != "aggregate"

    def write(self) -> None:
        """Write the flow file, the steps, and the folders of the input, which are empty until `grow`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.flow.write_text(self.text())
        line = "_as_line(row)" if self.partitioned else '{"line": _as_line(row)["line"]}'
        (self.folder / "steps.py").write_text(_STEPS.replace("LINE(row)", line))
        if self._kind.labels:
            self._add("labels", 0, [{"part": -1, "seq": 0, "label": "", "at": _START}])

    def grow(self, batches: int) -> None:
        """Add the input of `batches` Batches. The labels of a part are added one part later than its records."""
        for part in range(self.parts, self.parts + batches * self._kind.max_files):
            self._add("data", part, self._part(part))
            if self._kind.labels and part:
                self._add("labels", part, self._labels(part - 1))
        self.parts += batches * self._kind.max_files

    def fill(self, records: int) -> None:
        """Add whole Batches until the input has at least `records` records."""
        missing = records - self.parts * self._kind.rows
        self.grow(max(0, -(-missing // self.batch)))

    def close(self) -> None:
        """Add the end of the input: records that move the watermark past all others."""
        self.closers = self._kind.closers
        for part in range(CLOSER_PART, CLOSER_PART + self.closers):
            self._add("data", part, self._part(part))
        if self._kind.labels:
            self._add("labels", self.parts, self._labels(self.parts - 1))
            self._add("labels", self.parts + 1, [{"part": -1, "seq": 1, "label": "", "at": _START + _FAR}])

    def text(self, *, edited: bool = False) -> str:
        """The text of the flow file. `edited` adds a step that changes the plan, but not the result."""
        kind = self._kind
        mark = f', watermark: "ts {kind.watermark}"' if kind.watermark else ""
        text = f"version: 1\nname: {self.name}\nsources:\n"
        text += f'  records: {{{self._input("data")}, schema: "{SCHEMA}, ts TIMESTAMP"{mark}}}\n'
        if kind.labels:
            schema = "part INT, seq BIGINT, label STRING, at TIMESTAMP"
            text += f'  labels: {{{self._input("labels")}, schema: "{schema}", watermark: "at 30m"}}\n'
        last = kind.last
        text += "steps:\n" + kind.steps
        if edited:
            text += '  again: {from: LAST, python: "steps:copied"}\n'.replace("LAST", last)
            last = "again"
        function = ("tossed" if self.kind == "coins" else "copied") if self.format != "text" else self._line_function
        lines = _TEXT + (", bucket STRING" if self.partitioned else "")
        schema = f', schema: "{lines}"' if self.format == "text" else ""
        python = f'{{function: "steps:{function}", branches: [heads, tails]}}' if self.kind == "coins" else f'"steps:{function}"'
        text += f"  done: {{from: {last}, python: {python}{schema}}}\nsinks:\n"
        for sink in self.sinks:
            branch = f".{sink}" if self.kind == "coins" else ""
            together = ", together: both" if self.kind == "coins" else ""
            text += f"  {sink}: {{from: done{branch}, {self._output(sink)}{together}}}\n"
        return text

    def judge(self, *, ledger: dict[str, Any] | None = None, out: Path | None = None) -> Findings:
        """Check the outputs.

        Args:
            ledger: The query's `rows` from `run --json`: its dead rows must be the late ones of the input. None: not checked.
            out: The folder of the outputs, if this process sees it elsewhere.
        """
        out = out or self.out
        torn: list[str] = []
        found = self._rows_at_sinks(out, torn)
        findings = self._compare(found)
        findings.torn += torn
        if ledger is not None:
            findings.imbalance += [
                f"the ledger says {ledger[name]} rows {name}, it must be {count}"
                for name, count in (("out", len(found)), ("late", 0), ("dead", self.late))
                if ledger[name] != count
            ]
        return findings

    def _compare(self, found: list[Found]) -> Findings:
        """Compare the rows with the result that the input must give."""
        if self.kind == "aggregate":
            return compare_rows(self._windows(), [_window(each.row) for each in found])
        findings = check_records(self._keys(), found, ordered=self.ordered)
        wrong = [each.row for each in found if self.kind == "join" and each.row.get("label") != _label(each.row["part"], each.row["seq"])]
        findings.invented += [RecordKey(row["run"], int(row["part"]), int(row["seq"])) for row in wrong]
        findings.reordered += self._out_of_order(found)
        return findings

    @property
    def late(self) -> int:
        """The number of rows that arrive after the watermark has passed them."""
        return len(self._late())

    def misjudged(self, letters: Iterable[bytes]) -> list[str]:
        """Check the dead letters, of which `letters` are the records: there must be one for each late row."""
        found = Counter((row["part"], row["seq"]) for row in map(msgspec.json.decode, letters))
        late = Counter((row["part"], row["seq"]) for row in self._late())
        return [f"record {at} has {found[at]} letters, and was late {late[at]} times" for at in found | late if found[at] != late[at]]

    def _late(self) -> list[dict[str, Any]]:
        return [row for part in range(self.parts) for row in self._part(part) if _is_late(row)] if self.kind in STATEFUL else []

    @property
    def decisive(self) -> tuple[str, ...]:
        """Points at which a kill leaves work for a recovery, and at which a successor has decided already."""
        return DECISIVE

    def watch(self, out: Path) -> ReaderProcess:
        """Start an independent reader of one sink's output; `out` is its folder as this process sees it."""
        return start_reader(out, self.format, records=self.has_records)

    def _input(self, folder: str) -> str:
        """The options of a source in the flow file; it reads `max_files` files a Batch."""
        return f"type: files, format: json, max_files: {self._kind.max_files}, path: {folder}"

    def _output(self, sink: str) -> str:
        """The options of a sink in the flow file."""
        by = ", partition_by: [bucket]" if self.partitioned else ""
        roll = ", roll: {size: 64KiB, every: 1s}" if self.kind == "rolled" else ""
        return f"type: files, path: out/{sink}, format: {self.format}{by}{roll}"

    def _rows_at_sinks(self, out: Path, torn: list[str]) -> list[Found]:
        """Every row of every sink, in reading order."""
        return [Found(f"{at}/{each.group}", each.row) for at in self.places for each in read_output(out / at, self.format, torn=torn)]

    def _out_of_order(self, found: list[Found]) -> list[RecordKey]:  # noqa: ARG002
        """Records that come before those of an earlier part, if parts have an order; never for files."""
        return []

    @property
    def _kind(self) -> FlowKind:
        return _sized(self.kind, self.batch_rows)

    @property
    def _line_function(self) -> str:
        return "tossed_line" if self.kind == "coins" else "as_line"

    def _part(self, part: int) -> list[dict[str, Any]]:
        """The rows of a part's file, in order; for `dedupe` also those of the part before."""
        if part >= CLOSER_PART:
            return [self._row(part, 0)]
        rows = [self._row(part, seq) for seq in range(self._kind.rows)]
        if self.kind == "dedupe" and part:
            rows += [row for row in (self._row(part - 1, seq) for seq in range(self._kind.rows)) if not _is_late(row)]
        return rows

    def _row(self, part: int, seq: int) -> dict[str, Any]:
        ts = self._time(part, seq)
        if _LATE_FROM_PART <= part < CLOSER_PART and seq % _LATE_EVERY == _LATE_EVERY - 1 and self.kind in STATEFUL:
            ts -= _LATE_BY
        return make_record(RecordKey(self.run, part, seq)) | {"ts": ts}

    def _time(self, part: int, seq: int) -> datetime:
        """The time of a record that is not late."""
        return _START + _FAR if part >= CLOSER_PART else _START + part * SLICE + seq * SLICE / self._kind.rows

    def _timely(self) -> Iterator[dict[str, Any]]:
        parts = (*range(self.parts), *range(CLOSER_PART, CLOSER_PART + self.closers))
        return (row for part in parts for row in self._part(part) if not _is_late(row))

    def _labels(self, part: int) -> list[dict[str, Any]]:
        """A label for every second record of a part."""
        return [
            {"part": part, "seq": seq, "label": _label(part, seq), "at": self._row(part, seq)["ts"] + timedelta(minutes=1)}
            for seq in range(0, self._kind.rows, 2)
        ]

    def _add(self, source: str, nth: int, rows: list[dict[str, Any]]) -> None:
        """Add a file atomically, because a driver may be reading."""
        folder = self.folder / source
        folder.mkdir(exist_ok=True)
        draft = folder / f".part-{nth:04}"
        draft.write_bytes(msgspec.json.Encoder().encode_lines(rows))
        draft.rename(folder / f"part-{nth:04}.jsonl")

    def _keys(self) -> set[RecordKey]:
        keys = {RecordKey(row["run"], row["part"], row["seq"]) for row in self._timely()}
        match self.kind:
            case "filter":
                return {key for key in keys if key.seq % 3}
            case "join":
                return {key for key in keys if key.seq % 2 == 0 and key.part < CLOSER_PART}
        return keys

    def _windows(self) -> list[dict[str, Any]]:
        rows: Counter[tuple[int, str]] = Counter()
        totals: Counter[tuple[int, str]] = Counter()
        for row in self._timely():
            at = int(row["ts"].timestamp()) // int(SLICE.total_seconds()) * int(SLICE.total_seconds())
            if row["part"] < CLOSER_PART:
                rows[at, row["bucket"] or ""] += 1
                totals[at, row["bucket"] or ""] += row["seq"]
        return [{"at": at, "bucket": bucket, "n": n, "total": totals[at, bucket]} for (at, bucket), n in rows.items()]


@cache
def _sized(kind: str, batch_rows: int) -> FlowKind:
    as_it_is = _KINDS[kind]
    return replace(as_it_is, rows=batch_rows // as_it_is.max_files) if batch_rows else as_it_is


def _window(row: Any) -> dict[str, Any]:
    return {"at": int(row["at"]), "bucket": row["bucket"] or "", "n": int(row["n"]), "total": int(row["total"])}


def _label(part: Any, seq: Any) -> str:
    return f"label {part}-{seq}"


def _is_late(row: dict[str, Any]) -> bool:
    return bool(row["ts"] < _START + (row["part"] - 1) * SLICE) if row["part"] < CLOSER_PART else False
