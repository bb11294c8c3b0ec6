"""A flow's state in a bucket: what stands in for folders, renames and the fence, and flows that are killed there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import pytest

from harness.object_stores import or_skipped
from harness.remote_places import at_server
from scribengin.connectors.objects import s3
from scribengin.connectors.objects.path import S3Path
from scribengin.core import faults, storage
from scribengin.core.errors import FencedError, ScribenginError, SinkError, StateError
from scribengin.core.process import within
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease

if TYPE_CHECKING:
    from pathlib import Path

    from scribengin.embedded.objects import ObjectServer
    from tests.conftest import FlowFolder


AWAY_S = 20.0
"""how long a store is unavailable: a run that gave up would have ended by then"""


@pytest.fixture
def root(server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> S3Path:
    return at_server(server, prefix, monkeypatch.setenv)


def uploads(path: S3Path) -> list[str]:
    return [key for key, _ in path._bucket.uploads.unfinished(f"{path.key}/")]


# --- records ---


@pytest.mark.parametrize("record", ["put", "put_over"])
def test_an_upload_whose_driver_looked_before_it_was_overtaken_is_aborted(
    root: S3Path, monkeypatch: pytest.MonkeyPatch, record: str
) -> None:
    drafts = root / "terms" / "1.open"
    drafts.make()
    root.guard(drafts, "a newer driver holds it")
    check = S3Path._check

    def overtaken(self: S3Path, guard: Any) -> None:
        check(self, guard)
        monkeypatch.setattr(S3Path, "_check", check)
        assert uploads(root) == [(root / "record").key], "it is begun before the look"
        drafts.remove(all_in_it=True)
        root.settle()

    monkeypatch.setattr(S3Path, "_check", overtaken)
    try:
        with pytest.raises(FencedError, match="a newer driver holds it"):
            getattr(root / "record", record)(b"late")
    finally:
        root.guard(None)
    assert (root / "record").get() is None
    assert uploads(root) == []


def test_a_record_that_is_there_is_neither_written_over_nor_left_as_an_upload(root: S3Path) -> None:
    drafts = root / "terms" / "1.open"
    drafts.make()
    root.guard(drafts)
    try:
        assert [(root / "record").put(data) for data in (b"one", b"two")] == [True, False]
        (root / "record").put_over(b"three")
    finally:
        root.guard(None)
    assert ((root / "record").get(), uploads(root)) == (b"three", [])


@pytest.mark.parametrize("guarded", [False, True])
def test_a_record_whose_answer_was_lost_is_known_as_ours(root: S3Path, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    drafts = root / "terms" / "1.open"
    drafts.make()
    send = s3.SignedRequests._send
    lost = []

    def deaf(self: s3.SignedRequests, method: str, path: str, *given: Any) -> s3.StoreResponse:
        answer = send(self, method, path, *given)
        written = method == "PUT" if not guarded else method == "POST" and given[0].startswith("uploadId")
        if path.endswith("/record") and written and not lost:
            lost.append(answer)
            raise HTTPException("no answer")
        return answer

    monkeypatch.setattr(s3.SignedRequests, "_send", deaf)
    if guarded:
        root.guard(drafts)
    try:
        assert (root / "record").put(b"ours")
        assert not (root / "record").put(b"ours"), "the same bytes, but another request"
    finally:
        root.guard(None)
    assert lost


def test_what_is_not_closed_is_seen_by_nobody(root: S3Path) -> None:
    open_ = storage.SummedFile(root / "segment")
    open_.write(b"x" * 9 * 2**20)
    assert (root / "segment").probe() is None
    open_.close()
    assert (root / "segment").stat().st_size == 9 * 2**20
    with pytest.raises(FileExistsError):
        storage.SummedFile(root / "segment")
    late = storage.SummedFile(root / "late")
    late.write(b"x" * 9 * 2**20)
    root.settle()  # another driver has come
    with pytest.raises((StateError, SinkError)):
        late.close()
    assert (root / "late").probe() is None


# --- folders ---


def test_an_empty_folder_is_there_and_marks_of_other_clients_are_none_of_its_entries(root: S3Path) -> None:
    folder = root / "a"
    assert not folder.exists()
    folder.make()
    folder.make()
    assert (folder.is_dir(), list(folder.iterdir())) == (True, [])
    root._bucket.requests.asked("PUT", f"{folder.key}/b/", {}, "does not take")
    assert list(folder.iterdir()) == [folder / "b"]
    (folder / "b" / "c").put(b"1")
    storage.make_folder(root / "kept")
    folder.rename(root / "kept" / "a")
    assert not folder.exists()
    assert storage.names_in(root / "kept" / "a" / "b") == ["c"]
    storage.remove_tree(root)
    assert (root.exists(), list(root._listed())) == (False, [])


def test_a_folder_of_more_than_a_page_is_listed_moved_and_deleted(root: S3Path) -> None:
    many = [f"{number:04}" for number in range(1003)]
    for name in many:
        (root / "many" / name).touch_over()
    assert sorted(storage.names_in(root / "many")) == many
    (root / "many").rename(root / "moved")
    assert (sorted(storage.names_in(root / "moved")), (root / "many").exists()) == (many, False)
    assert (root / "moved").remove(all_in_it=True)
    assert not (root / "moved").exists()


MOVER = """
import sys
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
from scribengin.state.places import located
folder = StateFolder(located(sys.argv[1]), "f")
with take_lease(folder):
    (folder.path / "decisions").rename(folder.path / "past" / "decisions")
"""


@pytest.mark.parametrize("point", ["state.moving", "state.carried"])
def test_a_move_that_was_cut_short_is_completed_by_who_takes_the_lease_next(root: S3Path, point: str) -> None:
    folder = StateFolder(root, "f")
    for number in range(3):
        (folder.path / "decisions" / f"{number}").put(b"%d" % number)
    struck = subprocess.run(
        [sys.executable, "-c", MOVER, str(root)], env=os.environ | {faults.VARIABLE: f"{point}:die"}, check=False, timeout=60
    )
    assert struck.returncode == -signal.SIGKILL
    assert (folder.path / "decisions").exists()
    with take_lease(folder):
        assert not (folder.path / "decisions").exists()
        assert sorted(storage.names_in(folder.path / "past" / "decisions")) == ["0", "1", "2"]
        (folder.path / "decisions" / "0").put(b"anew")
    with take_lease(folder):
        assert (folder.path / "decisions" / "0").get() == b"anew"


# --- errors ---


def test_faults_of_the_store_say_what_to_do(server: ObjectServer, root: S3Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fault(path: S3Path) -> tuple[str, str]:
        with pytest.raises(ScribenginError) as told:
            path.put(b"1")
        assert told.value.remedy
        return told.value.code, told.value.message

    code, message = fault(S3Path("s3://no-such-bucket/state/x"))
    assert (code, "s3://no-such-bucket" in message) == ("objects-bucket", True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert fault(root / "x")[0] == "objects-away"
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.uri)
    (tmp_path / "credentials").write_text("[default]\naws_access_key_id = test\naws_secret_access_key = wrong\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert fault(root / "x")[0] == "objects-login"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    assert fault(root / "x")[0] == "objects-login"


@pytest.mark.parametrize("ignored", ["PUT", "POST"])
def test_a_store_that_ignores_conditions_holds_no_state(root: S3Path, monkeypatch: pytest.MonkeyPatch, ignored: str) -> None:
    send = s3.SignedRequests._send

    def lax(self: s3.SignedRequests, method: str, path: str, query: str, body: bytes, headers: Any) -> s3.StoreResponse:
        kept = {name: value for name, value in headers.items() if method != ignored or name != "if-none-match"}
        return send(self, method, path, query, body, kept)

    monkeypatch.setattr(s3.SignedRequests, "_send", lax)
    with pytest.raises(SinkError, match="ignores If-None-Match") as told:
        take_lease(StateFolder(root, "f"))
    assert told.value.code == "objects-unable"
    assert not [name for name in (root / "f" / "main").entries() if name.startswith(".probe")]


# --- flows ---

FLOW = """
version: 1
name: shop
sources:
  orders:
    type: files
    path: data
    format: json
    settle: 0s
    watermark: at 1m
    on_error: dead_letter
    schema: "id BIGINT NOT NULL, at TIMESTAMP"
steps:
  minutes: {from: orders, sql: "SELECT window.start AS minute, count(*) AS n FROM orders GROUP BY window(at, '1 minute')"}
sinks:
  kept: {from: orders, type: files, path: out, format: json}
  counted: {from: minutes, type: files, path: counts, format: json}
"""


WITHOUT_STATE = f"{FLOW.partition('steps:')[0]}sinks: {{kept: {{from: orders, type: files, path: out, format: json}}}}\n"


def orders(minute: int, *ids: int) -> list[dict[str, Any]]:
    return [{"id": id_, "at": f"2026-01-01T00:{minute:02}:00Z"} for id_ in ids]


def command(folder: Path, state: S3Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "scribengin.cli", *words, str(folder / "flow.yaml"), "--state", str(state)]


def ids(folder: FlowFolder) -> list[int]:
    return sorted(row["id"] for row in folder.read("out"))


def said(folder: Path, state: S3Path, *words: str) -> str:
    ended = subprocess.run(command(folder, state, *words), capture_output=True, check=False, timeout=200, text=True)
    assert ended.returncode == 0, ended
    return ended.stdout


@pytest.mark.needs("s3a")
@pytest.mark.timeout(300)
def test_a_flow_runs_and_balances(tmp_path: Path, root: S3Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in orders(0, 1, 2)))
    (tmp_path / "flow.yaml").write_text(WITHOUT_STATE)
    said(tmp_path, root, "run", "--once")
    assert "balances" in said(tmp_path, root, "audit")
    assert storage.names_in(root / "shop" / "main" / "kept" / "decisions") == ["0000000000.json"]


@pytest.mark.long
@pytest.mark.needs("s3a")
@pytest.mark.timeout(600)
def test_a_run_that_was_killed_goes_on_from_what_lies_there_and_its_audit_is_clean(
    folder: FlowFolder, server: ObjectServer, root: S3Path
) -> None:
    folder.flow(FLOW).data("data/a.jsonl", [*orders(0, 1, 2), *orders(1, 3), "torn"])
    struck = os.environ | {faults.VARIABLE: "publish.record.after:kill"}
    with subprocess.Popen(
        command(folder.path, root, "run", "--once"), env=struck, start_new_session=True, stdout=subprocess.DEVNULL
    ) as driver:
        assert driver.wait(200) == -signal.SIGKILL
    folder.data("data/b.jsonl", orders(5, 4))
    said(folder.path, root, "run", "--once")
    assert ids(folder) == [1, 2, 3, 4]
    folder.data("data/c.jsonl", orders(9, 5))
    assert "balances" in said(folder.path, root, "run", "--once")
    assert ids(folder) == [1, 2, 3, 4, 5]
    assert sorted((row["minute"][14:16], row["n"]) for row in folder.read("counts")) == [("00", 2), ("01", 1), ("05", 1)]
    assert (root / "shop" / "main" / "counted" / "checkpoint" / "offsets").is_dir(), "Spark's own lies there too"
    assert not (folder.path / ".scribengin" / "shop" / "main" / "kept").exists(), "nothing but logs stays on this machine"
    for words, found in ((("audit",), "balances"), (("dead-letter", "show"), "torn"), (("status",), "stopped")):
        assert found in said(folder.path, root, *words)
    said(folder.path, root, "reset", "--outputs", "--yes")
    assert ids(folder) == []
    said(folder.path, root, "reset", "--undo=")
    assert ids(folder) == [1, 2, 3, 4, 5]
    secret = server.credentials.read_bytes().rpartition(b" = ")[2].strip()
    logs = [path for path in (folder.path / ".scribengin").rglob("*") if path.is_file()]
    assert {path.name for path in logs} > {"run.log", "spark.log"}
    assert not [path for path in logs if secret in path.read_bytes()]


@pytest.mark.long
@pytest.mark.needs("s3a")
@pytest.mark.timeout(500)
def test_a_flow_waits_for_the_store_and_goes_on(folder: FlowFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with or_skipped(tmp_path / "objects") as store:
        state = at_server(store, "state", monkeypatch.setenv)
        folder.flow(FLOW).data("data/a.jsonl", orders(0, 1, 2))
        with subprocess.Popen(command(folder.path, state, "run"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            try:
                assert within(150.0, lambda: ids(folder) == [1, 2])
                store.kill()
                folder.data("data/b.jsonl", orders(5, 3))
                assert not within(AWAY_S, lambda: driver.poll() is not None)
                store.start()
                assert within(200.0, lambda: ids(folder) == [1, 2, 3])
            finally:
                driver.send_signal(signal.SIGINT)
                driver.wait(100)
        assert "balances" in said(folder.path, state, "audit")
