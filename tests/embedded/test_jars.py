"""The table of jars, and how they come into the cache: by the real Ivy, from a folder of this machine that stands for the network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from harness.pin_jars import pinned
from scribengin.cli.main import main
from scribengin.core.errors import EnvironmentFault
from scribengin.embedded import jars
from scribengin.embedded.jars import IVY_SETTINGS, Jar, fetch, jars_folder, jars_of, missing, set_names
from tests.plugins.remedies import mentions

if TYPE_CHECKING:
    from pathlib import Path

SET = "spark-kafka"
_SETTINGS = """<ivysettings><settings defaultResolver="here"/><resolvers>
<filesystem name="here" m2compatible="true">
<ivy pattern="{folder}/[organisation]/[module]/[revision]/[module]-[revision].pom"/>
<artifact pattern="{folder}/[organisation]/[module]/[revision]/[artifact]-[revision].[ext]"/>
</filesystem></resolvers></ivysettings>"""
_POM = "<project><modelVersion>4.0.0</modelVersion><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></project>"
_NOWHERE = "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=1 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1"


@pytest.fixture(scope="module")
def fetched() -> list[Path]:
    return fetch(SET)


@pytest.fixture
def repository(fetched: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Ivy takes jars from, and nothing but it; the cache is empty."""
    folder = tmp_path / "repository"
    for jar, path in zip(jars_of(SET), fetched, strict=True):
        group, artifact, number = jar.coordinate.split(":")
        place = folder / group.replace(".", "/") / artifact / number
        place.mkdir(parents=True)
        (place / f"{artifact}-{number}.pom").write_text(_POM.format(group, artifact, number))
        (place / jar.file_name).write_bytes(path.read_bytes())
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(_SETTINGS.format(folder=folder))
    monkeypatch.setenv(IVY_SETTINGS, str(settings))
    monkeypatch.setenv("SCRIBENGIN_CACHE", str(tmp_path / "cache"))
    return folder


def test_every_set_pins_each_jar_once_and_whole() -> None:
    servers = ["postgres-jdbc", "opensearch", "elasticsearch", "cassandra", "hbase", "delta-spark", "hdfs"]
    assert set_names() == ["kafka-broker", SET, *servers, "hadoop-aws", "aws-s3", "yarn", "kdc"]
    for name in set_names():
        pinned = jars_of(name)
        assert len({jar.file_name for jar in pinned}) == len(pinned)
        for jar in pinned:
            assert re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+(@zip)?", jar.coordinate)
            assert re.fullmatch(r"[0-9a-f]{64}", jar.sha256)


def test_one_name_in_the_cache_is_one_content() -> None:
    contents: dict[str, set[str]] = {}
    for name in set_names():
        for jar in jars_of(name):
            contents.setdefault(jar.file_name, set()).add(jar.sha256)
    assert all(len(digests) == 1 for digests in contents.values())


def test_what_a_set_was_made_from_is_in_it() -> None:
    table = json.loads((jars.files("scribengin.embedded") / "jars.json").read_text())
    for sets in table.values():
        for one in sets.values():
            assert set(one["asked"]) <= one["jars"].keys()


def test_jars_are_fetched_once_and_then_taken_from_the_cache(repository: Path) -> None:
    said: list[str] = []
    assert [jar.file_name for jar in missing(SET)] == [jar.file_name for jar in jars_of(SET)]
    paths = fetch(SET, said.append)
    assert said == [f"fetching 4 jars into {jars_folder()}"]
    assert not missing(SET)
    assert fetch(SET, said.append) == paths
    assert len(said) == 1
    assert sorted(path.name for path in jars_folder().iterdir()) == sorted([f"lock-{SET}", *(path.name for path in paths)])


def test_a_damaged_jar_in_the_cache_is_fetched_anew(repository: Path) -> None:
    damaged, *others = fetch(SET)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    untouched = [path.stat().st_mtime_ns for path in others]
    said: list[str] = []
    fetch(SET, said.append)
    assert said == [f"fetching 1 jars into {jars_folder()}"]
    assert not missing(SET)
    assert [path.stat().st_mtime_ns for path in others] == untouched


def test_a_jar_that_comes_with_another_content_is_refused_and_the_others_are_kept(repository: Path) -> None:
    jar = jars_of(SET)[0]
    next(repository.rglob(jar.file_name)).write_bytes(b"something else")
    with pytest.raises(EnvironmentFault, match="came with") as caught:
        fetch(SET)
    assert jar.sha256 in caught.value.message
    assert missing(SET) == [jar]
    assert not (jars_folder() / jar.file_name).exists()


def test_two_processes_that_fetch_at_once_both_have_all_and_one_of_them_fetched(repository: Path) -> None:
    program = f"from scribengin.embedded.jars import fetch, missing; fetch({SET!r}, print); assert not missing({SET!r})"
    running = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [child.communicate()[0] for child in running]
    assert [child.returncode for child in running] == [0, 0]
    assert sum("fetching" in text for text in said) == 1


def test_without_a_network_the_missing_files_their_folder_and_the_command_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIBENGIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", _NOWHERE)
    with pytest.raises(EnvironmentFault) as caught:
        fetch(SET)
    for jar in jars_of(SET):
        assert f"{jar.file_name} (SHA-256 {jar.sha256})" in caught.value.message
    assert f"into {tmp_path / 'cache' / 'jars'}" in caught.value.remedy
    assert "scribengin dev-jars fetch spark-kafka" in caught.value.remedy
    assert "Connection refused" in caught.value.message
    assert caught.value.code == "jars-missing"


@pytest.mark.executes("jars-missing")
def test_jars_that_could_not_be_fetched_are_fetched_by_the_command_once_there_is_a_network(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as away:
        away.delenv(IVY_SETTINGS)
        away.setenv("JAVA_TOOL_OPTIONS", _NOWHERE)
        with pytest.raises(EnvironmentFault) as caught:
            fetch(SET)
    [mention] = mentions(caught.value.remedy)
    with pytest.raises(SystemExit) as ended:
        main(list(mention.words))
    assert ended.value.code == 0
    assert not missing(SET)


def test_files_that_a_person_put_into_the_cache_serve(fetched: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIBENGIN_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", _NOWHERE)
    jars_folder().mkdir()
    for path in fetched:
        (jars_folder() / path.name).write_bytes(path.read_bytes())
    assert fetch(SET) == [jars_folder() / path.name for path in fetched]


def test_pinning_again_gives_what_is_pinned(repository: Path) -> None:
    asked = [jar.coordinate for jar in jars_of(SET)]
    assert pinned(asked, with_dependencies=False) == {jar.coordinate: jar.sha256 for jar in jars_of(SET)}


def test_a_pyspark_that_the_table_does_not_know_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "version", lambda _name: "3.5.1")
    with pytest.raises(EnvironmentFault, match=r"no jars are known for PySpark 3\.5; supported are 4\.2"):
        set_names()


def test_the_name_of_a_jar_in_the_cache_is_the_usual_one() -> None:
    assert Jar("org.apache.kafka:kafka_2.13:4.3.1", "").file_name == "kafka_2.13-4.3.1.jar"
