"""A sink that is merged and kept for a while, a flow that archives what it has read there, and a reader that is slow: all at once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import deque
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from scribengin.connectors.contract import BatchId, BatchLimits, ConnectorContext, Decided
from scribengin.connectors.files import retention
from scribengin.connectors.files.maintenance import keep_folder
from scribengin.connectors.files.options import SINK, SOURCE
from scribengin.connectors.files.pieces import pieces_of, root_of
from scribengin.connectors.files.retention import HOLDS_S, ReadLease
from scribengin.connectors.files.sink import FilesSink
from scribengin.connectors.files.source import FilesSource
from scribengin.core.types import arrow_schema, parse_schema
from scribengin.local.source_cleanup import DoneFiles, _File, _Reader
from scribengin.state.channel_acks import QueryKey

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

SCHEMA = parse_schema("id BIGINT, ts TIMESTAMP")
PATH = "out/dt=*/hour=*/*.jsonl"
HOUR_US = 3_600_000_000
_BEHIND = 12
"""rounds; there are three in an hour of the rows, and two hours are kept"""


def sink_of(folder: Path) -> FilesSink:
    by = ({"time": "ts", "path": "dt=%Y-%m-%d/hour=%H"},)
    given = {"path": "out", "format": "json", "partition_by": by, "roll": {"size": 400, "every": 0.05}, "keep": 7200.0}
    sink = FilesSink(ConnectorContext("kept", folder, SINK.filled(given)))
    sink.prepare(owner="me", lineage="l1")
    return sink


def commit(sink: FilesSink, number: int, ids: range) -> None:
    """Rows of one hour, the next with each third Batch."""
    batch = BatchId("f", "q", "l1", number, 1)
    stream = sink.stream(batch, 0, uuid4().hex, SCHEMA)
    moments = pa.array([1_700_000_000_000_000 + number // 3 * HOUR_US] * len(ids), pa.timestamp("us", tz="UTC"))
    stream.write(pa.RecordBatch.from_arrays([pa.array(ids, pa.int64()), moments], schema=arrow_schema(SCHEMA)))
    sink.publish(Decided(batch, f"h{number}", (stream.close(),)))


def source_of(folder: Path, flow: str) -> FilesSource:
    return FilesSource(ConnectorContext("s", folder, SOURCE.filled({"path": PATH, "format": "json", "settle": 0.0}), SCHEMA, flow=flow))


def read(source: FilesSource, stream: Any) -> set[int]:
    return {row["id"] for block in source.read(stream) for row in source.decoder().rows(block).rows}


def ids_in(folder: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for path in folder.rglob("part-*.jsonl") for line in path.read_text().splitlines())


def run_all(folder: Path, enough: Callable[[SimpleNamespace], bool]) -> SimpleNamespace:
    """What came of it, once it is enough, or after two minutes; 40 rounds at least."""
    sink, top, over = sink_of(folder), folder / "out", threading.Event()
    found = SimpleNamespace(wrong=[], seen=set(), archived=set(), expired=0, merged=0)

    def again(what: Callable[[], object]) -> None:
        while not over.wait(0.002):
            try:
                what()
            except Exception as error:
                found.wrong.append(error)

    def keep() -> None:
        done = keep_folder(top, lambda: None)
        found.expired += done.expired
        found.merged += done.merged

    archiving = source_of(folder, "archiving")
    archive = SimpleNamespace(id="s", options={"when_done": "archive", "archive": "archive"})
    saying = _Reader(QueryKey("main", "q"), archive, folder / PATH, None, mine=True)  # type: ignore[arg-type]
    done, taker = DoneFiles(folder, [saying], found.wrong.append, "archiving"), archiving.reader()
    taker.restore([])

    def take_away() -> None:
        streams = [stream for stream in taker.split(BatchLimits(), final=True) if not stream.skipped]
        for stream in streams:
            found.archived |= read(archiving, stream)
            root = folder / root_of(stream)
            pieces = [piece for piece in pieces_of(stream) if int(piece.path.partition("hour=")[2][:2]) % 2]  # the others grow old
            done._files |= {root / piece.path: _File(root, piece, {0}) for piece in pieces}
        taker.let_go(streams)
        done._release(top, [*done._files])

    threads = [threading.Thread(target=again, args=(what,)) for what in (keep, take_away)]
    slow = source_of(folder, "slow")
    reader = slow.reader()
    reader.restore([])
    waiting: deque[list[Any]] = deque()
    give_up_s = time.monotonic() + 120
    for thread in threads:
        thread.start()
    try:
        for number in count():
            if number >= 40 and (enough(found) or time.monotonic() > give_up_s):
                break
            commit(sink, number, range(10 * number, 10 * number + 5))
            waiting.append([stream for stream in reader.split(BatchLimits(), final=True) if not stream.skipped])
            time.sleep(0.05)
            taken = waiting.popleft() if len(waiting) > _BEHIND else []  # the others want to have these files away meanwhile
            for stream in taken:
                found.seen |= read(slow, stream)
            reader.let_go(taken)
    except Exception as error:
        found.wrong.append(error)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    found.archive = ids_in(folder / "archive")
    return found


def test_merging_retention_and_archiving_leave_what_a_reader_has_taken(tmp_path: Path) -> None:
    found = run_all(tmp_path, lambda found: found.merged > 20 and found.expired > 2 and len(found.archived) > 20 and len(found.seen) > 20)
    assert found.wrong == []
    assert (found.merged > 20, found.expired > 2, len(found.archive) > 0, len(found.seen) > 20) == (True, True, True, True)
    assert len(set(found.archive)) == len(found.archive), "no row is archived twice"
    assert set(found.archive) <= found.archived, "nothing is archived that was not read"


def test_it_fails_where_leases_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scribengin.connectors.files.retention.leased", lambda *_, **__: False)
    monkeypatch.setattr("scribengin.local.source_cleanup.leased", lambda *_, **__: False)
    assert run_all(tmp_path, lambda found: found.wrong != []).wrong != []


def test_a_reader_that_was_killed_loses_what_it_held_when_its_time_is_over(tmp_path: Path) -> None:
    sink, top = sink_of(tmp_path), tmp_path / "out"
    commit(sink, 0, range(5))
    keep_folder(top, lambda: None, flush=True)
    (old,) = [str(path.relative_to(top)) for path in top.rglob("part-*")]
    ready = tmp_path / "ready"
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        lease = ReadLease(top, "another")
        lease.hold({old})
        ready.touch()
        time.sleep(60)
        os._exit(0)
    while not ready.exists():
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    commit(sink, 1, range(5, 6))
    commit(sink, 15, range(6, 7))
    for _ in range(3):
        keep_folder(top, lambda: None, flush=True)
    assert (top / old).exists(), "nobody can tell yet whether it is dead"
    keep_folder(top, lambda: None, now_s=lambda: time.time() + HOLDS_S + 1)
    assert not (top / old).exists()
    keep_folder(top, lambda: None, now_s=lambda: time.time() + HOLDS_S + 3601)
    assert retention._leases(top) == []
