"""The campaign over places that only take rows: a slice of `make faults ONLY=files-to-http`, and whether its judges see what is wrong."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.faults.cells import AIMS_OF
from harness.faults.lives import run_life
from harness.faults.outcomes import Aim, Life
from harness.faults.plain_flows import BY_HTTP, HttpFlow, WriterFlow
from harness.faults.store_flows import RowWatch
from harness.key_server import KeyServer, Request, once

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeyServer]:
    with KeyServer(tmp_path_factory.mktemp("http")) as started:
        yield started


def post(server: KeyServer, to: str, key: str | None, rows: list[dict[str, Any]]) -> int:
    headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
    request = urllib.request.Request(f"{server.uri}/{to}", json.dumps(rows, default=str).encode(), headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


# --- the server ---


def test_a_server_that_was_killed_has_each_request_that_it_has_answered(server: KeyServer) -> None:
    assert post(server, "a?x=1", "k1", [{"n": 1}]) == 200
    server.kill()
    with (server.folder / "requests.jsonl").open("a") as kept:
        kept.write('{"to":"a","key":"k2","ro')  # what a kill may leave
    assert [each.key for each in server.requests("a")] == ["k1"]
    server.start()
    assert post(server, "a", "k1", [{"n": 1}]) == 200
    assert post(server, "a", None, [{"n": 2}]) == 400
    assert server.requests("a") == [Request("a", "k1", [{"n": 1}])] * 2
    assert once(server.requests("a")) == [Request("a", "k1", [{"n": 1}])]


# --- the judges ---


def flow_of(server: KeyServer, folder: Path) -> tuple[HttpFlow, list[dict[str, Any]]]:
    """A flow whose sink's path nobody has used, and the rows that must come."""
    flow = HttpFlow(folder, "tail", "json", partitioned=False, route=BY_HTTP, server=server, ends=0, asleep=0)
    (server.folder / "requests.jsonl").write_text("")
    flow.write()
    flow.grow(1)
    return flow, [row for part in range(flow.parts) for row in flow._part(part)]


def test_what_came_again_with_its_key_is_no_double_but_not_without_a_reason(server: KeyServer, tmp_path: Path) -> None:
    flow, rows = flow_of(server, tmp_path)
    for _ in range(2):
        post(server, "kept", "k1", rows[:40])
    post(server, "kept", "k2", rows[40:])
    flow.ends = 1
    assert not flow.judge(ledger={"out": len(rows), "late": 0, "dead": 0})
    flow.ends = 0
    assert "1 requests to kept came again, it may be 0" in str(flow.judge())


@pytest.mark.parametrize(
    ("key", "rows", "kinds"),
    [
        ("k1", slice(1, None), {"lost", "torn"}),  # the key of others
        ("k2", slice(0, None), {"doubled"}),
        ("k2", slice(2, None), {"lost"}),
    ],
)
def test_the_judge_of_requests_sees_what_is_wrong(server: KeyServer, tmp_path: Path, key: str, rows: slice, kinds: set[str]) -> None:
    flow, all_rows = flow_of(server, tmp_path)
    flow.ends = 1
    post(server, "kept", "k1", all_rows[:1])
    post(server, "kept", key, all_rows[rows])
    assert set(flow.judge().kinds()) == kinds


@pytest.mark.parametrize(
    ("again", "files", "kinds"),
    [
        (1, (slice(None), slice(0, 50)), set()),
        (0, (slice(None), slice(0, 50)), {"imbalance"}),
        (1, (slice(1, None), slice(1, None)), {"lost"}),
        (1, (slice(None), slice(0, 50), slice(0, 50)), set()),
    ],
)
def test_of_a_writer_only_batches_that_were_cut_off_may_stand_twice(
    tmp_path: Path, again: int, files: tuple[slice, ...], kinds: set[str]
) -> None:
    flow = WriterFlow(tmp_path, "tail", "json", partitioned=False, route="files-to-spark", again=again)
    flow.write()
    flow.grow(1)
    rows = [row for part in range(flow.parts) for row in flow._part(part)]
    (flow.out / "kept").mkdir(parents=True)
    for nth, part in enumerate(files):
        pq.write_table(pa.Table.from_pylist(rows[part]), flow.out / "kept" / f"part-{nth}.parquet")
    assert set(flow.judge().kinds()) == kinds


def test_of_a_transaction_nothing_may_stand_twice_and_readers_tell(tmp_path: Path) -> None:
    flow = WriterFlow(tmp_path, "tail", "json", partitioned=False, route="files-to-spark-by-transaction", again=9)
    flow.write()
    flow.grow(1)
    rows = [row for part in range(flow.parts) for row in flow._part(part)]
    (flow.out / "kept").mkdir(parents=True)
    for name, part in (("a@0", rows), ("a@1", rows[:1])):
        (flow.out / "kept" / name).write_text("".join(json.dumps(row, default=str) + "\n" for row in part))
    assert set(flow.judge().kinds()) == {"doubled"}
    assert "stands there twice" in looked_at(flow)
    flow.route = "files-to-spark"
    assert looked_at(flow) == ""


def looked_at(flow: WriterFlow) -> str:
    """What a foreign reader says of it."""
    *_, flag = flow.watch_program("kept")
    watch = RowWatch(records=True, twice=flag == "twice")
    watch.read_all(flow.all_of("kept"))
    return " ".join(watch.sight.wrong)


# --- lives ---


def test_each_way_that_such_places_must_stand_is_wanted() -> None:
    assert {aim.way for aim in AIMS_OF[BY_HTTP]} == {"kill", "die", "recovery", "two", "zombie", "edit", "server"}
    assert {aim.way for aim in AIMS_OF["files-to-spark"]} == {"kill", "die", "recovery", "two", "zombie", "edit"}
    assert Aim("server", "offer.sent") in AIMS_OF[BY_HTTP]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "format", "aims"),
    [
        ("tail", BY_HTTP, ["kill@offer.sent"]),
        ("coins", BY_HTTP, ["die@stage.mid_write", "zombie@settle.before", "server@offer.sent"]),
        ("coins", "files-to-spark", ["kill@publish.record.before"]),
        ("coins", "files-to-spark-by-transaction", ["kill@publish.record.before", "two@decide.after"]),
    ],
)
def test_a_flow_into_such_a_place_loses_nothing_however_it_is_struck(tmp_path: Path, kind: str, format: str, aims: list[str]) -> None:
    outcome = run_life(Life(kind, format, False, tuple(Aim(*aim.split("@")) for aim in aims)), 1, tmp_path / "life", limit_s=400)
    assert outcome.verdict == "passed", outcome
    assert all(outcome.reached), outcome
    assert outcome.looks > 0
