"""Workers that are processes: nothing is lost sight of, whoever is killed, and nobody else is struck."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from launch_benches import WITHIN_S, keeper_of, one, process_of

from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import within
from scribengin.core.secret import Secret
from scribengin.launch import process_launcher, records
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher
from scribengin.launch.marks import marked_processes

if TYPE_CHECKING:
    from launch_benches import ProcessBench

    from scribengin.launch.contract import Launcher, ObservedWorker

W = "tweets.main-1"
_MASTER = """
import sys, time
from pathlib import Path
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher

launcher = LocalLauncher(Path(sys.argv[1]), orphan_grace_s=0.5)
for worker in sys.argv[3].split(","):
    launcher.start(LaunchOrder(worker, (sys.executable, "-S", sys.argv[2], f"{sys.argv[1]}/../{worker}.diary", *sys.argv[4:])))
print("begun", flush=True)
for line in sys.stdin:
    worker, grace_s = line.split()
    launcher.stop(worker, float(grace_s))
    print("asked", flush=True)
"""
_KILLED_BEFORE_THE_KEEPER = """
import os, sys
from pathlib import Path
from scribengin.launch import process_launcher
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher

process_launcher._start_keeper = lambda *_: os.kill(os.getpid(), 9)
LocalLauncher(Path(sys.argv[1])).start(LaunchOrder(sys.argv[2], ("true",)))
"""
_KILLED_WHILE_THE_KEEPER_STARTS = """
import os, subprocess, sys
from pathlib import Path
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.local import LocalLauncher

def run(command, *, check, timeout, **more):
    subprocess.Popen(["/bin/sh", "-c", f"read -r word <{sys.argv[4]}; exec \\"$@\\"", "sh", *command], **more)
    os.kill(os.getpid(), 9)

subprocess.run = run
launcher = LocalLauncher(Path(sys.argv[1]), orphan_grace_s=0.5)
launcher.start(LaunchOrder(sys.argv[2], (sys.executable, "-S", sys.argv[3], f"{sys.argv[1]}/../{sys.argv[2]}.diary")))
"""


def running(bench: ProcessBench, launcher: Launcher, worker: str = W, *words: str) -> ObservedWorker:
    launcher.start(bench.order(worker, *words))
    return bench.until(launcher, worker, lambda seen: seen.state == "running")


def kill_keeper(bench: ProcessBench, worker: str = W) -> None:
    keeper = keeper_of(bench.home / "workers" / worker)
    assert keeper is not None
    keeper.send(signal.SIGKILL)
    assert keeper.gone_within(WITHIN_S)


def master(bench: ProcessBench, workers: str, *words: str) -> subprocess.Popen[str]:
    """A process that starts these workers, and asks those to end that it is told to: `worker grace_s`."""
    from launch_benches import PROGRAM

    command = [sys.executable, "-c", _MASTER, str(bench.home), str(PROGRAM), workers, *words]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_a_killed_masters_workers_go_on_and_the_next_master_has_them_in_hand(local: ProcessBench) -> None:
    end(master(local, "a.main-1,a.main-2"))
    launcher = local.launcher()
    first, second = (local.until(launcher, worker, lambda seen: seen.state == "running") for worker in ("a.main-1", "a.main-2"))
    assert first.pid is not None
    assert second.pid is not None
    assert os.getsid(first.pid) != os.getsid(0)  # what the terminal strikes does not strike them
    launcher.start(local.order("a.main-1"))
    launcher.stop("a.main-1", 80.0)
    launcher.kill("a.main-2")
    assert local.until(launcher, "a.main-1", lambda seen: seen.is_over).status == 0
    assert local.until(launcher, "a.main-2", lambda seen: seen.is_over).status == -9
    assert [local.beginnings(worker) for worker in ("a.main-1", "a.main-2")] == [1, 1]


def test_the_grace_runs_out_though_the_master_that_gave_it_is_dead(local: ProcessBench) -> None:
    child = master(local, W, "deaf")
    launcher = local.launcher()
    seen = local.until(launcher, W, lambda seen: seen.state == "running")
    assert child.stdin is not None
    assert child.stdout is not None
    print(W, "2.0", file=child.stdin, flush=True)
    assert child.stdout.readline() == "asked\n"
    end(child)
    assert seen.pid is not None
    assert process_of(seen.pid).gone_within(WITHIN_S)  # nobody has looked meanwhile
    ended = local.until(launcher, W, lambda seen: seen.state == "exited")
    assert (ended.status, "within 2 s of the stop request" in ended.reason) == (-9, True)
    assert sum(line.startswith("asked") for line in local.diary(W)) == 1


def test_a_worker_hears_once_that_it_is_to_end_however_often_it_is_asked(local: ProcessBench) -> None:
    launcher = local.launcher()
    running(local, launcher, W, "deaf")
    for grace_s in (60.0, 50.0, 55.0, 50.0):
        launcher.stop(W, grace_s)
        local.launcher().stop(W, grace_s)
        local.noted(W, "asked")
    launcher.stop(W, 0.2)
    local.until(launcher, W, lambda seen: seen.state == "exited")
    assert sum(line.startswith("asked") for line in local.diary(W)) == 1


def test_of_many_that_start_the_same_worker_at_once_one_does(local: ProcessBench) -> None:
    launchers = [local.launcher() for _ in range(6)]
    threads = [Thread(target=launcher.start, args=(local.order(W),)) for launcher in launchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    local.until(launchers[0], W, lambda seen: seen.state == "running")
    assert local.beginnings(W) == 1
    assert [len(found) for found in marked_processes(local.home).values()] == [1]


def test_what_a_master_meant_to_start_when_it_was_killed_is_started_by_the_next(local: ProcessBench) -> None:
    killed = subprocess.run([sys.executable, "-c", _KILLED_BEFORE_THE_KEEPER, str(local.home), W], check=False)
    assert killed.returncode == -9
    launcher = local.launcher()
    assert (seen := one(launcher, W)) is not None
    assert (seen.state, seen.status) == ("gone", None)
    assert "did not start" in seen.reason
    launcher.kill(W)
    running(local, launcher)
    assert local.beginnings(W) == 1


def test_a_worker_whose_keeper_is_on_its_way_when_the_master_is_killed_is_started_once(local: ProcessBench) -> None:
    from launch_benches import PROGRAM

    gate = local.folder / "gate"
    os.mkfifo(gate)
    command = [sys.executable, "-c", _KILLED_WHILE_THE_KEEPER_STARTS, str(local.home), W, str(PROGRAM), str(gate)]
    launcher = local.launcher()
    with os.fdopen(os.open(gate, os.O_RDWR), "wb", buffering=0) as opening:  # its end, too, lets the keeper go on
        assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == -9
        assert (seen := one(launcher, W)) is not None
        assert seen.state == "starting"
        thread = Thread(target=launcher.start, args=(local.order(W),))
        thread.start()  # waits: somebody is about to start a worker
        opening.write(b"go\n")
        thread.join(WITHIN_S)
    local.until(launcher, W, lambda seen: seen.state == "running")
    assert local.beginnings(W) == 1


def test_a_process_that_got_the_number_of_a_dead_worker_is_never_struck(local: ProcessBench, foreign: subprocess.Popen[bytes]) -> None:
    launcher = local.launcher()
    seen = running(local, launcher)
    kill_keeper(local)
    assert seen.pid is not None
    worker = process_of(seen.pid)
    worker.send(signal.SIGKILL)
    assert worker.gone_within(WITHIN_S)
    for name in ("started.json", "keeper.json"):
        record = local.home / "workers" / W / name
        record.write_text(json.dumps(json.loads(record.read_text()) | {"pid": foreign.pid}))
    assert local.until(launcher, W, lambda seen: seen.state == "gone").pid is None
    launcher.stop(W, 0.0)
    launcher.kill(W)
    launcher.forget(W)
    assert foreign.poll() is None
    assert process_of(foreign.pid).alive()
    assert launcher.observe() == []


def test_a_worker_goes_on_without_its_keeper_and_is_stopped_without_it(local: ProcessBench) -> None:
    launcher = local.launcher()
    for worker in (W, "b.main-1"):
        running(local, launcher, worker, *(["deaf"] if worker == W else []))
        kill_keeper(local, worker)
    assert [seen.state for seen in launcher.observe()] == ["running", "running"]
    launcher.start(local.order(W))
    launcher.stop("b.main-1", 60.0)
    launcher.stop(W, 0.5)
    seen = local.until(launcher, W, lambda seen: seen.is_over)  # each look strikes where the grace has run out
    assert (seen.state, seen.status) == ("gone", None)
    assert "its supervisor" in seen.reason
    assert local.until(launcher, "b.main-1", lambda seen: seen.is_over).state == "gone"
    assert local.diary("b.main-1")[-1].startswith("asked")
    assert local.beginnings(W) == 1


def test_a_worker_that_begins_while_its_records_are_read_is_starting(local: ProcessBench, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = local.launcher()
    launcher.start(local.order(W))
    local.until(launcher, W, lambda seen: seen.state == "running")
    started, reads = records.WorkerRecords.started, list[object]()

    def not_yet(self: records.WorkerRecords) -> records.Started | None:
        reads.append(self)
        return None if len(reads) == 1 else started(self)

    monkeypatch.setattr(records.WorkerRecords, "started", not_yet)
    assert (seen := one(launcher, W)) is not None
    assert (seen.state, seen.reason) == ("starting", "")


def test_what_a_worker_leaves_behind_is_killed_by_its_keeper_after_a_while(local: ProcessBench) -> None:
    launcher = local.launcher()
    launcher.start(local.order(W, "child", "exit=3"))
    child = process_of(local.noted(W, "child"))
    seen = local.until(launcher, W, lambda seen: seen.state == "exited")
    assert seen.status == 3  # known before the rest has gone
    assert child.gone_within(WITHIN_S)
    assert local.until(launcher, W, lambda seen: seen.is_over).strays == ()


@pytest.mark.parametrize("verb", ["kill", "forget"])
def test_what_a_worker_and_its_dead_keeper_left_behind_is_seen_and_removed(local: ProcessBench, verb: str) -> None:
    launcher = local.launcher()
    seen = running(local, launcher, W, "child")
    child = process_of(local.noted(W, "child"))
    kill_keeper(local)
    assert seen.pid is not None
    process_of(seen.pid).send(signal.SIGKILL)
    seen = local.until(launcher, W, lambda seen: seen.state == "gone")
    assert (seen.strays, seen.is_over) == ((child.pid,), False)
    getattr(launcher, verb)(W)
    assert child.gone_within(WITHIN_S)
    assert [seen.is_over for seen in launcher.observe()] == ([] if verb == "forget" else [True])


@pytest.mark.parametrize("kept", [True, False])
def test_a_worker_whose_records_were_removed_is_seen_and_killed_by_its_mark(local: ProcessBench, kept: bool) -> None:
    launcher = local.launcher()
    seen = running(local, launcher)
    assert seen.pid is not None
    worker, keeper = process_of(seen.pid), keeper_of(local.home / "workers" / W)
    assert keeper is not None
    if not kept:
        kill_keeper(local)
    for path in (local.home / "workers" / W).iterdir():
        path.unlink()
    (local.home / "workers" / W).rmdir()
    (found,) = launcher.observe()
    assert (found.worker, found.state, found.order, found.strays) == (W, "gone", "", (worker.pid,))
    launcher.kill(W)
    assert worker.gone_within(WITHIN_S)
    assert keeper.gone_within(WITHIN_S)
    assert within(WITHIN_S, lambda: launcher.observe() == [])


def test_a_kill_ends_the_whole_tree_at_once(local: ProcessBench) -> None:
    launcher = LocalLauncher(local.home, orphan_grace_s=1_000.0)
    running(local, launcher, W, "child", "deaf")
    child = process_of(local.noted(W, "child"))
    launcher.kill(W)
    assert child.gone_within(WITHIN_S)
    local.until(launcher, W, lambda seen: seen.is_over)


def test_a_worker_that_lost_its_jvm_and_goes_on_is_ended(local: ProcessBench) -> None:
    launcher = local.launcher()
    running(local, launcher, W, "jvm")
    jvm = process_of(local.noted(W, "jvm"))
    keeper = keeper_of(local.home / "workers" / W)
    assert keeper is not None

    def is_known() -> bool:
        keeper.send(signal.SIGUSR1)  # have it look now
        return any(link_of(path) == "anon_inode:[pidfd]" for path in Path(f"/proc/{keeper.pid}/fd").iterdir())

    assert within(WITHIN_S, is_known)
    jvm.send(signal.SIGKILL)
    seen = local.until(launcher, W, lambda seen: seen.state == "exited")
    assert seen.status == -9
    assert f"JVM (process {jvm.pid})" in seen.reason


def test_secrets_reach_the_worker_and_stand_in_no_command_line_record_or_log(local: ProcessBench) -> None:
    hidden = "hunter2-0b1e"
    launcher = local.launcher()
    secret = Secret(hidden, "${secret:env/PASSWORD}")
    launcher.start(local.order(W, secrets={"PASSWORD": secret}, spark={"spark.hadoop.key": secret, "spark.x": "a b\\c\n"}))
    seen = local.until(launcher, W, lambda seen: seen.state == "running")
    assert hidden.encode() in Path(f"/proc/{seen.pid}/environ").read_bytes()
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if within_reach(path)]
    assert any(str(local.home).encode() in line for line in lines)
    assert not any(hidden.encode() in line for line in lines)
    found = [path for path in local.home.rglob("*") if path.is_file() and hidden.encode() in path.read_bytes()]
    assert found == [local.home / "workers" / W / "spark.properties"]
    assert found[0].read_text() == f"spark.hadoop.key={hidden}\nspark.x=a b\\\\c\\n\n"
    assert found[0].stat().st_mode & 0o777 == 0o600
    assert local.home.stat().st_mode & 0o777 == 0o700
    assert hidden not in repr(launcher.observe())
    assert hidden not in repr(local.order(W, secrets={"PASSWORD": secret}))
    launcher.stop(W, 60.0)
    local.until(launcher, W, lambda seen: seen.is_over)
    assert within(WITHIN_S, lambda: not found[0].exists())


def link_of(path: Path) -> str:
    try:
        return str(path.readlink())
    except FileNotFoundError:  # closed meanwhile
        return ""


def within_reach(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_a_worker_gets_an_environment_a_folder_of_its_own_and_nothing_to_read(local: ProcessBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_MASTER", "1")
    monkeypatch.setenv("OF_THE_MASTER_ALONE", "1")
    monkeypatch.setenv("SCRIBENGIN_LAUNCHED", "the mark of a worker that is a master")
    launcher = local.launcher()
    variables = "*(os.environ[name] for name in ('OF_THE_MASTER', 'X', 'SCRIBENGIN_SPARK_MASTER'))"
    program = f"import os, sys; assert 'OF_THE_MASTER_ALONE' not in os.environ; print({variables}, repr(sys.stdin.read()), os.getcwd())"
    launcher.start(LaunchOrder(W, (sys.executable, "-c", program), environment={"X": "2", "OF_THE_MASTER_ALONE": None}, cores=2))
    local.until(launcher, W, lambda seen: seen.is_over)
    (log,) = launcher.logs(W)
    assert Path(log).read_text().splitlines()[0] == f"1 2 local[2,3] '' {local.home / 'workers' / W}"


def test_a_command_that_is_not_there_is_told(local: ProcessBench) -> None:
    launcher = local.launcher()
    launcher.start(LaunchOrder(W, ("/no/such/program",)))
    seen = local.until(launcher, W, lambda seen: seen.state == "exited")
    assert (seen.status, seen.reason) == (127, "/no/such/program cannot be started: No such file or directory")


def test_a_worker_that_does_not_fit_in_is_refused_and_nothing_of_it_stays(local: ProcessBench) -> None:
    launcher = LocalLauncher(local.home, cores=3, memory_bytes=2**30)
    launcher.start(local.order(W, cores=2))
    local.until(launcher, W, lambda seen: seen.state == "running")
    launcher.start(local.order(W, cores=2))
    with pytest.raises(EnvironmentFault, match="needs 2 cores; 1 of 3 are free") as caught:
        launcher.start(local.order("b.main-1", cores=2))
    assert (caught.value.code, "stop another worker" in caught.value.remedy) == ("launcher-full", True)
    with pytest.raises(EnvironmentFault, match="bytes of memory"):
        launcher.start(local.order("b.main-1", memory_bytes=2**31))
    assert [seen.worker for seen in launcher.observe()] == [W]
    launcher.kill(W)
    local.until(launcher, W, lambda seen: seen.is_over)
    launcher.start(local.order("b.main-1", cores=3))
    local.until(launcher, "b.main-1", lambda seen: seen.state == "running")


@pytest.mark.parametrize(("word", "said"), [("exit=0", "ended with status 0"), ("exit=7", "ended with status 7"), ("die", "signal 9")])
def test_the_last_line_of_a_worker_s_log_says_how_it_ended_also_where_it_was_killed(local: ProcessBench, word: str, said: str) -> None:
    launcher = local.launcher()
    launcher.start(local.order(W, word))
    local.until(launcher, W, lambda seen: seen.state == "exited")
    (log,) = launcher.logs(W)
    assert said in Path(log).read_text().splitlines()[-1]


def test_what_a_worker_says_is_kept_and_bounded(local: ProcessBench) -> None:
    launcher = LocalLauncher(local.home, log_bytes=100_000)
    launcher.start(local.order(W, "flood=200000"))
    local.until(launcher, W, lambda seen: seen.state == "running")
    keeper = keeper_of(local.home / "workers" / W)
    assert keeper is not None

    def is_bounded() -> bool:
        keeper.send(signal.SIGUSR1)  # have it look now
        return len(launcher.logs(W)) == 2 and Path(launcher.logs(W)[1]).stat().st_size <= 100_000

    assert within(WITHIN_S, is_bounded)
    old, new = launcher.logs(W)
    lines = (Path(old).read_text() + Path(new).read_text()).splitlines()
    assert lines[-1] == "000199999"
    assert lines == sorted(lines)


def test_logs_outlast_a_worker_and_the_oldest_of_a_tier_go(local: ProcessBench) -> None:
    launcher = local.launcher()
    workers = [f"a.main-{number}" for number in range(8, 8 + process_launcher.KEPT_OF_A_TIER + 2)]
    for worker in workers:
        launcher.start(LaunchOrder(worker, ("true",)))
        local.until(launcher, worker, lambda seen: seen.is_over)
        launcher.forget(worker)
    assert [bool(launcher.logs(worker)) for worker in workers] == [False, False] + [True] * process_launcher.KEPT_OF_A_TIER
    old = time.time() - process_launcher.KEPT_S - 60
    os.utime(launcher.logs(workers[-1])[0], (old, old))
    process_launcher.prune_logs(local.home / "logs", known=[])
    assert [bool(launcher.logs(worker)) for worker in workers[-2:]] == [True, False]


def test_no_child_of_the_launcher_stays_not_even_as_a_zombie(local: ProcessBench) -> None:
    def own() -> list[str]:
        stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat") if within_reach(path)]
        return [fields[0] for fields in stats if fields[1] == str(os.getpid())]

    before = own()
    launcher = local.launcher()
    for number in range(3):
        launcher.start(LaunchOrder(f"a.main-{number}", ("true",)))
        local.until(launcher, f"a.main-{number}", lambda seen: seen.is_over)
    assert own() == before


def test_torn_records_hide_no_process_and_harm_nobody(local: ProcessBench) -> None:
    launcher = local.launcher()
    seen = running(local, launcher)
    for name in ("order.json", "stopping.json", "ended.json"):
        (local.home / "workers" / W / name).write_bytes(b'{"sta')
    assert (torn := one(launcher, W)) is not None
    assert (torn.state, torn.pid) == ("running", seen.pid)
    (local.home / "workers" / W / "started.json").write_bytes(b"")
    assert seen.pid is not None
    assert (torn := one(launcher, W)) is not None
    assert torn.state == "starting"  # its keeper is there
    launcher.kill(W)
    assert process_of(seen.pid).gone_within(WITHIN_S)


def test_a_worker_is_ended_though_no_record_of_that_can_be_written(local: ProcessBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise EnvironmentFault(f"{path} cannot be written: No space left on device", remedy="make room there")

    launcher = local.launcher()
    running(local, launcher)
    running(local, launcher, "tweets.main-2", "deaf", "child")
    child = process_of(local.noted("tweets.main-2", "child"))
    monkeypatch.setattr(records, "replace", full)
    with pytest.raises(EnvironmentFault, match="No space left"):
        launcher.stop(W, 60.0)
    assert local.until(launcher, W, lambda seen: seen.is_over).status == 0
    with pytest.raises(EnvironmentFault, match="No space left"):
        launcher.kill("tweets.main-2")
    assert local.until(launcher, "tweets.main-2", lambda seen: seen.is_over).status == -9
    assert child.gone_within(WITHIN_S)
    with pytest.raises(EnvironmentFault, match="No space left"):
        launcher.start(local.order("tweets.main-3"))
    assert one(launcher, "tweets.main-3") is None
    monkeypatch.undo()
    running(local, launcher, "tweets.main-3")


def test_a_lock_that_is_held_for_ever_is_told(local: ProcessBench, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(process_launcher, "_LOCKED_WITHIN_S", 0.2)
    launcher = local.launcher()
    with (local.home / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(EnvironmentFault, match="locked") as caught:
            launcher.start(local.order(W))
    assert caught.value.code == "launcher-busy"


_CPUS = os.sched_getaffinity(0) if sys.platform == "linux" else set[int]()


@pytest.mark.skipif(len(_CPUS) < 2, reason="CPUs of their own take two CPUs, and Linux")
def test_workers_have_cpus_of_their_own_where_there_are_enough_for_what_all_may_have(local: ProcessBench) -> None:
    def cpus(launcher: Launcher, worker: str) -> set[int]:
        seen = running(local, launcher, worker)
        assert seen.pid is not None
        return os.sched_getaffinity(seen.pid)

    unbounded = LocalLauncher(local.home / "unbounded")
    assert cpus(unbounded, "a.main-1") == _CPUS
    over = LocalLauncher(local.home / "over", cores=len(_CPUS) + 1)
    assert cpus(over, "b.main-1") == _CPUS, "more is promised than there is: to share is better than to be tied to one"
    bounded = LocalLauncher(local.home / "bounded", cores=2)
    first, second = cpus(bounded, "c.main-1"), cpus(bounded, "d.main-1")
    assert (len(first), len(second), first & second) == (1, 1, set())
    bounded.kill("c.main-1")
    local.until(bounded, "c.main-1", lambda seen: seen.state in ("exited", "gone"))
    assert cpus(LocalLauncher(local.home / "bounded", cores=2), "e.main-1") == first, "what has become free goes to the next, by whomever"
    for launcher, workers in ((unbounded, "a"), (over, "b"), (bounded, "de")):
        for worker in workers:
            launcher.kill(f"{worker}.main-1")
