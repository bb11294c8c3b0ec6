"""What chooses the tests, has their servers there, orders them, and tells of them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scribengin.core.errors import EnvironmentFault
from tests.plugins import provision
from tests.plugins.measure import slow_tests
from tests.plugins.order import shuffled
from tests.plugins.progress import alone
from tests.plugins.selection import (
    LIGHT,
    LONGEST,
    NEEDS,
    NEEDS_BY_FIXTURE,
    NEEDS_BY_VALUE,
    SLOW,
    STORES,
    TESTS,
    is_of_part,
    may_be_rest,
    needs_of,
    places,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


_STARTS = {
    "Cassandra": "cassandra",
    "Elasticsearch": "elasticsearch",
    "HBase": "hbase",
    "Hdfs": "hdfs",
    "KafkaCluster": "kafka",
    "OpenSearch": "opensearch",
    "Postgres": "postgres",
    "or_skipped": "objects",
}
"""what a test calls to have a server → the need"""


def test_each_place_and_each_test_of_the_tables_is_there() -> None:
    for place in (*NEEDS, *NEEDS_BY_FIXTURE, *NEEDS_BY_VALUE, *LONGEST):
        assert (TESTS / place).exists(), place
    for test in SLOW - {""}:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (TESTS / file).read_text(), test
    assert set(provision.JARS) | set(provision.OTHERS) == set(STORES) >= LIGHT


def test_a_test_that_starts_a_server_is_told_to_need_it() -> None:
    for file in TESTS.glob("**/test_*.py"):
        started = {_STARTS[name] for name in re.findall(r"\b(\w+)\(", file.read_text()) if name in _STARTS}
        by_fixture = {need for place in places(file) for need in NEEDS_BY_FIXTURE.get(place, {}).values()}
        if file != Path(__file__):
            assert started <= needs_of(file, (), {}) | by_fixture, file


def test_needs_come_by_place_by_fixture_and_by_value() -> None:
    rolling = TESTS / "connectors" / "objects" / "test_rolling.py"
    assert needs_of(rolling, (), {}) == frozenset()
    assert needs_of(rolling, ("hdfs",), {}) == {"hdfs"}
    assert needs_of(rolling, ("at",), {"at": "s3-listing"}) == {"objects"}
    assert needs_of(TESTS / "connectors" / "kafka" / "test_sink.py", (), {}) == {"kafka"}
    index = TESTS / "connectors" / "opensearch" / "test_sink.py"
    assert [needs_of(index, ("server",), {"server": name}) for name in ("opensearch", "elasticsearch")] == [
        {"opensearch"},
        {"elasticsearch"},
    ]


def test_a_file_that_has_a_test_of_a_store_or_a_slow_one_is_collected_for_the_rest() -> None:
    slow = TESTS / next(test for test in sorted(SLOW) if test.startswith("spark/")).partition("::")[0]
    assert may_be_rest(slow)
    assert may_be_rest(TESTS / "docs" / "test_store_pages.py")
    assert may_be_rest(TESTS / "connectors" / "objects" / "test_rolling.py"), "some of its tests, by their fixture or a value"
    assert may_be_rest(TESTS / "connectors" / "plain" / "test_spark_sink.py"), "by a marker"
    assert not may_be_rest(TESTS / "core" / "test_java.py")


def test_each_file_is_of_one_part_and_what_is_no_part_is_told() -> None:
    files = sorted(TESTS.rglob("test_*.py"))
    parts = [[file for file in files if is_of_part(file, f"{number}/4")] for number in range(1, 5)]
    assert sorted(file for part in parts for file in part) == files
    assert min(map(len, parts)) > len(files) / 8
    assert all(is_of_part(file, None) for file in files)
    for wrong in ("0/4", "5/4", "4", "a/4", "1/0"):
        with pytest.raises(pytest.UsageError, match="write K/N, such as 1/4"):
            is_of_part(files[0], wrong)


def test_what_cannot_be_had_is_named_with_its_remedy_and_the_rest_is_had(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(name: str, tell: provision.Tell) -> Sequence[Path]:
        if name == provision.JARS["hbase"][0]:
            raise EnvironmentFault("no network", remedy="plug it in", code="jars-missing")
        tell("fetching 1 jars")
        fetched.append(name)
        return []

    monkeypatch.setattr(provision, "fetch", fetch)
    said: list[str] = []
    assert provision.provide(["hbase", "s3a"], said.append) == {"hbase": "no network; plug it in"}
    assert fetched == ["hadoop-aws", "aws-s3"]
    assert said == ["hadoop-aws: fetching 1 jars", "aws-s3: fetching 1 jars", "s3a is there, after 0 s"]


def test_a_random_order_is_the_same_for_its_number_and_keeps_files_together(request: pytest.FixtureRequest) -> None:
    items = request.session.items
    first, again, other = shuffled(items, 1), shuffled(items[::-1], 1), shuffled(items, 2)
    assert first == again
    assert sorted(item.nodeid for item in first) == sorted(item.nodeid for item in items)
    assert len(items) < 4 or first != other
    files = [item.path for number, item in enumerate(first) if not number or first[number - 1].path != item.path]
    assert len(files) == len(set(files))


def test_the_report_of_a_run_tells_which_tests_are_slow(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    cases = [("tests.local.test_acks", "test_a[1]", 4), ("tests.local.test_acks", "test_a[2]", 4), ("tests.spec.test_x.TestY", "test_b", 9)]
    lines = [f'<testcase classname="{place}" name="{name}" time="{took_s}"/>' for place, name, took_s in cases]
    report.write_text(f"<testsuites>{''.join(lines)}<testcase classname='tests.spec.test_x' name='test_c' time='1'/></testsuites>")
    assert slow_tests(report) == ["local/test_acks.py::test_a", "spec/test_x.py::test_b"]


def test_a_failing_test_says_which_command_runs_it_alone(tmp_path: Path) -> None:
    assert shlex.split(alone("tests/a.py::test_b[it's $HOME]"))[-3:] == ["-m", "", "tests/a.py::test_b[it's $HOME]"]
    (tmp_path / "test_it.py").write_text("import pytest\n\n@pytest.mark.parametrize('x', ['a b'])\ndef test_it(x):\n    assert x == 1\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.plugins.progress", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    ran = subprocess.run([*command, str(tmp_path)], cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert ".venv/bin/python -m pytest -n0 -m '' 'test_it.py::test_it[a b]'" in ran.stdout, ran.stdout
    assert "1 failed" in ran.stdout.splitlines()[-1]
