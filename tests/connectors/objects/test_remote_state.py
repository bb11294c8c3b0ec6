"""A flow's state in an HDFS or a bucket: what its paths keep, who gets the lease, and that a driver that was overtaken writes nothing any
more."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest

from harness.keyed_protocol import KeyedJob
from harness.remote_places import at_server, hasty_driver, hasty_keyed_driver
from harness.submit import submissions
from scribengin.connectors.hdfs import store as hdfs_store
from scribengin.connectors.hdfs.path import HdfsPath
from scribengin.control.topology import plan_topology
from scribengin.core import faults, numbered_log, storage
from scribengin.core.errors import FencedError, InputError, Refused, StateError, Unreachable
from scribengin.core.faults import ELSEWHERE_POINTS, POINTS
from scribengin.core.numbered_log import NumberedLog
from scribengin.packages.store import PackageStore
from scribengin.registry.memory import MemoryStore
from scribengin.state import lease as remote_lease
from scribengin.state.folder import StateFolder
from scribengin.state.lease import read_holder, take_lease
from scribengin.state.places import located
from scribengin.state.segments import LineWriter, read_lines
from scribengin.testing import campaign
from scribengin.testing.protocol import Driver, Job
from scribengin.testing.trials import await_file, finished, killed
from tests.looking import stop_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from scribengin.connectors.objects.path import S3Path
    from scribengin.core.remote import RemotePath
    from scribengin.embedded.hdfs import Hdfs
    from scribengin.embedded.objects import ObjectServer

ROUNDS = 200
ROUNDS_SHORT = 8
"""the close of a small file takes half a second"""


@pytest.fixture(params=["hdfs", "objects"])
def root(request: pytest.FixtureRequest, prefix: str, monkeypatch: pytest.MonkeyPatch) -> RemotePath:
    if request.param == "hdfs":
        return HdfsPath.of(f"{request.getfixturevalue('hdfs').uri}/{prefix}")
    return at_server(request.getfixturevalue("server"), prefix, monkeypatch.setenv)


@pytest.fixture
def in_hdfs(hdfs: Hdfs, prefix: str) -> HdfsPath:
    return HdfsPath.of(f"{hdfs.uri}/{prefix}")


@pytest.fixture
def in_bucket(server: ObjectServer, prefix: str, monkeypatch: pytest.MonkeyPatch) -> S3Path:
    return at_server(server, prefix, monkeypatch.setenv)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lease, "BEAT_S", 0.2)
    monkeypatch.setattr(remote_lease, "EXPIRES_S", 2.0)
    monkeypatch.setattr(remote_lease, "POLL_S", 0.1)


# --- paths ---


def test_a_path_stays_what_it_is_on_its_way_to_others(hdfs: Hdfs, prefix: str) -> None:
    text = f"{hdfs.uri}/{prefix}/a b"
    path = located(text)
    assert (str(path), str(path / "x"), str(path.parent)) == (text, f"{text}/x", text.rpartition("/")[0])
    for same in (pickle.loads(pickle.dumps(path)), path.resolve(), HdfsPath(text)):
        assert isinstance(same, HdfsPath)
    assert pickle.loads(pickle.dumps(path / "x")) == HdfsPath(f"{text}/x")
    assert path.is_absolute()
    for call in (lambda: path.chmod(0o600), lambda: (path / "x").open("w"), lambda: os.scandir(path)):
        with pytest.raises(Refused, match="is not on a local disk") as told:
            call()
        assert told.value.code == "state-remote"


@pytest.mark.parametrize("text", ["hdfs:///x", "hdfs://host:1", "s3://bucket", "s3:///x", "webhdfs://host:1/x", "hdfs://me@host/x"])
def test_a_place_that_cannot_hold_a_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write hdfs://NAMENODE:PORT/FOLDER|write s3://BUCKET/|remove it"):
        located(text)


def test_commands_say_whether_a_state_can_lie_there(hdfs: Hdfs, root: RemotePath) -> None:
    def said(*words: str) -> Any:
        command = [sys.executable, "-m", "scribengin.cli", *words]
        ended = subprocess.run(command, capture_output=True, check=False, timeout=60, text=True)
        return json.loads(ended.stdout) if "--json" in words else ended.stderr

    away = root.__class__(f"{str(root).partition(':')[0]}://127.0.0.1:9/state")
    for folder, state in ((root, "ok"), (away, "missing")):
        checks = said("doctor", "--json", "--state", str(folder))["result"]["checks"]
        (found,) = [each for each in checks if each["check"] == "state"]
        assert (found["state"], str(folder)[:16] in found["found"]) == (state, True), found
    assert not root.exists() or storage.names_in(root) == []
    for command in (("status", "flow.yaml"), ("server", "dev"), ("server", "master", "--registry", "zk://127.0.0.1:9/x")):
        assert "write hdfs://NAMENODE:PORT/FOLDER" in said(*command, "--state", "webhdfs://host:1/x"), command


def test_a_channel_of_one_host_is_refused_where_the_state_is_everywhere(root: RemotePath, tmp_path: Path) -> None:
    packages, registry = PackageStore(tmp_path / "packages"), MemoryStore().client()
    cut = CUT.replace("DATA", str(tmp_path))

    def plan(channel: str) -> None:
        (tmp_path / "flow.yaml").write_text(cut.replace("CHANNEL", channel))
        found, _ = submissions([tmp_path / "flow.yaml"], packages, root)
        plan_topology(registry, found, packages=packages, state=lambda _: str(root))

    with pytest.raises(InputError) as told:
        plan("{type: folder}")
    (problem,) = told.value.problems
    assert (problem.code, problem.place.line, '"odd -> kept" uses a folder of one host' in problem.message) == (
        "channel-one-host",
        6,
        True,
    )
    plan("{type: kafka, topic: between, bootstrap: 127.0.0.1:9}")
    plan(f"{{type: folder, path: {tmp_path}/between}}")


CUT = """\
version: 1
name: cut
sources:
  rows: {type: files, path: DATA/in, format: json, schema: "id BIGINT NOT NULL"}
steps:
  odd: {from: rows, filter: id % 2 = 1}
sinks:
  kept: {from: odd, type: files, path: DATA/out, format: json}
tiers: {near: {steps: [rows, odd]}, far: {steps: [kept]}}
edges: {"odd -> kept": {channel: CHANNEL}}
"""


def test_what_is_put_is_whole_or_absent_and_what_is_there_stays(root: RemotePath) -> None:
    path = root / "a" / "record"
    assert storage.read_or_none(path) is None
    assert storage.names_in(root) == []
    assert [storage.put_if_absent(path, data) for data in (b"first", b"second")] == [True, False]
    assert storage.read_or_none(path) == b"first"
    storage.replace(path, b"third")
    assert path.read_bytes() == b"third"
    assert storage.put_if_absent(root / "empty", b"")
    assert (root / "empty").read_text() == ""
    assert sorted(storage.names_in(root)) == ["a", "empty"]
    assert [(root / name).is_dir() for name in ("a", "empty", "none")] == [True, False, False]
    assert (path.stat().st_size, storage.mapped(path).read()) == (5, b"third")
    path.replace(root / "empty")
    assert (root / "empty").read_text() == "third"
    (root / "empty").rename(path)
    (root / "empty").touch()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        path.unlink()
    path.unlink(missing_ok=True)
    assert storage.names_in(root / "a") == []
    storage.remove_tree(root)
    assert not root.exists()


def test_a_folder_is_moved_at_once_and_never_into_another(root: RemotePath) -> None:
    storage.put_if_absent(root / "decisions" / "0", b"x")
    storage.make_folder(root / "past")
    (root / "decisions").rename(root / "past" / "decisions")
    assert (root / "past" / "decisions" / "0").read_bytes() == b"x"
    storage.make_folder(root / "more")
    with pytest.raises(Exception, match=r"already exists|exists already"):
        (root / "more").rename(root / "past")
    assert storage.names_in(root / "past") == ["decisions"]


def test_drafts_of_killed_writers_are_seen_by_nobody_and_cleared_away(in_hdfs: HdfsPath) -> None:
    root = in_hdfs
    storage.make_folder(root)
    with subprocess.Popen([sys.executable, "-c", WRITER, str(root)], env=os.environ | {faults.VARIABLE: "state.drafted:die"}) as writer:
        assert writer.wait(60) == -signal.SIGKILL
    assert storage.names_in(root) == []
    (left,) = storage.drafts_in(root)
    storage.remove_drafts(root)
    assert not left.exists()


WRITER = """
import sys
from scribengin.core.storage import put_if_absent
from scribengin.state.places import located
put_if_absent(located(sys.argv[1]) / "record", b"data")
"""


def test_lines_are_durable_and_torn_ones_noticed(root: RemotePath) -> None:
    writer = LineWriter(root, "attempt")
    for number in range(3):
        writer.append(7, {"n": number})
    segment = writer.close()
    assert segment is not None
    assert read_lines(root, segment, "letters") == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
    storage.replace(root / segment.name, b"{}")
    with pytest.raises(StateError, match="were changed"):
        read_lines(root, segment, "letters")
    given_up = LineWriter(root, "other")
    given_up.append(8, {})
    given_up.abort()
    assert storage.names_in(root) == ["0000000007"]


def test_a_log_folds_and_is_read_there_as_on_a_disk(root: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_log, "CHUNK", 3)
    log = NumberedLog(root, "entry")
    for number in range(7):
        assert log.put(number, {"n": number}) == {"n": number}
    assert log.put(2, {"n": "other"}) == {"n": 2}
    log.fold(lambda summary, bodies: {"sum": (summary or {"sum": 0})["sum"] + sum(body["n"] for body in bodies)})
    assert log.high_mark() >= 2
    again = NumberedLog(root, "entry")
    assert [body["n"] for _, body in again.since(0)] == list(range(7))
    with pytest.raises(FencedError, match="was completed long ago"):
        again.put(0, {"n": "late"})


FORKER = """
import os
from scribengin.connectors.hdfs import path


class Client:
    def __del__(self):  # a real one waits here for threads that the child has not
        os.write(1, b"ended in the child")


path._stores["namenode:8020"] = Client()
child = os.fork()
if not child:
    os._exit(len(path._stores))
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_neither_has_the_clients_of_its_parent_nor_ends_them() -> None:
    assert subprocess.run([sys.executable, "-c", FORKER], check=True, capture_output=True, timeout=120).stdout == b""


def test_a_record_whose_answer_was_lost_is_known_as_ours(in_hdfs: HdfsPath, monkeypatch: pytest.MonkeyPatch) -> None:
    root = in_hdfs
    storage.make_folder(root)
    store = root._store
    real = store._client

    class Deaf:
        """Renames, and hears no answer: so it asks again, as the library does."""

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def rename(self, *given: Any) -> None:
            real.rename(*given)
            real.rename(*given)

    monkeypatch.setattr(store, "_client", Deaf())
    assert storage.put_if_absent(root / "a", b"ours")
    storage.replace(root / "a", b"ours too")
    assert (root / "a").read_bytes() == b"ours too"
    assert storage.drafts_in(root) == []


def test_a_name_node_that_hangs_is_told_after_the_time_limit(hdfs: Hdfs, in_hdfs: HdfsPath, monkeypatch: pytest.MonkeyPatch) -> None:
    root = in_hdfs
    storage.put_if_absent(root / "a", b"1")
    monkeypatch.setattr(hdfs_store, "CALL_S", 1.0)
    assert hdfs.pid is not None
    stop_whole(hdfs.pid)
    try:
        for call in (lambda: storage.put_if_absent(root / "b", b"1"), (root / "c").make):
            with pytest.raises(Unreachable, match="no answer after 1 s") as told:
                call()
            assert told.value.code == "hdfs-away"
    finally:
        os.kill(hdfs.pid, signal.SIGCONT)
    monkeypatch.setattr(hdfs_store, "CALL_S", 60.0)
    assert storage.read_or_none(root / "a") == b"1"


# --- races ---


def _race_of_threads(root: RemotePath, rounds: int) -> None:
    barrier = Barrier(16)

    def put(me: int) -> list[bool]:
        won = []
        for number in range(rounds):
            barrier.wait()
            won.append(storage.put_if_absent(root / f"{number}", f"{me}".encode()))
        return won

    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(put, range(16)))
    for number in range(rounds):
        (winner,) = [me for me in range(16) if won[me][number]]
        assert (root / f"{number}").read_bytes() == f"{winner}".encode()


RACER = """
import sys
from scribengin.core.numbered_log import NumberedLog
from scribengin.state.places import located
log = NumberedLog(located(sys.argv[1]), "decision")
for number in range(int(sys.argv[3])):
    sys.stdin.readline()
    print(log.put(number, {"by": sys.argv[2]})["by"] == sys.argv[2], flush=True)
"""


def _race_of_processes(root: RemotePath, rounds: int) -> None:
    commands = [[sys.executable, "-c", RACER, str(root), name, str(rounds)] for name in ("a", "b")]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        winners = []
        for _ in range(rounds):
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write("go\n")
                racer.stdin.flush()
            said = [racer.stdout.readline() for racer in racers if racer.stdout is not None]
            assert sorted(said) == ["False\n", "True\n"]
            winners.append("ab"[said.index("True\n")])
        assert [body["by"] for _, body in NumberedLog(root, "decision").since(0)] == winners
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_of_drivers_that_decide_at_once_one_is_heard(root: RemotePath) -> None:
    _race_of_threads(root / "threads", ROUNDS_SHORT)
    _race_of_processes(root / "processes", ROUNDS_SHORT)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_of_two_processes_and_of_16_threads_that_decide_at_once_one_is_heard_200_times(root: RemotePath) -> None:
    _race_of_threads(root / "threads", ROUNDS)
    _race_of_processes(root / "processes", ROUNDS)


# --- the lease ---


def test_the_lease_is_refused_while_its_holder_gives_signs_and_taken_at_once_when_it_ended_in_order(hasty: None, root: RemotePath) -> None:
    folder = StateFolder(root, "f")
    assert read_holder(folder) is None
    for term in (1, 2):
        with take_lease(folder) as lease:
            assert lease.term == term
            lease.check()
            with pytest.raises(Refused, match=f"(?s)process {os.getpid()} on .*without a report from it for"):
                take_lease(folder)
            holder = read_holder(folder)
            assert holder is not None
            assert (holder.pid, holder.term) == (os.getpid(), term)
        assert read_holder(folder) is None
        with pytest.raises(FencedError, match="was released"):
            lease.check()
    assert not [name for name in storage.names_in(folder.path / "terms") if name.endswith(".open")]


def test_terms_rise_and_old_ones_are_cleared_away(hasty: None, root: RemotePath) -> None:
    folder = StateFolder(root, "f")
    terms = []
    for _ in range(13):
        with take_lease(folder) as lease:
            terms.append(lease.term)
    assert terms == list(range(1, 14))
    assert len([name for name in storage.names_in(folder.path / "terms") if name.endswith(".json")]) <= 11


HOLDER = """
import signal, sys
from scribengin.core.storage import put_if_absent, replace
from scribengin.state.folder import StateFolder
from scribengin.state.lease import take_lease
from harness.remote_places import hasty
from scribengin.state.places import located
hasty()
folder = StateFolder(located(sys.argv[1]), "f")
lease = take_lease(folder)
print("held", flush=True)
for line in sys.stdin:
    try:
        what, name = line.split()
        {"put": put_if_absent, "replace": replace, "check": lambda *_: lease.check()}[what](folder.path / name, b"late")
        print("done", flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
"""


def _holder(root: RemotePath, fault: str = "") -> subprocess.Popen[str]:
    environment = os.environ | {faults.VARIABLE: fault}
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def _asked(holder: subprocess.Popen[str], *lines: str) -> list[str]:
    assert holder.stdin is not None
    assert holder.stdout is not None
    said = []
    for line in lines:
        holder.stdin.write(f"{line}\n")
        holder.stdin.flush()
        said.append(holder.stdout.readline())
    return said


def test_who_slept_while_another_took_the_lease_writes_nothing_into_the_state(hasty: None, root: RemotePath) -> None:
    folder = StateFolder(root, "f")
    with _holder(root) as sleeper:
        try:
            assert sleeper.stdout is not None
            assert sleeper.stdout.readline() == "held\n"
            assert _asked(sleeper, "put before", "replace lineage", "check x") == ["done\n"] * 3
            sleeper.send_signal(signal.SIGSTOP)
            with take_lease(folder) as lease:
                assert lease.term == 2
                storage.put_if_absent(folder.path / "mine", b"1")
                sleeper.send_signal(signal.SIGCONT)
                said = _asked(sleeper, "put after", "replace lineage", "check x")
                assert all(each.startswith("FencedError") and "a newer driver holds it" in each for each in said), said
                lease.check()
                storage.put_if_absent(folder.path / "mine too", b"2")
            # nor does it when its successor has left
            assert _asked(sleeper, "put later")[0].startswith("FencedError")
            assert sorted(name for name in storage.names_in(folder.path) if name not in ("terms", "lock")) == [
                "before",
                "lineage",
                "mine",
                "mine too",
            ]
            with take_lease(folder) as lease:
                assert lease.term == 3
        finally:
            sleeper.kill()


def test_the_lease_of_a_killed_process_of_this_machine_is_free_at_once(root: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_lease, "EXPIRES_S", 3600.0)  # nobody waits until it has expired
    with _holder(root) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
    with take_lease(StateFolder(root, "f")) as lease:
        assert lease.term == 2


@pytest.mark.parametrize("point", ["lease.drafts", "lease.numbered", "lease.taken"])
def test_who_slept_in_the_midst_of_taking_the_lease_has_not_got_it(hasty: None, root: RemotePath, tmp_path: Path, point: str) -> None:
    folder, gate = StateFolder(root, "f"), tmp_path / "gate"
    with _holder(root, f"{point}:wait={gate}") as sleeper:
        try:
            _until(Path(f"{gate}.waiting"))
            sleeper.send_signal(signal.SIGSTOP)
            with take_lease(folder) as lease:
                gate.touch()
                sleeper.send_signal(signal.SIGCONT)
                assert sleeper.stdout is not None
                if sleeper.stdout.readline():  # it believes that it has it
                    assert _asked(sleeper, "put late")[0].startswith("FencedError")
                    assert _asked(sleeper, "check x")[0].startswith("FencedError")
                else:
                    assert sleeper.wait(120) == 1
                lease.check()
                assert "late" not in storage.names_in(folder.path)
                storage.put_if_absent(folder.path / "mine", b"1")
        finally:
            sleeper.kill()


def _until(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


def test_of_16_that_come_at_once_one_gets_the_lease(hasty: None, root: RemotePath) -> None:
    folder = StateFolder(root, "f")
    barrier = Barrier(16)

    def take(_: int) -> bool:
        barrier.wait()
        try:
            return take_lease(folder).term == 1
        except Refused:
            return False

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(take, range(16))).count(True) == 1


# --- the protocol: lease, source log, decisions, letters and recovery over it, without Spark ---


def _driver(make: Callable[..., Driver] = hasty_driver) -> Callable[[Job], Driver]:
    return partial(make, reached={name: value for name, value in os.environ.items() if name.startswith("AWS_")})


def _job(root: RemotePath, tmp_path: Path) -> Job:
    return Job(root / "state", tmp_path / "out", batches=2, rows=6)


@pytest.mark.timeout(300)
def test_a_driver_killed_between_any_two_steps_loses_and_doubles_nothing(root: RemotePath, tmp_path: Path) -> None:
    points = ("lease.numbered", "source.logged", "state.drafted@7", "decide.after")
    outcome = killed(_job(root, tmp_path), [f"{point}:die" for point in points], _driver())
    assert outcome.clean, outcome
    assert set(outcome.statuses) == {-signal.SIGKILL}, "each was struck"
    assert campaign.audit(_job(root, tmp_path)) == ()


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", [*(point for point in POINTS if not point.startswith("fold.")), *ELSEWHERE_POINTS])
@pytest.mark.parametrize("nth", [1, 3])
def test_a_driver_killed_at_every_point_loses_and_doubles_nothing(root: RemotePath, tmp_path: Path, point: str, nth: int) -> None:
    outcome = killed(_job(root, tmp_path), [f"{point}@{nth}:die"], _driver())
    assert outcome.clean, outcome
    assert campaign.audit(_job(root, tmp_path)) == ()


@pytest.mark.timeout(300)
def test_rows_that_are_staged_in_the_state_come_to_a_keyed_store_once(root: RemotePath, tmp_path: Path) -> None:
    job = KeyedJob(root / "state", tmp_path / "out", batches=2, rows=6)
    outcome = killed(job, [f"{point}:die" for point in ("decide.after", "settle.before")], _driver(hasty_keyed_driver))
    assert outcome.clean, outcome
    assert set(outcome.statuses) == {-signal.SIGKILL}, "each was struck"


def _overtaken(root: RemotePath, tmp_path: Path, point: str) -> None:
    """A driver sleeps at a point, wholly; its successor runs to the end; it wakes."""
    job, gate = _job(root, tmp_path), tmp_path / "gate"
    sleeper = campaign.start(job, f"{point}:wait={gate}", make_driver=_driver())
    await_file(Path(f"{gate}.waiting"), sleeper)
    assert sleeper.process.pid is not None
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    second = campaign.run(job, make_driver=_driver())
    gate.touch()
    os.kill(sleeper.process.pid, signal.SIGCONT)
    first = sleeper.wait()
    assert (second, first) == (campaign.DONE, campaign.FENCED)
    outcome = finished(job, _driver(), [second, first])
    assert outcome.clean, outcome


@pytest.mark.timeout(300)
def test_a_driver_that_slept_before_it_decided_does_not_decide(root: RemotePath, tmp_path: Path) -> None:
    _overtaken(root, tmp_path, "decide.before")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "point", ["lease.taken", "batch.entry", "stage.closed", "state.drafted@4", "decide.after", "publish.renamed", "commit.before"]
)
def test_a_driver_that_slept_anywhere_is_fenced(root: RemotePath, tmp_path: Path, point: str) -> None:
    _overtaken(root, tmp_path, point)
