"""The flows that are struck, each small, with the input that goes in and a judge of what came out.

The judge never asks Scribengin: it computes the result from the input by plain Python, and reads the output as plain files.
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
"""how many records a driver that is struck folds together: few, so that it comes by"""
KINDS = ("tail", "coins", "filter", "aggregate", "join", "dedupe")
FORMATS = ("json", "csv", "text", "parquet")
DECISIVE = ("decide.after", "publish.record.after", "publish.renamed", "commit.before")
"""Where a kill leaves work to a recovery, and where a successor has decided already."""
STATEFUL = frozenset({"aggregate", "join", "dedupe"})
SLICE = timedelta(minutes=10)
"""of time that the records of one part spread over"""
_START = datetime(2026, 1, 1, tzinfo=UTC)
_LATE_FROM_PART, _LATE_BY, _LATE_EVERY = 3, timedelta(hours=5), 10
_FAR = timedelta(hours=1000)
CLOSER_PART = 5000
"""Parts that hold one record each, far in the future: they push the watermark over all others."""


@dataclass(frozen=True, slots=True)
class FlowKind:
    """What makes one kind of Query. Files of `rows` records each, `max_files` a Batch."""

    rows: int
    max_files: int
    steps: str
    last: str
    """the step that the sink's Python step reads"""
    columns: str
    """of that step"""
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
    """One flow in `folder`: kind of Query, output format, with or without `partition_by`. Its input grows while it lives."""

    folder: Path
    kind: str
    format: str
    partitioned: bool
    run: str = "run"
    parts: int = 0
    """input files that are there, closers aside"""
    closers: int = 0
    """how many of them are there"""
    batch_rows: int = 0
    """records of each Batch's input; 0: as few as its kind has"""

    @property
    def name(self) -> str:
        """The flow's."""
        return "struck"

    @property
    def flow(self) -> Path:
        """The flow file."""
        return self.folder / "flow.yaml"

    @property
    def out(self) -> Path:
        """Where the sinks' folders are."""
        return self.folder / "out"

    @property
    def state(self) -> Path:
        """Where its state lies."""
        return self.folder / ".scribengin"

    @property
    def python_path(self) -> tuple[str, ...]:
        """Folders in which its processes look for modules first."""
        return ()

    @property
    def sinks(self) -> tuple[str, ...]:
        """Their ids, which are their folders' names too."""
        return ("heads", "tails") if self.kind == "coins" else ("kept",)

    @property
    def places(self) -> tuple[str, ...]:
        """The folders below `out` in which the output stands."""
        return self.sinks

    @property
    def by_unit(self) -> bool:
        """True where tasks commit by themselves, each its unit: never over files."""
        return False

    @property
    def ordered(self) -> bool:
        """True where the records of a part come out in their order."""
        return self.kind not in STATEFUL

    @property
    def batch(self) -> int:
        """Records of each Batch's input, but for those that `dedupe` repeats."""
        return self._kind.rows * self._kind.max_files

    @property
    def has_records(self) -> bool:
        """True where the output holds the input's records, each with its checksum."""
        return self.kind != "aggregate"

    def write(self) -> None:
        """Flow file, steps, and the folders of its input, which is empty: see `grow`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.flow.write_text(self.text())
        line = "_as_line(row)" if self.partitioned else '{"line": _as_line(row)["line"]}'
        (self.folder / "steps.py").write_text(_STEPS.replace("LINE(row)", line))
        if self._kind.labels:
            self._add("labels", 0, [{"part": -1, "seq": 0, "label": "", "at": _START}])

    def grow(self, batches: int) -> None:
        """Lay down the input of so many Batches more. A part's labels come one part later than its records."""
        for part in range(self.parts, self.parts + batches * self._kind.max_files):
            self._add("data", part, self._part(part))
            if self._kind.labels and part:
                self._add("labels", part, self._labels(part - 1))
        self.parts += batches * self._kind.max_files

    def fill(self, records: int) -> None:
        """Lay down what the input lacks of so many records, in whole Batches."""
        missing = records - self.parts * self._kind.rows
        self.grow(max(0, -(-missing // self.batch)))

    def close(self) -> None:
        """Lay down what ends the input: records that push the watermark over all others."""
        self.closers = self._kind.closers
        for part in range(CLOSER_PART, CLOSER_PART + self.closers):
            self._add("data", part, self._part(part))
        if self._kind.labels:
            self._add("labels", self.parts, self._labels(self.parts - 1))
            self._add("labels", self.parts + 1, [{"part": -1, "seq": 1, "label": "", "at": _START + _FAR}])

    def text(self, *, edited: bool = False) -> str:
        """The flow file. `edited`: with a further step, which changes the plan and not the result."""
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
        """What is wrong with the outputs. `ledger` is the Query's `rows` as `run --json` tells them: its dead rows must be the input's late
        ones. `out`: where they are seen from this process, if elsewhere."""
        out = out or self.out
        torn: list[str] = []
        found = self._found(out, torn)
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
        """The rows against what the input gives."""
        if self.kind == "aggregate":
            return compare_rows(self._windows(), [_window(each.row) for each in found])
        findings = check_records(self._keys(), found, ordered=self.ordered)
        wrong = [each.row for each in found if self.kind == "join" and each.row.get("label") != _label(each.row["part"], each.row["seq"])]
        findings.invented += [RecordKey(row["run"], int(row["part"]), int(row["seq"])) for row in wrong]
        findings.reordered += self._out_of_order(found)
        return findings

    @property
    def late(self) -> int:
        """Rows that come when the watermark has passed them."""
        return len(self._late())

    def misjudged(self, letters: Iterable[bytes]) -> list[str]:
        """What is wrong with the dead letters, of which these are the records: each late row must have one."""
        found = Counter((row["part"], row["seq"]) for row in map(msgspec.json.decode, letters))
        late = Counter((row["part"], row["seq"]) for row in self._late())
        return [f"record {at} has {found[at]} letters, and was late {late[at]} times" for at in found | late if found[at] != late[at]]

    def _late(self) -> list[dict[str, Any]]:
        return [row for part in range(self.parts) for row in self._part(part) if _is_late(row)] if self.kind in STATEFUL else []

    @property
    def decisive(self) -> tuple[str, ...]:
        """Points where a kill leaves work to a recovery, and where a successor has decided already."""
        return DECISIVE

    def watch(self, out: Path) -> ReaderProcess:
        """Start a foreign reader of the output of one sink; `out` is where its folder is for this process."""
        return start_reader(out, self.format, records=self.has_records)

    def _input(self, folder: str) -> str:
        """What the flow file says of where a source is read, `max_files` files a Batch."""
        return f"type: files, format: json, max_files: {self._kind.max_files}, path: {folder}"

    def _output(self, sink: str) -> str:
        """What it says of where a sink writes."""
        by = ", partition_by: [bucket]" if self.partitioned else ""
        roll = ", roll: {size: 64KiB, every: 1s}" if self.kind == "rolled" else ""
        return f"type: files, path: out/{sink}, format: {self.format}{by}{roll}"

    def _found(self, out: Path, torn: list[str]) -> list[Found]:
        """Every row of every sink, in the order in which it is to be read."""
        return [Found(f"{at}/{each.group}", each.row) for at in self.places for each in read_output(out / at, self.format, torn=torn)]

    def _out_of_order(self, found: list[Found]) -> list[RecordKey]:  # noqa: ARG002
        """Records that stand before those of an earlier part, where parts have an order: files have none."""
        return []

    @property
    def _kind(self) -> FlowKind:
        return _sized(self.kind, self.batch_rows)

    @property
    def _line_function(self) -> str:
        return "tossed_line" if self.kind == "coins" else "as_line"

    def _part(self, part: int) -> list[dict[str, Any]]:
        """A file's rows, in order; for `dedupe` with those of the part before once more."""
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
        """Of a record that is not late."""
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
        """A file that is there at once, whole, as a driver that reads meanwhile must find it."""
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
