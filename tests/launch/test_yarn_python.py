"""A Python for workers in YARN that is an archive: what is refused, and what is in a real HDFS and used by a real YARN."""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from launch_benches import SMALL, until
from packed_python import pack_python

from harness.yarn_plane import YarnControl, numbers_flow, parts_in
from scribengin.cli.main import main
from scribengin.core.errors import EnvironmentFault
from scribengin.core.process import within
from scribengin.embedded.zookeeper import ZooKeeper
from scribengin.launch.contract import LaunchOrder
from scribengin.launch.yarn import YarnLauncher, outcome_of
from scribengin.launch.yarn_cluster import Application, ResourceManagers, YarnCluster, yarn_user
from scribengin.launch.yarn_python import UNUSED_S, PythonArchive, PythonStore
from scribengin.spark.failures import classify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scribengin.connectors.hdfs.path import HdfsPath
    from scribengin.embedded.yarn import Yarn

PROGRAM = Path(__file__).with_name("python_program.py")
WITHIN_S = 240.0
SITE = "lib/python3.12/site-packages"
WHOLE = {
    "bin/python": "#!",
    f"{SITE}/pyspark/__init__.py": "",
    f"{SITE}/pyspark/jars/spark-core.jar": "",
    f"{SITE}/pyspark-{version('pyspark')}.dist-info/METADATA": "",
    f"{SITE}/scribengin/__init__.py": "",
}


def made(path: Path, content: Mapping[str, str], links: Mapping[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path


def without(name: str) -> dict[str, str]:
    return {each: text for each, text in WHOLE.items() if not each.startswith(name)}


def test_an_archive_is_known_by_its_content_and_says_where_its_python_is(tmp_path: Path) -> None:
    found = PythonArchive.read(made(tmp_path / "one.tar.gz", WHOLE))
    assert (found.python, found.minor, found.target) == ("./python/bin/python", 12, "")
    assert found.spark_home == f"{{{{PWD}}}}/python/{SITE}/pyspark"
    assert found.name == f"{sha256((tmp_path / 'one.tar.gz').read_bytes()).hexdigest()}.tar.gz"
    (tmp_path / "copy.tgz").write_bytes((tmp_path / "one.tar.gz").read_bytes())
    assert PythonArchive.read(tmp_path / "copy.tgz").tag == found.tag
    other = PythonArchive.read(made(tmp_path / "other.tar.gz", {**WHOLE, "more": "1"}))
    assert (other.digest != found.digest, other.tag != found.tag) == (True, True)


def test_an_archive_may_have_a_folder_above_and_links(tmp_path: Path) -> None:
    """So are those of python-build-standalone; `./` stands before each name if the folder itself was packed."""
    inside = {f"./python/{name}": text for name, text in without("bin/").items()} | {"./python/bin/python3.12": "#!"}
    path = made(tmp_path / "a.tar.gz", inside, {"./python/bin/python": "python3", "./python/bin/python3": "../bin/python3.12"})
    found = PythonArchive.read(path)
    assert (found.python, found.target) == ("./python/python/bin/python", "")
    assert found.spark_home == f"{{{{PWD}}}}/python/python/{SITE}/pyspark"


def test_the_python_of_a_packed_venv_is_that_of_the_hosts(tmp_path: Path) -> None:
    path = made(tmp_path / "a.tar.gz", without("bin/"), {"bin/python": "python3", "bin/python3": "/usr/bin/python3.12"})
    assert PythonArchive.read(path).target == "/usr/bin/python3.12"


@pytest.mark.parametrize(
    ("content", "links", "said", "remedy"),
    [
        (without("bin/"), {}, "has no bin/python", "pack a Python that can be moved"),
        (without("bin/"), {"bin/python": "python3.12"}, "is a link to bin/python3.12, which is not in the archive", "pack a Python"),
        (without("bin/"), {"bin/python": "python3", "bin/python3": "python"}, "which is not in the archive", "pack a Python"),
        (without(f"{SITE}/pyspark"), {}, "has no pyspark", f"pip install 'pyspark=={version('pyspark')}'"),
        (without(f"{SITE}/scribengin"), {}, "has no scribengin", "pip install 'scribengin[spark]=="),
        (without(f"{SITE}/pyspark/jars"), {}, "a pyspark without jars", "pip install"),
        (
            {**without(f"{SITE}/pyspark-"), f"{SITE}/pyspark-3.0.1.dist-info/METADATA": ""},
            {},
            f"has pyspark 3.0.1, and this machine {version('pyspark')}",
            "install the same one there",
        ),
        ({name.replace("3.12", "3.9"): text for name, text in WHOLE.items()}, {}, "has Python 3.9", "Python 3.11 or newer"),
    ],
)
def test_an_archive_with_which_no_worker_could_run_is_refused(
    tmp_path: Path, content: dict[str, str], links: dict[str, str], said: str, remedy: str
) -> None:
    with pytest.raises(EnvironmentFault, match=re.escape(said)) as caught:
        PythonArchive.read(made(tmp_path / "a.tar.gz", content, links))
    assert remedy in caught.value.remedy
    assert caught.value.code == "yarn-python-archive"


@pytest.mark.parametrize("end", [0, 40], ids=["empty", "cut off"])
def test_a_file_that_is_not_a_complete_archive_is_refused(tmp_path: Path, end: int) -> None:
    whole = made(tmp_path / "whole.tar.gz", WHOLE).read_bytes()
    (tmp_path / "a.tar.gz").write_bytes(whole[:end])
    with pytest.raises(EnvironmentFault, match="cannot be read"):
        PythonArchive.read(tmp_path / "a.tar.gz")
    (tmp_path / "a.zip").write_bytes(whole)
    with pytest.raises(EnvironmentFault, match=r"is not a \.tar\.gz"):
        PythonArchive.read(tmp_path / "a.zip")


@pytest.mark.parametrize("file_system", ["", "s3a://bucket", "file:///"])
def test_an_archive_needs_an_hdfs(file_system: str) -> None:
    with pytest.raises(EnvironmentFault, match="needs an HDFS") as caught:
        PythonStore(file_system, "ann", ("http://rm:8088",))
    assert "--yarn-python" in caught.value.remedy


def test_two_clusters_with_one_hdfs_have_folders_of_their_own() -> None:
    one, other = (PythonStore("hdfs://n:8020/", "ann", (web,)).folder for web in ("http://a:8088", "http://b:8088"))
    assert (str(one).startswith("hdfs://n:8020/user/ann/.scribengin/python-"), one != other) == (True, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--launcher", "yarn", "--yarn-python", "/usr/bin/python3"], "give one of them"),
        (["--launcher", "yarn", "--yarn-mode", "client"], "--yarn-python-archive needs --yarn-mode cluster"),
        (["--launcher", "local"], "--yarn-python-archive needs --launcher yarn"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = made(tmp_path / "a.tar.gz", WHOLE)
    conf = ["--yarn-conf", str(tmp_path)] if "yarn" in words else []
    all_words = ["server", "node", "--registry", "zk://127.0.0.1:1/x", "--insecure", "--yarn-python-archive", str(archive), *conf, *words]
    with pytest.raises(SystemExit) as ended:
        main(all_words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("error", [2, 8, 13])
def test_a_host_that_cannot_start_the_packed_python_is_told(error: int) -> None:
    ended = Application(
        "application_1_1", "w", "FINISHED", "FAILED", f'java.io.IOException: Cannot run program "./python/bin/python": error={error}, x'
    )
    status, reason = outcome_of(ended, None)
    assert status == 127
    assert "cannot start bin/python of the Python archive" in reason
    assert "pack a Python that can be moved" in reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with "
            "different minor versions.",
            "the executors have Python 3.12, and the driver has 3.11",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/python": error=2, No such file',
            "a host of the executors cannot start /opt/python",
        ),
    ],
)
def test_executors_without_the_python_of_the_driver_are_told(text: str, said: str) -> None:
    error, fate = classify(RuntimeError(f"Job aborted due to stage failure\norg.apache.spark.api.python.PythonException: {text}"))
    assert (error.message, error.code, fate) == (said, "executor-python", "permanent")
    assert "--yarn-python-archive" in error.remedy


def test_a_machine_without_memory_for_a_python_is_not_one_without_python() -> None:
    error, _ = classify(RuntimeError('java.io.IOException: Cannot run program "/opt/python": error=12, Cannot allocate memory'))
    assert error.code != "executor-python"


# --- with a real YARN and HDFS ---


@pytest.fixture
def store(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> PythonStore:
    """The archives of a user of this test."""
    return PythonStore(yarn.hdfs.uri, yarn_user(), ("http://of-this-test",))


def marks(store: PythonStore, archive: PythonArchive) -> list[str]:
    """The marks of the users of an archive."""
    return [name for name in store.folder.entries() if name.startswith(archive.digest) and name.endswith(".used")]


def aged(path: HdfsPath, by_s: float) -> None:
    """Let a file seem older."""
    seen = path.probe()
    assert seen is not None
    at_ms = int((seen.modified_s - by_s) * 1000)
    path._asked(lambda raw: raw.set_times(path.inside, at_ms, at_ms), "failed to change")


def test_an_archive_is_uploaded_once_and_whole(store: PythonStore, yarn: Yarn, tmp_path: Path) -> None:
    archive = PythonArchive.read(made(tmp_path / "a.tar.gz", {**WHOLE, "once": ""}))
    stores = [PythonStore(yarn.hdfs.uri, yarn_user(), ("http://of-this-test",)) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        at_once = [*pool.map(lambda each: each.put(archive), stores)]
    assert {str(place) for place, _ in at_once} == {str(store.folder / archive.name)}
    assert store.put(archive)[1] is False, "it is there already"
    assert (store.folder / archive.name).read_bytes() == archive.path.read_bytes()
    mine = [name for name in store.folder.entries() if archive.digest in name and not name.endswith(".used")]
    assert mine == [archive.name], "no draft is left"


def test_a_killed_upload_is_not_taken_for_whole(store: PythonStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = PythonArchive.read(made(tmp_path / "a.tar.gz", {**WHOLE, "killed": ""}))

    class Killed(BaseException):
        """The process ends: nothing behind it is executed."""

    def killed(*_: object, **__: object) -> None:
        raise Killed

    kind = type(store.folder)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "move", killed)
        patch.setattr(kind, "remove", killed)
        with pytest.raises(Killed):
            store.put(archive)
    drafts = [name for name in store.folder.entries() if name.startswith(f".{archive.name}")]
    assert len(drafts) == 1
    assert (store.folder / archive.name).probe() is None
    assert store.put(archive)[1] is True
    aged(store.folder / drafts[0], UNUSED_S + 60)
    store.clean(quiet_managers(monkeypatch), archive.digest)
    assert drafts[0] not in store.folder.entries()


def test_a_file_that_changes_while_it_is_uploaded_is_refused(store: PythonStore, tmp_path: Path) -> None:
    archive = PythonArchive.read(made(tmp_path / "a.tar.gz", {**WHOLE, "changes": ""}))
    data = bytearray(archive.path.read_bytes())
    data[-1] ^= 1
    archive.path.write_bytes(data)
    with pytest.raises(EnvironmentFault, match="has changed since it was read"):
        store.put(archive)
    assert (store.folder / archive.name).probe() is None


def quiet_managers(monkeypatch: pytest.MonkeyPatch, *live: str) -> ResourceManagers:
    """ResourceManagers whose live applications have these tags."""
    managers = ResourceManagers(["http://of-this-test"])
    monkeypatch.setattr(managers, "check_active", lambda: None)
    monkeypatch.setattr(managers, "tagged", lambda tag: [Application("a", "w", "RUNNING")] * (tag in live))
    return managers


def test_what_nothing_uses_is_deleted_a_day_after_its_last_use(
    store: PythonStore, yarn: Yarn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, unused, live, fresh, marked = (
        PythonArchive.read(made(tmp_path / f"{name}.tar.gz", {**WHOLE, name: ""})) for name in ("new", "unused", "live", "fresh", "marked")
    )
    for archive in (unused, live, fresh, marked, new):
        store.put(archive)
    for archive in (unused, live, marked, new):
        aged(store.folder / archive.name, UNUSED_S + 60)
    for archive in (unused, live):
        (mark,) = marks(store, archive)
        aged(store.folder / mark, UNUSED_S + 60)
    removed = store.clean(quiet_managers(monkeypatch, live.tag), new.digest)
    assert [name for name in removed if not name.endswith(".used")] == [unused.name]
    assert (marks(store, unused), marks(store, live), len(marks(store, marked))) == ([], [], 1)
    kept = store.folder.entries()
    assert all(each.name in kept for each in (new, live, fresh, marked))
    again = PythonStore(yarn.hdfs.uri, yarn_user(), ("http://of-this-test",))
    again.put(new)
    assert again.clean(quiet_managers(monkeypatch), new.digest) == [live.name], "its application has ended"


def test_nothing_is_deleted_if_yarn_does_not_tell(store: PythonStore, tmp_path: Path) -> None:
    new, unused = (PythonArchive.read(made(tmp_path / f"{name}.tar.gz", {**WHOLE, name: "silent"})) for name in ("new", "unused"))
    store.put(unused)
    store.put(new)
    for name in (unused.name, *marks(store, unused)):
        aged(store.folder / name, UNUSED_S + 60)
    assert store.clean(ResourceManagers(["http://127.0.0.1:1"]), new.digest) == []
    assert (store.folder / unused.name).probe() is not None


def order(folder: Path, worker: str, *words: str) -> LaunchOrder:
    argv = (sys.executable, str(PROGRAM), str(folder / f"{worker}.diary"), *words)
    return LaunchOrder(worker, argv, memory_bytes=512 * 2**20, spark=SMALL)


@pytest.fixture
def cluster(yarn: Yarn, monkeypatch: pytest.MonkeyPatch) -> YarnCluster:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return YarnCluster.of(yarn.conf)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_driver_and_executors_run_with_what_is_in_the_archive(cluster: YarnCluster, tmp_path: Path) -> None:
    archive = PythonArchive.read(pack_python(tmp_path / "packed.tar.gz", "pyspark", "scribengin"))
    packed = replace(cluster, archive=archive, python=archive.python)
    launcher, worker = YarnLauncher(tmp_path / "node", packed), "tweets.main-1"
    assert launcher.ship() == (f"{PythonStore(cluster.file_system, yarn_user(), cluster.web).folder}/{archive.name}", True)
    launcher.start(order(tmp_path, worker, "stay"))
    try:
        diary = tmp_path / f"{worker}.diary"
        assert within(WITHIN_S, diary.exists), [Path(path).read_text()[-2000:] for path in launcher.logs(worker)]
        about = json.loads(diary.read_text())
        for role in ("driver", "executor"):
            assert about[role]["prefix"].endswith("/python"), about
            assert about[role]["scribengin"].startswith(f"{about[role]['prefix']}/lib/"), about
        assert about["driver"]["prefix"] != about["executor"]["prefix"], "each container has unpacked its own, or a link to it"
        assert about["core"], about
        assert all("/python/lib/" in each for each in about["core"]), about
        (application,) = ResourceManagers(cluster.web).tagged(archive.tag)
        assert (application.name, application.is_live) == (worker, True)
        # it is the newest, and used by a live application: another launcher with another archive does not delete it
        folder = PythonStore(cluster.file_system, yarn_user(), cluster.web).folder
        for name in (name for name in folder.entries() if archive.digest in name):
            aged(folder / name, UNUSED_S + 60)
        other = PythonArchive.read(made(tmp_path / "other.tar.gz", WHOLE))
        second = YarnLauncher(tmp_path / "other", replace(cluster, archive=other, python=other.python))
        assert second.ship()[1] is True
        assert (folder / archive.name).probe() is not None
    finally:
        launcher.kill(worker)
        until(launcher, worker, lambda seen: seen.is_over)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_archive_whose_python_is_not_on_the_hosts_is_told(cluster: YarnCluster, tmp_path: Path) -> None:
    path = pack_python(tmp_path / "packed.tar.gz", "pyspark", "scribengin", program="/no/such/python")
    archive = PythonArchive.read(path)
    launcher, worker = YarnLauncher(tmp_path / "node", replace(cluster, archive=archive, python=archive.python)), "tweets.main-1"
    launcher.start(order(tmp_path, worker))
    seen = until(launcher, worker, lambda seen: seen.is_over)
    assert seen.status == 127
    assert "its host cannot start bin/python of the Python archive: it is made for another system, or a link" in seen.reason


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_flow_runs_with_an_archive_alone(yarn: Yarn, tmp_path: Path) -> None:
    """What a worker needs is in the archive, and nothing of it is found by this machine's PYTHONPATH."""
    wanted = ("scribengin", "pyspark", "pyarrow", "prometheus-client", "backports.zstd", "fastapi", "kazoo", "uvicorn", "hdfs-native")
    path = pack_python(tmp_path / "packed.tar.gz", *wanted)
    folder = tmp_path / "plane"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "0.jsonl").write_text("".join(f'{{"id": {n}}}\n' for n in range(100)))
    (folder / "flow.yaml").write_text(numbers_flow("packed", folder / "data", f"{yarn.hdfs.uri}/packed"))
    with (
        ZooKeeper(tmp_path / "zookeeper") as keeper,
        YarnControl(folder, yarn, keeper, node=("--yarn-python-archive", str(path))) as plane,
    ):
        plane.start_control()
        plane.apply("flow.yaml")
        plane.wait_for(lambda: len(parts_in(f"{yarn.hdfs.uri}/packed")) > 0, "the rows")
        found = [json.loads(line)["id"] for part in parts_in(f"{yarn.hdfs.uri}/packed") for line in part.read_bytes().splitlines()]
        assert sorted(found) == list(range(1, 100, 2))
        (application,) = ResourceManagers([yarn.uri]).tagged(PythonArchive.read(path).tag)
        assert application.name.startswith("packed.")
        assert b"Python archive of the workers: hdfs://" in (folder / "node.log").read_bytes()
        plane.wait_for(lambda: plane.says("stop", "packed", "--wait") is not None, "the end of the flow")
